"""A consumer's membership in KIP-848, where the broker assigns partitions.

Kafka's ``ConsumerMembershipManager``. Heartbeats report the owned partitions, and their
responses have the target. Changes require the user's presence, so they wait until the
user polls::

    PREPARE   user polls: drop partitions that were lost, or are unsubscribed
    JOINING   the next heartbeat joins, or reports a new subscription
    COMPLETE  user polls: revoke partitions that the target lacks, take its new ones;
              the next heartbeat reports the change
    STABLE    heartbeats return the next target

The broker assigns a partition to another member only after a heartbeat that does not
list it. A member that is fenced, or does not poll in time, loses its partitions: other
members may have them already.
"""

from __future__ import annotations

import math
import random
from contextlib import suppress
from typing import Final
from uuid import UUID

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.consumer.auto_commit import AutoCommit
from broker.client.consumer.coordinated_member import NO_GENERATION
from broker.client.consumer.epoch_member import ByTopicId, EpochMember
from broker.client.consumer.group_membership import (
    GroupMembership,
    ListenerFailed,
    Phase,
    called,
)
from broker.client.consumer.subscription_state import SubscriptionState
from broker.client.retriable_errors import is_retriable
from broker.client.signals import Signal
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from broker.protocol.topic_partition import TopicPartition

# The member's epoch is outdated or unknown, or the group does not exist.
_FENCED: Final = frozenset(
    {
        ErrorCode.fenced_member_epoch,
        ErrorCode.unknown_member_id,
        ErrorCode.group_id_not_found,
    }
)


class ConsumerMembership(GroupMembership[EpochMember]):
    """Membership of a consumer in a consumer group."""

    def __init__(
        self,
        config: ClientConfig,
        member: EpochMember,
        auto_commit: AutoCommit,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        rng: random.Random,
    ) -> None:
        super().__init__(
            config,
            member,
            auto_commit,
            metadata,
            subscriptions,
            keeps_subscribed=True,
        )
        self._backoff = retry_backoff(config, rng)
        self._target: frozenset[TopicPartition] = frozenset()
        # Ids of assigned topics by name.
        self._ids: dict[str, UUID] = {}
        self._due = Signal()
        self._next_s = math.inf

    async def run(self) -> None:
        """Send heartbeats, change the assignment, and commit until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_changes)
            nursery.start_soon(self._run_heartbeats)
            nursery.start_soon(self._auto_commit.run)

    # ---- changes of the assignment --------------------------------------------------

    async def _run_changes(self) -> None:
        while True:
            while (
                self._phase not in (Phase.PREPARE, Phase.COMPLETE)
                or self._failure is not None
            ):
                await self._moved.next()
            try:
                await self._with_user(self._change)
            except ListenerFailed as failed:
                self._fail(failed.cause)
            self._due.notify()

    async def _change(self) -> None:
        """Run the user's step of the current phase."""
        if self._is(Phase.PREPARE):
            await self._prepare()
            # The kept partitions are the target until the coordinator's next one.
            self._target = self._assignment
        elif self._is(Phase.COMPLETE):
            await self._reconcile()

    async def _reconcile(self) -> None:
        """Revoke partitions that the target lacks, and take its new ones."""
        before, target = self._assignment, self._target
        revoked = before - target
        if revoked:
            await self._auto_commit.now()
            try:
                await self._revoke(revoked)
            finally:
                self._take(before & target)
        if not self._is(Phase.COMPLETE):
            # Fenced or unsubscribed meanwhile: the remaining partitions are lost.
            return
        self._take(target)
        if self._target == target:
            self._go(Phase.STABLE)
        await called(self._listener.on_partitions_assigned(target - before))

    # ---- heartbeats -----------------------------------------------------------------

    async def _run_heartbeats(self) -> None:
        failures = 0
        while True:
            await self._due.wait(self._next_s)
            is_member = self._member.generation != NO_GENERATION
            if not is_member and not self._is(Phase.JOINING):
                self._next_s = math.inf
                continue
            if is_member and self._is_too_slow():
                await self._leave_for_a_while()
                continue
            is_sent = self._member.has_sent(self._topics, self._owned())
            if is_sent and trio.current_time() < self._next_s:
                continue
            try:
                self._take_answer(
                    await self._member.heartbeat(self._topics, self._owned())
                )
                failures = 0
            except KafkaError as error:
                self._handle_error(error)
                failures += 1
                await trio.sleep(self._backoff.after(failures))
                self._next_s = trio.current_time()

    async def _leave_for_a_while(self) -> None:
        """Leave until the next poll, after ``max.poll.interval.ms`` without one."""
        self._lost = True
        self._next_s = math.inf
        self._go(Phase.PREPARE)
        with suppress(KafkaError):
            await self._member.leave()

    def _owned(self) -> ByTopicId:
        owned: dict[UUID, list[int]] = {}
        for topic, partition in sorted(self._assignment):
            owned.setdefault(self._ids[topic], []).append(partition)
        return owned

    def _take_answer(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        interval_s = answer.heartbeat_interval.total_seconds()
        self._next_s = trio.current_time() + interval_s
        if self._phase in (Phase.UNSUBSCRIBED, Phase.PREPARE):
            return
        if answer.assignment is not None:
            self._take_target(answer.assignment)
        # A join ends with a step of the user even without new partitions.
        if self._target != self._assignment or self._is(Phase.JOINING):
            self._go(Phase.COMPLETE)

    def _take_target(self, assignment: Assignment) -> None:
        target: set[TopicPartition] = set()
        for topic in assignment.topic_partitions:
            topic_id = topic.topic_id
            name = None if topic_id is None else self._metadata.topic_name(topic_id)
            if topic_id is None or name is None:
                # Not in the metadata yet: a full heartbeat requests the target again.
                self._metadata.request_update()
                self._member.clear_sent_fields()
                self._next_s = trio.current_time() + self._backoff.after(1)
                continue
            self._ids[name] = topic_id
            target.update(TopicPartition(name, each) for each in topic.partitions)
        self._target = frozenset(target)

    def _handle_error(self, error: KafkaError) -> None:
        """Rejoin if the group has removed the member; report a fatal error."""
        is_fatal = error.code not in _FENCED and not is_retriable(error.code)
        if self._is(Phase.UNSUBSCRIBED) or not (is_fatal or error.code in _FENCED):
            return
        self._member.reset(keep_id=True)
        self._lost = True
        self._go(Phase.PREPARE)
        if is_fatal:
            self._fail(error)
