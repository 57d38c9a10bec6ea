"""Replication, connected to a broker's replicas and its metadata of other brokers."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial

import trio

from broker.client.client_config import COMMON, read_settings
from broker.client.connection import Stream
from broker.client.network_client import Connect, NetworkClient
from broker.cluster.blocking import Blocking
from broker.cluster.follower import SyncRules
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.replica_manager import ReplicaManager
from broker.cluster.replication_quota import Quota
from broker.config import REPLICA_LAG_TIME_MAX_MS, BrokerConfig
from broker.node.flush_shell import SharedFlush
from broker.observation.supervisor import Supervisor
from broker.replication.fetcher_manager import Lower, ReplicaFetcherManager
from broker.replication.isr_changes import IsrExpiration, IsrProposals, bring

_NS_PER_MS = 1_000_000


async def connect_nowhere(host: str, port: int) -> Stream:
    """Raise OSError: a single-broker cluster has no network to other brokers."""
    raise OSError(f"there is no network to reach {host}:{port} by")


async def side_by_side(
    billed: AbstractContextManager[object],
    *works: Callable[[AbstractContextManager[object]], Awaitable[None]],
) -> None:
    """Run all tasks concurrently until cancelled."""
    async with trio.open_nursery() as nursery:
        for work in works:
            nursery.start_soon(work, billed)


class Replication:
    """Fetchers of followers, and ISR proposals of leaders.

    ``registered_epoch`` is the epoch of this broker's registration.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        replicas: ReplicaManager,
        metadata_cache: MetadataCache,
        *,
        registered_epoch: Callable[[], int],
        connect: Connect,
        flush: SharedFlush,
        lower: Lower,
        blocking: Blocking,
        quota: Quota,
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.supervisor = Supervisor()
        self._local_id = replicas.local_id
        self._metadata_cache = metadata_cache
        self._registered_epoch = registered_epoch
        self._connect = connect
        self._rng = rng
        # The inter-broker address of a broker.
        self._find = partial(
            metadata_cache.endpoint, config().inter_broker_listener_name
        )
        self.fetchers = ReplicaFetcherManager(
            config,
            local_id=replicas.local_id,
            watchers=replicas,
            find=self._find,
            connect=connect,
            flush=flush,
            lower=lower,
            blocking=blocking,
            quota=quota,
            now_ns=now_ns,
            now_ms=now_ms,
            rng=rng,
            supervisor=self.supervisor,
        )
        self.proposals = IsrProposals(lambda it: replicas.note_change(it.key))
        rules = replicas.sync_rules = SyncRules(
            now_ns=now_ns,
            lag_ns=lambda: config()[REPLICA_LAG_TIME_MAX_MS] * _NS_PER_MS,
            is_alive=metadata_cache.is_alive,
        )
        self.expiration = IsrExpiration(
            replicas.led, rules.lag_ns, self.proposals.submit
        )
        replicas.fetchers = self.fetchers
        replicas.isr_changes = self.proposals

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Fetch and propose until cancelled; all CPU is used within ``billed``."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fetchers.run, billed)
            bring_changes = partial(self._bring_isr_changes, billed)
            await self.supervisor.keep("isr changes", bring_changes)

    async def _bring_isr_changes(self, billed: AbstractContextManager[object]) -> None:
        settings = read_settings(COMMON, {"client_id": f"broker-{self._local_id}"})
        client = NetworkClient(settings, self._connect, self._rng)
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            await bring(
                self.proposals,
                client,
                self._controller,
                self._identity,
                billed,
                self._rng,
            )

    def _controller(self) -> tuple[str, int] | None:
        return self._find(self._metadata_cache.controller_id)

    def _identity(self) -> tuple[int, int]:
        return self._local_id, self._registered_epoch()
