"""Writes prometheus.yml: what to scrape, the rules, and where alerts go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml


@dataclass(frozen=True)
class Job:
    """One scrape job of fixed targets, each `host:port`."""

    name: str
    targets: Sequence[str]
    labels: Mapping[str, str] = field(default_factory=dict)
    interval: str | None = None


def write_prometheus(
    path: Path,
    jobs: Sequence[Job],
    *,
    rules: Sequence[Path | str] = (),
    alertmanagers: Sequence[str] = (),
    interval: str = "15s",
) -> Path:
    """Write prometheus.yml; `alertmanagers` are base URLs, `rules` files or globs."""
    content: dict[str, object] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": [_scrape(job, interval) for job in jobs],
    }
    if rules:
        content["rule_files"] = [str(rule) for rule in rules]
    if alertmanagers:
        content["alerting"] = {"alertmanagers": [_alertmanager(url) for url in alertmanagers]}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def _scrape(job: Job, interval: str) -> dict[str, object]:
    static: dict[str, object] = {"targets": list(job.targets)}
    if job.labels:
        static["labels"] = dict(job.labels)
    every = job.interval or interval
    # A timeout above the interval is an error; without one, short intervals would need it.
    return {"job_name": job.name, "scrape_interval": every, "static_configs": [static]}


def _alertmanager(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    return {
        "scheme": parts.scheme,
        "path_prefix": parts.path or "/",
        "static_configs": [{"targets": [parts.netloc]}],
    }
