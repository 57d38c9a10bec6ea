"""What a world is that can play episodes: sessions in which all arms are alive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from experiments.design.config import Experiment
from experiments.load.trace import Trace
from experiments.worlds.world import RunResult, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A run that was an episode of a session: its rows, and how it went."""

    trial: Trial
    requests: pa.Table
    samples: pa.Table
    result: RunResult
    started: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The machine that an episode met: nothing in it is a broker's doing.

    ``probes_ns`` are times of a fixed loop on the brokers' CPU. From the end of the
    warm-up on, ``slowest_ns`` is what it took at its slowest, for some milliseconds,
    and ``away_ns`` for how long the generator was without its CPU, at the worst.
    """

    probes_ns: tuple[int, ...]
    slowest_ns: int = 0
    away_ns: int = 0


class Session(Protocol):
    """All arms of an experiment, alive; each verb raises `RunFailed` if one is not."""

    def rehearse(self, trial: Trial, replayed: Trace) -> None:
        """Play an episode to an arm that is new, without a record."""

    def play(self, trial: Trial, replayed: Trace) -> Conditions:
        """Play an episode; return the machine that it met."""

    def finish(self) -> Iterator[Episode]:
        """End the session; yield every episode, in the order in which they ran."""


class EpisodicWorld(Protocol):
    """A world that can keep all arms alive."""

    def session(self, experiment: Experiment) -> AbstractContextManager[Session]:
        """Return a session that starts when it is entered."""
