"""Broker keys and topology of an experiment's arm as Apache Kafka.

``fifo`` is one plane. ``planes`` adds the control plane of KIP-291, which only 3.9 with
ZooKeeper has. Other orders and readers are the agent's (`request_queue`). Any other
Doorkeeper key of an arm is refused. Keys that the experiment sets for all brokers (a
quantum) do not apply to Kafka, and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from experiments.design.config import Arm, Experiment
from experiments.worlds.kafka import request_queue
from experiments.worlds.kafka.nodes import Mode
from experiments.worlds.world import WorldError

_OURS: Final = "doorkeeper."


def has_control_plane(arm: Arm) -> bool:
    """Return whether an arm has the control plane of KIP-291."""
    return arm.scheduler == "planes"


def settings_of(experiment: Experiment, arm: Arm, mode: Mode) -> dict[str, str]:
    """Return an arm's broker keys for a kind of Kafka.

    :raises WorldError: if the arm needs a feature that it lacks.
    """
    keys = experiment.broker_keys(arm, experiment.kafka.set)
    ours = sorted(
        key
        for key in arm.set
        if key.startswith(_OURS) and key not in request_queue.KEYS
    )
    if arm.scheduler not in mode.schedulers or ours:
        asked = ", ".join([f"the scheduler {arm.scheduler!r}", *ours])
        raise WorldError(
            f"arm {arm.name!r} asks for {asked}; Apache Kafka {mode.version} has "
            f"{', '.join(mode.schedulers)}, and no such key: choose arms, as "
            f"with --schedulers {','.join(mode.schedulers)}"
        )
    return without_ours(keys)


def without_ours(keys: Mapping[str, str]) -> dict[str, str]:
    """Return keys without Doorkeeper's own.

    >>> without_ours({"doorkeeper.scheduler": "fifo", "num.io.threads": "1"})
    {'num.io.threads': '1'}
    """
    return {key: value for key, value in keys.items() if not key.startswith(_OURS)}
