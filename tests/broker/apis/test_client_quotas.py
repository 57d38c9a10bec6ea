"""Client quotas over the wire: description, alteration, and throttling."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from broker.coordination.coordinator_roles import ConfigKind
from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode
from broker.protocol.principal import parse_principal
from broker.requests.request import Throttled
from tests.broker.apis.broker_world import MS, Call, World
from tests.broker.apis.requests import (
    batch,
    fetch_fields,
    produce_fields,
    update_metadata,
)

ALTER, DESCRIBE = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
NONE, INVALID = ErrorCode.none, ErrorCode.invalid_request
EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCER, CONSUMER, PERCENTAGE = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
)
Entity = dict[str, str | None]


def entry(entity: Entity, **values: float | None) -> dict[str, Any]:
    return {
        "entity": [
            {"entity_type": kind.replace("_", "-"), "entity_name": name}
            for kind, name in entity.items()
        ],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in values.items()
        ],
    }


def alter(world: World, *entries: Any, validate_only: bool = False) -> list[ErrorCode]:
    """Alter quotas; return the error of each entity, which the answer has to name."""
    answer = world.send(ALTER, 1, entries=entries, validate_only=validate_only)
    for asked, row in zip(entries, answer.entries, strict=True):
        named = {each["entity_type"]: each["entity_name"] for each in asked["entity"]}
        assert {it.entity_type: it.entity_name for it in row.entity} == named
        assert bool(row.error_message) is bool(row.error_code)
    return [row.error_code for row in answer.entries]


def bound(world: World, entity: Entity, **values: float | None) -> None:
    assert alter(world, entry(entity, **values)) == [NONE]


Wanted = tuple[str, int, str | None]


def described(
    world: World, *components: Wanted, strict: bool = False
) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return the values of each entity that matches the components."""
    answer = world.send(
        DESCRIBE,
        1,
        components=[
            {"entity_type": kind, "match_type": match, "match": name}
            for kind, match, name in components
        ],
        strict=strict,
    )
    assert answer.error_code is NONE
    return {
        tuple((it.entity_type, it.entity_name) for it in row.entity): {
            value.key: value.value for value in row.values
        }
        for row in answer.entries
    }


USERS: Entity = {"user": "a/b ~"}
BOTH: Entity = {"user": "a/b ~", "client-id": "c"}
DEFAULTS: Entity = {"user": None, "client-id": None}
CLIENT: Entity = {"client-id": "c"}


def keyed(entity: Entity) -> tuple[Any, ...]:
    return tuple(entity.items())


def test_quotas_are_set_changed_removed_and_survive_a_restart() -> None:
    world = World()
    assert described(world) == {}
    done = alter(
        world,
        entry(USERS, producer_byte_rate=1000.0, request_percentage=12.5),
        entry(BOTH, consumer_byte_rate=5.0),
        entry(DEFAULTS, controller_mutation_rate=0.5),
        entry({"ip": "10.0.0.1"}, connection_creation_rate=7.0),
    )
    assert done == [NONE] * 4
    expected = {
        keyed(USERS): {PRODUCER: 1000.0, PERCENTAGE: 12.5},
        keyed(BOTH): {CONSUMER: 5.0},
        keyed(DEFAULTS): {"controller_mutation_rate": 0.5},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 7.0},
    }
    assert described(world) == expected
    bound(world, USERS, producer_byte_rate=2000.0, request_percentage=None)
    bound(world, BOTH, consumer_byte_rate=None, producer_byte_rate=None)
    expected[keyed(USERS)] = {PRODUCER: 2000.0}
    del expected[keyed(BOTH)]
    assert described(world) == expected
    assert described(world.restarted()) == expected


