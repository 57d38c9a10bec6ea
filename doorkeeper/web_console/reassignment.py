"""Moves of replicas: planned, throttled, started, cancelled, as in Kafka's tool.

A throttle (KIP-73) is a rate per broker and a list of replicas per topic. It remains
after the moves until it is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from broker.client.admin_changes import BROKER, TOPIC
from broker.client.partitions import by_topic
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.change import (
    Action,
    Change,
    Field,
    Form,
    Outcome,
    Refused,
    command,
    outcome_of,
)
from doorkeeper.web_console.cluster_view import ClusterView, each_of
from doorkeeper.web_console.rendering import size
from doorkeeper.web_console.replica_plan import Placed, TooFewBrokers, spread

RATES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
_REPLICAS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
# Kafka's ConfigSource of a topic's own config, which may be an empty list.
_OF_TOPIC: Final = 1
_FILE: Final = "reassignment.json"
_PROGRAM: Final = "kafka-reassign-partitions"
_ROWS: Final = 500
Moves = Mapping[TopicPartition, Sequence[int]]


async def _reassign(view: ClusterView, form: Form) -> Change:
    throttle = form.count("throttle")
    # Until a move is over, metadata lists the old and the new replicas.
    if await view.admin.list_reassignments():
        raise Refused("another reassignment is in progress")
    placed = await _placed(view, form.lines("topics"))
    given = form.optional("plan")
    if given is None:
        moves: Moves = await _planned(view, form, list(placed.values()))
    else:
        moves = _decoded(
            given, placed, {it.id for it in (await view.cluster()).brokers}
        )
    if not moves:
        raise Refused("no replica has to move: the load is even already")
    before = {it: placed[it].replicas for it in moves}
    words = ["--execute", "--reassignment-json-file", _FILE]
    if throttle is not None:
        words += ["--throttle", str(throttle)]

    async def carry_out() -> Outcome:
        if throttle is not None:
            await _throttle(view, before, moves, throttle)
        return outcome_of(await view.admin.alter_reassignments(moves))

    added = {it: {*moves[it]} - {*before[it]} for it in moves}
    copied_bytes = sum(placed[it].size_bytes * len(new) for it, new in added.items())
    table = [("Topic", "Partition", "Replicas", "New replicas", "To copy")]
    for it in sorted(moves)[:_ROWS]:
        copied = size(placed[it].size_bytes * len(added[it]))
        row = (", ".join(map(str, before[it])), ", ".join(map(str, moves[it])), copied)
        table.append((it.topic, str(it.partition), *row))
    plan = _encoded(moves)
    return Change(
        [command(view, _PROGRAM, *words)],
        carry_out,
        f"{len(moves)} partitions change; {size(copied_bytes)} are copied.",
        {_FILE: plan},
        table,
        {"plan": plan},
    )


async def _placed(
    view: ClusterView, names: Sequence[str]
) -> dict[TopicPartition, Placed]:
    """Return the partitions of topics, or of all, with their largest replica's size."""
    topics, sizes = await view.topics(), (await view.disks()).sizes
    if unknown := [it for it in names if it not in topics]:
        raise Refused(f"there is no topic {unknown[0]}")
    found = {}
    for name in names or topics:
        for row in topics[name].partitions:
            key = TopicPartition(name, row.partition_index)
            by_broker = sizes.get(name, {}).get(key.partition, {})
            found[key] = Placed(
                key, tuple(row.replica_nodes), max(by_broker.values(), default=0)
            )
    return found


async def _planned(view: ClusterView, form: Form, placed: Sequence[Placed]) -> Moves:
    alive = {
        str(it.id): it for it in (await view.cluster()).brokers if not it.is_fenced
    }
    wanted = form.lines("brokers") or [*alive]
    if unknown := [it for it in wanted if it not in alive]:
        raise Refused(f"{unknown[0]} is no broker that is alive")
    racks = {alive[it].id: alive[it].rack for it in wanted}
    by_bytes = form.text("by") == "bytes"
    if by_bytes and (await view.disks()).failed:
        raise Refused("a broker has not reported the sizes of its replicas")
    try:
        return await spread(placed, racks, by_bytes=by_bytes)
    except TooFewBrokers:
        raise Refused("a partition has more replicas than there are brokers") from None


def _encoded(moves: Moves) -> str:
    """Return moves in the format of Kafka's tool."""
    rows = [
        {"topic": it.topic, "partition": it.partition, "replicas": [*moves[it]]}
        for it in sorted(moves)
    ]
    return json.dumps({"version": 1, "partitions": rows})


def _decoded(
    text: str, placed: Mapping[TopicPartition, Placed], brokers: set[int]
) -> Moves:
    """Return the moves of a confirmed plan, which a browser has sent."""
    found: dict[TopicPartition, Sequence[int]] = {}
    try:
        rows: list[dict[str, Any]] = json.loads(text)["partitions"]
        for row in rows:
            key = TopicPartition(row["topic"], row["partition"])
            replicas = tuple(row["replicas"])
            if key not in placed or not {*replicas} <= brokers:
                raise Refused("the plan names a partition or broker that is not there")
            if not replicas or len({*replicas}) < len(replicas):
                raise Refused("the plan has a partition without distinct replicas")
            found[key] = replicas
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused("the plan is not one of the console") from None
    return found


