"""Roles of controllers and brokers: the listeners that grant them, and denied claims.

`ROWS` are those of the table in docs/security.md. On every listener of each row, every
API is sent in every version, with every form in which a frame can claim a role.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.config import BrokerConfig
from broker.handling import handler_failures, kafka_apis
from broker.handling.api_registry import APIS
from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.errors import ConfigError, ErrorCode
from broker.protocol.principal import ANONYMOUS
from broker.protocol.wire.header import parse_request_header
from broker.requests.classifier import DEFAULT_LEVELS, Classifier
from broker.requests.entitlement import CLIENT, Role, entitlement_of, shared_listener
from tests.broker.apis.broker_world import Call, World
from tests.broker.apis.requests import (
    batch,
    fetch_fields,
    leader_and_isr,
    produce_fields,
    update_metadata,
)
from tests.broker.apis.test_every_version import FIELDS

KEY = "doorkeeper.controller.listeners"
DENIED = ErrorCode.cluster_authorization_failed
COMMANDS = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
OF_BROKERS = (
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.WRITE_TXN_MARKERS,
)
WITH_REPLICA_ID = (
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
)
FULL_OF_ROLES = frozenset(Role)
ONLY_BROKER = frozenset({Role.BROKER})
NO_ROLE: frozenset[Role] = frozenset()
LISTENERS = "PLAINTEXT://:9092,INSIDE://:9093,CONTROL://:9094"
MEMBER = {"zookeeper.connect": "zookeeper:2181"}


@dataclass(frozen=True)
class Row:
    """A configuration, and the roles that it grants by listener."""

    settings: dict[str, str]
    roles: dict[str, frozenset[Role]]
    listeners: str = LISTENERS
    more: dict[str, str] = field(default_factory=dict)

    @property
    def written(self) -> dict[str, str]:
        """The whole configuration."""
        names = [each.partition(":")[0] for each in self.listeners.split(",")]
        return {
            "listeners": self.listeners,
            "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in names),
            # Override the default of `World`, which grants every role to PLAINTEXT.
            KEY: "",
            **self.settings,
        }


def row(*settings: tuple[str, str] | dict[str, str], **roles: frozenset[Role]) -> Row:
    """Return a row of three listeners; a listener that is not named grants nothing."""
    granted = {"PLAINTEXT": NO_ROLE, "INSIDE": NO_ROLE, "CONTROL": NO_ROLE, **roles}
    return Row(dict(pair for each in settings for pair in _pairs(each)), granted)


def _pairs(given: tuple[str, str] | dict[str, str]) -> Iterator[tuple[str, str]]:
    yield from given.items() if isinstance(given, dict) else (given,)


BETWEEN = ("inter.broker.listener.name", "INSIDE")
CONTROL_PLANE = ("control.plane.listener.name", "CONTROL")
ROWS = {
    "by itself": row(),
    "by itself, inter-broker listener": row(BETWEEN),
    "by itself, control plane": row(CONTROL_PLANE, CONTROL=FULL_OF_ROLES),
    "by itself, preset planes": Row(
        {"doorkeeper.scheduler": "planes"},
        {"PLAINTEXT": NO_ROLE, "CONTROLLER": NO_ROLE},
        "PLAINTEXT://:9092",
    ),
    "by itself, listeners named": row((KEY, "inside"), INSIDE=FULL_OF_ROLES),
    "by itself, two listeners named": row(
        (KEY, "INSIDE,plaintext"), INSIDE=FULL_OF_ROLES, PLAINTEXT=FULL_OF_ROLES
    ),
    "by itself, the listener of preset planes named": Row(
        {"doorkeeper.scheduler": "planes", KEY: "CONTROLLER"},
        {"PLAINTEXT": NO_ROLE, "CONTROLLER": FULL_OF_ROLES},
        "PLAINTEXT://:9092",
    ),
    "member": row(MEMBER, BETWEEN, INSIDE=FULL_OF_ROLES),
    "member, one listener": Row(
        MEMBER, {"PLAINTEXT": FULL_OF_ROLES}, "PLAINTEXT://:9092"
    ),
    "member, control plane": row(
        MEMBER, BETWEEN, CONTROL_PLANE, INSIDE=FULL_OF_ROLES, CONTROL=FULL_OF_ROLES
    ),
    "member, listeners named": row(
        MEMBER,
        BETWEEN,
        CONTROL_PLANE,
        (KEY, "control"),
        INSIDE=ONLY_BROKER,
        CONTROL=FULL_OF_ROLES,
    ),
}


# ---- the table of roles ----


@pytest.mark.parametrize("name", ROWS)
def test_a_listener_grants_what_its_row_says(name: str) -> None:
    config = BrokerConfig.load(None, ROWS[name].written)
    found = {
        listener: entitlement_of(config, listener).roles
        for listener in ROWS[name].roles
    }
    assert found == ROWS[name].roles


def test_a_listener_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=f"{KEY}: found 'OUTSIDE'"):
        BrokerConfig.load(None, {KEY: "PLAINTEXT,OUTSIDE"})
    BrokerConfig.load(None, {KEY: "controller", "doorkeeper.scheduler": "planes"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [(name, "PLAINTEXT" if name == "member, one listener" else None) for name in ROWS],
)
def test_an_operator_learns_that_clients_share_the_brokers_listener(
    name: str, expected: str | None
) -> None:
    assert shared_listener(BrokerConfig.load(None, ROWS[name].written)) == expected


def test_an_operator_who_has_decided_is_not_warned() -> None:
    decided = {**ROWS["member, one listener"].written, KEY: "PLAINTEXT"}
    assert shared_listener(BrokerConfig.load(None, decided)) is None


# ---- every API, version and claim ----


def fields_of(key: ApiKey, version: int, replica_id: int) -> dict[str, Any]:
    """Return the fields of a request, which claims a replica id if its version can."""
    fields = {**FIELDS.get(key, {}), "replica_id": replica_id}
    if key is ApiKey.FETCH:
        fields = fetch_fields({}, replica_id=replica_id)
        fields["replica_state"] = {"replica_id": replica_id, "replica_epoch": -1}
    return fields


def claimed(key: ApiKey, version: int, replica_id: int) -> Role | None:
    """Return the role that Kafka requires of the sender of the request."""
    if key in COMMANDS:
        return Role.CONTROLLER
    first = 3 if key is ApiKey.OFFSET_FOR_LEADER_EPOCH else 0
    by_id = key in WITH_REPLICA_ID and version >= first and replica_id >= 0
    batched = key is ApiKey.ADD_PARTITIONS_TO_TXN and version >= 4
    return Role.BROKER if by_id or batched or key in OF_BROKERS else None


def has_whole_error(key: ApiKey, version: int) -> bool:
    """Return whether an answer of this version has an error code of its own."""
    if key is ApiKey.FETCH:
        return version >= 7
    return key not in (
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.WRITE_TXN_MARKERS,
    )


def classify(frame: bytes, peer: Any) -> tuple[str, int, str, int, bool]:
    """Classify a frame from its header and its undecoded body."""
    return Classifier(APIS).classify(parse_request_header(frame), frame, peer)


CLAIMS = [
    (key, version, replica_id)
    for key, api in APIS.items()
    for version in api.served
    for replica_id in ((-2, -1, 0, 99) if key in WITH_REPLICA_ID else (-1,))
]


DECODERS = [
    (module, name)
    for module in (kafka_apis, handler_failures)
    for name in ("decode", "decode_in_steps")
    if hasattr(module, name)
]


def count_calls(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, calls: list[str]
) -> None:
    """Record each call of a function of a module."""
    function = getattr(module, name)

    def noted(*args: Any) -> Any:
        calls.append(name)
        return function(*args)

    monkeypatch.setattr(module, name, noted)


@pytest.mark.parametrize("name", ROWS)
def test_each_request_gets_the_class_and_the_answer_of_its_row(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A denied request gets Kafka's answer without ClusterAction and is not decoded."""
    decoded: list[str] = []
    for module, decoder in DECODERS:
        count_calls(monkeypatch, module, decoder, decoded)
    world = World(ROWS[name].written)
    denied = 0
    for listener, roles in ROWS[name].roles.items():
        world.connect(listener)
        for key, version, replica_id in CLAIMS:
            role = claimed(key, version, replica_id)
            fields = fields_of(key, version, replica_id)
            if role is None and key not in WITH_REPLICA_ID:
                frame = world.frame(key, version, **fields)
                class_and_level = classify(frame, world.peer)[:2]
                expected = APIS[key].request_class
                assert class_and_level == (expected, DEFAULT_LEVELS[expected])
                continue
            call = world.start(key, version, **fields)
            request = call.request
            if role is None or role in roles:
                expected = APIS[key].request_class
                if key is ApiKey.FETCH and role is not None:
                    expected = "replication"
                assert request.task.request_class == expected
                assert not call.done or request.error_code != DENIED
                assert decoded
                decoded.clear()
                continue
            denied += 1
            assert (request.task.request_class, request.task.level) == ("admin", 5)
            assert request.error_code == DENIED
            assert call.closed is not has_whole_error(key, version)
            assert call.closed or call.answer.error_code is DENIED
            assert not decoded
    assert bool(denied) is any(FULL_OF_ROLES - it for it in ROWS[name].roles.values())


