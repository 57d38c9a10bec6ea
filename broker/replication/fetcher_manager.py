"""The fetchers of a broker as tasks: one per leader and fetcher number.

Kafka's ``ReplicaFetcherManager``: a partition is assigned to fetcher
``hash % num.replica.fetchers`` of its leader. A fetcher exists from its first partition
to its last, and has its own connection (one request at a time, as brokers serve them).
The leader's address is looked up in the metadata before each request, so a fetcher
whose leader is unknown starts when the leader becomes known.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from logging import getLogger
from typing import Final, NamedTuple, TypeVar

import trio

from broker.client.client_config import COMMON, ClientConfig, read_settings
from broker.client.network_client import Address, Connect, NetworkClient
from broker.client.signals import Signal
from broker.cluster.blocking import Blocking, carried_out
from broker.cluster.partition import Partition
from broker.cluster.replication_quota import Quota
from broker.config import (
    NUM_REPLICA_FETCHERS,
    REPLICA_FETCH_BACKOFF_MS,
    REPLICA_SOCKET_TIMEOUT_MS,
    BrokerConfig,
)
from broker.log.log import Log
from broker.log.steps import InSteps, Steps
from broker.log.trimming import cut_in_steps
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from broker.protocol.messages.message import AnyRequest, AnyResponse
from broker.protocol.topic_partition import TopicPartition
from broker.replication.replica_fetcher import (
    EARLIEST,
    LATEST,
    PARTITIONS_PER_STEP,
    Following,
    ReplicaFetcher,
    Watchers,
)

logger = getLogger(__name__)

# The address of a broker's inter-broker listener, if it is known.
Find = Callable[[int], tuple[str, int] | None]
# Makes a log durable; raises KAFKA_STORAGE_ERROR.
Flush = Callable[[Log], Awaitable[None]]
# Lowers recovery points before truncations to these ends; raises OSError.
Lower = Callable[[Mapping[TopicPartition, int]], Steps[None]]
# Kafka accepts 0 for replica.fetch.backoff.ms; throttled partitions, or an unavailable
# leader, would be retried in a busy loop.
_PAUSE_MIN_NS: Final = 10_000_000
# Partitions per step of `ReplicaFetcherManager.deal_anew`.
_PARTITIONS_AT_ONCE: Final = 100

_R = TypeVar("_R", bound=AnyResponse)
_S = TypeVar("_S")


class FetcherId(NamedTuple):
    """A fetcher's leader, and its number among that leader's fetchers."""

    leader: int
    number: int


class _Running(NamedTuple):
    """A fetcher, with signals of any change and of removed partitions."""

    fetcher: ReplicaFetcher
    changed: Signal
    left: Signal


class ReplicaFetcherManager:
    """The fetcher of each partition; `run` runs the fetchers."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        local_id: int,
        watchers: Watchers,
        find: Find,
        connect: Connect,
        flush: Flush,
        lower: Lower,
        blocking: Blocking,
        quota: Quota,
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
        rng: random.Random,
        supervisor: Supervisor,
    ) -> None:
        self._config = config
        self._supervisor = supervisor
        self._local_id = local_id
        self._watchers = watchers
        self._find = find
        self._connect = connect
        self._flush = flush
        self._lower = lower
        self._blocking = blocking
        self._quota = quota
        self._now_ns = now_ns
        self._now_ms = now_ms
        self._rng = rng
        self._running: dict[FetcherId, _Running] = {}
        self._of: dict[TopicPartition, FetcherId] = {}
        self._new = Signal()
        self._to_start: list[FetcherId] = []
        # Number of rounds that ended by a bug of this broker.
        self.failures = 0

    def fetchers(self) -> dict[FetcherId, ReplicaFetcher]:
        """Return the present fetchers."""
        return {name: running.fetcher for name, running in self._running.items()}

    def address_of(self, leader: int) -> tuple[str, int] | None:
        """Return the address of a leader, if known."""
        return self._find(leader)

    # ---- decisions of a controller ----------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader, and from no other broker."""
        self.stop(partition.key)
        if partition.leader >= 0:
            name = self._name(partition.key, partition.leader)
            self._assign(partition.key, name).follow(partition)

    def _assign(self, key: TopicPartition, name: FetcherId) -> ReplicaFetcher:
        """Assign a partition to a fetcher; create the fetcher if needed."""
        if name not in self._running:
            fetcher = ReplicaFetcher(
                self._local_id,
                self._config,
                self._watchers,
                self._quota,
                self._now_ns,
                self._now_ms,
            )
            self._running[name] = _Running(fetcher, Signal(), Signal())
            self._to_start.append(name)
            self._new.notify()
        self._of[key] = name
        running = self._running[name]
        running.changed.notify()
        return running.fetcher

    def stop(self, key: TopicPartition) -> None:
        """Stop fetching a partition."""
        name = self._of.pop(key, None)
        # The fetcher may have ended, if the directory of its only partition failed.
        if name is not None and name in self._running:
            running = self._running[name]
            running.fetcher.stop(key)
            running.changed.notify()
            running.left.notify()

    def deal_anew(self) -> Iterator[None]:
        """Assign each partition to its fetcher under the present config, in steps.

        Kafka: ``resizeThreadPool``. The partition's state is moved; outstanding
        responses of the former fetcher are ignored.
        """
        for number, (key, before) in enumerate(tuple(self._of.items()), 1):
            name = self._name(key, before.leader)
            if name != before and self._of.get(key) == before:
                running = self._running.get(before)
                each = running and running.fetcher.following.get(key)
                # None if the partition's directory has failed.
                if each is not None:
                    self.stop(key)
                    self._assign(key, name).take_over(each)
            if not number % _PARTITIONS_AT_ONCE:
                yield

    def _name(self, key: TopicPartition, leader: int) -> FetcherId:
        fetchers = max(self._config()[NUM_REPLICA_FETCHERS], 1)
        return FetcherId(leader, _hash(key) % fetchers)

    # ---- running ----------------------------------------------------------------

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Fetch until cancelled; CPU for responses is used within ``billed``."""
        # Fetchers that ran when this method was interrupted are restarted.
        self._to_start = list(self._running)
        async with trio.open_nursery() as nursery:
            begin = partial(self._begin_fetchers, nursery, billed)
            await self._supervisor.keep("replica fetchers", begin)

    async def _begin_fetchers(
        self, nursery: trio.Nursery, billed: AbstractContextManager[object]
    ) -> None:
        while True:
            while self._to_start:
                name = self._to_start.pop(0)
                fetch = partial(self._fetch, name, self._running[name], billed)
                nursery.start_soon(self._supervisor.keep, "replica fetcher", fetch)
            await self._new.wait()

    async def _fetch(
        self,
        name: FetcherId,
        running: _Running,
        billed: AbstractContextManager[object],
    ) -> None:
        if self._running.get(name) is not running:
            # The fetcher had ended with its last partition when it was interrupted.
            return
        async with trio.open_nursery() as nursery:
            client = NetworkClient(self._settings(name), self._connect, self._rng)
            await nursery.start(client.run)
            find = partial(self._find, name.leader)
            task = _Task(
                running.fetcher,
                client,
                find,
                self._flush,
                self._lower,
                self._blocking,
                billed,
            )
            nursery.start_soon(self._end_when_idle, name, task)
            while self._running.get(name) is running:
                if not await self._contained(task):
                    await running.changed.wait(await task.pause_until_s(self._now_ns))
                if not running.fetcher.following:
                    # The last partition was released because its directory has failed.
                    running.left.notify()
            nursery.cancel_scope.cancel()

    async def _end_when_idle(self, name: FetcherId, task: _Task) -> None:
        """End a fetcher with its last partition, even if a response is outstanding.

        A leader after a power loss does not respond for ``replica.socket.timeout.ms``,
        and may lead again before that. Kafka: ``shutdownIdleFetcherThreads``.
        """
        running = self._running[name]
        while running.fetcher.following:
            await running.left.wait()
        # No await since the check, so no partition was added.
        del self._running[name]
        task.hang_up()
        running.changed.notify()

    async def _contained(self, task: _Task) -> bool:
        """Do one round; a bug ends that round only."""
        try:
            return await task.round()
        except Exception as fault:  # the next round may succeed
            self._supervisor.note("replica fetcher", fault)
            self.failures += 1
            await task.give_up()
            return False

    def _settings(self, name: FetcherId) -> ClientConfig:
        config = self._config()
        backoff_ms = config[REPLICA_FETCH_BACKOFF_MS]
        return read_settings(
            COMMON,
            {
                "client_id": f"broker-{self._local_id}-fetcher-{name.number}",
                "request_timeout_ms": config[REPLICA_SOCKET_TIMEOUT_MS],
                "reconnect_backoff_ms": backoff_ms,
                "reconnect_backoff_max_ms": backoff_ms,
            },
        )


class _Task:
    """The task of one fetcher, one round at a time."""

    def __init__(
        self,
        fetcher: ReplicaFetcher,
        client: NetworkClient,
        find: Callable[[], tuple[str, int] | None],
        flush: Flush,
        lower: Lower,
        blocking: Blocking,
        billed: AbstractContextManager[object],
    ) -> None:
        self._fetcher = fetcher
        self._client = client
        self._find = find
        self._flush = flush
        self._lower = lower
        self._blocking = blocking
        self._billed = billed
        self._over = False
        self._calling = trio.CancelScope()

    def hang_up(self) -> None:
        """Cancel the present call and all later ones."""
        self._over = True
        self._calling.cancel()

    async def pause_until_s(self, now_ns: Callable[[], int]) -> float:
        """Return when the next round may have work, on Trio's clock."""
        next_ns = await self._in_steps(self._fetcher.next_ns())
        if next_ns is None:
            return float("inf")
        return trio.current_time() + max(next_ns - now_ns(), _PAUSE_MIN_NS) / 1e9

    async def give_up(self) -> None:
        """Pause all partitions for ``replica.fetch.backoff.ms``."""
        fetcher = self._fetcher
        await self._in_steps(fetcher.leave_all_alone(tuple(fetcher.following.values())))

    async def round(self) -> bool:
        """Send a Fetch and handle its response; return False if there was none."""
        fetcher = self._fetcher
        for each in await self._in_steps(fetcher.out_of_range()):
            await self._realign(each)
        await self._cut_all()
        # Records appended by another fetcher may have to be flushed first.
        await self._flush_all()
        sent = await self._in_steps(fetcher.request())
        if sent is None:
            return False
        try:
            is_large = len(sent.offsets) > PARTITIONS_PER_STEP
            answer = await self._call(sent.request, is_large=is_large)
        except KafkaError:
            await self._in_steps(fetcher.failed(sent))
            return False
        finally:
            fetcher.note_request()
        await self._in_steps(fetcher.take(sent, answer))
        await self._flush_all()
        # In memory, a leader may respond without a wait.
        await trio.lowlevel.checkpoint()
        return True

    async def _in_steps(self, work: InSteps[_S]) -> _S:
        """Run work on partitions, billed step by step; return its result."""
        while True:
            try:
                with self._billed:
                    next(work)
            except StopIteration as done:
                result: _S = done.value
                return result
            await trio.lowlevel.checkpoint()

    async def _flush_all(self) -> None:
        while self._fetcher.to_flush:
            each = self._fetcher.to_flush.pop()
            try:
                await self._flush(each.partition.log)
            except KafkaError:
                self._fetcher.leave_alone(each)
            else:
                self._fetcher.watchers.note_flush(each.partition)

    async def _cut_all(self) -> None:
        """Truncate the logs with a pending cut, after lowering their recovery points.

        If a flush has advanced a recovery point meanwhile, it is lowered again.
        """
        while to_cut := await self._in_steps(self._fetcher.to_cut()):
            ends = {
                key: each.cut.kept_below for key, each in to_cut.items() if each.cut
            }
            try:
                await carried_out(self._lower(ends), self._blocking)
            except OSError:
                for each in to_cut.values():
                    self._fetcher.out_of_service(each)
                return
            for each in to_cut.values():
                await self._cut(each)

    async def _cut(self, each: Following) -> None:
        try:
            await self._in_steps(self._fetcher.cut(each))
            await carried_out(cut_in_steps(each.partition.log), self._blocking)
        except KafkaError:
            self._fetcher.out_of_service(each)

    async def _realign(self, each: Following) -> None:
        try:
            start = await self._end_of(each, EARLIEST)
            end = await self._end_of(each, LATEST)
            with self._billed:
                self._fetcher.realign(each, start, end)
        except KafkaError:
            self._fetcher.leave_alone(each)

    async def _end_of(self, each: Following, timestamp: int) -> int:
        topic, index = each.partition.key
        wanted = ListOffsetsPartition(
            partition_index=index,
            current_leader_epoch=each.leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=self._fetcher.local_id,
            topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),),
        )
        answer = await self._call(request)
        found = answer.topics[0].partitions[0]
        if found.error_code is not ErrorCode.none:
            raise KafkaError(found.error_code, f"no end of {each.partition!r}")
        return found.offset

    async def _call(self, request: AnyRequest[_R], *, is_large: bool = False) -> _R:
        if not self._over:
            with trio.CancelScope() as self._calling:
                address = self._address()
                return await self._client.call(address, request, is_large=is_large)
        raise KafkaError(
            ErrorCode.network_exception, "the answer is not awaited any more"
        )

    def _address(self) -> Address:
        found = self._find()
        if found is None:
            raise KafkaError(ErrorCode.broker_not_available, "no address is known")
        return Address(*found, purpose="replica fetcher")


def _hash(key: TopicPartition) -> int:
    """Return a hash that is the same in every process, unlike Python's."""
    topic, index = key
    return 31 * zlib.crc32(topic.encode()) + index
