"""A simulated P/D deployment: its pages, as vLLM 0.32 and our exporter write them, and its past.

It exists for tests, the demo and the benchmark; it never stands in for vLLM where vLLM can run.

Everything is a function of the scenario, a seed and the time before or after the end of history, so
the history written up to an instant, the pages served after it and the table of both are one and
the same run. From the outside in: `server` and `page` (live), `history` (OpenMetrics), `table`
(panels) and `table_file`; they read `world`, which adds up what `flow` (requests as a fluid) and
`memory` (hosts) say of the `fleet` under its `traffic`. What goes wrong is a `scenario`: a list of
`change`s and losses with the truth about them.

Beside it `events` plays single requests, where queues and batches matter; `calibration` holds it to
published tables. New scenarios go to `incidents`, `public` or `quiet`, and are listed by
`make generate` in docs/scenarios.md.
"""