async def _throttle(
    view: ClusterView,
    before: Mapping[TopicPartition, Sequence[int]],
    moves: Moves,
    rate: int,
) -> None:
    """Throttle the moves: all old replicas of leaders, the new ones of followers."""

    def listed(topic: str, replicas: Mapping[TopicPartition, Iterable[int]]) -> str:
        pairs = sorted(
            (it.partition, broker)
            for it, brokers in replicas.items()
            if it.topic == topic
            for broker in brokers
        )
        return ",".join(f"{partition}:{broker}" for partition, broker in pairs)

    added = {it: {*moves[it]} - {*before[it]} for it in moves}
    for topic in by_topic(moves):
        lists = (listed(topic, before), listed(topic, added))
        values = {
            key: found for key, found in zip(_REPLICAS, lists, strict=True) if found
        }
        await view.admin.alter_configs(TOPIC, topic, values)
    for broker in sorted(
        {it for both in (before, moves) for row in both.values() for it in row}
    ):
        await view.admin.alter_configs(
            BROKER, str(broker), dict.fromkeys(RATES, str(rate))
        )


async def _cancel(view: ClusterView, form: Form) -> Change:
    topic = form.optional("topic")
    moving = {
        it: [node for node in row.replicas if node not in row.removing_replicas]
        for it, row in (await view.admin.list_reassignments()).items()
        if topic in (None, it.topic)
    }
    if not moving:
        raise Refused("no reassignment is in progress")

    async def carry_out() -> Outcome:
        return outcome_of(await view.admin.alter_reassignments(dict.fromkeys(moving)))

    words = ("--cancel", "--preserve-throttles", "--reassignment-json-file", _FILE)
    return Change(
        [command(view, _PROGRAM, *words)], carry_out, files={_FILE: _encoded(moving)}
    )


async def throttles(
    view: ClusterView,
) -> tuple[dict[int, dict[str, str]], dict[int, KafkaError]]:
    """Return the configured rates by broker, and brokers without an answer."""

    async def query(broker: int) -> dict[str, str]:
        rows = await view.admin.describe_configs(BROKER, str(broker), RATES)
        return {it.name: it.value for it in rows if it.name in RATES and it.value}

    alive = [it.id for it in (await view.cluster()).brokers if not it.is_fenced]
    answers, failed = await each_of(alive, query)
    return {broker: it for broker, it in sorted(answers.items()) if it}, failed


async def _end_throttles(view: ClusterView, form: Form) -> Change:
    topics = form.lines("topics")
    known = await view.topics()
    if unknown := [it for it in topics if it not in known]:
        raise Refused(f"there is no topic {unknown[0]}")
    rates, _ = await throttles(view)
    entities: list[tuple[int, str, str, list[str]]] = []
    for name in topics:
        configs = await view.admin.describe_configs(TOPIC, name)
        own = [it.name for it in configs if it.config_source == _OF_TOPIC]
        found: list[str] = [key for key in _REPLICAS if key in own]
        if found:
            entities.append((TOPIC, "topics", name, found))
    entities += [(BROKER, "brokers", str(it), [*rates[it]]) for it in rates]
    if not entities:
        raise Refused("there is no throttle")
    commands = [
        command(
            view,
            "kafka-configs",
            *("--alter", "--entity-type", kind, "--entity-name", name),
            *("--delete-config", ",".join(keys)),
        )
        for _, kind, name, keys in entities
    ]

    async def carry_out() -> Outcome:
        for number, _, name, keys in entities:
            await view.admin.alter_configs(number, name, dict.fromkeys(keys))
        return Outcome([f"{name}: {', '.join(keys)}" for _, _, name, keys in entities])

    return Change(commands, carry_out)


_TOPICS: Final = Field("topics", "Topics (all if empty, one per line)", is_long=True)
ACTIONS: Final[Mapping[str, Action]] = MappingProxyType(
    {
        "reassign": Action(
            "Spread replicas",
            "reassignments",
            (
                _TOPICS,
                Field(
                    "brokers",
                    "Brokers (all alive if empty, one per line)",
                    is_long=True,
                ),
                Field("by", "Even out", ("number", "bytes")),
                Field("throttle", "Throttle in bytes/s (none if empty)"),
                Field("plan", "Plan", is_hidden=True),
            ),
            _reassign,
        ),
        "cancel-reassignment": Action(
            "Cancel",
            "reassignments",
            (Field("topic", "Topic (all if empty)"),),
            _cancel,
        ),
        "end-throttles": Action(
            "End throttles",
            "reassignments",
            (
                Field(
                    "topics",
                    "Topics whose lists are deleted as well, one per line",
                    is_long=True,
                ),
            ),
            _end_throttles,
        ),
    }
)
