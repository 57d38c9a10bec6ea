"""Committed offsets of a group, and their expiry.

Kafka: ``OffsetMetadataManager`` and ``OffsetExpirationConditionImpl`` (KIP-211): the
retention period begins when the group becomes empty. It begins with the commit for
groups that only store offsets, and for topics that a stable group no longer subscribes
to. Commits that are not in the log yet are pending, and so are commits of open
transactions: a reader of stable offsets (KIP-447) has to retry.

A commit that was read from the log is kept as bytes until its first use. A load thus
does not decode commits that later ones replace, and a million offsets are no objects
for Python's garbage collector to traverse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from broker.groups.state.group_messages import OffsetCommit
from broker.groups.state.group_records import read_offset
from broker.groups.state.open_transactions import OpenTransactions
from broker.protocol.topic_partition import TopicPartition

# Commits by partition; unused commits of a load are still values of the log.
Commits: TypeAlias = dict[int, OffsetCommit | bytes]


class OffsetStore:
    """Committed offsets by topic and partition. Cost: O(1) per partition."""

    __slots__ = ("_count", "_offsets", "_pending", "transactions")

    def __init__(self) -> None:
        self._offsets: dict[str, Commits] = {}
        self.transactions = OpenTransactions[OffsetCommit | bytes]()
        self._count = 0
        self._pending: Counter[TopicPartition] = Counter()

    def __len__(self) -> int:
        return self._count

    def add_topic(self, topic: str, commits: Commits) -> None:
        """Add the commits of a topic without offsets; all values can be decoded."""
        assert topic not in self._offsets, topic
        if commits:
            self._offsets[topic] = commits
            self._count += len(commits)

    def begin(self, target: TopicPartition) -> None:
        """Count a pending commit, which is being written to the log."""
        self._pending[target] += 1

    def finish(self, target: TopicPartition, commit: OffsetCommit | None) -> None:
        """End a pending commit: publish it, or drop it (None) if it has failed."""
        self._pending[target] -= 1
        if not self._pending[target]:
            del self._pending[target]
        if commit is not None:
            self.put(target, commit)

    def put(self, target: TopicPartition, commit: OffsetCommit) -> None:
        """Publish the latest commit in the log."""
        self.transactions.replaced(target)
        self._show(target, commit)

    def end_transaction(
        self, producer_id: int, *, is_commit: bool
    ) -> Iterator[TopicPartition]:
        """Publish or drop a transaction's offsets, one by one."""
        ending = self.transactions.end(producer_id, is_commit=is_commit)
        for target, commit in ending:
            if commit is not None:
                self._show(target, commit)
            yield target

    def _show(self, target: TopicPartition, commit: OffsetCommit | bytes) -> None:
        partitions = self._offsets.setdefault(target.topic, {})
        self._count += target.partition not in partitions
        partitions[target.partition] = commit

    def drop(self, target: TopicPartition) -> bool:
        """Remove a partition's offsets; return whether there was a committed one."""
        self.transactions.remove(target)
        partitions = self._offsets.get(target.topic)
        if partitions is None or partitions.pop(target.partition, None) is None:
            return False
        self._count -= 1
        if not partitions:
            del self._offsets[target.topic]
        return True

    def get(self, target: TopicPartition) -> OffsetCommit | None:
        """Return the last published commit, the same object each time."""
        commits = self._offsets.get(target.topic, {})
        commit = commits.get(target.partition)
        if isinstance(commit, bytes):
            commits[target.partition] = commit = read_offset(commit)
        return commit

    def is_pending(self, target: TopicPartition) -> bool:
        """Return whether a newer commit is pending.

        The commit is being written to the log, or its transaction is open.
        """
        return target in self._pending or target in self.transactions

    def any_pending(self) -> bool:
        """Return whether there are pending commits."""
        return bool(self._pending) or len(self.transactions) > 0

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic in list(self._offsets):
            for partition in list(self._offsets.get(topic, ())):
                yield TopicPartition(topic, partition)

    def of(self, topic: str) -> Iterator[TopicPartition]:
        """Iterate over a topic's partitions with committed or transactional offsets."""
        committed = self._offsets.get(topic, {})
        for partition in list(committed):
            yield TopicPartition(topic, partition)
        for target in self.transactions:
            if target.topic == topic and target.partition not in committed:
                yield target

    def of_all_kinds(self) -> Iterator[TopicPartition]:
        """Iterate over all partitions with committed or transactional offsets."""
        yield from self
        for target in self.transactions:
            if target.partition not in self._offsets.get(target.topic, ()):
                yield target

    def is_expired(
        self,
        target: TopicPartition,
        now_ms: int,
        retention_ms: int,
        *,
        empty_since_ms: int | None,
    ) -> bool:
        """Return whether a partition has an expired offset.

        Retention begins at ``empty_since_ms`` or, if None, with the commit. Offsets
        with a pending commit never expire.
        """
        commit = self._offsets.get(target.topic, {}).get(target.partition)
        if commit is None or self.is_pending(target):
            return False
        if isinstance(commit, bytes):
            commit = read_offset(commit)
        since = commit.commit_ms if empty_since_ms is None else empty_since_ms
        end_ms = commit.expire_ms if commit.expire_ms >= 0 else since + retention_ms
        return now_ms >= end_ms

    def check(self) -> None:
        """Assert that counts agree, and that there are no empty entries."""
        assert all(self._offsets.values()), self._offsets
        assert self._count == sum(map(len, self._offsets.values())), self._count
        assert all(count > 0 for count in self._pending.values()), self._pending
        self.transactions.check()
