"""How the page is served: connections, TLS, passwords, formats."""
