"""Answers of one cluster's brokers, combined for the pages.

Answers about the whole cluster are cached, and one page at a time refreshes them. The
load on the cluster therefore does not depend on the number of open pages or their
reload rate. It does not depend on the size of the cluster either: an answer of many
rows is cached for longer, and the lag of many groups is sampled in small steps with
pauses between them. A page states the age of its answers. A single topic or group is
never cached.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

import trio

from broker.client.admin import (
    LATEST,
    ClusterDescription,
    CommittedOffset,
    KafkaAdmin,
    by_leader,
)
from broker.client.network_client import Connect, connect_tcp
from broker.client.retriable_errors import STALE_METADATA
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.list_groups import ListedGroup
from broker.protocol.messages.metadata import MetadataResponseTopic
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.disk_history import PERIOD_S as DISKS_PERIOD_S
from doorkeeper.web_console.disk_history import DiskHistory
from doorkeeper.web_console.lag_history import GROUPS_MAX, PERIOD_S, LagHistory
from doorkeeper.web_console.record_rates import PARTITIONS_MAX, Reading, RecordRates
from doorkeeper.web_console.request_watch import BrokerRequests, RequestWatch

_T = TypeVar("_T")
# Ages at which answers are refreshed. For disks, brokers read the size of every log.
_KEPT_S: Final = 2.0
_DISKS_KEPT_S: Final = 10.0
# Time added by each row of an answer, and pause after each sampled row, so that large
# answers take no larger share of a broker's time. `_KEPT_MAX_S` bounds the age.
_ROW_S: Final = 0.005
_KEPT_MAX_S: Final = 60.0
_GROUPS_PER_STEP: Final = 5
# Small requests: a broker that does not preempt serves others between them.
_GROUPS_PER_REQUEST, _PARTITIONS_PER_REQUEST = 1, 50
# Longer names do not fit into a request.
_NAME_BYTES_MAX: Final = 32_767
_NO_TOPIC: Final = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.invalid_topic_exception,
    ErrorCode.topic_authorization_failed,
)


class Kept(Generic[_T]):
    """A cached answer that is refreshed when it is older than ``age_s``.

    Each of its ``rows`` adds to that age.
    """

    def __init__(
        self,
        query: Callable[[], Awaitable[_T]],
        age_s: float,
        rows: Callable[[_T], int] = lambda _: 0,
    ) -> None:
        self._query = query
        self._age_s = age_s
        self._rows = rows
        self._found: tuple[float, _T] | None = None
        self._lock = trio.Lock()

    def invalidate(self) -> None:
        """Refresh the answer at the next call."""
        self._found = None

    async def get(self) -> _T:
        """Return the answer; raises `KafkaError`."""
        async with self._lock:
            if self._found is None or self.age_s() > self._kept_s(self._found[1]):
                now_s = trio.current_time()
                self._found = (now_s, await self._query())
            return self._found[1]

    def age_s(self) -> float:
        """Return the time since the request of the answer, 0 without an answer."""
        return 0.0 if self._found is None else trio.current_time() - self._found[0]

    def _kept_s(self, found: _T) -> float:
        return min(self._age_s + self._rows(found) * _ROW_S, _KEPT_MAX_S)


class TopicSummary(NamedTuple):
    """A topic's row; ``code`` is the broker's error for the topic, or NONE."""

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    offline: int
    under_replicated: int
    code: ErrorCode


def summary(topic: MetadataResponseTopic) -> TopicSummary:
    """Return the row of a topic."""
    found = topic.partitions
    return TopicSummary(
        name=topic.name or "",
        is_internal=topic.is_internal,
        partitions=len(found),
        replicas=max((len(it.replica_nodes) for it in found), default=0),
        offline=sum(it.leader_id < 0 for it in found),
        under_replicated=sum(len(it.isr_nodes) < len(it.replica_nodes) for it in found),
        code=topic.error_code,
    )


class LogDir(NamedTuple):
    """A broker's log directory; unknown sizes of the volume are -1."""

    broker_id: int
    path: str
    code: ErrorCode
    replicas: int
    size_bytes: int
    total_bytes: int
    usable_bytes: int


