"""The queueing system of an arm, read from the experiment that describes it.

The planes are the broker's own, in the layout of the world; their policy is read, not
run. Features without a closed form (bursts, overheads, a queue that may fill, rejected
requests) are detected here or in ``predict``, and reported.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.config import (
    DOORKEEPER_CLASS_LEVELS,
    DOORKEEPER_PRIORITY_AGEING_MS,
    DOORKEEPER_QUANTUM_US,
    DOORKEEPER_SCHEDULER_OPTIONS,
    DOORKEEPER_WFQ_FLOW,
    DOORKEEPER_WFQ_WEIGHTS,
    BrokerConfig,
)
from broker.requests.classifier import CONTROL
from experiments.design.arrival_processes import Poisson
from experiments.design.capacity import machine_us, read_ns
from experiments.design.config import Arm, Experiment
from experiments.design.model_config import ModelSection
from experiments.design.workload import (
    ConstantService,
    ExponentialService,
    Service,
    Traffic,
)
from experiments.design.world_config import WORLDS
from experiments.theory.services import Moments, moments
from experiments.worlds.model.planes import Layout, lay_out
from experiments.worlds.model.task import ModelTask
from planes import PlaneCore
from schedulers import POLICIES, Fifo, Scheduler, SchedulerConfig

# Number of control's mean busy periods that a kernel's slice must contain, so that the
# control thread gets the CPU whenever it wakes.
_LONG_SLICE = 10
# Settings of the model that these forms take into account.
_KNOWN_SETTINGS = frozenset(
    {
        "server",
        "cpus",
        "slice_us",
        "wakes",
        "granularity_us",
        "service_us",
        "refusal_us",
        "estimate",
        "estimate_bias",
        "estimate_sigma",
        "sizes_known",
        "misclassified",
    }
)


class NoClosedForm(Exception):
    """No form applies; the message states why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Poisson requests of one kind to a plane; times in seconds.

    ``reported`` is their class in the results, ``request_class`` and ``level`` are the
    policy's view. A request can be preempted between ``units`` equal parts. ``rate`` is
    spread over connections with ``connection_rate`` each. ``service`` is None if the
    moments were measured.
    """

    reported: str
    request_class: str
    level: int
    rate: float
    connection_rate: float
    moments: Moments
    service: Service | None
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A policy with its own servers.

    ``segment_s`` is the distance of preemption points: 0 if preemption is possible
    anywhere, infinite if nowhere, None if the segments are the streams' ``units``. With
    ``true_sizes`` the policy knows the sizes. With ``requeues`` every policy picks
    again between segments, whether it preempts or not. With ``takes_turns`` a kernel
    shares fewer CPUs among threads: means are those of servers, the order is not.
    """

    name: str
    policy: str
    scheduler: Scheduler
    servers: int
    streams: Sequence[Stream]
    segment_s: float | None
    requeues: bool
    takes_turns: bool
    true_sizes: bool
    ageing_s: float | None
    quantum_s: float
    ratio: float
    weights: Mapping[str, float]
    flow: str
    capacity: float

    @property
    def load(self) -> float:
        """Return the offered work, in servers."""
        return sum(stream.rate * stream.moments.mean for stream in self.streams)


def system(
    experiment: Experiment, arm: Arm, world: str, measured: Mapping[str, Moments]
) -> tuple[Plane, ...]:
    """Return the planes of an arm, each with its own servers.

    ``measured`` has the moments of reported classes whose service no config states.

    :raises NoClosedForm: if no form is known for such a system.
    """
    config = BrokerConfig.load(None, experiment.broker_keys(arm))
    settings = _settings(experiment, arm, world)
    own = arm.model.own if world == "model" else ()
    layout = lay_out(config, own, random.Random(0))
    cpu = settings.server == "cpu"
    if cpu and len(layout.planes) > 1:
        raise NoClosedForm("planes take turns at one CPU")
    streams = _streams(experiment, config, settings, layout, world, measured)
    preempting = settings.server == "threads" and _preempts(settings, layout, streams)
    if settings.server == "threads" and not preempting:
        _check_threads(settings, layout, streams)
    found = tuple(
        _plane(
            core,
            config,
            settings,
            [it for it in streams if _plane_of(layout, it) is core],
            servers=_servers(settings, core),
            world=world,
            bound=_bound(experiment, core),
        )
        for core in layout.planes
    )
    return (_one_preempting(found),) if preempting else found