def test_a_user_keeps_its_credentials_when_its_quota_changes() -> None:
    world = World()
    credential = {
        "name": "u",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"a salt of twenty b..",
        "salted_password": b"p" * 32,
    }
    users = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    world.send(users, 0, upsertions=[credential])
    bound(world, {"user": "u"}, producer_byte_rate=1.0)
    listed = world.send(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    assert [row.user for row in listed.results] == ["u"]
    world.send(users, 0, deletions=[{"name": "u", "mechanism": 1}])
    assert described(world) == {(("user", "u"),): {PRODUCER: 1.0}}
    listed = world.send(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    assert list(listed.results) == []


def test_a_filter_matches_entities_by_all_of_its_types() -> None:
    world = World()
    for entity in (USERS, BOTH, DEFAULTS, CLIENT, {"user": None}):
        bound(world, entity, producer_byte_rate=1.0)

    def found(*components: Wanted, strict: bool = False) -> list[Any]:
        return sorted(described(world, *components, strict=strict), key=str)

    def only(*entities: Entity) -> list[Any]:
        return sorted(map(keyed, entities), key=str)

    user, client = ("user", EXACT, "a/b ~"), ("client-id", EXACT, "c")
    assert found() == only(USERS, BOTH, DEFAULTS, CLIENT, {"user": None})
    assert found(user) == only(USERS, BOTH)
    assert found(user, strict=True) == only(USERS)
    assert found(user, client) == only(BOTH)
    assert found(("user", ANY, None), strict=True) == only(USERS, {"user": None})
    assert found(("user", DEFAULT, None)) == only(DEFAULTS, {"user": None})
    assert found(client, strict=True) == only(CLIENT)
    assert found(("client-id", ANY, None)) == only(BOTH, DEFAULTS, CLIENT)
    assert found(("ip", ANY, None)) == found(strict=True) == []


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", EXACT, "u"), ("user", ANY, None)], INVALID),
        ([("", EXACT, "u")], INVALID),
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "u")], INVALID),
        ([("user", 3, None)], INVALID),
        ([("ip", ANY, None), ("user", ANY, None)], INVALID),
        ([("group", ANY, None)], ErrorCode.unsupported_version),
    ],
)
def test_a_filter_that_is_none_is_refused(
    components: list[Wanted], error: ErrorCode
) -> None:
    answer = World().send(
        DESCRIBE,
        1,
        components=[
            {"entity_type": kind, "match_type": match, "match": name}
            for kind, match, name in components
        ],
    )
    assert answer.error_code is error
    assert answer.error_message
    assert answer.entries is None


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {PRODUCER: 1.0}),
        ({"group": "g"}, {PRODUCER: 1.0}),
        ({"user": ""}, {PRODUCER: 1.0}),
        ({"user": "u", "ip": "10.0.0.1"}, {PRODUCER: 1.0}),
        ({"ip": "nowhere.invalid"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {PRODUCER: 1.0}),
        ({"user": "u"}, {"connection_creation_rate": 1.0}),
        ({"user": "u"}, {"SCRAM-SHA-256": 1.0}),
        ({"user": "u"}, {PRODUCER: 1.5}),
        ({"user": "u"}, {PRODUCER: float("nan")}),
        ({"user": "u"}, {PRODUCER: float("inf")}),
        ({"user": "u"}, {PERCENTAGE: float("nan")}),
    ],
)
def test_an_entity_or_value_that_is_none_is_refused_alone(
    entity: Entity, values: dict[str, float]
) -> None:
    world = World()
    good = entry({"user": "v"}, producer_byte_rate=1.0)
    both = {**values, PERCENTAGE: values.get(PERCENTAGE, 1.0)}
    assert alter(world, entry(entity, **both), good) == [INVALID, NONE]
    assert described(world) == {(("user", "v"),): {PRODUCER: 1.0}}


def test_validated_quotas_are_not_set() -> None:
    world = World()
    asked = entry(USERS, producer_byte_rate=1.0), entry(USERS, producer_byte_rate=1.5)
    assert alter(world, *asked, validate_only=True) == [NONE, INVALID]
    assert described(world) == {}


def test_a_boundless_percentage_is_stored_as_java_reads_it() -> None:
    world = World()
    bound(world, USERS, request_percentage=float("inf"))
    configs = world.broker.coordinator.admin.configs[ConfigKind.USER]["a/b ~"]
    assert configs == {PERCENTAGE: "Infinity"}
    assert described(world) == {keyed(USERS): {PERCENTAGE: float("inf")}}


# ---- throttled clients ----


