"""The one place that spells a metric name: metrics, signals, labels, units and configuration.

Every other room takes names from here, so that a dashboard cannot disagree with a page.
"""
