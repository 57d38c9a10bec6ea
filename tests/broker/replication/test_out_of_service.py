"""A follower out of service after a full disk follows again when its log is mended."""

from __future__ import annotations

import errno
from contextlib import suppress

from broker.disk.memory import Faults
from broker.log import flushing
from broker.log.steps import run
from broker.log.upkeep import mending
from broker.protocol.errors import KafkaError
from tests.broker.replication.replica import Replica, T
from tests.broker.replication.test_stored_once import Replicas
from tests.broker.replication.three_replicas import disk_of


def _is_out_of_service(follower: Replica) -> None:
    disk, call = disk_of(follower), 0
    while not follower.log.durability.mendable:
        disk.faults = Faults(call := call + 1, error=errno.ENOSPC)
        with suppress(KafkaError):
            flushing.flush(follower.log)
    disk.faults = Faults()


def test_a_partition_out_of_service_is_skipped_and_fetched_again() -> None:
    replicas = Replicas()
    replicas.begin()
    replicas.sends_and_is_answered(0, [1])
    follower, leader = replicas.replicas[2], replicas.leader
    _is_out_of_service(follower)
    replicas.sends(0, 1)
    # Fetched records are refused, but the partition stays in the fetcher.
    replicas.fetches_all(2)
    assert follower.log.log_end_offset < leader.log.log_end_offset
    assert T in follower.fetcher.following
    assert run(mending.mend(follower.log))
    replicas.fetches_all(2)
    assert follower.log.log_end_offset == leader.log.log_end_offset
