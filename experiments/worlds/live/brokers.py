"""A live broker process: its configuration, its start, and where it listens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from experiments.design.config import Arm, Experiment
from experiments.load.generator import Address, Target
from experiments.processes.children import Child, RunFailed, bound_child
from experiments.processes.pinning import Pinning
from experiments.worlds.world import WorldError

_START_TIMEOUT_S = 20.0
_READY = "listening on "
_CONTROLLER = "CONTROLLER"


def start(
    experiment: Experiment,
    arm: Arm,
    at: Path,
    pinning: Pinning,
    tick: Callable[[], None],
    *,
    number: int = 0,
    apart: bool = False,
) -> Child:
    """Start an arm's broker, with its files below ``at``.

    ``number`` is its node id; one that is ``apart`` shares the generator's CPU.
    """
    properties = at / "server.properties"
    keys = _properties(experiment, arm, at, number)
    properties.write_text(keys, encoding="utf-8")
    command = [sys.executable, "-m", "doorkeeper", "serve", "--config", str(properties)]
    binding = pinning.binding(pinning.generator if apart else pinning.broker)
    return bound_child("broker", command, at, binding, tick)


def recording(at: Path) -> Path:
    """Return where the broker below ``at`` records its requests."""
    return at / "broker.rows"


def target(experiment: Experiment, arm: Arm, broker: Child) -> Target:
    """Wait until the broker listens; return where, for data and for control.

    When it is ready, a broker says ``listening on NAME://host:port`` for each listener.

    :raises WorldError: if the broker ended: the next one would do so too.
    """
    keys = experiment.broker_keys(arm)
    control = keys.get("control.plane.listener.name")
    expected = len(keys.get("listeners", "one").split(","))
    if control is None and arm.scheduler in ("planes", "planes-lending"):
        control = _CONTROLLER
        expected += 1
    found: dict[str, Address] = {}
    for _ in range(expected):
        line = _said(arm, broker)
        name, _, address = line.removeprefix(_READY).partition("://")
        host, _, port = address.rpartition(":")
        if not line.startswith(_READY) or not port.isdecimal():
            raise broker.failure(f"said {line!r}, not where it listens")
        found[name] = (host.strip("[]"), int(port))
    data = [address for name, address in found.items() if name != control]
    return Target(data=data[0], control=found.get(control or ""))


def _properties(experiment: Experiment, arm: Arm, at: Path, number: int) -> str:
    """Return the broker's configuration: the arm's keys, then what the run owns."""
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        # All connections of a load come at once; Kafka's 50 would drop some, and the
        # kernel tries those again only after a second.
        "socket.listen.backlog.size": "1024",
        "node.id": str(number),
        **experiment.broker_keys(arm, experiment.live.set),
        "log.dirs": str(at / "data"),
        "doorkeeper.record.file": str(recording(at)),
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def _said(arm: Arm, broker: Child) -> str:
    """Wait for a line from a broker that starts."""
    try:
        return broker.line(_START_TIMEOUT_S)
    except RunFailed as failure:
        if not broker.ended:
            raise
        raise WorldError(f"arm {arm.name!r} cannot start: {failure}") from failure
