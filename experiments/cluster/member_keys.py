"""Broker keys that make a broker of an experiment a member of its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.design.config import NO_KEYS, Arm, Experiment
from experiments.design.faults import Stop

DATA = "PLAINTEXT"
_CONTROLLER = "CONTROLLER"
_CONTROL_PLANE = "control.plane.listener.name"
_WITH_CONTROL_PLANE = ("planes", "planes-lending")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The addresses of a broker and of its ZooKeeper.

    ``control`` is the port of its control plane, if the arm has one.
    """

    host: str
    data: int
    control: int
    zookeeper: str


def listener_names(experiment: Experiment, arm: Arm) -> tuple[str, ...]:
    """Return the listeners of an arm's brokers, the clients' first.

    If an arm has a control plane, the controller finds it by its listener's name.
    """
    named = experiment.broker_keys(arm).get(_CONTROL_PLANE)
    if named is None and arm.scheduler in _WITH_CONTROL_PLANE:
        named = _CONTROLLER
    return (DATA,) if named is None else (DATA, named)


def member_keys(
    experiment: Experiment,
    arm: Arm,
    number: int,
    endpoints: Endpoints,
    world: Mapping[str, str | int | float | bool] = NO_KEYS,
) -> dict[str, str]:
    """Return a broker's configuration: the arm's keys, then the run's own.

    Leaders are balanced only if an experiment asks for it. All brokers end together at
    the end of a run, so without a handover; a broker that is stopped during the run
    hands over first.
    """
    assert experiment.cluster is not None
    names = listener_names(experiment, arm)
    ports = dict(zip(names, (endpoints.data, endpoints.control), strict=False))
    stops = any(isinstance(fault, Stop) for fault in experiment.faults)
    keys = {
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.enable": "true" if stops else "false",
        "controlled.shutdown.retry.backoff.ms": "200",
        **experiment.broker_keys(arm, world),
        "broker.id": str(number),
        "zookeeper.connect": endpoints.zookeeper,
        "zookeeper.session.timeout.ms": str(round(experiment.cluster.session_ms)),
        "listeners": ",".join(
            f"{it}://{endpoints.host}:{port}" for it, port in ports.items()
        ),
        "inter.broker.listener.name": DATA,
        "doorkeeper.controller.listeners": ",".join(names),
    }
    if len(names) > 1:
        keys[_CONTROL_PLANE] = names[1]
        keys["listener.security.protocol.map"] = ",".join(
            f"{name}:PLAINTEXT" for name in names
        )
    if arm.controller == "merged":
        keys["doorkeeper.controller.merges"] = "true"
    return keys
