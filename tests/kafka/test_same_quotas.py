"""Client quotas: Apache Kafka's answers and throttle times, and ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)
from tests.kafka.conftest import SETTINGS, beside_kafka, same_answers
from tests.kafka.java_tools import NEWEST, KafkaPrograms
from tests.kafka.peer import CLOSED, Peer
from tests.kafka.requests import topic, versions

pytestmark = pytest.mark.kafka

ALTER, DESCRIBE = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCER, CONSUMER, PERCENTAGE, MUTATIONS, CONNECTIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
Entity = dict[str, str | None]


def entry(entity: Entity, **values: float | None) -> dict[str, Any]:
    return {
        "entity": [
            {"entity_type": kind, "entity_name": name} for kind, name in entity.items()
        ],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in values.items()
        ],
    }


def wanted(*components: tuple[str, int, str | None]) -> list[dict[str, Any]]:
    return [
        {"entity_type": kind, "match_type": match, "match": name}
        for kind, match, name in components
    ]


def compare(peer: Peer, key: ApiKey, version: int, **fields: Any) -> None:
    """Send a request and compare the response, ignoring the order of rows."""
    answer = peer.ask(key, version, **fields)
    rows = [
        {
            "error_code": getattr(row, "error_code", None),
            "has_message": bool(getattr(row, "error_message", None)),
            "entity": sorted((it.entity_type, it.entity_name) for it in row.entity),
            "values": sorted((it.key, it.value) for it in getattr(row, "values", ())),
        }
        for row in answer.entries or ()
    ]
    found = {
        "error_code": getattr(answer, "error_code", None),
        "has_message": bool(getattr(answer, "error_message", None)),
        "has_entries": answer.entries is not None,
        "rows": sorted(map(str, rows)),
    }
    peer.note(f"{key.name} v{version}", found, str(fields))


def described(peer: Peer) -> dict[Any, Any]:
    """Return all quotas; the response is not compared."""
    answer = peer.ask(DESCRIBE, 1)
    return {
        tuple(sorted((it.entity_type, it.entity_name or "") for it in row.entity)): {
            each.key: each.value for each in row.values
        }
        for row in answer.entries
    }


def bound(peer: Peer, entity: Entity, **values: float | None) -> None:
    """Set quotas, and wait until the broker has received them."""
    peer.ask(ALTER, 1, entries=[entry(entity, **values)])
    key = tuple(sorted((kind, name or "") for kind, name in entity.items()))
    expected = {name: value for name, value in values.items() if value is not None}
    end = time.monotonic() + 20
    while described(peer).get(key, {}) != expected:
        assert time.monotonic() < end
        time.sleep(0.05)
    # A quota comes into force a moment after it is described.
    time.sleep(0.5)


def entities(version: int) -> Iterator[tuple[Entity, dict[str, float]]]:
    """Yield entities with valid quotas, each once per version."""
    name = f"u{version}"
    yield {"user": name}, {PRODUCER: 1e6, PERCENTAGE: 99.5}
    yield {"user": name, "client-id": "a/b ~é"}, {CONSUMER: 1e6}
    yield {"user": name, "client-id": None}, {MUTATIONS: 1e4}
    yield {"client-id": name}, {PRODUCER: 2.0, CONSUMER: 3.0}
    yield {"ip": f"10.0.0.{version}"}, {CONNECTIONS: 100.0}


@same_answers
def test_quotas_of_entities(peer: Peer) -> None:
    for version in versions(ALTER):
        name = f"u{version}"
        for entity, values in entities(version):
            asked = entry(entity, **values)
            compare(peer, ALTER, version, entries=[asked], validate_only=True)
            compare(peer, ALTER, version, entries=[asked])
            bound(peer, entity, **values)
        for strict in (False, True):
            for components in (
                [("user", EXACT, name)],
                [("user", EXACT, name), ("client-id", ANY, None)],
                [("user", EXACT, name), ("client-id", DEFAULT, None)],
                [("user", EXACT, name), ("client-id", EXACT, "a/b ~é")],
                [("client-id", EXACT, name)],
                [("ip", EXACT, f"10.0.0.{version}")],
                [("user", EXACT, "nobody")],
                [("user", EXACT, None)],
                [("user", 7, None)],
                [("ip", ANY, None), ("user", ANY, None)],
                [("user", ANY, None), ("user", ANY, None)],
                [("group", ANY, None)],
                [("", ANY, None)],
            ):
                filters = wanted(*components)
                compare(peer, DESCRIBE, version, components=filters, strict=strict)
        for entity, values in entities(version):
            gone = dict.fromkeys((*values, "no-such-key"), None)
            compare(peer, ALTER, version, entries=[entry(entity, **gone)])
            bound(peer, entity, **dict.fromkeys(values, None))
        compare(peer, DESCRIBE, version, components=wanted(("user", EXACT, name)))


@same_answers
def test_quotas_that_are_refused(peer: Peer) -> None:
    for version in versions(ALTER):
        for entity, values in (
            ({}, {PRODUCER: 1.0}),
            ({"group": "g"}, {PRODUCER: 1.0}),
            ({"user": ""}, {PRODUCER: 1.0}),
            ({"user": "r", "ip": "10.0.0.1"}, {PRODUCER: 1.0}),
            ({"ip": "10.0.0.1"}, {PRODUCER: 1.0}),
            ({"ip": "no.such.host.invalid"}, {CONNECTIONS: 1.0}),
            ({"user": "r"}, {CONNECTIONS: 1.0}),
            ({"user": "r"}, {"SCRAM-SHA-256": 1.0}),
            ({"user": "r"}, {"no-such-key": 1.0}),
            ({"user": "r"}, {PRODUCER: 1.5}),
            ({"user": "r"}, {PRODUCER: 1e19}),
            ({"user": "r"}, {PERCENTAGE: 5.0, PRODUCER: 1.5}),
        ):
            compare(peer, ALTER, version, entries=[entry(entity, **values)])
        entries = [entry({"user": "r"}, **{PRODUCER: 1.5}), entry({"user": "s"})]
        compare(peer, ALTER, version, entries=entries)
        compare(peer, DESCRIBE, version, components=wanted(("user", EXACT, "r")))


# ---- throttle times -----------------------------------------------------------------

# Throttle times depend on timing; here they are much longer than such deviations.
COARSE_S = 2.0


def told(peer: Peer, answer: Any) -> None:
    """Compare the throttle time of a response, as a multiple of `COARSE_S`."""
    seconds = answer.throttle_time.total_seconds()
    peer.note("throttle time", round(seconds / COARSE_S))


@same_answers
def test_a_producer_over_its_quota(peer: Peer) -> None:
    """The first requests pass, for ten seconds' worth; each uses a new connection."""
    name = topic(peer, "throttled-produce")
    client = {"client-id": "throttled"}
    bound(peer, client, **{PRODUCER: 1000.0})
    fields = produce_fields({(name, 0): batch(b"v" * 5850)})
    for number in range(5):
        for acks in (1, 0):
            asked = {**fields, "acks": acks, "client_id": "throttled"}
            where = f"{number}/{acks}"
            if acks:
                told(peer, peer.ask(ApiKey.PRODUCE, 9, connection=where, **asked))
            elif number == 4:
                # No response, but a muted connection: the next request waits.
                peer.start(ApiKey.PRODUCE, 9, connection=where, **asked)
                peer.start(ApiKey.METADATA, 9, connection=where, topics=[])
                peer.note("muted", peer.receive(where))
    bound(peer, client, **{PRODUCER: None})


