"""From our boards to Grafana's schema 41: by grafanalib where it can, lifted where it can't.

grafanalib 0.7.1 writes schema 12: data sources as strings, targets without exemplars, whole numbers
as limits, the heatmap of Grafana 8, and keys that Grafana has long dropped. It builds the board
with its panels, variables and links; then each panel is lifted to what Grafana 11.6 reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards.panel import LEVEL_LEGEND, Board, Panel, Query, Row
from dashboards.variables import DATASOURCE, VARIABLES

SCHEMA: Final = 41
VERSION: Final = "11.6.0"
TAG: Final = "leadline"
SOURCE: Final = {"type": "prometheus", "uid": f"${{{DATASOURCE}}}"}

Json = dict[str, Any]

_PANEL_KEYS: Final = frozenset(
    ("id", "type", "title", "description", "transparent", "gridPos", "links", "options",
     "fieldConfig", "transformations", "collapsed", "panels")
)  # fmt: skip
_BOARD_KEYS: Final = frozenset(
    ("uid", "title", "description", "tags", "timezone", "editable", "time", "refresh", "links",
     "panels", "templating", "annotations")
)  # fmt: skip
_VARIABLE_KEYS: Final = frozenset(
    ("name", "type", "label", "query", "hide", "multi", "includeAll", "allValue", "refresh", "sort",
     "auto", "auto_min", "auto_count")
)  # fmt: skip


def to_grafana(board: Board) -> Json:
    """Return *board* as Grafana's dashboard model of schema 41."""
    text = json.dumps(_dashboard(board).to_json_data(), cls=DashboardEncoder)
    content = {key: value for key, value in json.loads(text).items() if key in _BOARD_KEYS}
    drawn = {panel.id: panel for panel in board.panels}
    return {
        **content,
        "schemaVersion": SCHEMA,
        "version": 1,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "panels": [_lift(panel, drawn.get(panel["id"])) for panel in content["panels"]],
        "templating": {"list": [_lift_variable(v) for v in content["templating"]["list"]]},
    }


def _dashboard(board: Board) -> Any:
    return core.Dashboard(
        uid=board.uid,
        title=board.title,
        description=board.description,
        tags=[TAG],
        timezone="utc",
        refresh="1m",
        time=core.Time("now-24h", "now"),
        panels=list(_layout(board.rows)),
        templating=core.Templating(list=list(_variables())),
        links=[
            core.DashboardLink(
                title="Leadline", tags=[TAG], asDropdown=True, includeVars=True, keepTime=True
            )
        ],
    )


def _variables() -> Iterator[Any]:
    yield core.Template(
        name=DATASOURCE, label="Data source", type="datasource", query="prometheus", hide=0
    )
    for variable in VARIABLES:
        # Any value, none included: labels that a fleet doesn't use are left out.
        yield core.Template(
            name=variable.name, label=variable.label, query=variable.query, refresh=2,
            includeAll=True, multi=True, allValue=".*", dataSource=f"${{{DATASOURCE}}}",
        )  # fmt: skip


