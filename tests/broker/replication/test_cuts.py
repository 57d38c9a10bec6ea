"""A follower's truncation of a log with many batches is prepared in steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.disk.storage import join
from broker.log.producers import SNAPSHOT
from broker.log.steps import STEP_RECORDS, run
from broker.log.trimming import recovery_floor
from broker.replication.replica_fetcher import Cut
from tests.broker.log import witness
from tests.broker.replication.replica import Replica, T

BATCHES = 4 * STEP_RECORDS
# The functions of `witness` have no annotations.
LOGS: Any = witness


def told(leader: int, epoch: int) -> Any:
    """Return a partition state as the controller sends it."""
    return SimpleNamespace(
        leader=leader,
        leader_epoch=epoch,
        isr=(0, 1),
        replicas=(0, 1),
        partition_epoch=epoch,
        adding_replicas=(),
        removing_replicas=(),
    )


def follower() -> Replica:
    """Return a follower whose log is to be truncated to half."""
    replica = Replica(0)
    replica.hears(told(leader=1, epoch=1))
    for number in range(BATCHES):
        sent = LOGS.batch([b"v"], producer_id=7, epoch=0, sequence=number)
        replica.log.append(sent, 1, LOGS.NOW_MS)
    storage = replica.log.storage
    for name in storage.names(LOGS.HOME):
        # With a producer snapshot the truncation would read few batches.
        if name.endswith(SNAPSHOT):
            storage.remove(join(LOGS.HOME, name))
    replica.fetcher.following[T].cut = Cut(BATCHES // 2)
    replica.log.durability.lower(recovery_floor(replica.log, BATCHES // 2))
    return replica


def test_a_cut_is_prepared_in_steps() -> None:
    replica = follower()
    work = replica.fetcher.cut(replica.fetcher.following[T])
    next(work)
    assert replica.log.log_end_offset == BATCHES
    run(work)
    assert replica.log.log_end_offset == BATCHES // 2


@pytest.mark.parametrize("leader", [0, 1])
def test_a_cut_is_given_up_when_the_role_changes_meanwhile(leader: int) -> None:
    replica = follower()
    work = replica.fetcher.cut(replica.fetcher.following[T])
    next(work)
    replica.hears(told(leader=leader, epoch=2))
    run(work)
    assert replica.log.log_end_offset == BATCHES
    last = LOGS.batch([b"v"], producer_id=7, epoch=0, sequence=BATCHES)
    assert replica.log.append(last, 2, LOGS.NOW_MS).base_offset == BATCHES
