"""The fault timeline of an experiment: faults of its brokers, and their times.

Times count from the beginning of the load. A fault is data; worlds inject it, and
`WORLDS_OF` lists the worlds that can. Brokers are named by their number, from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from experiments.design.values import Mean, Name, Rate, Seconds, Section
from experiments.design.workload import Workload

Broker: TypeAlias = Annotated[int, Field(ge=0)]


class Event(Section):
    """An event ``at_s`` seconds into the load."""

    at_s: Rate

    def brokers(self) -> tuple[int, ...]:
        """Return the brokers that the event names."""
        return ()


class Span(Event):
    """A state from ``at_s`` until ``until_s``."""

    until_s: Seconds

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.until_s <= self.at_s:
            raise ValueError(f"until_s = {self.until_s} is not after at_s")
        return self


class Elect(Event):
    """The controller makes ``leader`` the leader of all partitions.

    Without ``leader`` it is a preferred election: each partition's first replica. With
    real brokers another leader is made the preferred one first. With ``one_by_one``
    each partition has its own requests; otherwise a broker receives all in one. A
    replica that is not in sync is not elected.
    """

    kind: Literal["elect"]
    leader: Broker | None = None
    one_by_one: bool = False

    def brokers(self) -> tuple[int, ...]:
        """Return the brokers that the event names."""
        return () if self.leader is None else (self.leader,)


class Reassign(Event):
    """The controller gives all partitions these replicas, the preferred first."""

    kind: Literal["reassign"]
    replicas: Annotated[tuple[Broker, ...], Field(min_length=1)]

    def brokers(self) -> tuple[int, ...]:
        """Return the brokers that the event names."""
        return self.replicas


class Rebalance(Event):
    """The controller elects preferred replicas where another one leads, all at once."""

    kind: Literal["rebalance"]


class Stop(Event):
    """A clean shutdown of a broker."""

    kind: Literal["stop"]
    broker: Broker

    def brokers(self) -> tuple[int, ...]:
        """Return the broker."""
        return (self.broker,)


class Kill(Event):
    """A crash of a broker; its files remain."""

    kind: Literal["kill"]
    broker: Broker

    def brokers(self) -> tuple[int, ...]:
        """Return the broker."""
        return (self.broker,)


class Restart(Event):
    """An ended broker starts again with its files; a running one is stopped first."""

    kind: Literal["restart"]
    broker: Broker

    def brokers(self) -> tuple[int, ...]:
        """Return the broker."""
        return (self.broker,)


class Cut(Span):
    """The two brokers in ``between`` cannot reach each other; others reach both."""

    kind: Literal["cut"]
    between: tuple[Broker, Broker]

    def brokers(self) -> tuple[int, ...]:
        """Return both brokers."""
        return self.between


class Slow(Span):
    """Requests cost a broker ``factor`` times as much.

    A live broker is stopped for part of the time.
    """

    kind: Literal["slow"]
    broker: Broker
    factor: Mean

    def brokers(self) -> tuple[int, ...]:
        """Return the broker."""
        return (self.broker,)


class Fill(Span):
    """A broker's disk is full."""

    kind: Literal["fill"]
    broker: Broker

    def brokers(self) -> tuple[int, ...]:
        """Return the broker."""
        return (self.broker,)


class ScaleLoad(Span):
    """Traffic arrives ``factor`` times as fast: all of it, or one entry's."""

    kind: Literal["scale-load"]
    factor: Mean
    traffic: Name | None = None


Fault: TypeAlias = Annotated[
    Elect
    | Reassign
    | Rebalance
    | Stop
    | Kill
    | Restart
    | Cut
    | Slow
    | Fill
    | ScaleLoad,
    Field(discriminator="kind"),
]

_WITH_BROKERS: Final = frozenset({"virtual", "live"})
WORLDS_OF: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "scale-load": frozenset({"model", "virtual", "live", "kafka", "kraft"}),
        "elect": _WITH_BROKERS | {"kafka"},
        "reassign": _WITH_BROKERS,
        "rebalance": _WITH_BROKERS,
        "stop": _WITH_BROKERS,
        "kill": _WITH_BROKERS,
        "restart": _WITH_BROKERS,
        "cut": _WITH_BROKERS,
        "slow": _WITH_BROKERS,
        "fill": _WITH_BROKERS,
    }
)
_WHY_NOT: Final = MappingProxyType(
    {
        "model": "the model has one broker and no disk",
        "kafka": "its run is rehearsed first, and only an election can be undone",
        "kraft": "its run has one broker, which is left alone",
    }
)


def refusal(fault: Fault, world: str, brokers: int, workload: Workload) -> str:
    """Return the reason that a fault cannot happen in a world, or ""."""
    able = sorted(WORLDS_OF[fault.kind])
    if world not in able:
        return (
            f"{fault.kind!r} cannot happen in the {world} world, for "
            f"{_WHY_NOT[world]}; in {' and '.join(able)} it can"
        )
    if fault.at_s >= workload.duration_s:
        return f"at_s = {fault.at_s} is after the run's end"
    if isinstance(fault, ScaleLoad):
        names = [entry.name for entry in workload.traffic]
        strange = fault.traffic is not None and fault.traffic not in names
        return f"no traffic is called {fault.traffic!r}" if strange else ""
    if brokers == 1:
        return f"{fault.kind!r} needs a [cluster]"
    return _of_brokers(fault, brokers)


def _of_brokers(fault: Fault, brokers: int) -> str:
    """Return the error in a fault's broker numbers, or ""."""
    named = fault.brokers()
    strangers = [number for number in named if number >= brokers]
    if strangers:
        return f"there is no broker {strangers[0]}, only 0 to {brokers - 1}"
    if len(set(named)) < len(named):
        key = "between" if isinstance(fault, Cut) else "replicas"
        return f"{key} = {list(named)} names a broker twice"
    return ""


def conflict(faults: Sequence[Fault], world: str) -> str:
    """Return the reason that faults cannot all happen in a run, or ""."""
    ended: set[int] = set()
    for number, fault in sorted(enumerate(faults), key=lambda it: it[1].at_s):
        if isinstance(fault, Stop | Kill):
            if fault.broker in ended:
                return f"faults[{number}]: broker {fault.broker} has ended before"
            ended.add(fault.broker)
        elif isinstance(fault, Restart):
            ended.discard(fault.broker)
    filled = {fault.broker for fault in faults if isinstance(fault, Fill)}
    for number, fault in enumerate(faults):
        if world == "live" and isinstance(fault, Restart) and fault.broker in filled:
            return (
                f"faults[{number}]: in the live world the disk that is filled goes "
                f"with broker {fault.broker}, which cannot be restarted"
            )
    return ""


def stretched(faults: Iterable[Fault], factor: float) -> tuple[Fault, ...]:
    """Return faults whose instants are stretched with the load's."""
    found = []
    for fault in faults:
        values = {"at_s": fault.at_s * factor}
        if isinstance(fault, Span):
            values["until_s"] = fault.until_s * factor
        found.append(fault.changed(**values))
    return tuple(found)
