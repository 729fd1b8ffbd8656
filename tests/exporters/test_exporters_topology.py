"""How each server is set up is told in few, clean labels, from all that vLLM itself goes by."""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from catalog.config import Config
from catalog.own_targets import SETTINGS
from exporters.node import rooted
from exporters.scrape import Exporter
from exporters.targets import vllm_config
from exporters.targets.arguments import size
from exporters.targets.cmdline import Launch, launch
from exporters.targets.discovery import Discovery
from exporters.targets.ranks import Ranks

KEY = "sk-do-not-tell-0123456789"
Grow = Callable[[Path, dict[str, str]], Path]
Make = Callable[..., Config]


def words(*arguments: str) -> bytes:
    """Return a command line as /proc shows it."""
    return b"".join(word.encode() + b"\0" for word in ("vllm", "serve", *arguments))


def launched(*arguments: str, environ: Mapping[str, str] | None = None) -> Launch:
    """Return what a command line asks for."""
    found = launch(words(*arguments), environ=lambda: environ or {})
    assert found is not None
    return found


INNER = '"kv_connector_extra_config":{"connectors":[%s]}'
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
OFFLOAD = NIXL.replace("NixlConnector", "Off")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("m -tp 8 -dcp=4", {"dcp": "4"}),
        ("m --max_model_len=128k --max-num-seqs 1K", {"max_model_len": "128000",
                                                      "max_num_seqs": "1024"}),
        ("m --max-model-len -1", {"max_model_len": "auto"}),
        ("m --max-num-batched-tokens=32.5k", {"max_num_batched_tokens": "32500"}),
        ("m --no-enable-prefix-caching --enforce-eager",
         {"enable_prefix_caching": "false", "enforce_eager": "true", "cudagraph_mode": "NONE"}),
        ('m --speculative-config {"method":"mtp","num_speculative_tokens":3}',
         {"spec_method": "mtp", "spec_tokens": "3"}),
        # Tiers beside the transfer: by name, foreign text is none of ours to pass on.
        ('m --kv-transfer-config {"kv_connector":"MultiConnector",' + INNER % f"{NIXL},{OFFLOAD}"
         + "}", {"kv_connectors": "NixlConnector+Off"}),
        ('m --kv-transfer-config {"kv_connector":"MultiConnector",'
         + INNER % '{"kv_connector":"a/b"},7' + "}", {"kv_connectors": "other"}),
        ('m --kv-transfer-config {"kv_connector":"NixlConnector"}',
         {"kv_connectors": "NixlConnector"}),
        ("m --kv-offloading-size 100", {"kv_connectors": "OffloadingConnector"}),
        ("m --kv-offloading-size 9 --kv-offloading-backend lmcache", {"kv_connectors": "lmcache"}),
        ("m --speculative-config.method eagle3 --speculative_config.num_speculative_tokens=2",
         {"spec_method": "eagle3", "spec_tokens": "2"}),
        ("m -sc.method mtp -sc.num_speculative_tokens 1",
         {"spec_method": "mtp", "spec_tokens": "1"}),
        # Dotted keys are put at the end as JSON of their own, which takes the place of the first.
        ('m --speculative-config {"num_speculative_tokens":3} --speculative-config.method mtp',
         {"spec_method": "mtp"}),
        ("m --spec-method ngram --spec-tokens 4", {"spec_method": "ngram", "spec_tokens": "4"}),
        ("m --speculative-config {broken", {"spec_method": "other"}),
        ('m -O {"cudagraph_mode":"FULL_DECODE_ONLY"}', {"cudagraph_mode": "FULL_DECODE_ONLY"}),
        ("m -O.cudagraph_mode=PIECEWISE", {"cudagraph_mode": "PIECEWISE"}),
        ("m -cc.cudagraph_mode FULL -O3", {"cudagraph_mode": "FULL"}),
        ("m --compilation_config.cudagraph_mode FULL", {"cudagraph_mode": "FULL"}),
        ("m --attention-config.backend FLASHMLA", {"attention_backend": "FLASHMLA"}),
        ("m --attention-backend FLASH_ATTN --kv-cache-dtype fp8_e4m3 -q compressed-tensors",
         {"attention_backend": "FLASH_ATTN", "kv_cache_dtype": "fp8_e4m3",
          "quantization": "compressed-tensors"}),
        ("m --tool-call-parser glm45 --reasoning-parser=glm45 --block-size 64",
         {"tool_parser": "glm45", "reasoning_parser": "glm45", "block_size": "64"}),
        ("m --gpu-memory-utilization 0.9 --gpu-memory-utilization=0.92",
         {"gpu_memory_utilization": "0.92"}),
        (f"m --tool-call-parser {KEY} --dtype {'x' * 99} --max-num-seqs {KEY}",
         {"tool_parser": "other", "dtype": "other", "max_num_seqs": "other"}),
        ("m", {"dcp": "1", "spec_tokens": "0"}),
        # A file that can't be read may say anything: nothing is taken for a default.
        ("m --config gone.yaml --block-size 16", {"block_size": "16"}),
    ],
)  # fmt: skip
def test_settings_are_read_as_vllm_reads_them(line: str, expected: dict[str, str]) -> None:
    """Every spelling of an option gives its label; what doesn't look like a setting is `other`."""
    told = launched(*line.split()).settings
    assert {**told, **expected} == dict(told)
    if len(expected) == 2 and "dcp" in expected:
        assert dict(told) == expected
    if "gone.yaml" in line:
        assert "spec_tokens" not in told
    if "-q" not in line and "--spec" not in line and "speculative" not in line:
        assert not told.get("spec_method")


