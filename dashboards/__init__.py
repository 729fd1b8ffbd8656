"""Dashboards made of the catalogue's recorded names, written as Grafana's JSON."""
