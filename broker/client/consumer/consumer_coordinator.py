"""A group's rebalances as one consumer goes through them, and its heartbeats.

Kafka's ``ConsumerCoordinator``, on tasks of its own: heartbeats go on while the user
processes records, a join while the user is away from poll. The listener's calls and the
change of the assignment need the user, so they wait until the user polls::

    PREPARE   user polls: commit, revoke (eager: everything), then join and sync
    JOINING   the coordinator waits for the other members
    COMPLETE  user polls: take the assignment; cooperative: revoke what went elsewhere
              and join once more (KIP-429)
    STABLE    heartbeats tell when to prepare again

A member that the group has forgotten loses its partitions instead of revoking them:
another member may have them already.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from broker.client.backoff import retry_backoff
from broker.client.config import ClientConfig
from broker.client.consumer.auto_commit import AutoCommit
from broker.client.consumer.client_assignors import COOPERATIVE
from broker.client.consumer.consumer_config import (
    HEARTBEAT_INTERVAL_MS,
    MAX_POLL_INTERVAL_MS,
    PARTITION_ASSIGNMENT_STRATEGY,
)
from broker.client.consumer.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from broker.client.consumer.group_leader import GroupLeader
from broker.client.consumer.group_member import FORGOTTEN, NO_GENERATION, GroupMember
from broker.client.consumer.rebalance_listener import RebalanceListener, SilentListener
from broker.client.consumer.subscription_state import SubscriptionState
from broker.client.failures import is_retriable
from broker.client.metadata import Metadata
from broker.client.signals import Changes
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

# Errors of a join or a sync after which the same member tries again.
_AGAIN: Final = frozenset({ErrorCode.rebalance_in_progress, *FORGOTTEN})


class Phase(enum.Enum):
    """A member's phase in a rebalance."""

    UNSUBSCRIBED = enum.auto()
    PREPARE = enum.auto()
    JOINING = enum.auto()
    COMPLETE = enum.auto()
    STABLE = enum.auto()


