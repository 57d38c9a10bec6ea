"""Samples in the text format that a scraper receives."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from broker.observation.metric import Samples
from broker.observation.metrics.endpoint import Exposition


def exposition(samples: Samples) -> str:
    made = Exposition()
    made.add(samples)
    return made.text()


def samples(text: str) -> dict[Any, float]:
    """Return every sample by name and labels, as parsed by Prometheus' client."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
