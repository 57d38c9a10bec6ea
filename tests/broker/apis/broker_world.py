"""A whole broker without sockets, with storage in memory and a manual clock.

Requests are frames of any version. A `Call` steps a handler as a plane does: it passes
preemption points, and a parked handler waits until it is woken. kio decodes the
answers.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Coroutine, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

from broker.assembly import assemble
from broker.cluster.blocking import Blocking, call_here
from broker.config import BrokerConfig
from broker.disk.memory import MemoryStorage
from broker.handling.api_registry import APIS
from broker.handling.kafka_apis import KafkaApis
from broker.log.upkeep.periodic_task import Calls
from broker.network.intake import Intake
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.principal import ANONYMOUS
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrResponse
from broker.protocol.schemas.stop_replica_schema import StopReplicaResponse
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataResponse
from broker.protocol.wire.codec import decode_response, encode_request, request_type
from broker.requests.classifier import Classifier
from broker.requests.entitlement import entitlement_of
from broker.requests.request import CLOSE, Request, Response, Throttled
from planes.lock import Acquire, Release
from planes.slices import PREEMPT, Park
from tests.broker.apis.requests import (
    SECONDS_30,
    START_MS,
    batch,
    entity,
    fetch_fields,
    new_topic,
    produce_fields,
    update_metadata,
)

NONE = ErrorCode.none
NOTHING: Mapping[str, Any] = MappingProxyType({})
RESPONSES: dict[ApiKey, Any] = {
    ApiKey.LEADER_AND_ISR: LeaderAndIsrResponse,
    ApiKey.STOP_REPLICA: StopReplicaResponse,
    ApiKey.UPDATE_METADATA: UpdateMetadataResponse,
}
MS = 1_000_000
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "doorkeeper.controller.listeners": "PLAINTEXT",
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "2",
}


def _unasked(*_: object) -> None:
    raise AssertionError("no plane has served the request")


class World:
    """An open broker, its clock, and a connection to it."""

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        storage: Any = None,
        threads: Calls | None = None,
        clock_moved_ms: int = 0,
        blocking: Blocking = call_here,
    ) -> None:
        self.now_ns = 0
        # Adjustment of the wall clock by an operator; negative if set back.
        self.clock_moved_ms = clock_moved_ms
        self.storage = storage or MemoryStorage()
        self.settings = {**SETTINGS, **(settings or {})}
        config = BrokerConfig.load(None, self.settings)
        rng = random.Random(5)
        self.broker = assemble(
            config,
            storage=self.storage,
            now_ns=lambda: self.now_ns,
            now_ms=self.now_ms,
            rng=rng,
            threads=threads,
            blocking=blocking,
        )
        self.apis = KafkaApis(self.broker)
        self._intake = Intake(self.apis.serve, Classifier(APIS), APIS)
        self.connect("PLAINTEXT")
        self.broker.open(config.advertised, lambda: None)

    def now_ms(self) -> int:
        """Return the time of the wall clock."""
        return START_MS + self.now_ns // MS + self.clock_moved_ms

    def restarted(self, *, storage: Any = None) -> World:
        """Return a new broker on the disk after a kill, or on ``storage``."""
        world = World(self.settings, storage or self.storage.after_kill())
        world.now_ns = self.now_ns
        return world

    def pass_ms(self, milliseconds: int) -> None:
        """Advance the clock, and run the timers that expire."""
        self.now_ns += milliseconds * MS
        for _ in range(1000):
            expires = self._is_due(self.broker.next_expiry_ns())
            keeps_up = self._is_due(self.broker.upkeep_duty.due_ns())
            if expires:
                self.broker.expire(self.now_ns)
            if keeps_up:
                self.broker.upkeep_duty.run(self.now_ns)
            if not expires and not keeps_up:
                return
        raise AssertionError("there is always something due")

    def _is_due(self, at_ns: int | None) -> bool:
        return at_ns is not None and at_ns <= self.now_ns

    # ---- requests ---------------------------------------------------------------

    def connect(self, listener: str) -> None:
        """Send the next requests over a connection to ``listener``."""
        self.peer = SimpleNamespace(
            connection_id=1,
            host="10.0.0.1",
            listener=listener,
            entitlement=entitlement_of(self.broker.config, listener),
            principal=ANONYMOUS,
            authenticator=None,
            release=lambda count: None,
            has_hung_up=False,
        )

    def start(
        self,
        key: ApiKey,
        version: int,
        /,
        *,
        client_id: str = "test",
        stop_at: int = 0,
        noted: Mapping[str, Any] = NOTHING,
        **fields: Any,
    ) -> Call:
        """Send a request with the fields that its version has.

        The handler stops at preemption point ``stop_at``, unless that is 0. ``noted``
        has the attributes of the task that admission sets.
        """
        frame = self.frame(key, version, client_id=client_id, **fields)
        return self.start_frame(frame, stop_at, noted)

    def frame(
        self, key: ApiKey, version: int, /, *, client_id: str = "test", **fields: Any
    ) -> bytes:
        """Return the bytes of a request, without its size."""
        body = entity(request_type(key, version), fields)
        return self.entity_frame(key, version, body, client_id=client_id)

    def entity_frame(
        self, key: ApiKey, version: int, body: Any, *, client_id: str = "test"
    ) -> bytes:
        """Return the bytes of a request from its entity."""
        return encode_request(key, version, 7, client_id, body)[4:]

    def start_entity(self, key: ApiKey, version: int, body: Any) -> Call:
        """Send a request from its entity."""
        return self.start_frame(self.entity_frame(key, version, body))

    def start_frame(
        self, frame: bytes, stop_at: int = 0, noted: Mapping[str, Any] = NOTHING
    ) -> Call:
        """Send a frame; raise `MalformedFrame` if it is not a request."""
        request = self.received(frame)
        for name, value in noted.items():
            setattr(request.task, name, value)
        return Call(request, self.apis.serve(request), stop_at)

    def received(self, frame: bytes) -> Request:
        """Return the request that the intake makes from a frame."""
        return self._intake.request(frame, self.peer, self.now_ns, _unasked)

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Send a request that is answered at once, and return the answer."""
        call = self.start(key, version, **fields)
        assert call.done, "still parked"
        return call.answer

    def command(self, key: ApiKey, request: Any, version: int | None = None) -> Any:
        """Send a controller's request; return the answer as a schema object."""
        version = APIS[key].versions[1] if version is None else version
        call = self.start_entity(key, version, request.to_wire(version))
        return RESPONSES[key].from_wire(call.answer)

    # ---- frequent requests ------------------------------------------------------

    def live(self, *others: int) -> None:
        """Announce the other live brokers, as a controller does."""
        addresses = {each: ("127.0.0.1", 9092 + each) for each in (0, *others)}
        command = update_metadata(("elsewhere", 0), leader=0, brokers=addresses)
        assert self.command(ApiKey.UPDATE_METADATA, command).error_code is NONE

    def create(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """Create a topic and return its id."""
        written = [(key.replace("_", "."), value) for key, value in configs.items()]
        answer = self.send(
            ApiKey.CREATE_TOPICS,
            7,
            topics=[new_topic(name, partitions, configs=written)],
            timeout=SECONDS_30,
        )
        (topic,) = answer.topics
        assert topic.error_code is NONE, topic
        topic_id: UUID = topic.topic_id
        return topic_id

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, acks: int = 1
    ) -> Any:
        """Produce one batch and return the partition's answer."""
        answer = self.send(
            ApiKey.PRODUCE,
            9,
            **produce_fields({(topic, partition): batch(*values)}, acks),
        )
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int = 0, version: int = 12) -> Any:
        """Fetch one partition without waiting and return its answer."""
        answer = self.send(ApiKey.FETCH, version, **fetch_fields({(topic, 0): offset}))
        return answer.responses[0].partitions[0]

    def check(self) -> None:
        """Assert every invariant of the broker."""
        self.broker.check()
        for log in self.broker.logs.logs.values():
            log.check()