class ConsumerCoordinator:
    """Keeps one consumer in its group; ``on_change`` wakes its polls."""

    def __init__(
        self,
        config: ClientConfig,
        member: GroupMember,
        auto_commit: AutoCommit,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        rng: random.Random,
    ) -> None:
        self._member = member
        self._auto_commit = auto_commit
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._strategies = config[PARTITION_ASSIGNMENT_STRATEGY]
        self._cooperative = set(self._strategies) <= COOPERATIVE
        self._heartbeat_s = config.seconds(HEARTBEAT_INTERVAL_MS)
        self._max_poll_s = config.seconds(MAX_POLL_INTERVAL_MS)
        self._backoff = retry_backoff(config, rng)
        self._leader = GroupLeader(metadata, self._rejoin)
        self._phase = Phase.UNSUBSCRIBED
        self._topics: frozenset[str] = frozenset()
        self._listener: RebalanceListener = SilentListener()
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._lost = False
        self._failure: Exception | None = None
        self._pollers = 0
        self._polled_s = 0.0
        self._present = Changes()
        self._moved = Changes()
        self.on_change: Callable[[], None] = _nobody

    # ---- for the consumer -----------------------------------------------------------

    @property
    def needs_user(self) -> bool:
        """Whether a poll has something to take part in, or to raise."""
        waits = self._phase in (Phase.PREPARE, Phase.COMPLETE)
        return waits or self._failure is not None

    def subscribe(
        self, topics: Iterable[str], listener: RebalanceListener | None
    ) -> None:
        """Want these topics from the next poll on."""
        self._topics = frozenset(topics)
        self._listener = listener or SilentListener()
        self._metadata.add(self._topics)
        self._polled_s = trio.current_time()
        self._go(Phase.PREPARE)

    async def poll(self) -> None:
        """Carry out the user's steps of a rebalance; raises its failures."""
        self._polled_s = trio.current_time()
        self._auto_commit.polled(self._polled_s)
        self._pollers += 1
        try:
            while self._phase in (Phase.PREPARE, Phase.COMPLETE):
                self._raise_failure()
                self._present.notify()
                await self._moved.next()
        finally:
            self._pollers -= 1
            self._polled_s = trio.current_time()
        self._raise_failure()

    async def leave(self, *, in_peace: bool) -> None:
        """Leave the group; in peace, after committing and revoking.

        Otherwise the user has failed with the records returned last, which other
        members have to repeat.
        """
        is_member = self._member.generation != NO_GENERATION
        if in_peace and (is_member or self._phase is Phase.UNSUBSCRIBED):
            await self._auto_commit.now()
        if self._phase is Phase.UNSUBSCRIBED:
            return
        if in_peace and is_member and self._assignment:
            await self._listener.on_partitions_revoked(self._assignment)
        self._go(Phase.UNSUBSCRIBED)
        self._take(frozenset())
        # If the leave fails, the session's timeout removes the member.
        with suppress(KafkaError):
            await self._member.leave()

    async def run(self) -> None:
        """Rebalance, beat and commit until cancelled."""
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
            except _ListenerFailed as failed:
                self._fail(failed.cause)

    async def _with_user(self, step: Callable[[], Awaitable[None]]) -> None:
        # A poll that has gone since has returned nothing, so that there is nothing
        # of ours that the user might still be processing.
        if not self._pollers:
            await self._present.next()
        await step()
        self.on_change()

    async def _prepare(self) -> None:
        """Give up what must be given up before joining."""
        before = self._assignment
        if self._lost:
            self._lost = False
            self._take(frozenset())
            if before:
                await _called(self._listener.on_partitions_lost(before))
        else:
            kept = frozenset(
                each
                for each in before
                if self._cooperative and each.topic in self._topics
            )
            if self._member.generation != NO_GENERATION:
                await self._auto_commit.now()
            try:
                await self._revoke(before - kept)
            finally:
                self._take(kept)
        self._go(Phase.JOINING)

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
        # Called without news too, as in Kafka: the rebalance is over.
        await _called(self._listener.on_partitions_assigned(assigned - before))
        self._leader.look()

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            await _called(self._listener.on_partitions_revoked(partitions))

    def _retreat(self, error: KafkaError) -> None:
        """Begin a failed rebalance again; report a fatal error to the user."""
        if error.code in FORGOTTEN:
            self._forgotten(error.code)
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
                self._mind_heartbeat(error)

    def _mind_heartbeat(self, error: KafkaError) -> None:
        if error.code is ErrorCode.rebalance_in_progress:
            self._rejoin()
        elif error.code in FORGOTTEN:
            self._forgotten(error.code)
            self._rejoin()
        elif not is_retriable(error.code):
            self._lost = True
            self._rejoin()
            self._fail(error)

    def _is_too_slow(self) -> bool:
        late = trio.current_time() > self._polled_s + self._max_poll_s
        return late and not self._pollers

    def _forgotten(self, code: ErrorCode) -> None:
        self._member.forget(keep_id=code is ErrorCode.illegal_generation)
        self._lost = True

    # ---- small steps ----------------------------------------------------------------

    def _rejoin(self) -> None:
        if self._phase is Phase.STABLE:
            self._go(Phase.PREPARE)

    def _is(self, phase: Phase) -> bool:
        # A call, since an await undoes a type checker's narrowing.
        return self._phase is phase

    def _go(self, phase: Phase) -> None:
        self._phase = phase
        self._moved.notify()
        self.on_change()

    def _take(self, partitions: frozenset[TopicPartition]) -> None:
        self._assignment = partitions
        self._subscriptions.assign(partitions)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._moved.notify()
        self.on_change()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            self._moved.notify()
            raise failure


class _ListenerFailed(Exception):
    """Carries an exception of a user's listener to the poll that raises it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


async def _called(call: Awaitable[None]) -> None:
    try:
        await call
    except Exception as error:
        raise _ListenerFailed(error) from error


def _nobody() -> None:
    """Do nothing: no task waits for a rebalance."""
