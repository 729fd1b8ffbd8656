"""What a user of `leadline.yaml` gets: nearest scope wins, and one line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from catalog.config import Config, ConfigError, load
from catalog.units import duration

EXAMPLE = """
deployment: glm
sla: {tpot_mean: 20ms}
limits: {host_anon_swap: 512GiB}
deployments:
  glm:
    sla: {ttft_user_mean: 3s}
    models:
      glm-5.2-air:
        sla: {tpot_mean: 12ms}
"""


def test_the_nearest_scope_gives_the_limit(tmp_path: Path) -> None:
    """A model's SLA beats its deployment's, which beats the global one."""
    path = tmp_path / "leadline.yaml"
    path.write_text(EXAMPLE)
    config = load(path, {})
    air = {"deployment": "glm", "model_name": "glm-5.2-air"}
    assert config.limit("tpot_mean", air) == pytest.approx(0.012)
    assert config.limit("tpot_mean", {"deployment": "glm"}) == pytest.approx(0.020)
    assert config.limit("ttft_user_mean", air) == pytest.approx(3.0)
    assert config.limit("host_anon_swap", {}) == 512 * 2**30
    assert config.limit("kv_usage", air) is None


@pytest.mark.parametrize("given", [{}, {"host_rss": "1GiB"}])
def test_a_service_level_that_nobody_changed_keeps_its_default(given: dict[str, str]) -> None:
    """No flag, or a flag for another signal, leaves the default SLA in force."""
    config = load(None, {}, {"sla": given, "limits": {}})
    assert config.limit("tpot_mean", {}) == pytest.approx(0.020)
    assert config.limit("ttft_user_mean", {}) == pytest.approx(2.5)
    assert load(None, {}, {"sla": {"tpot_mean": "9ms"}}).sla["tpot_mean"] == pytest.approx(0.009)


def test_a_share_needs_no_unit_and_a_variable_needs_one(tmp_path: Path) -> None:
    """What has one unit only may be bare; who sets a variable is told as who writes a file is."""
    path = tmp_path / "leadline.yaml"
    path.write_text("limits: {acceptance_ratio: 0.4, requests_running: 60}")
    assert load(path, {}).limits == {"acceptance_ratio": 0.4, "requests_running": 60.0}
    with pytest.raises(ConfigError, match=r"^LEADLINE_SERVICE__EVERY: .*30 has no unit: .*30s"):
        load(path, {"LEADLINE_SERVICE__EVERY": "30"})


def test_what_a_program_writes_it_reads_back(tmp_path: Path) -> None:
    """Amounts are written with their units."""
    config = Config.model_validate({
        "limits": {"host_rss": 1.5e9, "kv_usage": 0.9}, "sla": {"itl_mean": 0.0315},
        "service": {"every": 7.25}, "exporter": {"max_page": 12345.0},
    })  # fmt: skip
    path = tmp_path / "leadline.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load(path, {}) == config
    assert "itl_mean: 31.5ms" in path.read_text()


def test_environment_overrides_file_and_flags_override_both(tmp_path: Path) -> None:
    """`LEADLINE_SERVICE__EVERY` beats the file; a flag beats the variable."""
    path = tmp_path / "leadline.yaml"
    path.write_text("service: {every: 30s, listen: '127.0.0.1:1'}")
    environ = {"LEADLINE_SERVICE__EVERY": "10s", "LEADLINE_HOME": "elsewhere"}
    config = load(path, environ, {"service": {"listen": "127.0.0.1:2", "state": None}})
    assert (config.service.every, config.service.listen) == (10.0, "127.0.0.1:2")
    assert config.service.state == Config().service.state


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("service: {evry: 5s}", ["service.evry", "did you mean 'every'?"]),
        ("limits: {host_anon_swp: 1GiB}", ["host_anon_swp", "did you mean 'host_anon_swap'?"]),
        ("sla: {tpot_mean: 20parsec}", ["20parsec", "number of seconds"]),
        ("sla: {tpot_mean: -3}", ["tpot_mean", "above zero"]),
        ("exporter: {targets: [{url: 'http://a', pool: decod}]}", ["'decode'"]),
        ("exporter: {targets: [{url: 'file:///etc/passwd'}]}", ["no http address"]),
        ("- a", ["must be a mapping"]),
        ("a: [", ["no valid YAML"]),
        ("service: {every: 0s}", ["service.every", "from 100ms"]),
        *[
            (f"service: {{every: {bad}}}", ["service.every"])
            for bad in (
                "1e12s",
                ".inf",
                ".nan",
                "1e999s",
                "1e-300",
                "true",
                "[1]",
                "1" * 400,
            )
        ],
        ("prometheus: {step: 50ms}", ["prometheus.step", "from 100ms"]),
        ("exporter: {max_page: .inf}", ["exporter.max_page"]),
        ("limits: {host_rss: [1]}", ["limits", "host_rss", "[1]"]),
        ("limits: {host_rss: null}", ["host_rss", "None"]),
        ("limits: {host_rss: .inf}", ["host_rss"]),
        ("limits: {host_rss: 1e400GiB}", ["host_rss", "1e400GiB", "too large"]),
        *[
            (
                f"exporter: {{targets: [{{url: {bad}}}]}}",
                ["exporter.targets.0.url", "no http address", "http://host:port/metrics"],
            )
            for bad in (
                "'http://h:99999/metrics'",
                "'http://[::1'",
                r'"http://a b\n/x"',
                "'http://h:0/'",
                "'http:///metrics'",
                r'"http://h\e/"',
            )
        ],
        *[
            (f"{room}: {{listen: {bad}}}", [f"{room}.listen", "host:port"])
            for room in ("service", "exporter")
            for bad in ("nonsense", "'h:65536'", "'a b:1'", "'h:-1'", "'[::1:1'")
        ],
        ("prometheus: {url: 'ftp://x'}", ["prometheus.url", "ftp://x", "http://host:port"]),
        ("alertmanager: {urls: ['http://a', 'nope:1']}", ["alertmanager.urls.1", "nope:1"]),
        ("a: " + "[" * 5000, ["too many levels"]),
        ("a: !!timestamp x", ["no valid YAML"]),
        ("service: {every: " + "1" * 5000 + "}", ["no valid YAML"]),
        ("a: 2026-13-45", ["no valid YAML"]),
        ("exporter: {targets: [null]}", ["exporter.targets.0.url"]),
        ("sla: {tpot_mean: 20}", ["sla: tpot_mean: 20 has no unit", "20ms"]),
        ("sla: {tpot_mean: '20'}", ["sla: tpot_mean: 20 has no unit", "20ms"]),
        ("limits: {host_rss: 64}", ["host_rss: 64 has no unit", "64GiB"]),
        ("limits: {host_rss: 68719476736}", ["has no unit: write 64GiB"]),
        ("deployments: {glm: {models: {air: {sla: {tpot_mean: 9}}}}}", ["air.sla", "9ms"]),
        ("service: {history: 7}", ["service.history: 7 has no unit", "7d"]),
        ("exporter: {max_page: 64}", ["exporter.max_page: 64 has no unit", "64MiB"]),
        ("exporter: {listen: 9840}", ["exporter.listen: 9840 is a port", "127.0.0.1:9840"]),
        ("deployment: no", ["deployment (False): must be text"]),
        ("alertmanager: {urls: 'http://a'}", ["alertmanager.urls", "must be a list"]),
        ("exporter: 5", ["exporter (5): must be a mapping"]),
        ("service: {every: 60s, every: 30s}", ["a key is there twice (line 1)"]),
    ],
)
def test_a_mistake_gets_one_line_that_names_it(tmp_path: Path, text: str, words: list[str]) -> None:
    """File, key, value and the nearest right one, in one line."""
    path = tmp_path / "leadline.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LEADLINE_CLUSTER", "{"), ("LEADLINE_SERVICE__LISTEN", "a: b: c"),
        ("LEADLINE_SERVICE__LISTEN", "nonsense"), ("LEADLINE_SERVICE", "[" * 5000),
        ("LEADLINE_SERVICE__A__B__C", "1"), ("LEADLINE_SERVICE" + "__A" * 5000, "1"),
    ],
)  # fmt: skip
def test_a_broken_variable_is_named(tmp_path: Path, variable: str, value: str) -> None:
    """Not the file, which is right."""
    path = tmp_path / "leadline.yaml"
    path.write_text(EXAMPLE)
    with pytest.raises(ConfigError) as caught:
        load(path, {variable: value})
    assert str(caught.value).startswith(f"{variable}: "[:100])
    assert "\n" not in str(caught.value)


def test_a_flag_is_not_blamed_on_the_variable_that_it_overrides() -> None:
    """The wrong value is the flag's."""
    flags = {"service": {"listen": "nonsense"}}
    with pytest.raises(ConfigError, match=r"^configuration: service\.listen: 'nonsense'"):
        load(None, {"LEADLINE_SERVICE__LISTEN": "h:1"}, flags)


