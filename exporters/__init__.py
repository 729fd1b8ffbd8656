"""What runs on a node: finds vLLM servers, measures them and their host, serves one page."""
