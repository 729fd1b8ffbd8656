"""Dashboards as files: today's schema, nothing lost, everything said that a reader needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from alerts.rule import DASHBOARD_UID
from catalog.signals import SIGNALS
from dashboards import generate
from dashboards.adapter import SOURCE, TAG
from dashboards.fleet import UID

FILES = generate.files()
BOARDS = {name: json.loads(text) for name, text in FILES.items()}


@pytest.fixture(scope="module", autouse=True)
def _grafana_types() -> None:
    plugins.register_default_plugins()


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the panels of a board without its rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def test_committed_files_are_the_generated_ones() -> None:
    """`leadline dashboards` would change nothing, and no file lies about that it wouldn't write."""
    folder: Path = generate.HERE
    assert {path.name for path in folder.glob("*.json")} == set(FILES)
    for name, text in FILES.items():
        assert (folder / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", BOARDS)
def test_grafanas_own_types_read_and_write_it_without_loss(name: str) -> None:
    """Read by the types of Grafana 11.6 and written again it is the same, key by key."""
    board = BOARDS[name]
    again = Dashboard.from_json(json.loads(FILES[name]))
    assert json.loads(json.dumps(again, cls=JSONEncoder)) == board
    assert board["schemaVersion"] == 41
    assert again.panels is not None
    # Known types: an unknown panel or query would pass through as a plain mapping.
    for panel in again.panels:
        for target in getattr(panel, "targets", None) or ():
            assert type(target).__name__ == "Dataquery"


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_can_be_linked_to(name: str) -> None:
    """A steady uid and ids, the shared tag, links that keep variables and time."""
    board = BOARDS[name]
    assert name == f"{board['uid']}.json"
    assert board["tags"] == [TAG]
    link = board["links"][0]
    assert link["asDropdown"]
    assert link["includeVars"]
    assert link["keepTime"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    names = [variable["name"] for variable in board["templating"]["list"]]
    assert names == ["datasource", "cluster", "deployment", "pool", "model_name"]
    assert UID == DASHBOARD_UID


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_says_what_it_shows(name: str) -> None:
    """Title, description, unit, a query, the chosen data source; none over another."""
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    for panel in panels(BOARDS[name]):
        assert panel["title"]
        assert len(panel["description"]) > 20
        unit = panel["fieldConfig"]["defaults"].get("unit") or panel["options"]["yAxis"]["unit"]
        assert unit
        assert panel["datasource"] == SOURCE
        assert all(target["datasource"] == SOURCE for target in panel["targets"])
        assert panel["targets"]


def test_the_adapter_says_what_grafanalib_cannot() -> None:
    """Exemplars, today's heatmap, float limits, data sources as references, no dead keys."""
    board = BOARDS[f"{UID}.json"]
    by_type = {panel["type"]: panel for panel in panels(board)}
    heatmap = by_type["heatmap"]
    assert heatmap["targets"][0]["exemplar"] is True
    assert heatmap["targets"][0]["format"] == "heatmap"
    assert heatmap["options"]["calculate"] is False
    assert "dataFormat" not in heatmap
    assert isinstance(by_type["timeseries"]["fieldConfig"]["defaults"]["min"], float)
    dead = {"step", "intervalFactor", "metric", "target", "query", "span", "minSpan", "height"}
    for panel in panels(board):
        assert not dead & set(panel)
        assert not any(dead & set(target) for target in panel["targets"])
    assert not {"rows", "style", "sharedCrosshair", "__inputs"} & set(board)


def test_every_signal_is_on_a_board_and_every_board_is_registered() -> None:
    """Nothing is recorded in vain, and no file with a board lies about unused."""
    shown = "".join(FILES.values())
    assert not [signal.record for signal in SIGNALS.values() if signal.record not in shown]
    folder = generate.HERE.parent
    written = {p.stem for p in folder.glob("*.py") if "\nBOARD: Final" in p.read_text("utf-8")}
    assert len(written) == len(generate.BOARDS)
