"""Request queue of an arm inside Apache Kafka: Kafka's own, or one of the agent's.

The agent (``agent/``, Java) replaces ``RequestChannel.requestQueue`` of an unmodified
Kafka by a queue with another order and another reader. Arms that Kafka itself supports
run without the agent, unless the arm's ``kafka.queue`` asks for it. The agent's queue
does not preempt: a request that a handler thread has taken is served to its end, so
``priority`` and ``wfq`` are their non-preemptive forms here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.config import BrokerConfig
from broker.config.admission_keys import (
    DOORKEEPER_ADMISSION,
    DOORKEEPER_ADMISSION_FAVOURED,
)
from broker.config.doorkeeper_keys import (
    DOORKEEPER_CLASS_LEVELS,
    DOORKEEPER_PRIORITY_AGEING_MS,
    DOORKEEPER_READER,
    DOORKEEPER_WFQ_FLOW,
    DOORKEEPER_WFQ_WEIGHTS,
)
from broker.handling.api_registry import APIS
from experiments.design.config import Arm, Experiment
from experiments.worlds.kafka import apache_kafka
from experiments.worlds.world import WorldError

AGENT: Final = apache_kafka.JARS / "agent" / "doorkeeper-agent.jar"
ORDERS: Final = ("fifo", "priority", "wfq")
# Keys of an arm that the agent's queue supports; all other Doorkeeper keys are refused.
KEYS: Final = frozenset(
    key.name
    for key in (
        DOORKEEPER_READER,
        DOORKEEPER_ADMISSION,
        DOORKEEPER_ADMISSION_FAVOURED,
        DOORKEEPER_PRIORITY_AGEING_MS,
        DOORKEEPER_WFQ_FLOW,
        DOORKEEPER_WFQ_WEIGHTS,
        DOORKEEPER_CLASS_LEVELS,
    )
)
_ADMISSIONS: Final = ("block", "exempt")
# The class of APIs that Doorkeeper does not serve.
_OTHER_CLASS: Final = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQueue:
    """Contents of the agent's properties file."""

    properties: Mapping[str, str]

    def jvm_options(self, at: Path) -> tuple[str, ...]:
        """Write the file below ``at``; return the JVM options that load the agent.

        :raises WorldError: if the agent has not been built.
        """
        if not AGENT.exists():
            raise WorldError(f"{AGENT.name} is missing: `make kafka-tools` builds it")
        file = at / "agent.properties"
        lines = (f"{key}={value}\n" for key, value in self.properties.items())
        file.write_text("".join(lines), encoding="utf-8")
        return (f"-javaagent:{AGENT}={file}",)


UNCHANGED: Final = AgentQueue(properties={"queue": "kafka"})


def queue_of(experiment: Experiment, arm: Arm) -> AgentQueue | None:
    """Return an arm's queue; None if Kafka runs without the agent.

    :raises WorldError: if the agent has no such queue.
    """
    choice = arm.kafka.queue
    if choice == "unchanged":
        return UNCHANGED
    is_kafkas = arm.scheduler in ("fifo", "planes") and not KEYS & arm.set.keys()
    if choice is None and is_kafkas:
        return None
    if arm.scheduler not in ORDERS:
        raise WorldError(
            f"arm {arm.name!r}: the queue inside Kafka has the orders "
            f"{', '.join(ORDERS)}, not {arm.scheduler!r}"
        )
    return AgentQueue(properties=_properties(experiment, arm))


def _properties(experiment: Experiment, arm: Arm) -> dict[str, str]:
    config = BrokerConfig.load(None, experiment.broker_keys(arm))
    admission = config[DOORKEEPER_ADMISSION]
    if admission not in _ADMISSIONS:
        raise WorldError(
            f"arm {arm.name!r}: {DOORKEEPER_ADMISSION.name} = {admission}, inside "
            f"Kafka expected one of {', '.join(_ADMISSIONS)}"
        )
    favoured = config[DOORKEEPER_ADMISSION_FAVOURED]
    ageing_ns = config[DOORKEEPER_PRIORITY_AGEING_MS] * 1_000_000
    levels = config[DOORKEEPER_CLASS_LEVELS]
    weights = config[DOORKEEPER_WFQ_WEIGHTS]
    return {
        "order": arm.scheduler,
        "reader": config[DOORKEEPER_READER],
        "admission": admission,
        "favoured": ",".join(favoured),
        "ageing.ns": str(ageing_ns),
        "flow": config[DOORKEEPER_WFQ_FLOW],
        "class": _OTHER_CLASS,
        **{f"class.{key}": api.request_class for key, api in sorted(APIS.items())},
        **{f"level.{name}": str(level) for name, level in levels.items()},
        **{f"weight.{name}": str(weight) for name, weight in weights.items()},
    }