def throttled_ms(call: Call) -> int:
    """Return the throttle time of the answer; the connection is muted as long."""
    told = 0
    if call.frame:
        told = call.answer.throttle_time // timedelta(milliseconds=1)
    if not isinstance(call.response, Throttled):
        return told
    held_ms = -(-call.response.throttle_ns // MS)
    assert not call.frame or told == held_ms
    return held_ms


class Bounded(World):
    """A broker with a topic ``t``, whose handlers take no CPU time."""

    def __init__(self) -> None:
        super().__init__()
        self.create("t")

    def produced(self, size: int, *, acks: int = 1, client_id: str = "test") -> Call:
        fields = produce_fields({("t", 0): batch(b"v" * size)}, acks)
        return self.start(ApiKey.PRODUCE, 9, client_id=client_id, **fields)

    def fetched(self, offset: int = 0, version: int = 12) -> Call:
        return self.start(ApiKey.FETCH, version, **fetch_fields({("t", 0): offset}))


def test_without_quotas_answers_are_given_at_once_and_nothing_is_counted() -> None:
    world = Bounded()
    # `handle_at_once` answers without a coroutine.
    assert not hasattr(world.produced(10), "coroutine")
    bound(world, CLIENT, producer_byte_rate=1.0)
    assert hasattr(world.produced(10), "coroutine")
    bound(world, CLIENT, producer_byte_rate=None)
    assert not hasattr(world.produced(10), "coroutine")


def test_a_producer_is_throttled_by_its_bytes_and_its_records_are_kept() -> None:
    """In a window of 11 seconds, 1000 bytes per second admit 10,000 bytes at first."""
    world = Bounded()
    bound(world, {"user": None}, producer_byte_rate=1000.0)
    calls = [world.produced(6000) for _ in range(3)]
    total = 0
    for call in calls:
        total += call.request.task.size_bytes
        assert throttled_ms(call) == max(0, total - 10_000)
        assert call.answer.responses[0].partition_responses[0].error_code is NONE
    assert world.fetch("t").high_watermark == 3
    # The bytes count until they leave the windows, even after the delay.
    world.pass_ms(22_000)
    assert throttled_ms(world.produced(6000)) == 0


def test_a_producer_without_answers_is_muted_all_the_same() -> None:
    world = Bounded()
    bound(world, {"client-id": "test"}, producer_byte_rate=1.0)
    call = world.produced(500, acks=0)
    assert not call.frame
    assert throttled_ms(call) == (call.request.task.size_bytes - 10) * 1000


def test_a_consumer_over_its_rate_gets_an_empty_answer_and_loses_nothing() -> None:
    """500 bytes per second admit 5000 at first: one batch of 3000, but not two."""
    world = Bounded()
    world.produced(3000)
    # Kafka counts the size and the body of an answer, but not its header.
    whole = len(world.fetched().frame) - 5
    bound(world, {"user": "ANONYMOUS"}, consumer_byte_rate=500.0)
    assert throttled_ms(world.fetched()) == 0
    for _ in range(3):
        # Empty answers are not counted, so the throttle time does not grow.
        call = world.fetched()
        assert call.answer.responses == ()
        assert throttled_ms(call) == round((2 * whole - 5000) / 500 * 1000)
    world.pass_ms(11_000)
    (topic,) = world.fetched().answer.responses
    assert topic.partitions[0].records


def test_a_batch_larger_than_ever_passes_is_never_sent() -> None:
    """As in Kafka, a consumer makes no progress under such a quota."""
    world = Bounded()
    world.produced(3000)
    bound(world, {"user": "ANONYMOUS"}, consumer_byte_rate=100.0)
    for _ in range(3):
        call = world.fetched()
        assert call.answer.responses == ()
        world.pass_ms(throttled_ms(call))


def test_a_session_reports_what_a_throttled_answer_left_out() -> None:
    world = Bounded()
    world.produced(3000)
    asked = {**fetch_fields({("t", 0): 0}), "session_epoch": 0}
    opened = world.send(ApiKey.FETCH, 12, **asked)
    assert opened.session_id
    world.produced(3000)
    bound(world, {"client-id": "test"}, consumer_byte_rate=1.0)
    asked = {
        **fetch_fields({("t", 0): 1}),
        "session_id": opened.session_id,
        "session_epoch": 1,
    }
    throttled = world.send(ApiKey.FETCH, 12, **asked)
    assert throttled.session_id == opened.session_id
    assert throttled.throttle_time > timedelta(0)
    assert throttled.responses == ()
    bound(world, {"client-id": "test"}, consumer_byte_rate=None)
    later = world.send(
        ApiKey.FETCH,
        12,
        **{**asked, "session_epoch": 2, "topics": []},
    )
    assert later.responses[0].partitions[0].high_watermark == 2
    assert later.responses[0].partitions[0].records


def test_a_follower_is_not_throttled() -> None:
    world = Bounded()
    world.produced(3000)
    bound(world, {"user": None}, consumer_byte_rate=1.0, request_percentage=0.01)
    world.connect("PLAINTEXT")
    fields = {**fetch_fields({("t", 0): 0}), "replica_id": 1}
    call = world.start(ApiKey.FETCH, 12, **fields)
    assert not isinstance(call.response, Throttled)


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.PRODUCE])
def test_cpu_over_the_percentage_throttles_for_a_window_at_most(key: ApiKey) -> None:
    """1 % is 10 ms per second, so 100 ms are admitted at first."""
    world = Bounded()
    bound(world, {"user": "ANONYMOUS"}, request_percentage=1.0)
    fields = produce_fields({("t", 0): batch(b"v")}) if key is ApiKey.PRODUCE else {}
    delays = []
    for used_ms in (60, 30, 10, 1, 5, 300):
        frame = world.frame(key, APIS[key].versions[1], **fields)
        request = world.received(frame)
        request.task.attained_ns = used_ms * MS
        delays.append(throttled_ms(Call(request, world.apis.serve(request))))
    assert delays == [0, 0, 0, 100, 600, 1000]


