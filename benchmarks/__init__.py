"""Measurements of Leadline against real programs and against its peers."""
