"""A group leader watches its topics at all times, also during a rebalance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import trio
from trio.testing import wait_all_tasks_blocked

from broker.client.client_metadata import Metadata
from broker.client.consumer.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from broker.client.consumer.group_leader import GroupLeader
from broker.client.consumer.group_member import Joined, Subscribed
from broker.client.signals import Changes


class Known:
    """Metadata that learns of topics at the test's command."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.changes = Changes()

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def add(self, topics: Iterable[str]) -> None:
        """Do nothing: the topics are known."""

    def request_update(self) -> None:
        """Do nothing."""

    def learn(self, topic: str, count: int) -> None:
        self.counts[topic] = count
        self.changes.notify()


def alone() -> Joined:
    subscription = encode_subscription(Subscription(("t",), (), -1))
    return Joined(
        protocol="range",
        leads=True,
        skips_assignment=False,
        members=(Subscribed("me", None, subscription),),
    )


def test_a_topic_that_comes_in_the_middle_of_a_rebalance_is_not_forgotten() -> None:
    """Swarm seed 16568: a lone member remained without partitions for ever."""
    known, rejoins = Known(), list[dict[str, int]]()
    leader = GroupLeader(cast(Metadata, known), lambda: rejoins.append(known.counts))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leader.run)
            await wait_all_tasks_blocked()
            nursery.start_soon(divide)
            await wait_all_tasks_blocked()
            # The leader has requested metadata, and the topic does not exist.
            known.changes.notify()
            await wait_all_tasks_blocked()
            assert rejoins == []
            # Other members have no assignment yet, so this rejoin has no effect.
            known.learn("t", 2)
            await wait_all_tasks_blocked()
            assert len(rejoins) == 1
            leader.check_topics()
            assert len(rejoins) == 2
            leader.retire()
            leader.check_topics()
            assert len(rejoins) == 2
            nursery.cancel_scope.cancel()

    async def divide() -> None:
        parts = await leader.divide(alone())
        assert decode_assignment(parts["me"]) == ()

    trio.run(main)