PARSED = json.loads(
    (Path(__file__).parents[1] / "fixtures/proc/vllm_032_arguments.json").read_text()
)


@pytest.mark.parametrize("case", PARSED["cases"], ids=lambda case: case["line"])
def test_vllms_own_parser_agrees(case: dict[str, Any], tmp_path: Path) -> None:
    """What a real vLLM 0.32 made of these lines is what we make of them, its defaults aside."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root/cfg.yaml").write_text(PARSED["config"])
    (tmp_path / "cwd").symlink_to("/")
    found = launch(words(*case["line"].split()), lambda path: vllm_config.words(tmp_path, path))
    assert found is not None
    theirs = case["parsed"]
    speculation = theirs["speculative_config"] or {}
    spec = {
        "spec_method": speculation.get("method") or theirs["spec_method"],
        "spec_tokens": speculation.get("num_speculative_tokens") or theirs["spec_tokens"] or (
            None if speculation else 0),
    }  # fmt: skip
    options = {
        "dcp": "decode_context_parallel_size", "tool_parser": "tool_call_parser",
        "api_servers": "api_server_count",
        **{n: n for n in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size",
                          "enable_prefix_caching", "enforce_eager", "quantization",
                          "kv_cache_dtype", "gpu_memory_utilization", "reasoning_parser",
                          "async_scheduling")},
    }  # fmt: skip
    defaults = {"kv_cache_dtype": "auto", "gpu_memory_utilization": 0.92, "enforce_eager": False}
    for label, wanted in {**{o: theirs[n] for o, n in options.items()}, **spec}.items():
        said = found.settings.get(label)
        if said is None:
            assert wanted in (None, "", defaults.get(label)), label
        else:
            text = {"-1": "auto"}.get(str(wanted), str(wanted))
            assert said == (text.lower() if isinstance(wanted, bool) else text), label
    assert (found.port, found.host or None) == (theirs["port"], theirs["host"])
    assert found.model == (theirs["served_model_name"] or [theirs["model"]])[0]
    sizes = (found.tensor_parallel, found.pipeline_parallel, found.data_parallel)
    assert sizes == tuple(str(theirs[f"{n}_parallel_size"]) for n in ("tensor", "pipeline", "data"))
    assert found.expert_parallel == bool(theirs["enable_expert_parallel"])
    balanced = {"external": "external_lb", "hybrid": "hybrid_lb"}.get(found.ranks.balancing)
    wanted = {n for n in ("external_lb", "hybrid_lb", "multi_port_external_lb")
              if theirs[f"data_parallel_{n}"]}  # fmt: skip
    assert wanted <= {balanced, "multi_port_external_lb" if found.ranks.ports > 1 else balanced}
    assert bool(wanted) == bool(balanced)


def test_the_environment_says_what_the_command_line_does_not() -> None:
    """The attention backend of older versions; the command line wins."""
    environ = {"VLLM_ATTENTION_BACKEND": "FLASHINFER", "VLLM_IMAGE_TAG": "vllm/vllm-openai:v0.32"}
    found = launched("m", environ=environ)
    assert found.settings["attention_backend"] == "FLASHINFER"
    assert found.image == "vllm/vllm-openai:v0.32"
    told = launched("m", "--attention-backend", "FLASH_ATTN", environ=environ).settings
    assert told["attention_backend"] == "FLASH_ATTN"


def test_servers_that_are_set_up_alike_have_one_hash() -> None:
    """Keys, addresses, ports and ranks don't count, nor does spelling; every setting does."""
    plain = ("m", "--max-num-seqs", "64", "--kv-transfer-config",
             '{"kv_connector":"NixlConnector","kv_role":"kv_both","engine_id":"a"}')  # fmt: skip
    alike = (
        "m", "--port=8001", "--host", "10.0.0.1", "--api-key", KEY, "other", "--max_num_seqs=64",
        "--data-parallel-rank", "3", "--hf-token", KEY, "--kv-transfer-config",
        '{"kv_role":"kv_both","kv_connector":"NixlConnector","engine_id":"b","kv_port":9}',
    )  # fmt: skip
    first = launched(*plain).arguments
    assert re.fullmatch(r"[0-9a-f]{12}", first)
    assert launched(*alike).arguments == first
    others = {
        first,
        launched("m", "--max-num-seqs", "65", *plain[3:]).arguments,
        launched(*plain, "--enforce-eager").arguments,
        launched(*plain, "-cc.cudagraph_mode=FULL").arguments,
        launched(*plain, environ={"VLLM_KV_CACHE_LAYOUT": "HND"}).arguments,
    }
    assert len(others) == 5


