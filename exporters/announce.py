"""Says in the log which servers are read: nobody has to guess from what is not on the page."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from catalog.address import printable
from exporters.targets.instances import Instance

MAX_NAMED: Final = 16
_LONGEST: Final = 2000
_NONE: Final = "no vLLM server found in the process table, and none named: see docs/targets.md"
_UNKNOWN: Final = "servers of an unknown pool are not judged: see runbooks/LeadlinePoolUnknown.md"
log = logging.getLogger("leadline.exporters")


class Announcer:
    """Logs the servers and programs of a scrape, where they differ from those of the last."""

    def __init__(self) -> None:
        self._said: list[str] | None = None

    def tell(self, listed: Iterable[Instance]) -> None:
        """Log a line if a server came, went or is something else now."""
        listed = list(listed)
        now = sorted(_line(one) for one in listed)
        if now == self._said:
            return
        self._said = now
        if not now:
            log.info(_NONE)
            return
        more = f" and {len(now) - MAX_NAMED} more" if len(now) > MAX_NAMED else ""
        log.info("reading %s%s", printable(", ".join(now[:MAX_NAMED]), _LONGEST), more)
        if any(one.kind == "vllm" and one.labels.get("pool") == "unknown" for one in listed):
            log.warning(_UNKNOWN)


def _line(one: Instance) -> str:
    what = one.labels.get("pool", "") if one.kind == "vllm" else one.kind
    where = one.labels.get("deployment", "")
    return f"{one.server} ({what} of {where})" if where else f"{one.server} ({what})"
