"""The worlds by name, as data, and the settings of two of them.

A world is a module with a function ``make(tick)`` that returns a `worlds.world.World`;
``tick`` is called about once per second during a run. A world's module is imported on
first use.
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
    """A world's module, with two properties of its runs.

    ``computed``: its runs give the same rows on any machine. ``rows``: its brokers
    record a row of each request, with its cost.
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
    """Return ``name`` if it is the name of a world.

    :raises ValueError: if it is not.
    """
    if name not in WORLDS:
        worlds = ", ".join(map(repr, WORLDS))
        raise ValueError(f"found {name!r}, expected one of {worlds}")
    return name


class MeasuredWorld(Section):
    """Broker keys of one measured world only: keys that change the cost of requests."""

    set: BrokerKeys = Field(default_factory=dict)


class KafkaArm(Section):
    """An arm's request queue in the kafka and kraft worlds, if not the implied one.

    ``unchanged`` loads the agent without an effect: the A/A control. ``replaced`` gives
    an arm that Kafka itself implements the agent's queue with the same order and
    reader: the difference is the agent's cost.
    """

    queue: Literal["unchanged", "replaced"] | None = None


class VirtualWorld(Section):
    """Settings of the virtual world that it cannot measure.

    ``slice_us`` is the cost of one slice of a handler, by request class, and
    ``other_slice_us`` that of other classes. A traffic entry's ``service`` has
    precedence over both. ``refusal_us`` is the cost of a rejection. ``latency_us``
    bounds the latency of bytes, in either direction. ``preemption_us`` is lost at each
    preemption of a handler, and billed to the next task.

    With ``server`` = ``seats`` a handler waits for its request's demand at its own
    device, in pieces of ``granularity_us`` (0: all at once), and computing is free.
    There are then ``num.io.threads`` servers instead of one CPU.
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