# The APIs for which KafkaApis and ControllerApis of 3.9 and 4.1 check ClusterAction.
GUARDED_BY_KAFKA = {
    *COMMANDS,
    *OF_BROKERS,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
}


def test_the_apis_that_kafka_guards_claim_a_role() -> None:
    """The list also names APIs that this broker does not serve yet."""
    claiming = {key for key, api in APIS.items() if api.role is not None}
    assert claiming == GUARDED_BY_KAFKA & APIS.keys()
    by_id = {key for key, api in APIS.items() if api.replica_id is not None}
    # From version 4 on, AddPartitionsToTxn is for brokers only.
    assert by_id == {*WITH_REPLICA_ID, ApiKey.ADD_PARTITIONS_TO_TXN}
    urgent = {key for key, api in APIS.items() if api.request_class == "control"}
    assert urgent == {*COMMANDS, *OF_BROKERS} - {ApiKey.WRITE_TXN_MARKERS}


@given(
    key=st.sampled_from(sorted(APIS)),
    body=st.binary(max_size=80),
    state=st.sampled_from([b"", struct.pack(">BBBiqB", 1, 1, 13, 0, -1, 0)]),
    data=st.data(),
)
@settings(max_examples=300)
def test_no_bytes_of_a_client_are_more_urgent_than_data(
    key: int, body: bytes, state: bytes, data: st.DataObject
) -> None:
    """A client's request has the class of its API, or the least urgent class."""
    version = data.draw(st.sampled_from(APIS[key].served))
    frame = header(key, version) + body + state
    levels = data.draw(st.sampled_from([{}, {"admin": 1}, {"fetch": 9}]))
    classifier = Classifier(APIS, levels=levels)
    request_class, level, _, _, is_denied = classifier.classify(
        parse_request_header(frame), frame, Peer()
    )
    assert request_class not in ("control", "replication")
    assert level == {**DEFAULT_LEVELS, **levels}[request_class]
    if is_denied:
        assert level == max({**DEFAULT_LEVELS, **levels}.values())
    else:
        assert request_class == APIS[key].request_class


