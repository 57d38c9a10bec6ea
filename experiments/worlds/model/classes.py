"""The classifier of the model: knowledge of policies about requests, and its errors.

The class follows from the API, unless it is mistaken for control. The expected cost is
the one that the broker's own classifier would have learned, or the true one, distorted.
Draws depend only on the seed and the request's number, so they are equal for all arms.
"""

from __future__ import annotations

import math
import random
from typing import Final

from broker.config import (
    DOORKEEPER_CLASS_LEVELS,
    DOORKEEPER_LOCK_INHERITANCE,
    DOORKEEPER_WFQ_FLOW,
    BrokerConfig,
)
from broker.requests.classifier import CONTROL
from experiments.design.model_config import ModelSection
from experiments.load.trace import TraceRow
from experiments.worlds.model.task import ModelTask
from planes.admission import HOPELESS
from planes.lock import TaskLock

_UNKNOWN_COST_NS: Final = 50_000
# A moving average over about eight requests, as in the broker.
_AVERAGE_SHIFT: Final = 3


class Classes:
    """Creates the classified tasks of a trace, and learns their costs."""

    def __init__(
        self, config: BrokerConfig, settings: ModelSection, *, flat: bool, seed: str
    ) -> None:
        levels: dict[str, int] = config[DOORKEEPER_CLASS_LEVELS]
        if flat:
            levels = {name: int(name != CONTROL) for name in levels}
        self._levels = levels
        self._flow = config[DOORKEEPER_WFQ_FLOW]
        self._settings = settings
        self._service_ns = round(settings.service_us * 1000)
        self._mistakes = random.Random(f"{seed}/misclassified")
        self._errors = random.Random(f"{seed}/estimates")
        self._lockers = random.Random(f"{seed}/lockers")
        self._lock = TaskLock("shared", inherits=config[DOORKEEPER_LOCK_INHERITANCE])
        self._section_ns = round(settings.lock_us * 1000)
        self._lock_shares = settings.lock_shares if self._section_ns else {}
        self._learns = settings.estimate == "learned"
        self._learned_ns: dict[tuple[int, int], int] = {}
        sigma = settings.estimate_sigma
        self._drift = math.log(settings.estimate_bias) - sigma * sigma / 2
        self._distorts = sigma > 0 or settings.estimate_bias != 1

    def task(self, row: TraceRow, request_class: str) -> ModelTask:
        """Create a task. Tasks must be created in order, because draws follow it."""
        lock_share = self._lock_shares.get(request_class, 0.0)
        share = self._settings.misclassified
        if share and self._mistakes.random() < share:
            request_class = CONTROL
        demand_ns = row.demand_ns or self._service_ns
        if self._learns:
            bucket = row.api_key, row.size_bytes.bit_length()
            cost_ns = self._learned_ns.get(bucket, _UNKNOWN_COST_NS)
        else:
            cost_ns = demand_ns
        if self._distorts:
            sigma = self._settings.estimate_sigma
            error = math.exp(self._drift + sigma * self._errors.gauss(0, 1))
            cost_ns = max(1, round(cost_ns * error))
        task = ModelTask(
            row.request_id,
            row.intended_ns,
            demand_ns,
            self._levels[request_class],
            request_class,
            self._flow_of(request_class, row),
            cost_ns,
            row.size_bytes,
            row.connection,
            row.api_key,
        )
        if self._settings.sizes_known:
            task.size_ns = demand_ns
        if lock_share and self._lockers.random() < lock_share:
            task.lock = self._lock
            task.section_ns = min(demand_ns, self._section_ns)
        return task

    def learn(self, task: ModelTask) -> None:
        """Update the expected cost from a completed request, as the broker does."""
        if self._learns and (task.refusal is None or task.refusal == HOPELESS):
            bucket = task.api_key, task.size_bytes.bit_length()
            cost_ns = task.own_cpu_ns() if task.refusal is None else 0
            known_ns = self._learned_ns.get(bucket, cost_ns)
            change_ns = cost_ns - known_ns >> _AVERAGE_SHIFT
            self._learned_ns[bucket] = known_ns + change_ns

    def _flow_of(self, request_class: str, row: TraceRow) -> str:
        match self._flow:
            case "class":
                return request_class
            case "client.id":
                return f"{request_class}/{row.flow}"
            case _:
                return f"{request_class}/{row.connection}"
