"""The HTTP side: API with OpenAPI, the board, runbooks, metrics and health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from catalog.address import bare_url
from catalog.labels import Pool
from catalog.signals import SIGNALS
from detectors.finding import Finding, Kind, Severity, State
from detectors.service import board, metrics, runbook
from detectors.service.models import (
    FindingOut,
    IncidentOut,
    LifeOut,
    PeerOut,
    ProblemOut,
    SeriesOut,
    SignalOut,
    StatusOut,
)
from detectors.service.snapshot import Snapshot
from detectors.service.track import Tracked
from detectors.service.view import View

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_STATIC: Final = Path(__file__).parent / "static"
_NOT_FOUND: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ProblemOut}}


def release() -> str:
    """Return the installed version."""
    try:
        return version("leadline")
    except PackageNotFoundError:
        return "unknown"


def create(view: View) -> FastAPI:
    """Return the application over *view*."""
    # The interactive documentation pages load scripts from elsewhere: not here.
    app = FastAPI(
        title="Leadline",
        summary="Slow drifts of disaggregated vLLM fleets, and the time left.",
        version=release(),
        docs_url=None,
        redoc_url=None,
    )

    @app.middleware("http")
    async def harden(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Add the headers that keep a page from loading or running anything else."""
        head = request.method == "HEAD"  # answered as GET is; the server leaves the body out
        if head:
            request.scope["method"] = "GET"
        response = await call_next(request)
        if head:
            request.scope["method"] = "HEAD"
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    app.include_router(_findings(view))
    app.include_router(_service(view))
    app.include_router(_pages(view))
    app.include_router(_health(view))
    return app


def _findings(view: View) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["findings"])

    @router.get("/findings")
    def findings(
        state: Annotated[State | None, Query(description="Default: all that are not over.")] = None,
        kind: Kind | None = None,
        severity: Severity | None = None,
        pool: Pool | None = None,
        deployment: str | None = None,
        signal: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> list[FindingOut]:
        """Return findings, the soonest breach first."""
        wanted = {"kind": kind, "severity": severity, "signal": signal}
        labels = {"pool": pool, "deployment": deployment}
        found = [
            finding
            for finding in _all(view)
            if (finding.state == state if state else finding.state != "ended")
            and all(v is None or getattr(finding, k) == v for k, v in wanted.items())
            and all(v is None or finding.labels.get(k, "") == v for k, v in labels.items())
        ]
        return [FindingOut.of(finding) for finding in sorted(found, key=_urgency)[:limit]]

    @router.get("/findings/{key}", responses=_NOT_FOUND)
    def finding(key: str) -> LifeOut:
        """Return one finding with its life."""
        snapshot = view.snapshot()
        one = snapshot.tracked.get(key) or _unknown(snapshot, key)
        if one is None:
            raise _missing(key)
        incident = snapshot.incident_of(key)
        return LifeOut.tracked(one, incident.id if incident else "")

    @router.get("/findings/{key}/series", responses=_NOT_FOUND)
    def series(key: str, points: Annotated[int, Query(ge=1, le=20_000)] = 2000) -> SeriesOut:
        """Return the newest points of a finding's series, and its fit."""
        one = view.snapshot().tracked.get(key)
        if one is None:
            raise _missing(key)
        data = view.series(one.finding)
        if data is None:
            raise HTTPException(404, f"the series of finding {key} is not in memory any more")
        name = one.finding.signal
        unit = SIGNALS[name].unit if name in SIGNALS else ""
        return SeriesOut.of(one.finding, unit, data, points)

    @router.get("/incidents")
    def incidents(
        state: Annotated[State | None, Query(description="Default: all that are not over.")] = None,
    ) -> list[IncidentOut]:
        """Return incidents, the soonest breach first."""
        snapshot = view.snapshot()
        if state is None:
            return [IncidentOut.of(i) for i in snapshot.running()]
        return [IncidentOut.of(i) for i in snapshot.incidents if i.state == state]

    return router


def _service(view: View) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["service"])

    @router.get("/signals")
    def signals() -> list[SignalOut]:
        """Return what is judged, since when, and what is not and why."""
        return [
            SignalOut.of(s, SIGNALS[s.name].title, SIGNALS[s.name].unit)
            for s in view.snapshot().signals
        ]

    @router.get("/status")
    def status() -> StatusOut:
        """Return whether the service itself is well."""
        snapshot = view.snapshot()
        errors = view.alertmanagers.errors
        return StatusOut(
            version=release(),
            started=view.started,
            last_cycle=snapshot.at or None,
            cycle_seconds=snapshot.seconds if snapshot.at else None,
            every=view.config.service.every,
            prometheus=PeerOut(
                url=view.links.prometheus, ok=not snapshot.unread, error=snapshot.unread
            ),
            alertmanagers=[
                PeerOut(url=bare_url(url), ok=url not in errors, error=errors.get(url, ""))
                for url in view.alertmanagers.urls
            ],
            judging=snapshot.broken,
            ledger=snapshot.ledger_error,
            warnings=view.warnings(),
        )

    return router


