"""The protocol of a world with sessions: processes of several arms at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from experiments.design.config import Experiment
from experiments.load.trace import Trace
from experiments.worlds.world import MachineTrial, RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A run that was an episode of a session: its rows and its result."""

    trial: MachineTrial
    requests: pa.Table
    samples: pa.Table
    result: RunResult
    started: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions of an episode, none of which depends on the broker's answers.

    ``late_p99_ns`` is the p99 of the generator's lateness. ``off_cpu_ns`` is the
    longest time that the generator was without its CPU after the warm-up. ``loop_us``
    is the mean time of the reference loop on the brokers' CPU.
    """

    late_p99_ns: int = 0
    off_cpu_ns: int = 0
    loop_us: float | None = None


class Session(Protocol):
    """All arms of an experiment, alive; methods raise `RunFailed` if one is not."""

    def run_unrecorded(self, trial: MachineTrial, replayed: Trace) -> None:
        """Run an unrecorded episode on a new arm."""

    def run_episode(self, trial: MachineTrial, replayed: Trace) -> Conditions:
        """Run an episode; return its conditions."""

    def finish(self) -> Iterator[Episode]:
        """End the session; yield every episode in the order of execution."""


class EpisodicWorld(Protocol):
    """A world that can keep the processes of all arms alive."""

    def session(self, experiment: Experiment) -> AbstractContextManager[Session]:
        """Return a session that starts when it is entered."""
