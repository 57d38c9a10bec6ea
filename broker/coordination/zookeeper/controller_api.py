"""Decisions of a controller under ZooKeeper, made by the core of this broker's term."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from typing import TypeVar
from uuid import UUID

import trio

from broker.controller.assignment import ReplicaAssignment
from broker.controller.controller import KafkaController
from broker.controller.decisions import Decisions
from broker.controller.elections import ElectionType
from broker.controller.isr_proposals import IsrProposal, Judgement
from broker.coordination.controller_events import ControllerState
from broker.coordination.coordinator_roles import Quorum
from broker.coordination.zookeeper.governing import Governing
from broker.coordination.zookeeper.handler_waits import HandlerWaits
from broker.coordination.zookeeper.known_topics import known_leader
from broker.coordination.zookeeper.member import Member
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from planes.slices import STEP_ITEMS, in_steps

R = TypeVar("R")


class ZooKeeperController:
    """The controller's API on one member; NOT_CONTROLLER if another is controller."""

    def __init__(self, member: Member, waits: HandlerWaits) -> None:
        self._member = member
        self._waits = waits

    def check_is_controller(self) -> None:
        """Raise NOT_CONTROLLER unless this broker is the controller."""
        self._governing()

    def quorum(self) -> Quorum:
        """Raise UNSUPPORTED_VERSION: ZooKeeper elects the controller."""
        raise KafkaError(
            ErrorCode.unsupported_version,
            "The cluster is under ZooKeeper and has no metadata quorum.",
        )

    def _governing(self) -> Governing:
        governing = self._member.governing
        if governing is None or not governing.has_begun:
            raise KafkaError(ErrorCode.not_controller)
        return governing

    async def _decided(
        self, state: ControllerState, steps: Callable[[KafkaController], Decisions[R]]
    ) -> R:
        governing = self._governing()
        return await self._waits.tasks.run_for_handler(
            lambda: governing.run_event(state, lambda: steps(governing.core))
        )

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> Sequence[TopicPartition]:
        """Move leaderships off a stopping broker; return the remaining ones."""
        return await self._decided(
            ControllerState.CONTROLLED_SHUTDOWN,
            lambda core: core.controlled_shutdown(broker_id, broker_epoch),
        )

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic known to this controller."""
        return self._governing().core.context.topic_names.get(topic_id)

    async def alter_partition(
        self,
        broker_id: int,
        broker_epoch: int,
        proposals: Mapping[TopicPartition, IsrProposal],
    ) -> Mapping[TopicPartition, Judgement]:
        """Accept or reject a leader's ISR proposals."""
        return await self._decided(
            ControllerState.ISR_CHANGE,
            lambda core: core.alter_partition(broker_id, broker_epoch, proposals),
        )

    async def elect_leaders(
        self,
        keys: Collection[TopicPartition] | None,
        kind: ElectionType,
        timeout_ms: int = 0,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Elect leaders of partitions (None: of all); return the outcomes."""
        core = self._governing().core
        wanted = list(core.context.all_partitions()) if keys is None else keys
        outcomes: dict[TopicPartition, ErrorCode] = await self._decided(
            ControllerState.MANUAL_LEADER_BALANCE,
            lambda it: it.elect_leaders(wanted, kind),
        )
        elected: dict[TopicPartition, int] = {}
        async for key in in_steps(outcomes):
            leadership = core.context.leadership(key)
            if outcomes[key] is ErrorCode.none and leadership is not None:
                elected[key] = leadership.leader
        await self._await_leaders(elected, timeout_ms)
        async for key, leader in in_steps(elected.items()):
            if self._leader(key) != leader:
                outcomes[key] = ErrorCode.request_timed_out
        return outcomes

    async def _await_leaders(
        self, elected: Mapping[TopicPartition, int], timeout_ms: int
    ) -> None:
        """Wait until this broker's metadata has these leaders, or the time-out ends."""

        async def waiting() -> None:
            with trio.move_on_after(timeout_ms / 1000):
                for count, (key, leader) in enumerate(elected.items(), 1):
                    while self._leader(key) != leader:
                        await self._waits.changes.next()
                    if not count % STEP_ITEMS:
                        await trio.lowlevel.checkpoint()

        if timeout_ms > 0 and elected:
            await self._waits.tasks.run_for_handler(waiting)

    async def alter_partition_reassignments(
        self,
        wanted: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        keep_replication_factor: bool = False,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Begin reassignments, or cancel them (None)."""
        return await self._decided(
            ControllerState.ALTER_PARTITION_REASSIGNMENT,
            lambda core: core.alter_partition_reassignments(
                wanted, keep_replication_factor=keep_replication_factor
            ),
        )

    def reassignments(self) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Return the reassignments in progress."""
        return self._governing().core.reassignments

    def _leader(self, key: TopicPartition) -> int:
        return known_leader(self._member.broker.metadata_cache, key)