def _preempts(
    settings: ModelSection, layout: Layout, streams: Sequence[Stream]
) -> bool:
    """Return whether a waking control thread always takes the CPU from a data thread.

    This holds with one thread each on one CPU, if control uses less than its half and
    does not use up a slice before it sleeps again.
    """
    if len(layout.planes) < 2 or settings.cpus > 1 or not settings.wakes:
        return False
    if any(core.seats > 1 for core in layout.planes):
        return False
    control = [it for it in streams if it.request_class == CONTROL]
    load = sum(it.rate * it.moments.mean for it in control)
    if load >= 0.5:
        return False
    busy_s = max((it.moments.mean for it in control), default=0.0) / (1 - load)
    return settings.slice_us * 1e-6 >= _LONG_SLICE * busy_s


def _one_preempting(planes: Sequence[Plane]) -> Plane:
    """Return the equivalent of two threads, one preempting: preemptive-resume."""
    streams = [
        replace(it, level=int(it.request_class != CONTROL))
        for plane in planes
        for it in plane.streams
    ]
    return replace(
        planes[0],
        name="both",
        policy="priority",
        scheduler=POLICIES["priority"](SchedulerConfig()),
        streams=streams,
        segment_s=0.0,
        takes_turns=False,
        ageing_s=None,
        # Control's own queue is short, but so is the number of its waiting requests.
        capacity=max(plane.capacity for plane in planes),
    )


def _servers(settings: ModelSection, core: PlaneCore) -> int:
    match settings.server:
        case "cpu":
            return 1
        case "threads":
            return min(core.seats, settings.cpus)
        case _:
            return core.seats


def _check_threads(
    settings: ModelSection, layout: Layout, streams: Sequence[Stream]
) -> None:
    """Check whether threads on shared CPUs serve like as many servers.

    With a CPU each they do. With fewer CPUs they take turns, which changes no mean if
    services are exponential and identical, and requests are picked in arrival order.
    """
    if sum(core.seats for core in layout.planes) <= settings.cpus:
        return
    if len(layout.planes) > 1:
        raise NoClosedForm("threads of two planes share CPUs")
    alike = {stream.service for stream in streams}
    memoryless = all(isinstance(it, ExponentialService) for it in alike)
    if layout.planes[0].seats > 1 and not (len(alike) == 1 and memoryless):
        raise NoClosedForm("threads take turns, and services are not all alike")
    if layout.planes[0].seats > 1 and not isinstance(layout.planes[0].scheduler, Fifo):
        raise NoClosedForm(
            "threads take turns, and requests are not picked as they come"
        )


def _plane(
    core: PlaneCore,
    config: BrokerConfig,
    settings: ModelSection,
    streams: Sequence[Stream],
    *,
    servers: int,
    world: str,
    bound: float,
) -> Plane:
    if core.admission.judges:
        raise NoClosedForm("admission may turn requests away")
    made: Any = type(core.scheduler)
    named = [name for name, factory in POLICIES.items() if factory is made]
    exact = settings.estimate_bias == 1 and settings.estimate_sigma == 0
    known = settings.sizes_known or settings.estimate == "true"
    pieces = world == "model" or settings.server == "seats"
    segment_s = settings.granularity_us * 1e-6 if pieces else None
    threads = settings.server == "threads"
    if threads or (world == "virtual" and segment_s == 0):
        segment_s = math.inf
    ageing_ms = config[DOORKEEPER_PRIORITY_AGEING_MS]
    return Plane(
        name=core.name,
        policy=named[0] if named else "a policy of one's own",
        scheduler=core.scheduler,
        servers=servers,
        streams=streams,
        segment_s=segment_s,
        requeues=world == "virtual" and segment_s not in (None, math.inf),
        takes_turns=threads and core.seats > settings.cpus,
        true_sizes=world == "model" and known and exact,
        ageing_s=ageing_ms / 1000 if ageing_ms else None,
        quantum_s=config[DOORKEEPER_QUANTUM_US] * 1e-6,
        ratio=config[DOORKEEPER_SCHEDULER_OPTIONS].get("ratio", 2.0),
        weights={
            name: float(weight)
            for name, weight in config[DOORKEEPER_WFQ_WEIGHTS].items()
        },
        flow=config[DOORKEEPER_WFQ_FLOW],
        capacity=bound,
    )


