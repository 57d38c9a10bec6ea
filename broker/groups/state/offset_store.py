"""The offsets that a group has committed, and which of them have expired.

Kafka: ``OffsetMetadataManager`` and ``OffsetExpirationConditionImpl`` (KIP-211): a
retention period runs from the moment the group became empty, or, for a group that only
stores offsets and for topics that a stable group no longer subscribes to, from the
commit. Commits that are not in the log yet are counted, not shown: a reader who asks
for stable offsets (KIP-447) is told to come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from broker.groups.state.messages import OffsetCommit
from broker.protocol.topic_partition import TopicPartition


class OffsetStore:
    """Committed offsets by topic and partition. Cost: O(1) per partition."""

    __slots__ = ("_offsets", "_pending")

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, OffsetCommit]] = {}
        self._pending: Counter[TopicPartition] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._offsets.values()))

    def begin(self, target: TopicPartition) -> None:
        """Note that a commit is on its way into the log."""
        self._pending[target] += 1

    def finish(self, target: TopicPartition, commit: OffsetCommit | None) -> None:
        """End a commit that ``begin`` noted: show it, or drop it if it failed."""
        self._pending[target] -= 1
        if not self._pending[target]:
            del self._pending[target]
        if commit is not None:
            self.put(target, commit)

    def put(self, target: TopicPartition, commit: OffsetCommit) -> None:
        """Show a commit that is in the log."""
        self._offsets.setdefault(target.topic, {})[target.partition] = commit

    def drop(self, target: TopicPartition) -> bool:
        """Forget a partition's offset; say whether there was one."""
        partitions = self._offsets.get(target.topic)
        if partitions is None or partitions.pop(target.partition, None) is None:
            return False
        if not partitions:
            del self._offsets[target.topic]
        return True

    def get(self, target: TopicPartition) -> OffsetCommit | None:
        """Return the last commit that is in the log."""
        return self._offsets.get(target.topic, {}).get(target.partition)

    def is_pending(self, target: TopicPartition) -> bool:
        """Say whether a newer commit is on its way into the log."""
        return target in self._pending

    def any_pending(self) -> bool:
        """Say whether any commit is on its way into the log."""
        return bool(self._pending)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, partitions in list(self._offsets.items()):
            for partition in list(partitions):
                yield TopicPartition(topic, partition)

    def of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that have an offset."""
        return [TopicPartition(topic, each) for each in self._offsets.get(topic, ())]

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        *,
        empty_since_ms: int | None,
        in_use: Callable[[str], bool],
        at_most: int,
    ) -> list[TopicPartition]:
        """Find offsets whose time is over, the first ``at_most``.

        Time runs from ``empty_since_ms`` or, where that is None, from each commit.
        Offsets of topics in use never expire, nor do those with a commit under way.
        """
        found: list[TopicPartition] = []
        for topic, partitions in self._offsets.items():
            if in_use(topic):
                continue
            if len(found) == at_most:
                break
            for partition, commit in partitions.items():
                since = commit.commit_ms if empty_since_ms is None else empty_since_ms
                end_ms = since + retention_ms
                if commit.expire_ms >= 0:
                    end_ms = commit.expire_ms
                if now_ms < end_ms:
                    continue
                target = TopicPartition(topic, partition)
                if target not in self._pending:
                    found.append(target)
                    if len(found) == at_most:
                        break
        return found

    def check(self) -> None:
        """Assert that nothing empty is kept."""
        assert all(self._offsets.values()), self._offsets
        assert all(count > 0 for count in self._pending.values()), self._pending
