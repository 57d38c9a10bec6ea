"""The user's part of a consumer's membership in its group, in either protocol.

Calls of the listener and changes of the assignment require the user's presence, so they
wait until the user polls. A separate task carries them out, so that the end of a poll
does not interrupt them.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Generic, TypeVar

import trio

from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.consumer.auto_commit import AutoCommit
from broker.client.consumer.consumer_config import MAX_POLL_INTERVAL_MS
from broker.client.consumer.coordinated_member import NO_GENERATION, CoordinatedMember
from broker.client.consumer.rebalance_listener import RebalanceListener, SilentListener
from broker.client.consumer.subscription_state import SubscriptionState
from broker.client.signals import Changes
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition


class Phase(enum.Enum):
    """A member's phase in a rebalance."""

    UNSUBSCRIBED = enum.auto()
    PREPARE = enum.auto()
    JOINING = enum.auto()
    COMPLETE = enum.auto()
    STABLE = enum.auto()


M = TypeVar("M", bound=CoordinatedMember)


class GroupMembership(ABC, Generic[M]):
    """Membership of a consumer in its group; ``on_change`` wakes its polls.

    ``keeps_subscribed``: the member keeps its partitions while it joins again.
    """

    def __init__(
        self,
        config: ClientConfig,
        member: M,
        auto_commit: AutoCommit,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        *,
        keeps_subscribed: bool,
    ) -> None:
        self._member = member
        self._auto_commit = auto_commit
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._keeps_subscribed = keeps_subscribed
        self._max_poll_s = config.seconds(MAX_POLL_INTERVAL_MS)
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
        self.on_change: Callable[[], None] = _do_nothing

    @abstractmethod
    async def run(self) -> None:
        """Run the membership and its commits until cancelled."""

    # ---- for the consumer -----------------------------------------------------------

    @property
    def needs_user(self) -> bool:
        """Whether a poll has to carry out a step of a rebalance, or raise an error."""
        waits = self._phase in (Phase.PREPARE, Phase.COMPLETE)
        return waits or self._failure is not None

    def subscribe(
        self, topics: Iterable[str], listener: RebalanceListener | None
    ) -> None:
        """Subscribe to topics; takes effect at the next poll."""
        self._topics = frozenset(topics)
        self._listener = listener or SilentListener()
        self._metadata.add(self._topics)
        self._polled_s = trio.current_time()
        self._go(Phase.PREPARE)

    async def poll(self) -> None:
        """Carry out the user's steps of a rebalance; raise its failures."""
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
        """Leave the group; with ``in_peace`` commit and revoke before.

        Otherwise the user has failed to process the last returned records, which other
        members have to read again.
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

    # ---- steps with the user ----------------------------------------------------

    async def _with_user(self, step: Callable[[], Awaitable[None]]) -> None:
        # If the poll has ended meanwhile, it has returned no records: the user is not
        # processing records of this consumer.
        if not self._pollers:
            await self._present.next()
        await step()
        self.on_change()

    async def _prepare(self) -> None:
        """Revoke or drop partitions before joining."""
        before = self._assignment
        if self._lost:
            self._lost = False
            self._take(frozenset())
            if before:
                await called(self._listener.on_partitions_lost(before))
        else:
            kept = frozenset(
                each
                for each in before
                if self._keeps_subscribed and each.topic in self._topics
            )
            if self._member.generation != NO_GENERATION:
                await self._auto_commit.now()
            try:
                await self._revoke(before - kept)
            finally:
                self._take(kept)
        self._go(Phase.JOINING)

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            await called(self._listener.on_partitions_revoked(partitions))

    # ---- small steps ------------------------------------------------------------

    def _is_too_slow(self) -> bool:
        late = trio.current_time() > self._polled_s + self._max_poll_s
        return late and not self._pollers

    def _is(self, phase: Phase) -> bool:
        # A method, since type checkers do not expect a change during an await.
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


class ListenerFailed(Exception):
    """An exception of a user's listener, which the next poll raises."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


async def called(call: Awaitable[None]) -> None:
    """Wait for a call of a listener; raise `ListenerFailed` if it fails."""
    try:
        await call
    except Exception as error:
        raise ListenerFailed(error) from error


def _do_nothing() -> None:
    """Do nothing: no task waits for a rebalance."""
