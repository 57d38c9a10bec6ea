"""A partition moves to another fetcher of the same leader, and back."""

from __future__ import annotations

from broker.log.steps import run
from tests.broker.replication.replica import Replica, T
from tests.broker.replication.test_stored_once import Replicas


def test_answers_to_earlier_fetches_do_not_count_for_a_returned_partition() -> None:
    """A late response would truncate records that the other fetcher has confirmed."""
    replicas = Replicas()
    replicas.begin()
    replicas.sends_and_is_answered(0, [1])
    replicas.leads_on_alone(0, [1, 1], heir=1, repeats=False)
    follower = replicas.replicas[0]
    follower.hears(replicas.word)
    first, second = follower.fetcher, Replica(0).fetcher
    asked = run(first.request())
    assert asked is not None
    each, offset = asked.offsets[T]
    leader = replicas.leader.partition
    late = replicas._answer(follower, each, offset, leader, 10_000)
    late.partition_index = 0
    assert late.diverging_epoch.end_offset == 1
    second.take_over(each)
    first.stop(T)
    follower.fetcher = second
    replicas.sends_and_is_answered(0, [1, 1])
    first.take_over(second.following[T])
    second.stop(T)
    follower.fetcher = first
    known = follower.headers()
    assert len(known) > 1
    replicas._take(follower, asked, late)
    assert follower.headers() == known == replicas.leader.headers()
