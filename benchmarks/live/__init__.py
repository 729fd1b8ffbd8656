"""A real vLLM prefill and decode pair, a real leak, and Leadline watching it."""