def test_cpu_after_the_answer_throttles_the_next_request() -> None:
    world = Bounded()
    bound(world, {"user": "ANONYMOUS"}, request_percentage=1.0)
    observers: list[Any] = []
    world.apis.observe(observers)
    first = world.start(ApiKey.METADATA, 12)
    first.request.task.service_ns = 90 * MS
    first.request.task.prior_ns = 20 * MS
    (finish,) = observers
    finish(first.request)
    assert throttled_ms(first) == 0
    assert throttled_ms(world.start(ApiKey.METADATA, 12)) == 1000
    bound(world, {"user": "ANONYMOUS"}, request_percentage=None)
    assert observers == []


def test_control_and_replication_are_exempt() -> None:
    world = Bounded()
    bound(world, {"user": None}, request_percentage=0.001)
    command = update_metadata(("t", 0), leader=0)
    frame = world.entity_frame(ApiKey.UPDATE_METADATA, 8, command.to_wire(8))
    request = world.received(frame)
    request.task.attained_ns = 10**9
    call = Call(request, world.apis.serve(request))
    assert request.task.request_class == "control"
    assert not isinstance(call.response, Throttled)


def test_a_refused_request_is_counted_as_well() -> None:
    world = Bounded()
    bound(world, {"user": None}, request_percentage=0.001)
    request = world.received(world.frame(ApiKey.PRODUCE, 9, **produce_fields({})))
    request.task.refusal = "expired"
    request.task.attained_ns = 10**9
    assert throttled_ms(Call(request, world.apis.serve(request))) == 1000


def test_a_new_connection_brings_no_new_allowance() -> None:
    world = Bounded()
    bound(world, {"user": None}, producer_byte_rate=1000.0, consumer_byte_rate=500.0)
    delays = []
    for _ in range(4):
        world.connect("PLAINTEXT")
        delays.append(throttled_ms(world.produced(6000)))
    assert delays[0] == 0 < delays[1] < delays[2] < delays[3]
    world.connect("PLAINTEXT")
    assert world.fetched(0).answer.responses == ()


def test_users_are_told_apart_by_their_principals_and_clients_by_their_ids() -> None:
    world = Bounded()
    bound(world, {"user": "alice"}, producer_byte_rate=1.0)
    bound(world, {"client-id": "c"}, producer_byte_rate=1.0)
    found = {}
    for user in ("alice", "bob"):
        for client_id in ("c", "d"):
            world.peer.principal = parse_principal(f"User:{user}")
            found[user, client_id] = throttled_ms(
                world.produced(100, client_id=client_id)
            )
    assert found["bob", "d"] == 0
    # Both clients of alice share her rate; bob's client has that of its client id.
    assert found["alice", "d"] > found["alice", "c"] > 0
    assert found["bob", "c"] > 0


def test_quotas_are_in_force_after_a_restart() -> None:
    world = Bounded()
    bound(world, {"client-id": None}, producer_byte_rate=1.0)
    world = world.restarted()
    fields = produce_fields({("t", 0): batch(b"v" * 500)})
    assert throttled_ms(world.start(ApiKey.PRODUCE, 9, **fields)) > 0


def test_a_configured_quota_holds_until_its_entity_has_one() -> None:
    written = "clients/<default>/producer_byte_rate=1,users/u/request_percentage=2.5"
    world = World({"doorkeeper.client.quotas": written})
    world.create("t")
    fields = produce_fields({("t", 0): batch(b"v" * 500)})

    def delay_ms() -> int:
        return throttled_ms(world.start(ApiKey.PRODUCE, 9, **fields))

    assert delay_ms() > 0
    # The configured quota is not stored.
    assert described(world) == {}
    bound(world, {"client-id": None}, producer_byte_rate=1e9)
    assert delay_ms() == 0
    bound(world, {"client-id": None}, producer_byte_rate=None)
    assert delay_ms() > 0
    assert World(world.settings).broker.client_quotas.is_active


@pytest.mark.parametrize(
    "written",
    [
        "clients/c",
        "clients/c/producer_byte_rate",
        "clients/c/producer_byte_rate=-1",
        "clients/c/no_such_key=1",
        "ips/10.0.0.1/producer_byte_rate=1",
        "clients//producer_byte_rate=1",
        "users/u/clients/request_percentage=1",
    ],
)
def test_a_configured_quota_that_is_none_stops_the_start(written: str) -> None:
    with pytest.raises(ConfigError, match="entity/key=number"):
        World({"doorkeeper.client.quotas": written})