def _pages(view: View) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @router.get("/")
    def index() -> HTMLResponse:
        """Return the board."""
        return HTMLResponse(board.index(view))

    @router.get("/findings/{key}")
    def finding(key: str) -> HTMLResponse:
        """Return the page of one finding."""
        text = board.finding(view, key)
        return HTMLResponse(text or board.missing(view, f"No finding {key}."), 200 if text else 404)

    @router.get("/runbooks/{alert}")
    def book(alert: str) -> HTMLResponse:
        """Return a runbook."""
        text = runbook.read(alert)
        if text is None:
            return HTMLResponse(board.missing(view, f"No runbook for {alert}."), 404)
        return HTMLResponse(board.runbook(view, alert, text))

    @router.get("/static/board.css")
    def style() -> FileResponse:
        """Return the style sheet."""
        return FileResponse(_STATIC / "board.css", media_type="text/css")

    @router.get("/static/icon.svg")
    def icon() -> FileResponse:
        """Return the icon."""
        return FileResponse(_STATIC / "icon.svg", media_type="image/svg+xml")

    return router


def _health(view: View) -> APIRouter:
    router = APIRouter(default_response_class=PlainTextResponse, tags=["health"])

    @router.get("/metrics", response_class=PlainTextResponse)
    def own() -> Response:
        """Return the service's own metrics."""
        return Response(metrics.page(view.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/healthz", response_class=PlainTextResponse)
    def alive() -> str:
        """Answer while the process lives."""
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse)
    def ready() -> Response:
        """Answer 200 once a cycle has been completed; 503 before, and while judging fails."""
        snapshot = view.snapshot()
        if snapshot.broken:
            return PlainTextResponse(f"judging fails: {snapshot.broken}\n", 503)
        done = snapshot.at > 0
        text = "ready\n" if done else "the first cycle is reading history back\n"
        return PlainTextResponse(text, 200 if done else 503)

    return router


def _all(view: View) -> list[Finding]:
    snapshot = view.snapshot()
    return [one.finding for one in snapshot.tracked.values()] + list(snapshot.unknown)


def _urgency(finding: Finding) -> tuple[bool, float, str]:
    left = finding.time_to_breach
    breach = float("inf") if left is None else finding.as_of + left
    return finding.state != "firing", breach, finding.id


def _unknown(snapshot: Snapshot, key: str) -> Tracked | None:
    """Return a finding of kind unknown, which has no life of its own."""
    found = next((f for f in snapshot.unknown if f.id == key), None)
    return Tracked(found, first=found.as_of, changed=found.as_of) if found else None


def _missing(key: str) -> HTTPException:
    return HTTPException(404, f"no finding {key}")
