"""Execution of a controller's decisions: znodes written, requests sent.

Every write is one ``multi`` with a check of the version of /controller_epoch, which
changes with the election of another controller. Later writes of the old controller then
fail as a whole (`ControllerMoved`), as in Kafka since KAFKA-6082.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import assert_never

import trio

from broker.controller.assignment import TopicAssignment
from broker.controller.decisions import (
    NOTHING_FOUND,
    Decision,
    DeleteTopic,
    Found,
    Pause,
    RemoveDeletions,
    RemovePreferredElection,
    Send,
    WriteAssignment,
    WriteLeaderships,
    WriteReassignments,
)
from broker.controller.leadership import Leadership
from broker.coordination.zookeeper.channels import ControllerChannels
from broker.coordination.zookeeper.cluster_reading import read_leaderships
from broker.coordination.zookeeper.election import Term
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.topic_records import (
    read_topic,
    write_leadership,
    write_reassignment,
    write_topic,
)
from broker.coordination.zookeeper.retrying import RetryingZnodes, side_by_side
from broker.protocol.topic_partition import TopicPartition
from broker.zookeeper.znodes import (
    BadVersion,
    Check,
    Create,
    Delete,
    Op,
    SessionExpired,
    SetData,
    ZooKeeperError,
)


class ControllerMoved(Exception):
    """Another broker has been elected controller."""


class CarryingOut:
    """Executor of the decisions of one controller in its ``term``.

    ``appeared`` is called with a znode that exists again after its removal.
    """

    def __init__(
        self,
        znodes: RetryingZnodes,
        term: Term,
        channels: ControllerChannels,
        appeared: Callable[[str], None],
    ) -> None:
        self._znodes = znodes
        self._check = Check(paths.CONTROLLER_EPOCH, term.version)
        self._channels = channels
        self._appeared = appeared

    async def __call__(self, decision: Decision) -> Found:
        """Execute one decision; raise `ControllerMoved` or `SessionExpired`."""
        match decision:
            case Send(requests):
                for broker, request in requests:
                    self._channels.send(broker, request)
            case WriteLeaderships(wanted):
                return await self._write_leaderships(wanted)
            case WriteAssignment(topic, assignment):
                await self._write_assignment(topic, assignment)
            case DeleteTopic(topic):
                await self._delete_topic(topic)
            case RemoveDeletions(topics):
                await self.remove(map(paths.topic_to_delete, topics))
            case WriteReassignments(remaining):
                await self._write_reassignments(remaining)
            case RemovePreferredElection():
                await self._remove_and_watch(paths.PREFERRED_ELECTION)
            case Pause():
                await trio.lowlevel.checkpoint()
            case _:
                assert_never(decision)
        return NOTHING_FOUND

    async def remove(self, taken_in: Iterable[str]) -> None:
        """Remove brokers' notifications to the controller once they are handled.

        The removal is fenced: notifications that the next controller has not read must
        not be removed by its predecessor.
        """
        for path in taken_in:
            await self._fenced(Delete(path))

    async def _fenced(self, *ops: Op) -> ZooKeeperError | None:
        """Execute all of ``ops`` or none; return the error, if any."""
        try:
            await self._znodes.multi([self._check, *ops])
        except SessionExpired:
            raise
        except ZooKeeperError as failed:
            if failed.op == 0:
                raise ControllerMoved from failed
            return failed
        return None

    # ---- leaderships ------------------------------------------------------------

    async def _write_leaderships(
        self, wanted: Mapping[TopicPartition, Leadership]
    ) -> Found:
        first = [key for key, each in wanted.items() if each.version == 0]
        for topic in dict.fromkeys(key.topic for key in first):
            await self._fenced(Create(paths.partitions(topic)))
        failed: list[TopicPartition] = []

        async def write(key: TopicPartition, leadership: Leadership) -> None:
            if not await self._is_written(key, leadership):
                failed.append(key)

        await side_by_side([partial(write, *each) for each in wanted.items()])
        # A failed write may have succeeded before, with its response lost.
        there = await read_leaderships(self._znodes, failed)
        return {key: there.get(key) if key in failed else wanted[key] for key in wanted}

    async def _is_written(self, key: TopicPartition, leadership: Leadership) -> bool:
        path, data = paths.partition_state(key), write_leadership(leadership)
        if leadership.version > 0:
            return not await self._fenced(SetData(path, data, leadership.version - 1))
        above = Create(paths.partition(key))
        return not await self._fenced(above, Create(path, data)) or (
            # The parent may exist without the state.
            not await self._fenced(Create(path, data))
        )

    # ---- topics -----------------------------------------------------------------

    async def _write_assignment(self, topic: str, assignment: TopicAssignment) -> None:
        """Write partitions of a topic; keep partitions added meanwhile."""
        path = paths.topic(topic)
        while True:
            found = await self._znodes.find(path)
            if found is None:
                return
            data, stat = found
            partitions = {**read_topic(data).partitions, **assignment.partitions}
            merged = write_topic(replace(assignment, partitions=partitions))
            failed = await self._fenced(SetData(path, merged, stat.version))
            if not isinstance(failed, BadVersion):
                return

    async def _delete_topic(self, topic: str) -> None:
        """Remove a topic's znodes bottom up, and the deletion request last."""
        parents = paths.partitions(topic)
        if await self._znodes.exists(parents) is not None:
            indexes = await self._znodes.children(parents)
            keys = [TopicPartition(topic, int(index)) for index in indexes]
            await side_by_side([partial(self._delete_partition, key) for key in keys])
        await self._delete_each(
            [
                parents,
                paths.topic(topic),
                paths.topic_config(topic),
                paths.topic_to_delete(topic),
            ]
        )

    async def _delete_partition(self, key: TopicPartition) -> None:
        await self._delete_each([paths.partition_state(key), paths.partition(key)])

    async def _delete_each(self, wanted: Iterable[str]) -> None:
        for path in wanted:
            await self._fenced(Delete(path))

    async def _write_reassignments(
        self, remaining: Mapping[TopicPartition, tuple[int, ...]]
    ) -> None:
        if remaining:
            data = write_reassignment(remaining)
            await self._fenced(SetData(paths.REASSIGNMENT, data))
        else:
            await self._remove_and_watch(paths.REASSIGNMENT)

    async def _remove_and_watch(self, path: str) -> None:
        """Remove a znode written by an operator, which may appear again at once."""
        await self._fenced(Delete(path))
        if await self._znodes.exists(path, watch=True) is not None:
            self._appeared(path)