def test_a_refused_address_keeps_its_password() -> None:
    """Nor is a part of one told that breaks the URL."""
    with pytest.raises(ConfigError, match=r"prometheus\.url") as caught:
        load(None, {}, {"prometheus": {"url": "http://me:s3cret/x@h:99999"}})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("http://h:8000/metrics/", "http://h:8000/metrics"),
        ("http://h:8000/metrics", "http://h:8000/metrics"),
        ("http://h:8000/model/metrics/?a=b/", "http://h:8000/model/metrics?a=b/"),
        ("http://h:8000/pages/", "http://h:8000/pages/"),
    ],
)
def test_a_page_is_asked_for_without_a_slash_at_its_end(written: str, asked: str) -> None:
    """Behind `/metrics/` vLLM writes other names, and counts the scrape as a request."""
    config = load(None, {}, {"exporter": {"targets": [{"url": written, "pool": "decode"}]}})
    assert [target.url for target in config.exporter.targets] == [asked]


def test_an_empty_section_is_its_defaults(tmp_path: Path) -> None:
    """A section whose keys are all commented out is null in YAML; an unknown one stays an error."""
    path = tmp_path / "leadline.yaml"
    path.write_text("exporter:\nservice: {every: }\nsla:\ncluster: c\n")
    assert load(path, {}) == Config(cluster="c")
    path.write_text("exportr:\n")
    with pytest.raises(ConfigError, match="did you mean 'exporter'"):
        load(path, {})


@pytest.mark.parametrize("text", ["1e400d", "1e308w", "1e300d", "11000d"])
def test_a_span_is_finite_and_ten_years_at_most(text: str) -> None:
    """Flags such as `--last` are read so."""
    with pytest.raises(ValueError, match=r"too large|10 years"):
        duration(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The path and the system's reason."""
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file"):
        load(tmp_path / "nowhere.yaml", {})


def test_every_key_has_a_default_and_help() -> None:
    """An empty file is a configuration, and each key says what it is for."""

    def keys(schema: dict[str, object], defs: dict[str, object]) -> None:
        properties = schema.get("properties", {})
        assert isinstance(properties, dict)
        for name, entry in properties.items():
            assert "description" in entry or "$ref" in entry, name

    schema = Config.model_json_schema()
    for definition in (schema, *schema["$defs"].values()):
        keys(definition, schema["$defs"])
    assert load(None, {}) == Config()
