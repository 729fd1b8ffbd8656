"""What vLLM only logs, as counters: files and the journal, read from where they end."""
