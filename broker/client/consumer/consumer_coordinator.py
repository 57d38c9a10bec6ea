"""A consumer's rebalances and heartbeats in the classic protocol.

Kafka's ``ConsumerCoordinator``, in tasks of its own: heartbeats and joins continue
while the user processes records. Calls of the listener and changes of the assignment
require the user's presence, so they wait until the user polls::

    PREPARE   user polls: commit, revoke (eager: all partitions), then join and sync
    JOINING   the coordinator waits for the other members
    COMPLETE  user polls: take the assignment; cooperative: revoke the partitions that
              it lacks, and join once more (KIP-429)
    STABLE    heartbeats report the next rebalance

A member that the group has removed loses its partitions instead of revoking them, since
another member may have them already.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.consumer.auto_commit import AutoCommit
from broker.client.consumer.client_assignors import COOPERATIVE
from broker.client.consumer.consumer_config import (
    HEARTBEAT_INTERVAL_MS,
    PARTITION_ASSIGNMENT_STRATEGY,
)
from broker.client.consumer.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from broker.client.consumer.coordinated_member import NO_GENERATION
from broker.client.consumer.group_leader import GroupLeader
from broker.client.consumer.group_member import REMOVED, GroupMember
from broker.client.consumer.group_membership import (
    GroupMembership,
    ListenerFailed,
    Phase,
    called,
)
from broker.client.consumer.subscription_state import SubscriptionState
from broker.client.retriable_errors import is_retriable
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

# Errors of a join or a sync after which the member joins again.
_AGAIN: Final = frozenset({ErrorCode.rebalance_in_progress, *REMOVED})


class ConsumerCoordinator(GroupMembership[GroupMember]):
    """Membership of a consumer in a classic group; ``on_change`` wakes its polls."""

    def __init__(
        self,
        config: ClientConfig,
        member: GroupMember,
        auto_commit: AutoCommit,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        rng: random.Random,
    ) -> None:
        strategies = config[PARTITION_ASSIGNMENT_STRATEGY]
        super().__init__(
            config,
            member,
            auto_commit,
            metadata,
            subscriptions,
            keeps_subscribed=set(strategies) <= COOPERATIVE,
        )
        self._strategies = strategies
        self._heartbeat_s = config.seconds(HEARTBEAT_INTERVAL_MS)
        self._backoff = retry_backoff(config, rng)
        self._leader = GroupLeader(metadata, self._rejoin)

    async def run(self) -> None:
        """Rebalance, send heartbeats, and commit until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_rebalances)
            nursery.start_soon(self._run_heartbeats)
            nursery.start_soon(self._leader.run)
            nursery.start_soon(self._auto_commit.run)

    # ---- a rebalance ----------------------------------------------------------------

    async def _run_rebalances(self) -> None:
        failures = 0
        while True:
            while self._phase is not Phase.PREPARE or self._failure is not None:
                await self._moved.next()
            try:
                await self._with_user(self._prepare)
                assigned = await self._join_and_sync()
                if self._is(Phase.JOINING):
                    self._go(Phase.COMPLETE)
                    await self._with_user(partial(self._complete, assigned))
                failures = 0
            except KafkaError as error:
                self._retreat(error)
                failures += 1
                await trio.sleep(self._backoff.after(failures))
            except ListenerFailed as failed:
                self._fail(failed.cause)

    async def _join_and_sync(self) -> frozenset[TopicPartition]:
        subscription = Subscription(
            tuple(self._topics),
            tuple(self._assignment),
            self._member.generation,
        )
        metadata = encode_subscription(subscription)
        joined = await self._member.join(dict.fromkeys(self._strategies, metadata))
        self._leader.retire()
        assignments: dict[str, bytes] = {}
        if joined.leads and not joined.skips_assignment:
            assignments = await self._leader.divide(joined)
        return frozenset(decode_assignment(await self._member.sync(assignments)))

    async def _complete(self, assigned: frozenset[TopicPartition]) -> None:
        before = self._assignment
        revoked = before - assigned
        try:
            if revoked:
                await self._auto_commit.now()
                await self._revoke(revoked)
        finally:
            self._take(assigned)
            if self._phase is Phase.COMPLETE:
                self._go(Phase.PREPARE if revoked else Phase.STABLE)
        # Called without new partitions, too, as in Kafka.
        await called(self._listener.on_partitions_assigned(assigned - before))
        self._leader.check_topics()

    def _retreat(self, error: KafkaError) -> None:
        """Restart a failed rebalance; report a fatal error to the user."""
        if error.code in REMOVED:
            self._reset_member(error.code)
        if error.code not in _AGAIN and not is_retriable(error.code):
            self._failure = error
        if self._phase is not Phase.UNSUBSCRIBED:
            self._go(Phase.PREPARE)

    # ---- heartbeats -----------------------------------------------------------------

    async def _run_heartbeats(self) -> None:
        while True:
            await trio.sleep(self._heartbeat_s)
            is_member = self._member.generation != NO_GENERATION
            if not is_member or self._phase is Phase.JOINING:
                continue
            try:
                if self._is_too_slow():
                    self._lost = True
                    self._rejoin()
                    await self._member.leave()
                else:
                    await self._member.heartbeat()
            except KafkaError as error:
                self._handle_error(error)

    def _handle_error(self, error: KafkaError) -> None:
        if error.code is ErrorCode.rebalance_in_progress:
            self._rejoin()
        elif error.code in REMOVED:
            self._reset_member(error.code)
            self._rejoin()
        elif not is_retriable(error.code):
            self._lost = True
            self._rejoin()
            self._fail(error)

    def _reset_member(self, code: ErrorCode) -> None:
        self._member.reset(keep_id=code is ErrorCode.illegal_generation)
        self._lost = True

    # ---- small steps ----------------------------------------------------------------

    def _rejoin(self) -> None:
        if self._phase is Phase.STABLE:
            self._go(Phase.PREPARE)
