"""Detectors: arrays in, findings out, no input or output of their own.

`finding` is the record that everything downstream reads; `drift` holds the detectors of slow
change; `service` runs them on a fleet.
"""