def _settings(experiment: Experiment, arm: Arm, world: str) -> ModelSection:
    """Return the model's settings; outside the model, the fixed ones."""
    if world == "live":
        return ModelSection()
    if not WORLDS[world].rows:
        return _kafkas(arm.model.settings(experiment.model))
    if world == "virtual":
        virtual = experiment.virtual
        if any(virtual.latency_us):
            raise NoClosedForm("bytes take time to travel")
        if read_ns(experiment):
            raise NoClosedForm("reading a request costs time that no policy orders")
        if virtual.preemption_us:
            raise NoClosedForm(
                f"preemption_us = {virtual.preemption_us} in virtual time"
            )
        return ModelSection(
            server=virtual.server, granularity_us=virtual.granularity_us
        )
    settings = arm.model.settings(experiment.model)
    for name, field in ModelSection.model_fields.items():
        value = getattr(settings, name)
        usual = field.get_default(call_default_factory=True)
        if name not in _KNOWN_SETTINGS and value != usual:
            raise NoClosedForm(f"{name} = {value} in the model")
    return settings


def _kafkas(settings: ModelSection) -> ModelSection:
    """Return the settings of Apache Kafka: threads, with their inherent overheads.

    :raises NoClosedForm: if the model of the arm is another system.
    """
    if settings.server != "threads":
        raise NoClosedForm("the arm's model is not of threads, as Apache Kafka is")
    kept = {name: getattr(settings, name) for name in ("cpus", "slice_us", "wakes")}
    return ModelSection(server="threads", **kept)


def _streams(
    experiment: Experiment,
    config: BrokerConfig,
    settings: ModelSection,
    layout: Layout,
    world: str,
    measured: Mapping[str, Moments],
) -> list[Stream]:
    levels: dict[str, int] = config[DOORKEEPER_CLASS_LEVELS]
    if layout.flat_levels:
        levels = {name: int(name != CONTROL) for name in levels}
    streams = []
    for entry in experiment.workload.traffic:
        rate = _poisson_rate(experiment, entry)
        service, found = _service(experiment, entry, settings, world, measured)
        right = entry.request.sent_class
        share = settings.misclassified
        parts = [(CONTROL, share), (right, 1 - share)] if share else [(right, 1.0)]
        streams += [
            Stream(
                reported=entry.reported_class,
                request_class=request_class,
                level=levels[request_class],
                rate=rate * part,
                connection_rate=rate / entry.connections,
                moments=found,
                service=service,
                units=getattr(entry.request, "partitions", 1),
            )
            for request_class, part in parts
            if rate * part
        ]
    return streams


def _poisson_rate(experiment: Experiment, entry: Traffic) -> float:
    if entry.client is not None or entry.shares is not None:
        raise NoClosedForm(f"requests of {entry.name} wait for answers to others")
    whole = entry.start_s == 0 and entry.stop_s is None
    if not isinstance(entry.arrivals, Poisson) or not whole:
        kind = entry.arrivals.kind if whole else "not for the whole run"
        raise NoClosedForm(f"arrivals of {entry.name} are not Poisson ({kind})")
    return entry.arrivals.per_s


def _service(
    experiment: Experiment,
    entry: Traffic,
    settings: ModelSection,
    world: str,
    measured: Mapping[str, Moments],
) -> tuple[Service | None, Moments]:
    if world == "live":
        if entry.reported_class not in measured:
            raise NoClosedForm(f"the service of {entry.name} was not measured")
        return None, measured[entry.reported_class]
    service = entry.service
    if not WORLDS[world].rows:
        service = ConstantService(
            kind="constant", mean_us=machine_us(experiment)[entry.name]
        )
    if service is None:
        if world == "virtual":
            raise NoClosedForm(f"{entry.name} has no service, only a cost per slice")
        service = ConstantService(kind="constant", mean_us=settings.service_us)
    return service, moments(service)


def _plane_of(layout: Layout, stream: Stream) -> PlaneCore:
    return layout.plane_of(ModelTask(0, 0, 1, request_class=stream.request_class))


def _bound(experiment: Experiment, core: PlaneCore) -> float:
    """Return the queue's bound, infinite if the connections are too few to reach it.

    A connection has one request in the broker at a time.
    """
    connections = sum(entry.connections for entry in experiment.workload.traffic)
    capacity = core.admission.capacity
    return float("inf") if connections <= capacity else float(capacity)
