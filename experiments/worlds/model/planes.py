"""The planes of an arm: the broker's own topology, or the parts of KIP-291 one by one.

KIP-291 gave control requests a reader, a queue and a worker together. The model can
give them any subset, which the ablation experiment varies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.config import NUM_IO_THREADS, QUEUED_MAX_REQUESTS, BrokerConfig
from broker.requests import topology
from broker.requests.classifier import CONTROL
from experiments.worlds.model.own_queue import OwnQueue
from experiments.worlds.model.task import ModelTask
from planes import Admission, Block, PlaneCore
from planes.lending import Lending
from schedulers import SchedulerConfig, make


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Planes, the plane of each request, and the reader of control connections.

    With ``flat_levels`` a policy by level has only two levels: control, and the rest.
    """

    planes: Sequence[PlaneCore]
    plane_of: Callable[[ModelTask], PlaneCore]
    own_reader: bool
    flat_levels: bool = False
    lending: Lending | None = None


def lay_out(config: BrokerConfig, own: Sequence[str], rng: random.Random) -> Layout:
    """Create the planes of an arm; ``own`` as in `model_config.ModelArm`."""
    if not {"queue", "worker"} & set(own):
        built = topology.build(config, rng)
        separate = len(built.planes) > 1
        return Layout(
            planes=tuple(built.planes),
            plane_of=_by_class(built.planes[0], built.planes[-1]),
            own_reader=separate or "reader" in own,
            lending=built.lending,
        )
    seats, capacity = config[NUM_IO_THREADS], config[QUEUED_MAX_REQUESTS]
    assert seats > 1, "a worker of its own needs num.io.threads above 1"
    if {"queue", "worker"} <= set(own):
        data = _plane("data", "fifo", Block(capacity=capacity), seats - 1)
        bound = Block(capacity=topology.CONTROL_PLANE_QUEUE)
        control = _plane("control", "fifo", bound, 1)
        planes: tuple[PlaneCore, ...] = (data, control)
    elif "queue" in own:
        # Two queues before the same workers, one of them polled first, are equivalent
        # to one queue with two levels and two bounds.
        bounds = OwnQueue(
            capacity=capacity,
            own_capacity=topology.CONTROL_PLANE_QUEUE,
            owners=frozenset({CONTROL}),
        )
        planes = (_plane("data", "np-priority", bounds, seats),)
    else:
        bound = Block(capacity=capacity)
        planes = (_plane("data", "reserved", bound, seats, steal=0, **{_OWN_SEAT: 1}),)
    return Layout(
        planes=planes,
        plane_of=_by_class(planes[0], planes[-1]),
        own_reader="reader" in own,
        flat_levels=True,
    )


_OWN_SEAT = f"seats.{CONTROL}"


def _by_class(data: PlaneCore, control: PlaneCore) -> Callable[[ModelTask], PlaneCore]:
    """Route by class; both may be the same plane."""
    if data is control:
        return lambda task: data
    return lambda task: control if task.request_class == CONTROL else data


def _plane(
    name: str, policy: str, admission: Admission, seats: int, **options: float
) -> PlaneCore:
    config = SchedulerConfig(seats=seats, options=options)
    return PlaneCore(name, make(policy, config), admission, seats=seats)
