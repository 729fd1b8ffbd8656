"""Addresses that people click: they are configured, and checked before the service starts."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from catalog.config import Config
from detectors.service.incident import Incident


class LinkError(Exception):
    """A base address can't be used; one line with the remedy."""


@dataclass(frozen=True)
class Links:
    """Base addresses without a slash at the end.

    Attributes:
        board: Where people reach this service.
        grafana: Where people reach Grafana; empty for no links to it.
        prometheus: Where people reach Prometheus, without credentials.
    """

    board: str
    grafana: str
    prometheus: str

    @classmethod
    def of(cls, config: Config) -> Links:
        """Return the links of a configuration.

        Raises:
            LinkError: A base address is no http address.
        """
        service = config.service
        for url in config.alertmanager.urls:
            _base("alertmanager.urls", url)
        board = service.external_url or f"http://{service.listen}"
        return cls(
            board=_base("service.external_url", board),
            grafana=_base("service.grafana_url", service.grafana_url),
            prometheus=_base("prometheus.url", config.prometheus.url),
        )

    def finding(self, key: str) -> str:
        """Return the page of a finding."""
        return f"{self.board}/findings/{quote(key)}"

    def runbook(self, alert: str) -> str:
        """Return the page of an alert's runbook."""
        return f"{self.board}/runbooks/{quote(alert)}"

    def dashboard(self, incident: Incident) -> str:
        """Return Grafana's fleet dashboard for the incident's place and time; empty without one."""
        if not self.grafana:
            return ""
        places = {f"var-{k}": v for k, v in incident.labels.items()}
        span = {"from": str(int((incident.since - 3600) * 1000)), "to": "now"}
        return f"{self.grafana}/d/leadline-fleet?{urlencode({**places, **span})}"


def _base(key: str, url: str) -> str:
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise LinkError(f"{key}: {url!r} is no http address (http://host:port)")
    # Credentials of an address never go into a notification.
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
