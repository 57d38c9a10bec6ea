"""Elections written by hand: attempts with known values of every measure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.records.attempts import Attempt, attempts_table
from experiments.records.recording import NEVER, RunLabels, write
from spark_analysis.recordings.columns import STAMPS
from tests.spark_analysis import synthetic

MS = 1_000_000
OLD, NEW = 0, 1
PRODUCE, METADATA, LEADER_AND_ISR, UPDATE_METADATA = 0, 3, 4, 6
OK, NOT_LEADER, TIMED_OUT, STORAGE = 0, 6, 7, 56
DECIDED_MS = 100


class Hand:
    """Attempts of one run, added one by one; times are in milliseconds."""

    def __init__(self) -> None:
        self.rows: list[Attempt] = []
        self.stamps: list[tuple[int, int, int]] = []

    def add(
        self,
        api_key: int,
        broker: int,
        *,
        due: float,
        local: float | None,
        remote: float | None = None,
        done: float | None,
        code: int = OK,
        broker_code: int | None = None,
        acks: int = -1,
        partition: int = 0,
        leader: int = -1,
        kept: int = 1,
    ) -> None:
        """Add an attempt; the broker's error equals the client's unless given."""

        def ns(at_ms: float | None) -> int:
            return NEVER if at_ms is None else round(at_ms * MS)

        row = Attempt(
            request_id=len(self.rows),
            broker=broker,
            api_key=api_key,
            partition=partition,
            acks=acks,
            records=10 if api_key == PRODUCE else 0,
            intended_ns=ns(due),
            sent_ns=ns(due),
            client_done_ns=ns(done),
            error_code=code,
            base_offset=-1,
            leader=leader,
            kept=kept,
        )
        self.rows.append(row)
        own = code if broker_code is None else broker_code
        answered = local if remote is None else remote
        self.stamps.append((ns(local), ns(answered), own))


def incident(step_down_ms: float) -> Hand:
    """One election whose old leader obeys its last LEADER_AND_ISR late.

    Per run: 10 records accepted in vain for each of three writes, of which one with
    acks=1 is acknowledged and lost; one write timed out, and one failed with
    NOT_LEADER.
    """
    hand, until = Hand(), DECIDED_MS + step_down_ms
    for at, api in ((1, LEADER_AND_ISR), (3, UPDATE_METADATA)):
        hand.add(api, NEW, due=DECIDED_MS, local=DECIDED_MS + at, done=104, leader=NEW)
    hand.add(LEADER_AND_ISR, OLD, due=DECIDED_MS, local=until, done=until, leader=NEW)
    hand.add(UPDATE_METADATA, OLD, due=100, local=until + 1, done=until + 1)
    # Before the decision: accepted, and acknowledged 10 ms after it.
    hand.add(PRODUCE, OLD, due=80, local=90, remote=110, done=110)
    hand.add(PRODUCE, OLD, due=80, local=90, remote=95, done=95, partition=1)
    # In vain: failed by the step-down, timed out before it, acknowledged with acks=1.
    hand.add(PRODUCE, OLD, due=90, local=105, remote=until, done=until, code=NOT_LEADER)
    hand.add(
        PRODUCE,
        OLD,
        due=95,
        local=106,
        remote=until,
        done=None,
        code=TIMED_OUT,
        broker_code=NOT_LEADER,
        kept=0,
    )
    hand.add(PRODUCE, OLD, due=96, local=107, done=108, acks=1, kept=0)
    # A refusal is no acceptance, and only NOT_LEADER counts as a fast failure.
    hand.add(PRODUCE, OLD, due=97, local=until + 2, done=until + 2, code=STORAGE)
    # The new leader: partition 1 is writable after 40 ms, partition 0 after the others.
    hand.add(PRODUCE, NEW, due=99, local=130, remote=140, done=140, partition=1)
    hand.add(PRODUCE, NEW, due=99, local=until, remote=until + 5, done=until + 5)
    hand.add(PRODUCE, NEW, due=120, local=until, remote=until + 20, done=until + 20)
    # No write is due for partition 2 until a moment before the recovery of partition 0,
    # and none at all for partition 3.
    hand.add(PRODUCE, OLD, due=50, local=60, remote=65, done=65, partition=2)
    hand.add(PRODUCE, OLD, due=50, local=60, remote=65, done=65, partition=3)
    soon = until - 1
    hand.add(PRODUCE, NEW, due=soon, local=soon, done=until + 3, partition=2)
    # Due after the recovery, so its end does not count.
    late = until + 6
    hand.add(PRODUCE, NEW, due=late, local=late + 1, remote=late + 50, done=late + 50)
    # Metadata: stale until 30 ms after the decision; a failure names no leader.
    hand.add(METADATA, OLD, due=120, local=130, done=130, leader=OLD)
    hand.add(METADATA, NEW, due=120, local=131, done=131, leader=NEW)
    hand.add(METADATA, OLD, due=140, local=None, done=None, code=TIMED_OUT)
    return hand


def step_down_ms(arm: str, block: int) -> float:
    return {"priority": 20.0}.get(arm, 200.0) + block


def written(
    at: Path, world: str, step_down_ms: Callable[[str, int], float], places: int = 4
) -> None:
    """Write a run directory of a world, with the step-down of each arm and block.

    Four writes wait at the decision, in a queue with room for ``places``.
    """
    manifest = synthetic.write(at, blocks=8, seconds=0.1, arms=("fifo", "priority"))
    manifest["world"] = world
    manifest["config"] |= {
        "cluster": {"leader": OLD, "request_timeout_ms": 500.0},
        "faults": [{"kind": "elect", "at_s": 0.1}],
        "broker": {"set": {"queued.max.requests": places}},
    }
    for run in manifest["runs"]:
        hand = incident(step_down_ms(run["arm"], run["block"]))
        labels = RunLabels(
            run_id=run["run_id"],
            block=run["block"],
            session=run["block"],
            arm=run["arm"],
            scheduler=run["scheduler"],
            world=world,
        )
        local, remote, code = np.array(hand.stamps, np.int64).T
        stamps = dict.fromkeys(STAMPS, local)
        stamps |= {"remote_done_ns": remote, "broker_error_code": code}
        run["attempts"] = f"attempts/{run['run_id']}.parquet"
        write(attempts_table(labels, hand.rows, stamps), at / run["attempts"])
    synthetic.save(at, manifest)
