"""A leader's log may start within a batch; an empty follower can follow it anyway."""

from __future__ import annotations

from broker.log import trimming
from tests.broker.replication.test_stored_once import Replicas
from tests.broker.replication.three_replicas import EVERYBODY


def test_a_log_that_starts_within_a_batch_can_be_followed_from_nothing() -> None:
    replicas = Replicas()
    replicas.begin()
    replicas.falls_behind(2)
    replicas.sends_and_is_answered(0, [3, 3])
    leader = replicas.leader
    trimming.delete_records_before(leader.log, 4)
    replicas.loses_its_disk(2)
    replicas.fetches_all(2)
    log = replicas.replicas[2].log
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    assert replicas.replicas[2].headers() == leader.headers()
    replicas.has_caught_up(2)
    assert replicas.isr == EVERYBODY
