"""Which vLLM servers and programs beside them there are, how they are set up, and where."""