@same_answers
def test_a_consumer_over_its_quota(peer: Peer) -> None:
    name = topic(peer, "throttled-fetch")
    for _ in range(2):
        fields = produce_fields({(name, 0): batch(b"v" * 5850)})
        peer.ask(ApiKey.PRODUCE, 9, **fields)
    client = {"client-id": "throttled"}
    bound(peer, client, **{CONSUMER: 1000.0})
    for number in range(4):
        fields = {**fetch_fields({(name, 0): 0}), "max_bytes": 5900}
        asked = {**fields, "connection": str(number), "client_id": "throttled"}
        answer = peer.ask(ApiKey.FETCH, 12, **asked)
        told(peer, answer)
        peer.note("topics", len(answer.responses))
    bound(peer, client, **{CONSUMER: None})


@same_answers
def test_a_user_takes_precedence_over_a_client(peer: Peer) -> None:
    name = topic(peer, "throttled-user")
    loose, strict = {PRODUCER: 1e9}, {PRODUCER: 1.0}
    levels: list[Entity] = [
        {"client-id": None},
        {"client-id": "throttled"},
        {"user": None},
        {"user": None, "client-id": None},
        {"user": None, "client-id": "throttled"},
        {"user": "ANONYMOUS"},
        {"user": "ANONYMOUS", "client-id": None},
        {"user": "ANONYMOUS", "client-id": "throttled"},
    ]
    fields = produce_fields({(name, 0): batch(b"v" * 100)})
    for level, entity in enumerate(levels):
        bound(peer, entity, **(loose if level % 2 else strict))
        answer = peer.ask(
            ApiKey.PRODUCE,
            9,
            connection=str(level),
            client_id="throttled",
            **fields,
        )
        peer.note("throttled", answer.throttle_time.total_seconds() > 1)
    for entity in levels:
        bound(peer, entity, **{PRODUCER: None})


