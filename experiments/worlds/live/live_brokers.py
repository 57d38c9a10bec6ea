"""A live broker process: its configuration, its start, and its addresses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from experiments.design.config import Arm, Experiment
from experiments.load.generator import Address, Target
from experiments.processes.child import Binding
from experiments.processes.children import Child, RunFailed, bound_child
from experiments.processes.pinning import Pinning
from experiments.worlds.world import LOAD_AS_CONTROLLER, WorldError

_START_TIMEOUT_S = 20.0
_READY = "listening on "
_CONTROLLER = "CONTROLLER"
_NO_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({})
SERVE: Final = ("doorkeeper", "serve", "--config")
# A broker that can be cut off from others.
SERVE_CUT_OFF: Final = ("experiments.processes.cut_off",)


def start(
    experiment: Experiment,
    arm: Arm,
    at: Path,
    pinning: Pinning,
    tick: Callable[[], None],
    defaults: Mapping[str, str] = _NO_DEFAULTS,
) -> Child:
    """Start an arm's broker on any CPU, with its files below ``at``.

    ``defaults`` are for keys that the experiment does not state.
    """
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "node.id": "0",
        **LOAD_AS_CONTROLLER,
        **defaults,
        **experiment.broker_keys(arm, experiment.live.set),
        "doorkeeper.record.file": str(recording(at)),
    }
    return start_with(keys, at, pinning.binding(None), tick)


def start_with(
    keys: Mapping[str, str],
    at: Path,
    binding: Binding,
    tick: Callable[[], None],
    *,
    within: Sequence[str] = (),
    serve: Sequence[str] = SERVE,
) -> Child:
    """Start a broker with this configuration, its files below ``at``.

    ``within`` is a command that sets up an environment and executes the broker.
    ``serve`` is the module to run, with all arguments except the properties. A
    restarted broker keeps its logs.
    """
    properties = at / "server.properties"
    whole = {
        # All connections of a load are opened at once. Kafka's 50 would drop some, and
        # the kernel retries only after a second.
        "socket.listen.backlog.size": "1024",
        **keys,
        "log.dirs": str(data(at)),
    }
    text = "".join(f"{key}={value}\n" for key, value in whole.items())
    properties.write_text(text, encoding="utf-8")
    command = [*within, sys.executable, "-m", *serve, str(properties)]
    return bound_child("broker", command, at, binding, tick)


def data(at: Path) -> Path:
    """Return the log directory of the broker below ``at``."""
    return at / "data"


def recording(at: Path) -> Path:
    """Return the recording of the broker below ``at``."""
    return at / "broker.rows"


def target(experiment: Experiment, arm: Arm, broker: Child) -> Target:
    """Wait until the broker listens; return its addresses for data and for control.

    A ready broker prints ``listening on NAME://host:port`` for each listener.

    :raises WorldError: if the broker ended, because the next one would too.
    """
    keys = experiment.broker_keys(arm)
    control = keys.get("control.plane.listener.name")
    expected = len(keys.get("listeners", "one").split(","))
    if control is None and arm.scheduler in ("planes", "planes-lending"):
        control = _CONTROLLER
        expected += 1
    found = listening(arm, broker, expected)
    others = [address for name, address in found.items() if name != control]
    return Target(data=others[0], control=found.get(control or ""))


def listening(
    arm: Arm, broker: Child, count: int, timeout_s: float = _START_TIMEOUT_S
) -> dict[str, Address]:
    """Wait until a broker has ``count`` listeners; return their addresses by name.

    :raises WorldError: if it ended before.
    """
    found: dict[str, Address] = {}
    for _ in range(count):
        line = _starting_line(arm, broker, timeout_s)
        name, _, address = line.removeprefix(_READY).partition("://")
        host, _, port = address.rpartition(":")
        if not line.startswith(_READY) or not port.isdecimal():
            raise broker.failure(f"printed {line!r}, expected its addresses")
        found[name] = (host.strip("[]"), int(port))
    return found


def _starting_line(arm: Arm, broker: Child, timeout_s: float) -> str:
    """Wait for a line from a starting broker."""
    try:
        return broker.line(timeout_s)
    except RunFailed as failure:
        if not broker.ended:
            raise
        raise WorldError(f"arm {arm.name!r} cannot start: {failure}") from failure
