"""Kafka's request, queue, handler and processor metrics, under Kafka's own names.

``request_metrics`` counts durations (in ``broker.observation.histogram``) by
API and by request class, ``collector`` reads everything else where it stands, and
``endpoint`` gives it all to Prometheus. Nothing is kept unless the endpoint is on
(``doorkeeper.metrics.port``): the recording of experiments does not need it.
"""
