"""vLLM's families of its own KV cache, of LoRA and of speculative decoding."""

from __future__ import annotations

from typing import Final

from catalog.metric import Gate, Metric
from catalog.vllm_family import bare, counter, gauge, histogram

_ADMITTED: Final = "Counted at admission, even if the load fails later."
_HIDDEN: Final = Gate("--show-hidden-metrics-for-version=0.10")
_SAMPLED: Final = Gate("--kv-cache-metrics")
_RESIDENCE: Final = (0.001, 1800.0)

CACHE: Final[tuple[Metric, ...]] = (
    gauge("kv_cache_usage_perc", "ratio", "Share of KV blocks that requests hold, 0 to 1.",
          former=("vllm:gpu_cache_usage_perc",), rust=True, by_pid=("0.11",),
          traps=("Evictable prefix blocks count as free; on prefill blocks that wait to be pulled "
                 "count as used with nothing running.",
                 "Requests that wait for KV hold blocks: full with nothing running is normal on "
                 "decode.")),
    gauge("gpu_cache_usage_perc", "ratio", "Share of KV blocks that requests hold, by its old "
          "name.", until="0.11", gate=_HIDDEN, merge=""),
    counter("prefix_cache_queries_total", "tokens", "Tokens looked up in the prefix cache.",
            former=("vllm:gpu_prefix_cache_queries_total",), rust=True,
            traps=("Counted once, at admission, from 0.33 on; before, at each try to schedule.",)),
    counter("prefix_cache_hits_total", "tokens", "Tokens found in the prefix cache.",
            former=("vllm:gpu_prefix_cache_hits_total",), rust=True),
    counter("gpu_prefix_cache_queries_total", "tokens",
            "Tokens looked up in the prefix cache, by its old name.", until="0.11", gate=_HIDDEN),
    counter("gpu_prefix_cache_hits_total", "tokens",
            "Tokens found in the prefix cache, by its old name.", until="0.11", gate=_HIDDEN),
    counter("external_prefix_cache_queries_total", "tokens",
            "Tokens looked up at the KV connector.", since="0.18", rust=True,
            traps=("Zero without a KV connector.",)),
    counter("external_prefix_cache_hits_total", "tokens", "Tokens found at the KV connector.",
            since="0.18", rust=True,
            traps=("On decode it is 100 % by construction, on prefill of a pair 0 %.",
                   _ADMITTED)),
    counter("mm_cache_queries_total", "count", "Items looked up in the multimodal cache.",
            since="0.18"),
    counter("mm_cache_hits_total", "count", "Items found in the multimodal cache.", since="0.18"),
    histogram("kv_block_lifetime_seconds", "seconds", "Life of a KV block until its eviction.",
              _RESIDENCE, since="0.18", rust=True, gate=_SAMPLED,
              traps=("One block in a hundred is sampled unless set otherwise.",)),
    histogram("kv_block_idle_before_evict_seconds", "seconds",
              "Time from a KV block's last use to its eviction.", _RESIDENCE, since="0.18",
              rust=True, gate=_SAMPLED,
              traps=("One block in a hundred is sampled unless set otherwise.",)),
    histogram("kv_block_reuse_gap_seconds", "seconds", "Time between two uses of a KV block.",
              _RESIDENCE, since="0.18", rust=True, gate=_SAMPLED,
              traps=("One block in a hundred is sampled unless set otherwise.",)),
    bare(gauge("cache_config_info", "count", "How the KV cache is set up, in labels; always 1.",
               open_labels=True,
               traps=("Its labels change with every version: select by single ones.",)),
         "engine"),
    bare(gauge("lora_requests_info", "seconds", "LoRA adapters in use, in labels; the value is "
               "the time of the update.", merge="sum", lazy=True, rust=True, by_pid=("0.11",),
               gate=Gate("--enable-lora"),
               traps=("Label sets of the past stay for ever: the newest value is the present one.",
                      "Several processes add their times up: the sum means nothing.",
                      "The Rust front end leaves max_lora out.")),
         "max_lora", "running_lora_adapters", "waiting_lora_adapters"),
)  # fmt: skip

_DRAFTS: Final = Gate("--speculative-config")
_DIFFUSION: Final = Gate("a diffusion model, instead of spec_decode_*")

DRAFTS: Final[tuple[Metric, ...]] = (
    counter("spec_decode_num_drafts_total", "count", "Drafts made.", gate=_DRAFTS, rust=True),
    counter("spec_decode_num_draft_tokens_total", "tokens", "Tokens drafted.", gate=_DRAFTS,
            rust=True, traps=("Drafts may be shorter than allowed: it is no multiple of the "
                              "drafts.",)),
    counter("spec_decode_num_accepted_tokens_total", "tokens", "Drafted tokens accepted.",
            gate=_DRAFTS, rust=True),
    counter("spec_decode_num_accepted_tokens_per_pos_total", "tokens",
            "Drafted tokens accepted, by position in the draft.", ("position",), gate=_DRAFTS,
            rust=True),
    counter("diffusion_num_denoising_steps_total", "count", "Denoising steps.", since="0.26",
            gate=_DIFFUSION),
    counter("diffusion_num_canvas_positions_total", "count", "Positions denoised.", since="0.26",
            gate=_DIFFUSION),
    counter("diffusion_num_committed_tokens_total", "tokens", "Tokens committed.", since="0.26",
            gate=_DIFFUSION),
)  # fmt: skip