option = st.sampled_from(
    ["--tool-call-parser", "--dtype", "-q", "--max-num-seqs", "-sc.method", "-O", "-O3", "-O.x",
     "--speculative-config", "--kv-transfer-config.kv_role", "-cc.a.b.c", "-ac.backend+",
     "--attention-backend=", "--data-parallel-size", "-dpm", "-dpl", "-dpr", "--no-", "--", "-"]
)  # fmt: skip
value = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(option, value, st.sampled_from(["{}", "[", '{"method": [1]}', "1e9"])),
                max_size=12))  # fmt: skip
def test_any_arguments_give_clean_labels(arguments: list[str]) -> None:
    """Short words and numbers only, under the names that the catalogue has."""
    found = launched(*arguments)
    for label, told in found.settings.items():
        assert label in SETTINGS
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", told)
    assert 1 <= found.ranks.ports <= 1024


@given(st.integers(0, 10**9), st.sampled_from("kmgKMG"))
def test_sizes_have_vllms_suffixes(count: int, suffix: str) -> None:
    """Small letters are decimal, capitals binary."""
    power = "kmg".index(suffix.lower()) + 1
    base = 1024 if suffix.isupper() else 1000
    assert size(f"{count}{suffix}") == str(count * base**power)


def process(pid: int, parent: int, line: bytes, start: int = 77) -> dict[str, str]:
    """Return the files of a process."""
    fields = f"{pid} (a) S {parent} " + " ".join("0" for _ in range(17)) + f" {start} 0 0"
    return {
        f"{pid}/stat": fields + "\n", f"{pid}/cmdline": line.decode(), f"{pid}/cgroup": "0::/\n",
        "stat": "btime 1000\n",
    }  # fmt: skip