class Peer:
    """The connection of a client."""

    connection_id = 1
    host = "10.0.0.1"
    listener = "PLAINTEXT"
    entitlement = CLIENT
    principal = ANONYMOUS
    authenticator = None

    def release(self, count: int) -> None:
        """Do nothing: the connection has no pool."""


def header(key: int, version: int) -> bytes:
    """Return a request header with client id c."""
    if key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return struct.pack(">hhi", key, version, 1)
    tags = b"\0" if version >= FIRST_FLEXIBLE[key] else b""
    return struct.pack(">hhih", key, version, 1, 1) + b"c" + tags


# ---- the roles in the broker's state ----

T = ("t", 0)


@pytest.fixture
def world() -> World:
    """Broker 0 leads t-0 with replica 99 in sync; clients are on PLAINTEXT."""
    world = World(ROWS["by itself, listeners named"].written)
    world.create("t")
    world.connect("INSIDE")
    state = leader_and_isr(T, leader=0, leader_epoch=1, isr=(0, 99))
    assert world.command(ApiKey.LEADER_AND_ISR, state).error_code is ErrorCode.none
    world.connect("PLAINTEXT")
    return world


def produce(world: World) -> Call:
    """Send a record with acks=all."""
    return world.start(ApiKey.PRODUCE, 9, **produce_fields({T: batch(b"x")}, -1))