def _layout(rows: tuple[Row, ...]) -> Iterator[Any]:
    """Yield grafanalib's panels, each at its place in the grid of 24 columns."""
    y = 0
    for row in rows:
        yield core.RowPanel(id=row.id, title=row.title, gridPos=core.GridPos(1, 24, 0, y))
        y, x, tallest = y + 1, 0, 0
        for panel in row.panels:
            if x + panel.width > 24:
                y, x, tallest = y + tallest, 0, 0
            yield _panel(panel, core.GridPos(panel.height, panel.width, x, y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest


def _panel(panel: Panel, place: Any) -> Any:
    common = {"id": panel.id, "title": panel.title, "description": panel.description,
              "gridPos": place}  # fmt: skip
    if panel.kind == "timeseries":
        return core.TimeSeries(
            **common, unit=panel.unit, lineWidth=1, fillOpacity=5, showPoints="never",
            tooltipMode="multi", tooltipSort="desc",
        )  # fmt: skip
    if panel.kind == "stat":
        return core.Stat(
            **common, format=panel.unit, reduceCalc="lastNotNull", colorMode="value",
            graphMode="none",
        )  # fmt: skip
    if panel.kind == "table":
        return core.Table(**common, unit=panel.unit)
    return core.Heatmap(**common)


def _lift(content: Json, panel: Panel | None) -> Json:
    """Return a panel of schema 41 from grafanalib's; rows have no *panel*."""
    lifted = {k: v for k, v in content.items() if k in _PANEL_KEYS and v is not None}
    if panel is None:
        row = ("id", "type", "title", "gridPos", "collapsed", "panels")
        return {key: lifted[key] for key in row}
    lifted.pop("panels", None)
    lift = {"timeseries": _lift_timeseries, "stat": _lift_stat, "table": _lift_table,
            "heatmap": _lift_heatmap}[panel.kind]  # fmt: skip
    lifted = {
        **lifted,
        "datasource": SOURCE,
        "pluginVersion": VERSION,
        "repeatDirection": "h",
        "targets": [_target(panel, query, n) for n, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel, lifted), "overrides": []},
    }
    return lift(lifted, panel)


def _defaults(panel: Panel, lifted: Json) -> Json:
    """Return the field defaults; limits are floats, which grafanalib refuses."""
    steps = [{"value": value, "color": color} for value, color in panel.steps]
    limits = {"min": panel.low, "max": panel.high, "decimals": panel.decimals}
    custom = lifted["fieldConfig"]["defaults"].get("custom", {})
    return {
        "unit": panel.unit,
        "mappings": [],
        "thresholds": {"mode": "absolute", "steps": steps},
        **{key: value for key, value in limits.items() if value is not None},
        "custom": {key: value for key, value in custom.items() if value is not None},
    }


def _target(panel: Panel, query: Query, n: int) -> Json:
    instant = panel.kind in {"stat", "table"}
    forms = {"table": "table", "heatmap": "heatmap"}
    return {
        "refId": chr(ord("A") + n),
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "datasource": SOURCE,
        "editorMode": "code",
        "format": forms.get(panel.kind, "time_series"),
        "range": not instant,
        "instant": instant,
        "exemplar": query.exemplar,
    }


def _lift_timeseries(lifted: Json, panel: Panel) -> Json:
    defaults = lifted["fieldConfig"]["defaults"]
    defaults["color"] = {"mode": "palette-classic"}
    defaults["custom"].update(
        scaleDistribution={"type": "linear"}, stacking={"mode": "none", "group": "A"},
        lineStyle={"fill": "solid"}, insertNulls=False, axisCenteredZero=False,
    )  # fmt: skip
    if any(query.legend.startswith(LEVEL_LEGEND) for query in panel.queries):
        lifted["fieldConfig"]["overrides"] = [
            _override(
                "byRegexp", f"/^{LEVEL_LEGEND}/",
                {"color": {"mode": "fixed", "fixedColor": "red"}, "custom.fillOpacity": 0,
                 "custom.lineStyle": {"fill": "dash", "dash": [8, 8]}, "custom.lineWidth": 2},
            )
        ]  # fmt: skip
    lifted["options"]["legend"].update(showLegend=True, calcs=["lastNotNull", "max"])
    lifted["options"]["legend"]["displayMode"] = "table"
    return lifted


def _override(matcher: str, options: str, properties: Json) -> Json:
    listed = [{"id": name, "value": value} for name, value in properties.items()]
    return {"matcher": {"id": matcher, "options": options}, "properties": listed}


def _lift_stat(lifted: Json, _: Panel) -> Json:
    lifted["fieldConfig"]["defaults"]["color"] = {"mode": "thresholds"}
    lifted["options"].update(
        wideLayout=True, showPercentChange=False, percentChangeColorMode="standard"
    )
    return lifted


def _lift_table(lifted: Json, panel: Panel) -> Json:
    custom = {"align": "auto", "inspect": False, "filterable": True}
    lifted["fieldConfig"]["defaults"]["custom"] = custom
    first = panel.values[0][0]
    lifted["options"] = {
        "frameIndex": 0, "showHeader": True, "cellHeight": "sm", "showTypeIcons": False,
        "footer": {"show": False, "reducer": [], "countRows": False},
        "sortBy": [{"displayName": first, "desc": False}],
    }  # fmt: skip
    names = [f"Value #{chr(ord('A') + n)}" for n in range(len(panel.values))]
    if len(names) == 1:
        names = ["Value"]
    renamed = {old: new for old, (new, _) in zip(names, panel.values, strict=True)}
    shown = [*panel.columns, *names]
    lifted["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": shown}}},
        {"id": "organize", "options": {
            "indexByName": {name: n for n, name in enumerate(shown)}, "renameByName": renamed}},
    ]  # fmt: skip
    lifted["fieldConfig"]["overrides"] = [
        _override("byName", name, {"unit": unit}) for name, unit in panel.values
    ]
    return lifted


def _lift_heatmap(lifted: Json, panel: Panel) -> Json:
    """Return today's heatmap: buckets as Prometheus gives them, nothing calculated."""
    dropped = {"fieldConfig", "options"}
    kept = {key: value for key, value in lifted.items() if key not in dropped}
    return {
        **kept,
        "fieldConfig": {
            "defaults": {"custom": {"scaleDistribution": {"type": "linear"}}},
            "overrides": [],
        },
        "options": {
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "fill": "dark-orange",
                      "scale": "exponential", "exponent": 0.5, "steps": 64, "reverse": False},
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "selectionMode": "x",
            "showValue": "never",
            "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": True},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": panel.unit},
        },
    }  # fmt: skip


def _lift_variable(content: Json) -> Json:
    kept = {k: v for k, v in content.items() if k in _VARIABLE_KEYS and v is not None}
    kept |= {"allowCustomValue": True, "skipUrlSync": False}
    if kept["type"] != "query":
        return {**kept, "current": {"text": "", "value": ""}}
    everything = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return {**kept, "datasource": SOURCE, "current": everything}
