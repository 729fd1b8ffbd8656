"""A simulated P/D deployment: its pages, as vLLM 0.32 and our exporter write them, and its past.

It exists for tests, the demo and the benchmark; it never stands in for vLLM where vLLM can run.

Everything is a function of the scenario, a seed and the time before or after the end of history, so
the history written up to an instant and the pages served after it are one and the same run. From
the outside in: `server` and `page` (live), `history` (OpenMetrics), `table` (panels); they read
`world`, which adds up what `flow` (requests) and `memory` (hosts) say of the `fleet`.
"""
