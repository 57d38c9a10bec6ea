"""A broker's term as controller: a queue of events, handled one at a time.

Kafka's ``ControllerEventManager``. Triggered watches, responses of brokers, requests of
clients and the clock put events into one queue. The handler of an event reads its
input, passes it to the core (`broker.controller`), and executes the decisions. The term
ends with the session, or with the election of another broker. A failed event is not
retried, as in Kafka. If the first event fails, this broker resigns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import trio

from broker.client.signals import Signal
from broker.controller.assignment import TopicAssignment
from broker.controller.context import RegisteredBroker
from broker.controller.controller import KafkaController, ZooKeeperState
from broker.controller.decisions import (
    NOTHING_FOUND,
    ControllerRequest,
    Decisions,
    WriteAssignment,
)
from broker.coordination.controller_events import (
    ControllerEvent,
    ControllerMeters,
    ControllerState,
)
from broker.coordination.zookeeper.carrying_out import CarryingOut, ControllerMoved
from broker.coordination.zookeeper.channels import (
    Answered,
    ControllerChannels,
    Registration,
)
from broker.coordination.zookeeper.cluster_reading import (
    read_brokers,
    read_each,
    read_leaderships,
    read_topics,
)
from broker.coordination.zookeeper.election import Term
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import read_log_dir_event
from broker.coordination.zookeeper.layout.topic_records import (
    read_partitions,
    read_reassignment,
)
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrRequest
from broker.protocol.schemas.stop_replica_schema import StopReplicaRequest
from broker.protocol.topic_partition import TopicPartition
from broker.zookeeper.znodes import SessionExpired

R = TypeVar("R")
Job = Callable[[], Awaitable[None]]

# Regular ends of a term.
_ENDINGS: Final = (ControllerMoved, SessionExpired)
# Pause before a failed controller resigns, to limit the rate of elections.
_RESIGNATION_S: Final = 1.0
# Delay before leaders are balanced for the first time, as in Kafka.
_FIRST_REBALANCE_S: Final = 5.0


class Governing:
    """A term: ``core`` decides, and its CPU is used within ``billed``.

    ``meters`` are shared by all terms. ``listeners`` are the names of the listeners for
    requests to brokers; the first that exists is used. ``rebalance_s`` is the period of
    leader balancing (None: never). ``read_configs`` reads the configs of new topics.
    ``new_id`` draws ids of topics.
    """

    def __init__(
        self,
        core: KafkaController,
        znodes: RetryingZnodes,
        term: Term,
        open_channels: Callable[[Answered], ControllerChannels],
        *,
        meters: ControllerMeters,
        listeners: tuple[str, ...],
        rebalance_s: float | None,
        read_configs: Callable[[RetryingZnodes, Collection[str]], Awaitable[None]],
        new_id: Callable[[], UUID],
        billed: AbstractContextManager[object],
    ) -> None:
        self.core = core
        # False until the core has read the cluster; until then it serves no request.
        self.has_begun = False
        self._znodes = znodes
        self._channels = open_channels(self.answered)
        self._carry_out = CarryingOut(znodes, term, self._channels, self.queue_read)
        self._meters = meters
        self._listeners = listeners
        self._rebalance_s = rebalance_s
        self._read_configs = read_configs
        self._new_id = new_id
        self._billed = billed
        self._events: deque[tuple[object, ControllerEvent]] = deque()
        self._queued: set[object] = set()
        self._filled = Signal()
        # Events of callers that wait for a result; the end of the term sets all.
        self._asking: set[trio.Event] = set()
        self._is_over = False

    @property
    def queued(self) -> Mapping[int, int]:
        """The number of unanswered requests of each broker."""
        return self._channels.queued

    @property
    def waiting(self) -> int:
        """The number of events that wait to be handled."""
        return len(self._events)

    async def run(self) -> None:
        """Run the term until cancelled; raise `ControllerMoved` or `SessionExpired`."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._channels.run)
                await self._begin()
                if self._rebalance_s is not None:
                    nursery.start_soon(self._balance, self._rebalance_s)
                while True:
                    while not self._events:
                        await self._filled.wait()
                    name, event = self._events.popleft()
                    self._queued.discard(name)
                    await self._contained(event)
        finally:
            self._is_over = True
            for answered in self._asking:
                answered.set()

    async def _begin(self) -> None:
        """Take over as controller, or resign if that fails."""
        event = self._event(ControllerState.CONTROLLER_CHANGE, self._start)
        try:
            await self._meters.handle(event)
        except _ENDINGS:
            raise
        except Exception as fault:  # another controller may succeed
            self._meters.failed("controller start", fault)
            await trio.sleep(_RESIGNATION_S)
            await self._carry_out.remove([paths.CONTROLLER])
            raise ControllerMoved from fault

    async def _contained(self, event: ControllerEvent) -> None:
        """Handle an event.

        A fault ends that event only (Kafka: ControllerEventThread).
        """
        try:
            await self._meters.handle(event)
        except _ENDINGS:
            raise
        except Exception as fault:  # the next event may succeed
            self._meters.failed("controller event", fault)

    # ---- sources of events ------------------------------------------------------

    def queue_read(self, path: str) -> None:
        """Queue a read of a changed znode, once for all earlier changes."""
        states = ControllerState
        known: dict[str, tuple[ControllerState, Job]] = {
            paths.TOPICS: (states.TOPIC_CHANGE, self._topics),
            paths.TOPICS_TO_DELETE: (states.TOPIC_DELETION, self._deletions),
            paths.REASSIGNMENT: (
                states.ALTER_PARTITION_REASSIGNMENT,
                self._reassignment,
            ),
            paths.PREFERRED_ELECTION: (
                states.MANUAL_LEADER_BALANCE,
                self._preferred_election,
            ),
            paths.ISR_CHANGES: (states.ISR_CHANGE, self._isr_changes),
            paths.LOG_DIR_EVENTS: (states.LOG_DIR_CHANGE, self._log_dir_events),
        }
        above, _, name = path.rpartition("/")
        if path == paths.BROKER_IDS or above == paths.BROKER_IDS:
            self._put(paths.BROKER_IDS, states.BROKER_CHANGE, self._brokers)
        elif above == paths.TOPICS:
            self._put(path, states.TOPIC_CHANGE, partial(self._partitions, name))
        elif path in known:
            self._put(path, *known[path])

    def answered(self, broker: int, request: ControllerRequest, response: Any) -> None:
        """Queue the handling of a broker's response."""
        core = self.core
        if isinstance(request, LeaderAndIsrRequest):
            self.queue_event(
                ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED,
                lambda: core.leader_and_isr_answered(broker, request, response),
            )
        elif isinstance(request, StopReplicaRequest):
            self.queue_event(
                ControllerState.TOPIC_DELETION,
                lambda: core.stop_replica_answered(broker, request, response),
            )

    def queue_event(
        self, state: ControllerState, steps: Callable[[], Decisions[None]]
    ) -> None:
        """Queue an event for the core."""

        async def handle() -> None:
            await self._drive(steps())

        self._put(object(), state, handle)

    async def run_event(
        self, state: ControllerState, steps: Callable[[], Decisions[R]]
    ) -> R:
        """Queue an event and return the core's result; raise `KafkaError`.

        Raises NOT_CONTROLLER at the end of the term. The event is handled even if this
        call is cancelled.
        """
        answers: list[R | KafkaError] = []
        answered = trio.Event()

        async def handle() -> None:
            try:
                answers.append(await self._drive(steps()))
            except KafkaError as refused:
                answers.append(refused)
            except _ENDINGS:
                raise
            except Exception as fault:
                answers.append(KafkaError(ErrorCode.unknown_server_error, repr(fault)))
                raise
            finally:
                if answers:
                    answered.set()

        if not self._is_over:
            self._asking.add(answered)
            self._put(object(), state, handle)
            try:
                await answered.wait()
            finally:
                self._asking.discard(answered)
        if not answers:
            raise KafkaError(ErrorCode.not_controller, "the controller has moved")
        (answer,) = answers
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def _put(self, name: object, state: ControllerState, job: Job) -> None:
        if name not in self._queued:
            self._queued.add(name)
            self._events.append((name, self._event(state, job)))
            self._filled.notify()

    def _event(self, state: ControllerState, job: Job) -> ControllerEvent:
        return ControllerEvent(state, self._meters.now_ns(), job)

    async def _balance(self, period_s: float) -> None:
        await trio.sleep(_FIRST_REBALANCE_S)
        while True:
            self.queue_event(
                ControllerState.AUTO_LEADER_BALANCE, self.core.auto_rebalance
            )
            await trio.sleep(period_s)

    # ---- jobs -------------------------------------------------------------------

    async def _drive(self, steps: Decisions[R]) -> R:
        """Execute the core's decisions, and return its result."""
        found = NOTHING_FOUND
        started = False
        try:
            while True:
                with self._billed:
                    decision = steps.send(found) if started else next(steps)
                started = True
                found = await self._carry_out(decision)
        except StopIteration as done:
            answer: R = done.value
            return answer

    async def _start(self) -> None:
        """Read the cluster, watch it, and take over."""
        znodes = self._znodes
        for parent in (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS):
            await self._remove(parent, await znodes.children(parent, watch=True))
        brokers = await read_brokers(znodes)
        topics = await self._read_topics(
            await znodes.children(paths.TOPICS, watch=True)
        )
        leaderships = await read_leaderships(
            znodes,
            [
                TopicPartition(name, index)
                for name, topic in topics.items()
                for index in topic.partitions
            ],
        )
        found = ZooKeeperState(
            brokers=brokers,
            topics=topics,
            leaderships=leaderships,
            deletions=await znodes.children(paths.TOPICS_TO_DELETE, watch=True),
            reassignments=await self._read_request(
                paths.REASSIGNMENT, read_reassignment
            )
            or {},
            preferred_election=await self._read_request(
                paths.PREFERRED_ELECTION, read_partitions
            ),
        )
        self._channels.serve(self._registrations(brokers))
        # The first requests direct clients here, so theirs must be accepted now.
        self.has_begun = True
        await self._drive(self.core.start(found))

    async def _read_request(self, path: str, read: Callable[[bytes], R]) -> R | None:
        """Return the content of an operator's request znode, and watch for it."""
        if await self._znodes.exists(path, watch=True) is None:
            return None
        return (await read_each(self._znodes, [path], read)).get(path)

    def _registrations(
        self, brokers: Mapping[int, RegisteredBroker]
    ) -> dict[int, Registration]:
        found = {}
        for broker_id, broker in brokers.items():
            reached = {each.listener: each for each in broker.endpoints}
            for name in self._listeners:
                if name in reached:
                    where = reached[name]
                    found[broker_id] = Registration(
                        broker.epoch, where.host, where.port
                    )
                    break
        return found

    async def _brokers(self) -> None:
        brokers = await read_brokers(self._znodes)
        self._channels.serve(self._registrations(brokers))
        await self._drive(self.core.brokers_changed(brokers))

    async def _topics(self) -> None:
        names = await self._znodes.children(paths.TOPICS, watch=True)
        known = self.core.context.topics
        new = [name for name in names if name not in known]
        added = await self._read_topics(new)
        await self._read_configs(self._znodes, new)
        await self._drive(self.core.topics_changed(names, added))

    async def _read_topics(self, names: Iterable[str]) -> dict[str, TopicAssignment]:
        """Read topics; assign an id to topics without one (``processTopicIds``).

        Tools older than Kafka 2.8 write no topic id. AlterPartition needs the id.
        """
        found = dict(await read_topics(self._znodes, names))
        for name, topic in found.items():
            if topic.topic_id is None:
                topic_id = self.core.context.topic_ids.get(name) or self._new_id()
                found[name] = replace(topic, topic_id=topic_id)
                await self._carry_out(WriteAssignment(name, found[name]))
        return found

    async def _partitions(self, name: str) -> None:
        found = await self._read_topics([name])
        if name in found and name in self.core.context.topics:
            await self._drive(self.core.partitions_changed(name, found[name]))

    async def _deletions(self) -> None:
        names = await self._znodes.children(paths.TOPICS_TO_DELETE, watch=True)
        if not self.core.context.topics.keys() >= set(names):
            # During another job a topic may be created and its deletion requested.
            await self._topics()
        await self._drive(self.core.deletions_requested(names))

    async def _reassignment(self) -> None:
        targets = await self._read_request(paths.REASSIGNMENT, read_reassignment)
        if targets is not None:
            await self._drive(self.core.reassignments_in_znode(targets))

    async def _preferred_election(self) -> None:
        keys = await self._read_request(paths.PREFERRED_ELECTION, read_partitions)
        if keys is not None:
            await self._drive(self.core.preferred_election_requested(keys))

    async def _isr_changes(self) -> None:
        names = await self._znodes.children(paths.ISR_CHANGES, watch=True)
        events = await read_each(
            self._znodes, [f"{paths.ISR_CHANGES}/{it}" for it in names], read_partitions
        )
        keys = {key: None for each in events.values() for key in each}
        leaderships = await read_leaderships(self._znodes, keys)
        await self._drive(self.core.isrs_changed(leaderships))
        await self._remove(paths.ISR_CHANGES, names)

    async def _log_dir_events(self) -> None:
        names = await self._znodes.children(paths.LOG_DIR_EVENTS, watch=True)
        events = await read_each(
            self._znodes,
            [f"{paths.LOG_DIR_EVENTS}/{it}" for it in names],
            read_log_dir_event,
        )
        await self._drive(self.core.log_dirs_changed(set(events.values())))
        await self._remove(paths.LOG_DIR_EVENTS, names)

    async def _remove(self, parent: str, names: tuple[str, ...]) -> None:
        await self._carry_out.remove([f"{parent}/{name}" for name in names])
