"""A broker's fetchers, joined to its replicas and to what it knows of other brokers."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from broker.client.connection import Stream
from broker.client.network_client import Connect
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.replica_manager import ReplicaManager
from broker.config import BrokerConfig
from broker.replication.fetcher_manager import ReplicaFetcherManager


async def connect_nowhere(host: str, port: int) -> Stream:
    """Reach no other broker: for one that is its own cluster, without a network."""
    raise OSError(f"there is no network to reach {host}:{port} by")


def replica_fetchers(
    config: Callable[[], BrokerConfig],
    replicas: ReplicaManager,
    metadata_cache: MetadataCache,
    *,
    connect: Connect,
    now_ns: Callable[[], int],
    now_ms: Callable[[], int],
    rng: random.Random,
) -> ReplicaFetcherManager:
    """Return the fetchers of a broker, which reach leaders where brokers listen."""
    return ReplicaFetcherManager(
        config,
        local_id=replicas.local_id,
        watchers=replicas,
        find=partial(metadata_cache.endpoint, config().inter_broker_listener_name),
        connect=connect,
        now_ns=now_ns,
        now_ms=now_ms,
        rng=rng,
    )
