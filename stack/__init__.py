"""Finding, running and stopping the programs Leadline stands on: Prometheus, Alertmanager, ours."""