def test_the_file_of_a_command_line_is_read_in_its_container(tmp_path: Path, grow: Grow) -> None:
    """As vLLM reads it, through links as Kubernetes mounts it; the command line wins."""
    text = (
        "model: org/m\nport: 9001\ntensor_parallel_size: 4\nenable-prefix-caching: false\n"
        f"api-key: {KEY}\nserved-model-name: [a, b]\nno-such: null\n"
        "kv-transfer-config: {kv_connector: NixlConnector, kv_role: kv_producer}\n"
        "speculative-config:\n  method: mtp\n  num_speculative_tokens: 1\n"
    )
    grow(
        tmp_path,
        process(7, 1, words("--config", "/etc/vllm/config.yaml", "--port", "9002"))
        | process(8, 1, words("--config", "own.yaml"))
        | {"7/root/mnt/..data_1/config.yaml": text, "8/root/work/own.yaml": "port: 9003\n"}
        | {"8/root/x": "", "7/environ": f"VLLM_API_KEY={KEY}\0VLLM_ATTENTION_BACKEND=FLASHMLA\0"},
    )
    (tmp_path / "7/root/etc").mkdir()
    (tmp_path / "7/root/etc/vllm").symlink_to("/mnt/..data")
    (tmp_path / "7/root/mnt/..data").symlink_to("..data_1")
    (tmp_path / "8/cwd").symlink_to("/work")
    first, second = Discovery(tmp_path).find()
    told = first.launch
    assert (told.port, told.model, told.tensor_parallel) == (9002, "a", "4")
    assert (told.kv_role, told.kv_connector) == ("kv_producer", "NixlConnector")
    assert told.settings | {
        "spec_method": "mtp", "spec_tokens": "1", "attention_backend": "FLASHMLA",
    } == told.settings  # fmt: skip
    assert "enable_prefix_caching" not in told.settings
    assert KEY not in repr(first)
    assert (second.launch.port, second.launch.tensor_parallel) == (9003, "1")


@pytest.mark.parametrize(
    "target", ["{host}/secret", "../../../secret", "loop", "fifo", "large", "gone"]
)
def test_no_file_outside_of_the_container_is_read(tmp_path: Path, target: str) -> None:
    """However a link points: the host's file of that name is another."""
    (tmp_path / "secret").write_text("model: stolen\n")
    root = tmp_path / "proc/7/root"
    root.mkdir(parents=True)
    os.mkfifo(root / "fifo")
    (root / "large").write_bytes(b"a" * 101)
    (root / "loop").symlink_to("config.yaml")
    (root / "config.yaml").symlink_to(target.format(host=tmp_path))
    with pytest.raises(OSError, match=r"."):
        rooted.read(root, Path("/config.yaml"), 100)


ranks = pytest.mark.parametrize(
    ("line", "expected", "shown"),
    [
        ("m", Ranks(), 1),
        ("m -dp 8", Ranks(8, 8), 8),
        ("m -dp 16 -dpl 8 --data-parallel-address 10.0.0.1", Ranks(16, 8), 16),
        ("m -dp 16 -dpl 8 -dpr 8 --headless", Ranks(16, 8, 8), 16),
        (
            "m -dp 16 -dpl 8 -dpr 8 --data-parallel-hybrid-lb -dpa lead-0.svc -dpp 5555",
            Ranks(16, 8, 8, "hybrid", 1, "lead-0.svc:5555"), 8,
        ),
        ("m -dp 16 -dpl 1 -dpr 8 -dpa h", Ranks(16, 1, 8, "external", 1, "h:29550"), 1),
        ("m -dp 2 -dpn 1 --port 8101", Ranks(2, 1, 1, "external", 1, ":29550"), 1),
        (
            "m -dp 16 -dpl 8 -dpm --nnodes 2 --node-rank 1 --master-addr 10.0.0.1",
            Ranks(16, 8, 8, "external", 8, "10.0.0.1:29550"), 1,
        ),
        ("m --config gone.yaml", Ranks(0, 0), 0),
        ("m -dp many", Ranks(1, 1), 1),
        ("m -dp 4 --enable-elastic-ep", Ranks(4, 4, elastic=True), 4),
        ("m -dp 4 -dpb ray", Ranks(4, 4, elastic=True), 4),
        ("m -dp 4 -dpn 2 --enable-elastic-ep",
         Ranks(4, 1, 2, "external", 1, ":29550", elastic=True), 1),
    ],
)  # fmt: skip


