"""Detectors of slow change: pure functions from panels to findings.

`judge` is the one front door; `trend` serves the report.
"""
