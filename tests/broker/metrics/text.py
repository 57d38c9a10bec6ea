"""Samples as the text that a scraper gets."""

from __future__ import annotations

from broker.observation.metric import Samples
from broker.observation.metrics.endpoint import Exposition


def exposition(samples: Samples) -> str:
    made = Exposition()
    made.add(samples)
    return made.text()
