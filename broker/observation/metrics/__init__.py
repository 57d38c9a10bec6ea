"""Kafka's request, queue, handler and processor metrics, under Kafka's own names.

``request_metrics`` counts durations (in ``broker.observation.histogram``) by API and by
request class, ``collector`` reads all other metrics from their sources, and
``endpoint`` exports them to Prometheus. No metrics are kept unless the endpoint is
enabled (``doorkeeper.metrics.port``); the recording of experiments does not need them.
"""