def fetch_of_99(world: World, version: int) -> dict[str, Any]:
    """Return a Fetch of replica 99 from the end of the log: it has every record."""
    name: Any = "t"
    if version >= 13:
        name = world.broker.coordinator.admin.topics["t"].topic_id
    state = {"replica_id": 99, "replica_epoch": -1}
    return fetch_fields({(name, 0): 1}, replica_id=99, replica_state=state)


@pytest.mark.parametrize("version", APIS[ApiKey.FETCH].served)
def test_a_client_that_claims_to_be_a_replica_completes_no_acks_all(
    world: World, version: int
) -> None:
    waiting = produce(world)
    fetched = world.start(ApiKey.FETCH, version, **fetch_of_99(world, version))
    assert fetched.closed or fetched.answer.error_code is DENIED
    assert not waiting.done
    world.connect("INSIDE")
    world.start(ApiKey.FETCH, version, **fetch_of_99(world, version))
    assert waiting.done


# Tagged fields of a Fetch in which the replica id is not at its usual offset: a cluster
# id before it, an unknown field after it, an unknown field within the replica state.
_STATE = struct.pack(">iq", 99, -1)
SPELLINGS = {
    "cluster id": b"\x02\x00\x02\x02c\x01\x0d" + _STATE + b"\x00",
    "unknown field": b"\x02\x01\x0d" + _STATE + b"\x00\x07\x01x",
    "unknown field within": b"\x01\x01\x10" + _STATE + b"\x01\x07\x01x",
}


@pytest.mark.parametrize("version", [15, 16, 17])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_replica_id_that_only_a_decoder_finds_is_denied_and_of_no_higher_class(
    world: World, version: int, spelling: str
) -> None:
    waiting = produce(world)
    as_consumer = {**fetch_of_99(world, version)}
    del as_consumer["replica_state"]
    without_tags = world.frame(ApiKey.FETCH, version, **as_consumer)[:-1]
    frame = without_tags + SPELLINGS[spelling]
    call = world.start_frame(frame)
    assert call.request.task.request_class == "fetch"
    assert call.answer.error_code is DENIED
    assert not waiting.done
    world.connect("INSIDE")
    world.start_frame(frame)
    assert waiting.done


def test_a_client_reads_nothing_beyond_the_high_watermark_by_list_offsets(
    world: World,
) -> None:
    produce(world)
    latest = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    topics = [{"name": "t", "partitions": [latest]}]
    for version in APIS[ApiKey.LIST_OFFSETS].served:
        asked: dict[str, Any] = {"topics": topics, "replica_id": 99}
        assert world.start(ApiKey.LIST_OFFSETS, version, **asked).closed
        found = world.send(ApiKey.LIST_OFFSETS, version, **{**asked, "replica_id": -1})
        assert found.topics[0].partitions[0].offset == 0


def test_a_denied_command_changes_nothing_and_is_remembered_nowhere(
    world: World,
) -> None:
    epochs = {"controller_epoch": 2**31 - 1, "broker_epoch": 2**62}
    move = leader_and_isr(T, leader=99, leader_epoch=2, isr=(99,), **epochs)
    hide = update_metadata(T, leader=-2, **epochs)
    for key, command in ((ApiKey.LEADER_AND_ISR, move), (ApiKey.UPDATE_METADATA, hide)):
        assert world.command(key, command).error_code is DENIED
    assert world.broker.controller_epoch == 1
    assert world.broker.replicas.partitions[T].leader == 0
    world.check()


def test_a_denied_request_teaches_no_cost(world: World) -> None:
    classifier = Classifier(APIS)
    call = world.start(ApiKey.LEADER_AND_ISR, 4, **FIELDS[ApiKey.LEADER_AND_ISR])
    call.request.task.service_ns = 1
    classifier.learn(call.request)
    frame = header(ApiKey.LEADER_AND_ISR, 4)
    assert classifier.classify(parse_request_header(frame), frame, Peer())[3] == 50_000


def test_clients_are_served_on_any_listener(world: World) -> None:
    for listener in ("PLAINTEXT", "INSIDE", "CONTROL"):
        world.connect(listener)
        world.create(f"of-{listener}")
        assert world.produce(f"of-{listener}", b"x").error_code is ErrorCode.none
