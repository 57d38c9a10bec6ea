"""A member of a cluster under ZooKeeper, with a witness as its broker.

The member is elected controller, and sends requests to the broker over a connection as
to any broker. The connection is a pair of streams in memory for any ZooKeeper.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

import trio
import trio.testing

from broker.cluster.metadata_cache import LiveBroker, MetadataCache
from broker.config import BrokerConfig
from broker.coordination.coordinator_roles import Coordinator
from broker.coordination.zookeeper.zookeeper_coordinator import zookeeper_coordinator
from broker.disk.identity import draw_uuid
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.wire.codec import decode, encode
from broker.protocol.wire.header import parse_request_header
from broker.zookeeper.zookeeper_session import Connect, ZooKeeperSession
from simulation.virtual_time.apis import START_MS, receive_frame
from tests.broker.coordination.contract_coordinator import until
from tests.broker.coordination.witness import Witness

Row = SimpleNamespace
_HOST, _PORT = "broker-0", 9092
_CONTROL: Final = {
    ApiKey.LEADER_AND_ISR: (2, 7),
    ApiKey.STOP_REPLICA: (3, 4),
    ApiKey.UPDATE_METADATA: (5, 8),
}


class MemberWitness(Witness):
    """A witness with a metadata cache, which lasts for one life."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__()
        self.config = config
        self.advertised = config.advertised
        self.begin_life()

    def begin_life(self) -> None:
        """Forget all state that is not on the disk."""
        endpoints = {each.name: (each.host, each.port) for each in self.advertised}
        local = LiveBroker(id=self.config.node_id, endpoints=endpoints)
        self.metadata_cache = MetadataCache(local, controller_id=NO_LEADER)

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        error = super().update_metadata(request)
        self.metadata_cache.update(request)
        return error

    def _is_stale(
        self, command: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> bool:
        """Return whether a command is of an older controller; keep the newest epoch."""
        if command.controller_epoch < self.controller_epoch:
            return True
        self.controller_epoch = command.controller_epoch
        return False

    async def obey(self, stream: trio.abc.Stream) -> None:
        """Answer a controller until it closes the connection."""
        any_stream: Any = stream
        try:
            while True:
                frame = await receive_frame(any_stream)
                header = parse_request_header(frame)
                key, version = ApiKey(header.api_key), header.api_version
                body = decode(key, version, frame, header.body_offset)
                answer = self._answer(key, version, body)
                encoded = encode(key, version, header.correlation_id, answer)
                await stream.send_all(encoded)
        except (EOFError, trio.BrokenResourceError):
            await stream.aclose()

    def _answer(self, key: ApiKey, version: int, body: Any) -> Any:
        stale = ErrorCode.stale_controller_epoch
        match key:
            case ApiKey.LEADER_AND_ISR:
                led = LeaderAndIsrRequest.from_wire(body)
                if self._is_stale(led):
                    return LeaderAndIsrResponse(error_code=stale).to_wire(version)
                return self.become_leader_or_follower(led).to_wire(version)
            case ApiKey.STOP_REPLICA:
                stopped = StopReplicaRequest.from_wire(body)
                if self._is_stale(stopped):
                    return StopReplicaResponse(error_code=stale).to_wire(version)
                return self.stop_replicas(stopped).to_wire(version)
            case ApiKey.UPDATE_METADATA:
                told = UpdateMetadataRequest.from_wire(body)
                error = stale if self._is_stale(told) else self.update_metadata(told)
                return UpdateMetadataResponse(error_code=error).to_wire(version)
        return _api_versions()


def _api_versions() -> Row:
    return Row(
        error_code=ErrorCode.none,
        api_keys=[
            Row(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in _CONTROL.items()
        ],
        throttle_time=timedelta(0),
        supported_features=(),
        finalized_features_epoch=-1,
        finalized_features=(),
        zk_migration_ready=False,
    )


class MemberPlace:
    """Broker 0 under the ZooKeeper ``servers``, with a chroot of its own.

    With ``crashes``, a life ends without leaving, so its session outlasts it.
    """

    def __init__(self, servers: str, connect: Connect, *, crashes: bool) -> None:
        settings = {
            "zookeeper.connect": servers,
            "broker.id": "0",
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://{_HOST}:{_PORT}",
        }
        self.broker = MemberWitness(BrokerConfig.load(None, settings))
        self._servers = servers
        self._connect = connect
        self._crashes = crashes
        self._rng = random.Random(3)
        self._nursery: trio.Nursery

    def _session(self) -> ZooKeeperSession:
        return ZooKeeperSession(
            self._servers, timeout_ms=6000, connect=self._connect, rng=self._rng
        )

    async def _connect_to_broker(self, host: str, port: int) -> trio.abc.Stream:
        assert (host, port) == (_HOST, _PORT)
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.broker.obey, theirs)
        return ours

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Coordinator]:
        """Run a coordinator until the block ends; enter once it is the controller."""
        self.broker.begin_life()
        coordinator = zookeeper_coordinator(
            self.broker.config,
            open_session=self._session,
            connect=self._connect_to_broker,
            new_id=lambda: draw_uuid(self._rng),
            now_ns=lambda: 0,
            now_ms=lambda: START_MS,
            rng=self._rng,
        )
        await coordinator.membership.prepare()
        coordinator.membership.open(self.broker)
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(coordinator.membership.run, nullcontext())
            await until(lambda: _governs(coordinator))
            yield coordinator
            if not self._crashes:
                await coordinator.membership.leave()
            self._nursery.cancel_scope.cancel()


def _governs(coordinator: Coordinator) -> bool:
    try:
        coordinator.controller.check_is_controller()
    except KafkaError:
        return False
    return True
