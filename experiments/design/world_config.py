"""The worlds by name, as data, and the settings of two of them.

A world is a module with a function ``make(tick)`` that returns a `worlds.world.World`;
``tick`` is called about once a second during a run. A world's module is imported only
when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from experiments.design.values import Mean, Rate, Section

BrokerKeys: TypeAlias = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldEntry:
    """A world's module; ``computed`` if its runs are the same rows on any machine.

    ``rows`` if its brokers keep a row of each request, with its cost.
    """

    module: str
    computed: bool
    rows: bool = True


WORLDS: Final[Mapping[str, WorldEntry]] = MappingProxyType(
    {
        "live": WorldEntry(module="experiments.worlds.live.live_world", computed=False),
        "virtual": WorldEntry(
            module="experiments.worlds.virtual.virtual_world", computed=True
        ),
        "model": WorldEntry(
            module="experiments.worlds.model.model_world", computed=True
        ),
        "kafka": WorldEntry(
            module="experiments.worlds.kafka.kafka_world",
            computed=False,
            rows=False,
        ),
        "kraft": WorldEntry(
            module="experiments.worlds.kafka.kraft",
            computed=False,
            rows=False,
        ),
    }
)


def known(name: str) -> str:
    """Return ``name`` if it is a world's.

    :raises ValueError: if it is not.
    """
    if name not in WORLDS:
        worlds = ", ".join(map(repr, WORLDS))
        raise ValueError(f"found {name!r}, expected one of {worlds}")
    return name


class MeasuredWorld(Section):
    """Broker keys of one measured world alone: there they cost something."""

    set: BrokerKeys = Field(default_factory=dict)


class KafkaArm(Section):
    """An arm's request queue in the kafka and kraft worlds, if not the one it implies.

    ``unchanged`` loads the agent, which then changes nothing: the A/A control.
    ``replaced`` gives an arm that Kafka has by itself the agent's queue with the same
    order and reader: their difference is the agent's cost.
    """

    queue: Literal["unchanged", "replaced"] | None = None


class VirtualWorld(Section):
    """Settings of the virtual world, which it cannot measure.

    ``slice_us`` is the cost of one slice of a handler, by request class;
    ``other_slice_us`` where it names none. A traffic entry's ``service`` has precedence
    over both, and ``refusal_us`` is the cost of a rejection. ``latency_us`` bounds the
    time that bytes travel, in either direction; ``preemption_us`` is lost at each
    preemption of a handler, and billed to the next task.

    With ``server`` = ``seats`` a handler waits for its request's demand at a device of
    its own, in pieces of ``granularity_us`` (0: all at once), and computing is free: as
    many servers as ``num.io.threads``, instead of one CPU.
    """

    server: Literal["cpu", "seats"] = "cpu"
    granularity_us: Rate = 0.0
    slice_us: dict[str, Mean] = Field(default_factory=dict)
    other_slice_us: Mean = 50.0
    refusal_us: Rate = 10.0
    preemption_us: Rate = 0.0
    latency_us: tuple[Rate, Rate] = (0.0, 0.0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.preemption_us and self.server != "cpu":
            raise ValueError(
                f"preemption_us is of server 'cpu'; with {self.server!r} "
                "kernel.preemption_us is the loss of threads, and seats lose nothing"
            )
        return self
