"""Our metrics of what is scraped: servers with their settings, programs beside them, and pages."""

from __future__ import annotations

from typing import Final

from catalog.labels import LEVELS
from catalog.metric import Metric

SETTINGS: Final = (
    "kv_role", "kv_connector", "kv_connectors", "kv_buffer_device", "vllm_version",
    "tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "dcp",
    "load_balancing", "data_parallel_local", "elastic_ep", "api_servers",
    "spec_method", "spec_tokens", "tool_parser", "reasoning_parser",
    "cudagraph_mode", "enforce_eager", "attention_backend", "all2all_backend", "quantization",
    "dtype", "kv_cache_dtype", "block_size", "gpu_memory_utilization", "enable_prefix_caching",
    "enable_chunked_prefill", "async_scheduling",
    "max_model_len", "max_num_seqs", "max_num_batched_tokens",
    "arguments", "image",
)  # fmt: skip
"""Labels of `leadline_instance_info` beside identity and node."""

_INSTANCE: Final = (*LEVELS["server"], "node")
_PEER: Final = ("cluster", "namespace", "deployment", "pool", "server", "kind")

TARGETS: Final[tuple[Metric, ...]] = (
    Metric("leadline_instance_info", "gauge", "count",
           "One per vLLM server: how it is set up; always 1.", (*_INSTANCE, *SETTINGS),
           traps=("`kv_connectors` has those inside a MultiConnector, joined by `+`.",
                  "A label that is absent is not known, since the command line leaves the choice "
                  "to vLLM and its page doesn't say; it is not the same as off.",
                  "`arguments` is a hash of all settings without keys, addresses, ports and ranks: "
                  "equal for servers that are set up alike.")),
    Metric("leadline_instance_start_time_seconds", "gauge", "seconds",
           "When the vLLM server was started, since the epoch.", _INSTANCE),
    Metric("leadline_instance_data_parallel_size", "gauge", "count",
           "Ranks of the data-parallel group that the server belongs to.",
           (*_INSTANCE, "group"),
           traps=("Servers of one group (hybrid and external load balancing) have the same "
                  "`group`.",
                  "As started. Of an elastic group the server's own rank and those below it, since "
                  "scaling down takes the highest away: the group has the most that any server "
                  "says; absent where one server balances an elastic group, which tells nobody.",
                  "Absent with the Rust front end unless each rank has a server of its own: its "
                  "page shows a rank from its first request on only.")),
    Metric("leadline_instance_engines_expected", "gauge", "count",
           "Engines that the server's own page shows while all of its ranks are well.",
           _INSTANCE),
    Metric("leadline_target_up", "gauge", "count",
           "Whether the last scrape of this vLLM server gave a page: 1 or 0.", LEVELS["server"]),
    Metric("leadline_target_draining", "gauge", "count",
           "Whether the target is being taken away (its pod is being deleted): 1 or 0.",
           (*LEVELS["server"], "kind"),
           traps=("Only where Kubernetes tells.",)),
    Metric("leadline_peer_up", "gauge", "count",
           "Whether the last scrape of a program beside vLLM gave a page: 1 or 0.", _PEER),
    Metric("leadline_folded_series", "gauge", "count",
           "Series of the last page that were added up because this label of theirs has no bound.",
           ("server", "label")),
)  # fmt: skip