@dataclass(kw_only=True)
class Disks:
    """Log directories and sizes of replicas; ``failed`` brokers did not answer."""

    directories: list[LogDir] = field(default_factory=list)
    # Bytes by topic, partition and broker.
    sizes: dict[str, dict[int, dict[int, int]]] = field(default_factory=dict)
    failed: Mapping[int, KafkaError] = field(default_factory=dict)

    @property
    def replicas(self) -> int:
        """Return the number of replicas in all directories."""
        return sum(it.replicas for it in self.directories)

    def of_topic(self, name: str) -> int:
        """Return the bytes of all replicas of a topic."""
        partitions = self.sizes.get(name, {}).values()
        return sum(size for by_broker in partitions for size in by_broker.values())


class Group(NamedTuple):
    """A group's row: its coordinator, and the coordinator's listing."""

    coordinator_id: int
    listed: ListedGroup


class Groups(NamedTuple):
    """All groups by name; ``failed`` are brokers without an answer."""

    by_name: Mapping[str, Group]
    failed: Mapping[int, KafkaError]


class Lags(NamedTuple):
    """Lags by group; ``rows`` is the number of rows requested from brokers."""

    by_group: Mapping[str, int | None]
    rows: int


class ClusterView:
    """Reads one cluster. Every method raises `KafkaError`.

    ``connect`` opens connections to the metrics of brokers on this machine.
    """

    def __init__(
        self, name: str, admin: KafkaAdmin, connect: Connect = connect_tcp
    ) -> None:
        self.name = name
        self.admin = admin
        self._connect = connect
        self.history = LagHistory()
        self.rates = RecordRates()
        self.disk_history = DiskHistory()
        self._cluster = Kept(admin.describe_cluster, _KEPT_S)
        self._topics = Kept(self._read_topics, _KEPT_S, _partitions)
        self._disks = Kept(self._read_disks, _DISKS_KEPT_S, lambda it: it.replicas)
        self._groups = Kept(self._read_groups, _KEPT_S, lambda it: len(it.by_name))
        # By broker.
        self._requests: dict[int, Kept[BrokerRequests]] = {}

    async def cluster(self) -> ClusterDescription:
        """Return brokers and controller."""
        return await self._cluster.get()

    async def topics(self) -> Mapping[str, MetadataResponseTopic]:
        """Return all topics, sorted by name."""
        return await self._topics.get()

    async def topic(self, name: str) -> MetadataResponseTopic | None:
        """Return a topic as it is now, None if there is none."""
        if len(name.encode(errors="replace")) > _NAME_BYTES_MAX:
            return None
        for it in await self.admin.describe_topics([name]):
            if it.name == name and it.error_code not in _NO_TOPIC:
                return it
        return None

    async def disks(self) -> Disks:
        """Return the log directories of all brokers."""
        return await self._disks.get()

    async def groups(self) -> Groups:
        """Return the groups of all brokers, sorted by name."""
        return await self._groups.get()

    async def requests(self, broker_id: int) -> BrokerRequests:
        """Return the requests of a live broker."""
        cluster = await self.cluster()
        alive = {it.id for it in cluster.brokers}
        self._requests = {
            it: kept for it, kept in self._requests.items() if it in alive
        }
        if broker_id not in self._requests:
            watch = RequestWatch(
                self.admin, self._connect, cluster.cluster_id, broker_id
            )
            self._requests[broker_id] = Kept(watch.read, _KEPT_S)
        return await self._requests[broker_id].get()

    def ages_s(self) -> dict[str, int]:
        """Return the ages of the answers about the whole cluster, by their subjects."""
        return {
            name: round(kept.age_s())
            for name, kept in (
                ("brokers", self._cluster),
                ("topics", self._topics),
                ("disks", self._disks),
                ("groups", self._groups),
            )
        }

    def invalidate(self) -> None:
        """Drop all cached answers, before and after a change."""
        for it in (self._cluster, self._topics, self._disks, self._groups):
            it.invalidate()
        for requests in self._requests.values():
            requests.invalidate()

    async def offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: int,
        topics: Iterable[MetadataResponseTopic] | None = None,
    ) -> dict[TopicPartition, int]:
        """Return offsets by timestamp; partitions without an answer are left out.

        ``topics`` are the partitions' topics, if they were just read.
        """
        wanted = sorted(partitions)
        if topics is None:
            names = {it.topic for it in wanted}
            topics = [it for name, it in (await self.topics()).items() if name in names]
        of_leader = by_leader(topics, wanted)
        found: dict[TopicPartition, int] = {}

        async def query(leader_id: int) -> bool:
            """Query partitions piecewise; return whether the broker leads them all."""
            errors: set[ErrorCode] = set()
            for piece in _pieces(of_leader[leader_id], _PARTITIONS_PER_REQUEST):
                rows = await self.admin.list_offsets(leader_id, piece, timestamp)
                errors |= {it.error_code for it in rows.values()}
                found.update(
                    (partition, row.offset)
                    for partition, row in rows.items()
                    if row.error_code is ErrorCode.none
                )
            return errors.isdisjoint(STALE_METADATA)

        are_led, failed = await each_of(of_leader, query)
        if failed or not all(are_led.values()):
            self._topics.invalidate()
        return found

    async def committed(
        self, coordinator_id: int, group: str
    ) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed."""
        return _known(await self.admin.committed(coordinator_id, group))

    async def lags(self, groups: Mapping[str, Group]) -> Lags:
        """Return the lag of groups; those without an answer are left out."""
        by_broker: dict[int, list[str]] = {}
        for name, group in groups.items():
            by_broker.setdefault(group.coordinator_id, []).append(name)

        async def query(broker_id: int) -> dict[str, dict[TopicPartition, int]]:
            found: dict[str, dict[TopicPartition, int]] = {}
            for piece in _pieces(by_broker[broker_id], _GROUPS_PER_REQUEST):
                rows = await self.admin.committed_by_group(broker_id, piece)
                found |= {name: _known(row) for name, row in rows.items()}
            return found

        answers, _ = await each_of(by_broker, query)
        committed = {
            name: row for rows in answers.values() for name, row in rows.items()
        }
        partitions = {it for row in committed.values() for it in row}
        ends = await self.offsets(partitions, LATEST)
        return Lags(
            {name: total_lag(row, ends) for name, row in committed.items()},
            len(groups) + sum(map(len, committed.values())) + len(partitions),
        )

    async def keep_history(self) -> None:
        """Record rates, lags and disk space, until cancelled.

        A sample that the cluster does not answer within a period is missing.
        """
        async with trio.open_nursery() as nursery:
            for keep in (self._keep_lags, self._keep_rates, self._keep_disks):
                nursery.start_soon(keep)

    async def _keep_lags(self) -> None:
        while True:
            began_s = trio.current_time()
            with suppress(KafkaError):
                groups = (await self.groups()).by_name
                for names in _pieces([*groups][:GROUPS_MAX], _GROUPS_PER_STEP):
                    rest_s = await self._sample({it: groups[it] for it in names})
                    await trio.sleep(rest_s)
            self.history.period_s = max(PERIOD_S, trio.current_time() - began_s)
            await trio.sleep_until(began_s + PERIOD_S)

    async def _sample(self, groups: Mapping[str, Group]) -> float:
        """Record the lag of some groups; return the length of the pause."""
        began_s = trio.current_time()
        with trio.move_on_after(PERIOD_S):
            lags = await self.lags(groups)
            self.history.record(began_s, lags.by_group)
            return lags.rows * _ROW_S
        return 0.0

    async def _keep_rates(self) -> None:
        while True:
            began_s = trio.current_time()
            with suppress(KafkaError):
                self.rates.record(await self._ends())
            await trio.sleep_until(began_s + PERIOD_S)

    async def _ends(self) -> dict[TopicPartition, Reading]:
        """Read end offsets, with pauses."""
        topics = await self.topics()
        partitions = [
            TopicPartition(name, it.partition_index)
            for name, topic in topics.items()
            for it in topic.partitions
        ]
        found: dict[TopicPartition, Reading] = {}
        for piece in _pieces(partitions[:PARTITIONS_MAX], _PARTITIONS_PER_REQUEST):
            now_s = trio.current_time()
            with trio.move_on_after(PERIOD_S):
                ends = await self.offsets(piece, LATEST)
                found |= {it: Reading(now_s, end) for it, end in ends.items()}
            await trio.sleep(len(piece) * _ROW_S)
        return found

    async def _keep_disks(self) -> None:
        while True:
            began_s = trio.current_time()
            with trio.move_on_after(PERIOD_S), suppress(KafkaError):
                self.disk_history.record(began_s, (await self.disks()).directories)
            await trio.sleep_until(began_s + DISKS_PERIOD_S)

    # ---- queries --------------------------------------------------------------------

    async def _read_topics(self) -> Mapping[str, MetadataResponseTopic]:
        found = await self.admin.describe_topics()
        return {it.name or "": it for it in sorted(found, key=lambda it: it.name or "")}

    async def _alive(self) -> list[int]:
        return [it.id for it in (await self.cluster()).brokers if not it.is_fenced]

    async def _read_disks(self) -> Disks:
        answers, failed = await each_of(
            await self._alive(), self.admin.describe_log_dirs
        )
        disks = Disks(failed=failed)
        for broker_id, directories in sorted(answers.items()):
            for it in directories:
                replicas = [row for topic in it.topics for row in topic.partitions]
                directory = LogDir(
                    broker_id=broker_id,
                    path=it.log_dir,
                    code=it.error_code,
                    replicas=len(replicas),
                    size_bytes=sum(row.partition_size for row in replicas),
                    total_bytes=it.total_bytes,
                    usable_bytes=it.usable_bytes,
                )
                disks.directories.append(directory)
                for topic in it.topics:
                    sizes = disks.sizes.setdefault(topic.name, {})
                    for row in topic.partitions:
                        if not row.is_future_key:
                            by_broker = sizes.setdefault(row.partition_index, {})
                            by_broker[broker_id] = row.partition_size
        return disks

    async def _read_groups(self) -> Groups:
        answers, failed = await each_of(await self._alive(), self.admin.list_groups)
        found = {
            it.group_id: Group(broker_id, it)
            for broker_id, listed in answers.items()
            for it in listed
        }
        return Groups(dict(sorted(found.items())), failed)


def _partitions(topics: Mapping[str, MetadataResponseTopic]) -> int:
    return sum(len(it.partitions) for it in topics.values())


def _known(
    rows: Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, int]:
    return {
        it: row.committed_offset
        for it, row in rows.items()
        if row.error_code is ErrorCode.none
    }


def _pieces(rows: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def total_lag(
    committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> int | None:
    """Return the lag over the partitions with known ends; None without any."""
    lags = [ends[it] - at for it, at in committed.items() if it in ends]
    return sum(lags) if lags else None


async def each_of(
    brokers: Iterable[int], query: Callable[[int], Awaitable[_T]]
) -> tuple[dict[int, _T], dict[int, KafkaError]]:
    """Query brokers concurrently; return answers and errors by broker."""
    answers: dict[int, _T] = {}
    failed: dict[int, KafkaError] = {}

    async def one(broker_id: int) -> None:
        try:
            answers[broker_id] = await query(broker_id)
        except KafkaError as error:
            failed[broker_id] = error

    async with trio.open_nursery() as nursery:
        for broker_id in brokers:
            nursery.start_soon(one, broker_id)
    return answers, failed