@ranks
def test_ranks_are_laid_out_as_vllm_does_it(line: str, expected: Ranks, shown: int) -> None:
    """Internal, hybrid and external load balancing, also with a port for each rank."""
    assert launched(*line.split()).ranks == expected
    assert expected.shown == shown


def read(exporter: Exporter) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of a page by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(exporter.page().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    exporter.close()
    return found


def test_every_rank_behind_a_port_of_its_own_is_a_server(
    tmp_path: Path, grow: Grow, config: Make
) -> None:
    """One command, a page per rank, each with its processes; the group knows its size."""
    line = words("m", "-dp", "4", "-dpl", "2", "-dpr", "2", "-dpm", "-dpa", "lead", "--port", "80")
    grow(
        tmp_path,
        process(20, 1, line)
        | process(21, 20, b"VLLM::APIServer_DP2", 80)
        | process(22, 20, b"VLLM::APIServer_DP3", 90)
        | process(23, 21, b"VLLM::EngineCore_DP2")
        | process(24, 22, b"VLLM::EngineCore_DP3")
        | process(25, 24, b"VLLM::Worker_DP3_EP3"),
    )
    found = Discovery(tmp_path).find()
    assert [[m.pid for m in one.members] for one in found] == [[20, 21, 23], [22, 24, 25]]
    asked = []

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        asked.append(url)
        return b"a 1\n"

    page = read(Exporter(config(discover=True), proc=tmp_path, fetcher=fetcher))
    assert {url for url in asked if url.endswith("/metrics")} == {
        "http://127.0.0.1:80/metrics", "http://127.0.0.1:81/metrics",
    }  # fmt: skip
    sizes = page["leadline_instance_data_parallel_size"]
    assert [(one["server"], one["group"], n) for one, n in sizes] == [
        ("node7:80", "lead:29550", 4), ("node7:81", "lead:29550", 4),
    ]  # fmt: skip
    assert [n for _, n in page["leadline_instance_engines_expected"]] == [1, 1]
    tick = os.sysconf("SC_CLK_TCK")
    started = {one["server"]: n for one, n in page["leadline_instance_start_time_seconds"]}
    assert started == {"node7:80": 1000 + 80 / tick, "node7:81": 1000 + 90 / tick}


@pytest.mark.parametrize(
    ("more", "environ", "sizes"),
    [
        ("", "", [4]),
        # Ranks that are taken away on purpose: the one with all pages can't say how many are left,
        # one of a rank says itself and those below it.
        ("--enable-elastic-ep", "", []),
        ("--enable-elastic-ep -dpn 2", "", [3]),
        # The Rust front end shows a rank from its first request on; a server of one is that rank.
        ("", "VLLM_USE_RUST_FRONTEND=1\0", []),
        ("", "VLLM_USE_RUST_FRONTEND=0\0", [4]),
        ("-dpn 2", "VLLM_USE_RUST_FRONTEND=1\0", [4]),
    ],
)  # fmt: skip
def test_a_group_has_the_size_that_can_be_known(
    more: str, environ: str, sizes: list[float], tmp_path: Path, grow: Grow, config: Make
) -> None:
    """As started; where ranks come and go, or show late, no more than is sure."""
    line = words("m", "-dp", "4", *more.split())
    grow(tmp_path, process(20, 1, line) | {"20/environ": environ})
    page = read(Exporter(config(discover=True), proc=tmp_path, fetcher=lambda *_, **__: b"a 1\n"))
    told = page.get("leadline_instance_data_parallel_size", [])
    assert [value for _, value in told] == sizes
    (info,) = page["leadline_instance_info"]
    assert info[0].get("elastic_ep") == ("true" if more.startswith("--enable") else None)


def test_the_recorded_pair_says_how_it_is_set_up(
    recorded: Path, config: Make, decode_page: bytes
) -> None:
    """Command line, version and what the page says is in force: one series a server."""

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        return b'{"version": "0.32.0+cpu"}' if url.endswith("/version") else decode_page

    for passed in (True, False):
        page = read(
            Exporter(config(discover=True, vllm=passed), proc=recorded / "proc", fetcher=fetcher)
        )
        (prefill, _), (decode, _) = page["leadline_instance_info"]
        assert decode | {
            "kv_role": "kv_consumer", "kv_connector": "NixlConnector",
            "kv_connectors": "NixlConnector", "kv_buffer_device": "cpu",
            "vllm_version": "0.32.0+cpu", "spec_method": "ngram", "spec_tokens": "3",
            "tensor_parallel": "1", "dcp": "1", "max_model_len": "2048", "dtype": "bfloat16",
            "enforce_eager": "true", "cudagraph_mode": "NONE", "block_size": "128",
            "kv_cache_dtype": "auto", "gpu_memory_utilization": "0.92",
            "enable_prefix_caching": "true",
        } == decode  # fmt: skip
        assert prefill["spec_tokens"] == "0"
        assert prefill["arguments"] != decode["arguments"]
        assert set(decode) <= {*SETTINGS, "cluster", "pool", "model_name", "server", "node"}


def test_a_server_elsewhere_tells_what_its_page_tells(config: Make, decode_page: bytes) -> None:
    """Start and settings in force, from the page alone; nothing is made up."""
    targets = [{"url": "http://10.0.0.9:8000/metrics", "pool": "decode"}]

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        return json.dumps({"version": f"0.32\n{KEY}"}).encode() if "version" in url else decode_page

    page: Any = read(Exporter(config(targets=targets), fetcher=fetcher))
    ((labels, _),) = page["leadline_instance_info"]
    assert labels["block_size"] == "128"
    assert {"vllm_version", "arguments", "spec_tokens"} & labels.keys() == set()
    started = re.search(rb"^process_start_time_seconds (\S+)$", decode_page, re.MULTILINE)
    assert started is not None
    assert page["leadline_instance_start_time_seconds"][0][1] == float(started[1])


def test_a_server_elsewhere_that_is_started_anew_is_asked_anew(
    config: Make, decode_page: bytes
) -> None:
    """Its page tells by its start; a version is not kept beyond it."""
    page, version = decode_page, "0.32.0"

    def fetcher(url: str, timeout: float, limit: int, **_: object) -> bytes:
        return json.dumps({"version": version}).encode() if "version" in url else page

    targets = [{"url": "http://10.0.0.9:8000/metrics", "pool": "decode"}]
    exporter = Exporter(config(targets=targets), fetcher=fetcher)
    exporter.page()
    page = re.sub(rb"(?m)^(process_start_time_seconds) .*$", rb"\1 1.9e9", decode_page)
    page = page.replace(b'gpu_memory_utilization="0.92"', b'gpu_memory_utilization="0.95"')
    version = "0.33.0"
    for _ in range(2):  # what a page says reaches the other collector by the next scrape
        exporter.page()
    found = read(exporter)
    ((labels, _),) = found["leadline_instance_info"]
    assert (labels["vllm_version"], labels["gpu_memory_utilization"]) == ("0.33.0", "0.95")
    assert found["leadline_instance_start_time_seconds"][0][1] == 1.9e9


def test_ports_of_a_group_whose_size_is_not_known_cost_only_that() -> None:
    """Found by fuzzing: several ports, and a file of settings that can't be read."""
    launched = launch(words("m", "-dpm", "--config", "gone"))
    assert launched is not None
    assert (launched.ranks.size, launched.ranks.ports, launched.ranks.shown) == (0, 1, 0)
