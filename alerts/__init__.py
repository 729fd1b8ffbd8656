"""Recording and alerting rules, service levels and Alertmanager's configuration, all generated.

What needs a detector is posted by the service; here is what Prometheus can tell by itself, and what
watches the detector.
"""
