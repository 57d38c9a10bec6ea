"""A session of episodes: all arms' brokers alive at once, pinned alike.

One broker at a time has load; the others are idle. What an episode leaves of the
brokers' CPU times a fixed loop there. Nothing is joined or written while a session goes
on: the process that does so would share a CPU with what is measured.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from experiments.design.config import Experiment
from experiments.load import trace
from experiments.load.episodes import READY, Order, SessionJob, targets_line
from experiments.load.trace import Trace
from experiments.processes.children import Child
from experiments.processes.pinning import Pinning
from experiments.processes.scratch import scratch
from experiments.processes.speed_probe import SpeedProbe
from experiments.records.broker_rows import SessionRecord
from experiments.records.environment import now
from experiments.records.machine import Watch
from experiments.worlds import generating
from experiments.worlds.episodes import Conditions, Episode
from experiments.worlds.joining import LoadEnd, join
from experiments.worlds.live import brokers
from experiments.worlds.world import Trial

# The first episodes meet a cold interpreter and create files.
_REHEARSALS = 3
_STARTED_TIMEOUT_S = 60.0
_FOREVER_NS = 1 << 62
_STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """One episode as it was played, before anything of it is read."""

    trial: Trial
    replayed: Trace
    end: LoadEnd
    probes_ns: tuple[int, ...]
    machine: dict[str, float]
    observed: Path
    started: str
    seconds: float


class Session:
    """The processes of a session, and the episodes that were played so far.

    :raises experiments.processes.children.RunFailed: if one of them ends or is silent.
    """

    def __init__(
        self,
        world: str,
        experiment: Experiment,
        pinning: Pinning,
        tick: Callable[[], None],
    ) -> None:
        self._world = world
        self._experiment = experiment
        self._pinning = pinning
        self._tick = tick
        self._stack = contextlib.ExitStack()
        self._brokers: dict[str, Child] = {}
        self._played: list[_Played] = []
        self._traces: dict[str, Path] = {}

    def __enter__(self) -> Self:
        """Start everything; end what was started if something does not start."""
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        directory = scratch("doorkeeper-session-")
        self._at = Path(self._stack.enter_context(directory))
        arms = self._experiment.all_arms()
        for arm in arms:
            at = self._of(arm.name)
            at.mkdir()
            broker = brokers.start(self._experiment, arm, at, self._pinning, self._tick)
            self._brokers[arm.name] = self._stack.enter_context(broker)
        targets = {
            arm.name: brokers.target(self._experiment, arm, self._brokers[arm.name])
            for arm in arms
        }
        self._probe = self._stack.enter_context(
            SpeedProbe(self._pinning, self._at, self._tick)
        )
        self._load = self._child("generator", "experiments.load.episodes", self._job())
        self._load.tell(targets_line(targets))
        said = self._load.line(_STARTED_TIMEOUT_S, *self._brokers.values())
        if said != READY:
            raise self._load.failure(f"said {said!r}")

    def _child(self, name: str, module: str, argument: str) -> Child:
        command = [sys.executable, "-m", module, argument]
        complaints = self._at / f"{name}.err"
        return self._stack.enter_context(
            Child(name, command, complaints, tick=self._tick)
        )

    def _job(self) -> str:
        job = SessionJob(
            content=self._experiment.content(),
            binding=asdict(self._pinning.binding(self._pinning.generator)),
        )
        file = self._at / "job.json"
        file.write_text(json.dumps(asdict(job)), encoding="utf-8")
        return str(file)

    def rehearse(self, trial: Trial, replayed: Trace) -> None:
        """Play an episode a few times without a record."""
        for _ in range(_REHEARSALS):
            self._order(trial, replayed, None)

    def play(self, trial: Trial, replayed: Trace) -> Conditions:
        """Play an episode; return the machine that it met."""
        broker = self._brokers[trial.arm.name]
        observed = self._at / f"{trial.run_id}.arrow"
        started, began = now(), time.monotonic()
        everyone = tuple(self._brokers.values())
        watch = Watch(self._probe, self._pinning.broker, everyone)
        cpu = broker.cpu_time()
        summary = self._order(trial, replayed, observed)
        used = broker.cpu_time() - cpu
        probes_ns, machine = watch.end()
        met = Conditions(probes_ns=probes_ns, away_ns=summary.pop("away_ns"))
        self._played.append(
            _Played(
                trial=trial,
                replayed=replayed,
                end=LoadEnd(**summary, broker_cpu=used),
                probes_ns=probes_ns,
                machine={**machine, "away_s": met.away_ns / 1e9},
                observed=observed,
                started=started,
                seconds=time.monotonic() - began,
            )
        )
        return met

    def _order(self, trial: Trial, replayed: Trace, out: Path | None) -> dict[str, Any]:
        """Have the generator play an episode; return what it says of its end."""
        order = Order(
            arm=trial.arm.name,
            trace=str(self._stored(replayed)),
            out=None if out is None else str(out),
        )
        self._load.tell(order.line())
        patience_s = generating.patience_s(trial)
        summary: dict[str, Any] = json.loads(
            self._load.line(patience_s, *self._brokers.values())
        )
        return summary

    def finish(self) -> Iterator[Episode]:
        """Stop all brokers, then join what they and the generator saw, in order."""
        faults = {
            arm: broker.stop(_STOP_TIMEOUT_S) for arm, broker in self._brokers.items()
        }
        records = {
            arm: SessionRecord(brokers.recording(self._of(arm))) for arm in faults
        }
        following_ns: dict[str, list[int]] = {arm: [] for arm in faults}
        for played in self._played:
            following_ns[played.trial.arm.name].append(played.end.origin_ns)
        for played in self._played:
            arm = played.trial.arm.name
            record, end = records[arm], replace(played.end, fault=faults[arm])
            del following_ns[arm][0]
            until_ns = following_ns[arm][0] if following_ns[arm] else _FOREVER_NS
            broker = record.episode(len(played.replayed), end.origin_ns, until_ns)
            if not following_ns[arm]:
                # Told once, when the broker stopped, of the whole session.
                broker = replace(
                    broker, violations=record.violations, accounts=record.accounts
                )
            seen = generating.read(played.observed)
            joined = join(self._world, played.trial, played.replayed, seen, broker, end)
            yield Episode(
                trial=played.trial,
                requests=joined.requests,
                samples=joined.samples,
                result=replace(
                    joined.result, probes_ns=played.probes_ns, machine=played.machine
                ),
                started=played.started,
                seconds=played.seconds,
            )

    def _stored(self, replayed: Trace) -> Path:
        """Store a trace for the generator, once for the arms of its round."""
        name = f"trace-{replayed.block}"
        if name not in self._traces:
            path = self._at / f"{name}.parquet"
            trace.store(replayed, path)
            self._traces = {name: path}
        return self._traces[name]

    def _of(self, arm: str) -> Path:
        return self._at / f"broker-{arm}"
