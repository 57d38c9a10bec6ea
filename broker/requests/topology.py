"""The planes of a broker, with their policies and their listeners."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.config import (
    CONTROL_PLANE_LISTENER_NAME,
    DOORKEEPER_DATA_SCHEDULER,
    DOORKEEPER_PLANES_LENDING,
    DOORKEEPER_PRIORITY_AGEING_MS,
    DOORKEEPER_QUANTUM_US,
    DOORKEEPER_SCHEDULER,
    DOORKEEPER_SCHEDULER_OPTIONS,
    DOORKEEPER_WFQ_WEIGHTS,
    NUM_IO_THREADS,
    NUM_NETWORK_THREADS,
    ZOOKEEPER_CONNECT,
    BrokerConfig,
    Key,
    Listener,
)
from broker.protocol.errors import ConfigError
from broker.requests.admission_rule import admission
from planes import Block, PlaneCore
from planes.lending import Lending
from schedulers import BadSetting, Scheduler, SchedulerConfig
from schedulers.registry import POLICIES, UnknownScheduler, make, nearest

PLANES: Final = "planes"
PLANES_LENDING: Final = "planes-lending"
DATA_PLANE: Final = "data"
CONTROL_PLANE: Final = "control"
CONTROL_PLANE_QUEUE: Final = 20
CONTROL_PLANE_SEATS: Final = 1
CONTROL_PLANE_PROCESSORS: Final = 1
# The listener that ``planes`` adds if no control-plane listener is configured.
_CONTROLLER: Final = Listener(
    name="CONTROLLER", host="127.0.0.1", port=0, security_protocol="PLAINTEXT"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A listener, its plane, and its number of processors."""

    listener: Listener
    plane: PlaneCore
    processors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The planes of a broker, a route for each listener, and the lending of seats."""

    planes: Sequence[PlaneCore]
    routes: Sequence[Route]
    lending: Lending | None = None


def has_control_plane(config: BrokerConfig) -> bool:
    """Return whether controllers have their own plane and listener."""
    named = config.control_plane_listener is not None
    return named or config[DOORKEEPER_SCHEDULER] in (PLANES, PLANES_LENDING)


def build(config: BrokerConfig, rng: random.Random) -> Topology:
    """Create the planes of ``config``; ``rng`` is for randomized policies.

    :raises ConfigError: if a policy is unknown or rejects its settings.
    """
    key = DOORKEEPER_SCHEDULER
    if config[key] in (PLANES, PLANES_LENDING):
        key = DOORKEEPER_DATA_SCHEDULER
    data = PlaneCore(
        DATA_PLANE,
        _scheduler(config, key, rng),
        admission(config),
        seats=config[NUM_IO_THREADS],
    )
    control_listener = _control_listener(config)
    data_routes = [
        Route(
            listener=listener,
            plane=data,
            processors=config.on_listener(listener.name, NUM_NETWORK_THREADS),
        )
        for listener in config.listeners
        if listener != control_listener
    ]
    if control_listener is None:
        return Topology(planes=(data,), routes=data_routes)
    control = PlaneCore(
        CONTROL_PLANE,
        make("fifo", SchedulerConfig()),
        Block(capacity=CONTROL_PLANE_QUEUE),
        seats=CONTROL_PLANE_SEATS,
    )
    lending = None
    if config[DOORKEEPER_SCHEDULER] == PLANES_LENDING:
        borrowers = {
            "both": (data, control),
            "to-control": (control,),
            "to-data": (data,),
        }
        lending = Lending((data, control), borrowers[config[DOORKEEPER_PLANES_LENDING]])
    control_route = Route(
        listener=control_listener, plane=control, processors=CONTROL_PLANE_PROCESSORS
    )
    return Topology(
        planes=(data, control), routes=[*data_routes, control_route], lending=lending
    )


def _control_listener(config: BrokerConfig) -> Listener | None:
    """Return the listener of the control plane, if there is such a plane."""
    if config.control_plane_listener is not None:
        return config.control_plane_listener
    if config[DOORKEEPER_SCHEDULER] not in (PLANES, PLANES_LENDING):
        return None
    key, expected = CONTROL_PLANE_LISTENER_NAME, "the name of the control's listener"
    if config[ZOOKEEPER_CONNECT] is not None:
        expected += f", which {config[DOORKEEPER_SCHEDULER]} needs under ZooKeeper"
        raise ConfigError(key.name, config[key], expected)
    if any(listener.name == _CONTROLLER.name for listener in config.listeners):
        raise ConfigError(key.name, config[key], f"{expected}, as CONTROLLER is taken")
    return _CONTROLLER


def scheduler_settings(config: BrokerConfig, rng: random.Random) -> SchedulerConfig:
    """Return the settings of the data plane's policy."""
    ageing_ms = config[DOORKEEPER_PRIORITY_AGEING_MS]
    weights = config[DOORKEEPER_WFQ_WEIGHTS]
    return SchedulerConfig(
        weights={request_class: float(each) for request_class, each in weights.items()},
        seats=config[NUM_IO_THREADS],
        ageing_ns=ageing_ms * 1_000_000 or None,
        quantum_ns=config[DOORKEEPER_QUANTUM_US] * 1000,
        options=config[DOORKEEPER_SCHEDULER_OPTIONS],
        rng=rng,
    )


def _scheduler(config: BrokerConfig, key: Key[str], rng: random.Random) -> Scheduler:
    try:
        return make(config[key], scheduler_settings(config, rng))
    except BadSetting as error:
        options = DOORKEEPER_SCHEDULER_OPTIONS
        expected = f"a value that the policy can use; {error}"
        raise ConfigError(options.name, config[options], expected) from error
    except UnknownScheduler as error:
        if ":" in config[key]:
            expected = f"a factory that can be imported; {error}"
        else:
            presets = (PLANES, PLANES_LENDING) if key is DOORKEEPER_SCHEDULER else ()
            names = (*presets, *POLICIES)
            expected = f"one of {', '.join(names)}, or module:factory"
            expected += nearest(config[key], names)
        raise ConfigError(key.name, config[key], expected) from error