class Call:
    """A handler that is stepped as a plane does."""

    def __init__(
        self,
        request: Request,
        begun: Response | Coroutine[Any, Any, Response],
        stop_at: int = 0,
    ) -> None:
        self.request = request
        self.stop_at = stop_at
        self.preemption_points = 0
        self.done = False
        self.response: Any = None
        if isinstance(begun, Coroutine):
            self.coroutine = begun
            self.go_on()
        else:
            self.done = True
            self.response = begun

    def go_on(self) -> None:
        try:
            while True:
                trap = self.coroutine.send(None)
                if trap is PREEMPT:
                    self.preemption_points += 1
                    if self.preemption_points == self.stop_at:
                        return
                elif isinstance(trap, Park):
                    if trap.register(self.go_on):
                        return
                elif isinstance(trap, Acquire | Release):
                    # Locks are ignored: an outcome without them also holds with them.
                    continue
                else:
                    raise AssertionError(trap)
        except StopIteration as stop:
            self.done = True
            self.response = stop.value

    @property
    def closed(self) -> bool:
        """Return whether the connection was closed without an answer."""
        return self.response is CLOSE

    @property
    def frame(self) -> bytes:
        """The bytes that the client receives."""
        assert self.done, "still parked"
        pieces = self.response
        if isinstance(pieces, Throttled):
            pieces = pieces.pieces
        return b"".join(
            piece if isinstance(piece, bytes) else piece.read() for piece in pieces
        )

    @property
    def answer(self) -> Any:
        """The answer as the client decodes it."""
        frame = self.frame
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        key, version = self.request.api_key, self.request.api_version
        correlation_id, answer = decode_response(key, version, frame[4:])
        assert correlation_id == self.request.correlation_id
        return answer