# Versions from which mutations over quota are refused, not only throttled (KIP-599).
STRICT_SINCE = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}


def mutations(key: ApiKey, name: str) -> dict[str, Any]:
    """Return a request for three mutations of five partitions, and an invalid one."""
    if key is ApiKey.DELETE_TOPICS:
        return {"topic_names": [f"{name}-{number}" for number in range(4)]}
    if key is ApiKey.CREATE_TOPICS:
        # The last topic exists; this is checked before the quota.
        return {"topics": [new_topic(f"{name}-{number}", 5) for number in range(3, 7)]}
    added = {"count": 10, "assignments": None}
    return {"topics": [{"name": f"{name}-{number}", **added} for number in range(4)]}


def mutate(peer: Peer) -> None:
    """The burst is 11 * 0.2 partitions: after the first topic the wait is 14 s."""
    for key, strict_since in STRICT_SINCE.items():
        for version in (strict_since - 1, strict_since):
            name = f"mutations-{key.value}-{version}"
            for number in range(3):
                topic(peer, f"{name}-{number}", 5)
            topic(peer, f"{name}-6", 1)
            bound(peer, {"client-id": name}, **{MUTATIONS: 0.2})
            asked = mutations(key, name)
            answer = peer.ask(
                key,
                version,
                connection=name,
                client_id=name,
                timeout=SECONDS_30,
                **asked,
            )
            rows = {
                ApiKey.DELETE_TOPICS: "responses",
                ApiKey.CREATE_TOPICS: "topics",
                ApiKey.CREATE_PARTITIONS: "results",
            }
            # Kafka processes them in any order.
            codes = sorted(row.error_code.name for row in getattr(answer, rows[key]))
            peer.note(f"{key.name} v{version}", codes, str(asked))
            told(peer, answer)
            bound(peer, {"client-id": name}, **{MUTATIONS: None})


test_a_client_over_its_quota_of_mutations = same_answers(mutate)


def test_quotas_beside_the_newest_kafka(
    programs_of: Callable[[str], KafkaPrograms], tmp_path: Path
) -> None:
    with beside_kafka(programs_of(NEWEST), tmp_path, **SETTINGS) as both:
        both.compare(mutate)
        both.compare(connect_too_fast)


def connect_too_fast(peer: Peer) -> None:
    """With a quota of 1 per second, ten connections pass and later ones are closed."""
    address: Entity = {"ip": "127.0.0.1"}
    bound(peer, address, **{CONNECTIONS: 1.0})
    begun_s = time.monotonic()
    are_closed = []
    for number in range(14):
        where = f"attempt {number}"
        peer.start(ApiKey.API_VERSIONS, 3, connection=where)
        are_closed.append(peer.receive(where) == CLOSED)
    assert time.monotonic() - begun_s < 9, "too slow: the burst has been refilled"
    peer.note("closed", are_closed)
    bound(peer, address, **{CONNECTIONS: None})
    peer.note("open", peer.ask(ApiKey.API_VERSIONS, 3, connection="last").error_code)


test_an_address_that_connects_too_fast = same_answers(connect_too_fast)
