"""Records are hidden from consumers until flushed: power loss may remove them.

In seeds 11853, 16559 and 16827 of the swarm, a consumer read a record that was lost
with the power. Its offset had another record afterwards.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from broker.cluster.follower import NO_OTHERS
from broker.cluster.partition import ALL_REPLICAS, Partition
from broker.log import flushing
from broker.protocol.topic_partition import TopicPartition
from tests.broker.log import witness
from tests.broker.log.witness import NOW_MS

# `Any`, since the functions of `witness` have no annotations.
LOGS: Final[Any] = witness


def leader(replicas: tuple[int, ...] = (1,), **config: int) -> Partition:
    """Return a partition that broker 1 leads, with all replicas in sync."""
    partition = Partition(
        TopicPartition("t", 0),
        None,
        LOGS.open_log(**config),
        local_id=1,
        min_insync=lambda: 1,
        sync=NO_OTHERS,
    )
    word: Any = SimpleNamespace(
        controller_epoch=1,
        leader=1,
        leader_epoch=0,
        isr=replicas,
        partition_epoch=0,
        replicas=replicas,
        adding_replicas=(),
        removing_replicas=(),
    )
    partition.make_leader(word)
    return partition


def append(partition: Partition, now_ms: int = NOW_MS) -> None:
    partition.append(LOGS.batch([b"v"]), ALL_REPLICAS, now_ms)


def test_a_record_is_shown_when_it_is_durable() -> None:
    partition = leader(flush_messages=2)
    append(partition)
    # One record is below `flush.messages`, so no flush is due.
    assert partition.high_watermark == 1
    append(partition)
    assert partition.withheld.any
    assert partition.high_watermark == 1
    assert not partition.advance_high_watermark()
    flushing.flush(partition.log)
    assert not partition.withheld.any
    assert partition.advance_high_watermark()
    assert partition.high_watermark == 2


def test_a_log_flushed_by_time_withholds_by_time() -> None:
    partition = leader(flush_ms=1000)
    append(partition)
    flushing.flush(partition.log, NOW_MS)
    append(partition, NOW_MS + 999)
    assert partition.high_watermark == 2
    append(partition, NOW_MS + 1000)
    assert partition.high_watermark == 2


def test_followers_fetch_what_consumers_do_not_see() -> None:
    partition = leader((1, 2), flush_messages=1)
    append(partition)
    assert partition.read_end(is_follower=True) == 1
    partition.note_follower_fetch(2, 1, 0)
    assert not partition.advance_high_watermark()
    flushing.flush(partition.log)
    assert partition.advance_high_watermark()
    assert partition.high_watermark == 1


@pytest.mark.parametrize("flushed", [0, 1])
def test_nothing_is_withheld_for_what_was_cut_off(flushed: int) -> None:
    partition = leader(flush_messages=1)
    for _ in range(2):
        append(partition)
        if flushed:
            flushing.flush(partition.log)
    append(partition)
    LOGS.truncate_to(partition.log, flushed, NOW_MS)
    assert partition.withheld.any is False


def test_without_a_flush_all_is_shown_at_once() -> None:
    partition = leader()
    append(partition)
    assert partition.high_watermark == 1
    assert not partition.withheld.any
