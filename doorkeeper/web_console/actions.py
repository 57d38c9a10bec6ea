"""All changes of the console; those of topics, configs, offsets and leaders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from broker.client.admin import EARLIEST, LATEST
from broker.client.admin_changes import BROKER, DEFAULT, TOPIC
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.metadata import MetadataResponseTopic
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console import reassignment, scheduling
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
from doorkeeper.web_console.cluster_view import ClusterView

_SECRET: Final = re.compile(r"password|secret|jaas|credential|\.key$|certificate")
# Kafka's tools read a comma, a space or an equals sign in brackets as part of a value.
_PLAIN: Final = re.compile(r"[\w.:/*+-]*")
_KEY: Final = re.compile(r"[\w.-]+", re.ASCII)
_NO_MEMBERS: Final = ("", "Empty", "Dead")


# ---- topics -------------------------------------------------------------------------


async def _topic(view: ClusterView, name: str) -> MetadataResponseTopic:
    found = await view.topic(name)
    if found is None:
        raise Refused("there is no such topic")
    return found


def _pattern(topic: str) -> str:
    """Return a topic's name for commands that take a regular expression."""
    return topic.replace(".", r"\.")


async def _create_topic(view: ClusterView, form: Form) -> Change:
    name, partitions = form.text("name"), form.count("partitions")
    replicas, configs = form.count("replicas"), form.pairs("configs")
    words = ["--create", "--topic", name]
    if partitions is not None:
        words += ["--partitions", str(partitions)]
    if replicas is not None:
        words += ["--replication-factor", str(replicas)]
    for key, value in configs.items():
        words += ["--config", f"{key}={value}"]

    async def carry_out() -> Outcome:
        await view.admin.create_topic(
            name, partitions or DEFAULT, replicas or DEFAULT, configs
        )
        return Outcome(["created"])

    return Change([command(view, "kafka-topics", *words)], carry_out)


async def _add_partitions(view: ClusterView, form: Form) -> Change:
    name, count = form.text("name"), form.count("count")
    before = len((await _topic(view, name)).partitions)
    if count is None or count <= before:
        raise form.refused("count", f"is not above the present {before}")
    words = ["--alter", "--topic", _pattern(name), "--partitions", str(count)]

    async def carry_out() -> Outcome:
        await view.admin.add_partitions(name, count)
        return Outcome([f"{count - before} partitions added"])

    warning = "Keys of new records may go to other partitions than before."
    return Change([command(view, "kafka-topics", *words)], carry_out, warning)


async def _delete_topic(view: ClusterView, form: Form) -> Change:
    name = form.text("name")
    await _topic(view, name)
    words = ["--delete", "--topic", _pattern(name)]

    async def carry_out() -> Outcome:
        await view.admin.delete_topic(name)
        return Outcome(["deletion begun"])

    warning = "All records of the topic are lost."
    return Change([command(view, "kafka-topics", *words)], carry_out, warning)


# ---- configs ------------------------------------------------------------------------


async def _topic_configs(view: ClusterView, form: Form) -> Change:
    name = form.text("name")
    await _topic(view, name)
    entity = ("--entity-type", "topics", "--entity-name", name)
    return _configs(view, form, TOPIC, name, entity)


async def _broker_configs(view: ClusterView, form: Form) -> Change:
    name = form.optional("id") or ""
    if name and name not in {str(it.id) for it in (await view.cluster()).brokers}:
        raise form.refused("id", "is no broker")
    one = ("--entity-name", name) if name else ("--entity-default",)
    return _configs(view, form, BROKER, name, ("--entity-type", "brokers", *one))


def _configs(
    view: ClusterView, form: Form, kind: int, name: str, entity: Iterable[str]
) -> Change:
    values, deleted = _checked_configs(form)
    words = ["--alter", *entity]
    if values:
        shown = (
            f"{key}={value if _PLAIN.fullmatch(value) else f'[{value}]'}"
            for key, value in values.items()
        )
        words += ["--add-config", ",".join(shown)]
    if deleted:
        words += ["--delete-config", ",".join(deleted)]

    async def carry_out() -> Outcome:
        changes = {**values, **dict.fromkeys(deleted)}
        await view.admin.alter_configs(kind, name, changes)
        return Outcome([f"{len(values)} set, {len(deleted)} deleted"])

    return Change([command(view, "kafka-configs", *words)], carry_out)


def _checked_configs(form: Form) -> tuple[dict[str, str], list[str]]:
    values, deleted = form.pairs("set"), form.lines("delete")
    if not values and not deleted:
        raise Refused("there is nothing to set or to delete")
    if values.keys() & {*deleted}:
        raise Refused("a key cannot be set and deleted")
    for key in (*values, *deleted):
        if not _KEY.fullmatch(key):
            raise Refused(f"{key} is not the name of a config")
    for key, value in values.items():
        if _SECRET.search(key.lower()):
            raise Refused(f"{key} is a secret: the console shows and stores none")
        if "[" in value or "]" in value:
            raise Refused(f"{key}: Kafka's tools take no brackets in a value")
    return values, deleted


# ---- offsets ------------------------------------------------------------------------


async def _reset_offsets(view: ClusterView, form: Form) -> Change:
    name = form.text("name")
    group = (await view.groups()).by_name.get(name)
    if group is None:
        raise Refused("there is no such group")
    if group.listed.group_state not in _NO_MEMBERS:
        raise Refused(f"the group has members (it is {group.listed.group_state})")
    committed = await view.committed(group.coordinator_id, name)
    chosen, words = await _chosen_partitions(view, form, committed)
    option, wanted = await _wanted(view, form, chosen, committed)
    first = await view.offsets(chosen, EARLIEST)
    end = await view.offsets(chosen, LATEST)
    unknown = [it for it in chosen if it not in first or it not in end]
    if unknown:
        raise Refused(f"{unknown[0].topic}-{unknown[0].partition} does not answer")
    # As in Kafka's tool, an offset outside of the log becomes its nearest end.
    offsets = {
        it: min(max(wanted.get(it, end[it]), first[it]), end[it]) for it in chosen
    }

    async def carry_out() -> Outcome:
        rows = await view.admin.alter_offsets(group.coordinator_id, name, offsets)
        return outcome_of({it: (code, None) for it, code in rows.items()})

    table = [("Topic", "Partition", "Committed", "New offset")]
    for it in chosen:
        row = (str(committed.get(it, "none")), str(offsets[it]))
        table.append((it.topic, str(it.partition), *row))
    shown = command(
        view,
        "kafka-consumer-groups",
        *("--reset-offsets", "--group", name, *words, *option, "--execute"),
    )
    return Change([shown], carry_out, table=table)


async def _chosen_partitions(
    view: ClusterView, form: Form, committed: Mapping[TopicPartition, int]
) -> tuple[list[TopicPartition], tuple[str, ...]]:
    topic, partition = form.optional("topic"), form.optional("partition")
    if topic is None:
        if partition is not None:
            raise form.refused("partition", "needs a topic")
        if not committed:
            raise Refused("the group has committed no offsets: name a topic")
        return sorted(committed), ("--all-topics",)
    found = (await _topic(view, topic)).partitions
    every = sorted(TopicPartition(topic, it.partition_index) for it in found)
    if partition is None:
        return every, ("--topic", topic)
    one = TopicPartition(topic, form.number("partition"))
    if one not in every:
        raise form.refused("partition", "is not one of the topic")
    return [one], ("--topic", f"{topic}:{one.partition}")


async def _wanted(
    view: ClusterView,
    form: Form,
    chosen: list[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> tuple[tuple[str, ...], dict[TopicPartition, int]]:
    """Return an option of Kafka's tool, and the offsets of partitions that have one."""
    to = form.text("to")
    if to in ("earliest", "latest"):
        timestamp = EARLIEST if to == "earliest" else LATEST
        return (f"--to-{to}",), await view.offsets(chosen, timestamp)
    if to == "offset":
        offset = form.number("value")
        return ("--to-offset", str(offset)), dict.fromkeys(chosen, offset)
    if to == "shift by":
        by = form.number("value")
        if any(it not in committed for it in chosen):
            raise Refused("a partition without a committed offset cannot be shifted")
        shifted = {it: committed[it] + by for it in chosen}
        return ("--shift-by", str(by)), shifted
    try:
        at = datetime.fromisoformat(form.text("value")).replace(tzinfo=UTC)
    except ValueError:
        raise form.refused("value", "is not like 2026-01-31T12:00:00") from None
    shown = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}"
    found = await view.offsets(chosen, round(at.timestamp() * 1000))
    return ("--to-datetime", shown), {it: to for it, to in found.items() if to >= 0}


# ---- leaders ------------------------------------------------------------------------


async def _elect(view: ClusterView, form: Form) -> Change:
    kind, topic = form.text("kind"), form.optional("topic")
    words, files = ["--election-type", kind], {}
    chosen: list[TopicPartition] | None = None
    if topic is None:
        words.append("--all-topic-partitions")
    else:
        found = (await _topic(view, topic)).partitions
        chosen = sorted(TopicPartition(topic, it.partition_index) for it in found)
        if form.optional("partition") is not None:
            one = TopicPartition(topic, form.number("partition"))
            if one not in chosen:
                raise form.refused("partition", "is not one of the topic")
            chosen = [one]
            words += ["--topic", topic, "--partition", str(one.partition)]
        else:
            rows = [{"topic": topic, "partition": it.partition} for it in chosen]
            files = {"election.json": json.dumps({"partitions": rows})}
            words += ["--path-to-json-file", "election.json"]

    async def carry_out() -> Outcome:
        rows = await view.admin.elect_leaders(chosen, is_unclean=kind == "unclean")
        return outcome_of(rows, ErrorCode.election_not_needed)

    warning = ""
    if kind == "unclean":
        warning = "Records that only replicas out of sync lack are lost."
    return Change(
        [command(view, "kafka-leader-election", *words)], carry_out, warning, files
    )


# ---- all of them --------------------------------------------------------------------

_NAME: Final = Field("name", "Topic")
_CONFIGS: Final = (
    Field("set", "Set (key=value, one per line)", is_long=True),
    Field("delete", "Delete (keys, one per line)", is_long=True),
)
_TOPIC: Final = Field("topic", "Topic (all if empty)")
_PARTITION: Final = Field("partition", "Partition (all if empty)")
_BY_NAME: Final = MappingProxyType({"name": "name"})

ACTIONS: Final[Mapping[str, Action]] = MappingProxyType(
    {
        "create-topic": Action(
            "Create a topic",
            "topics",
            (
                _NAME,
                Field("partitions", "Partitions (the broker's default if empty)"),
                Field("replicas", "Replicas (the broker's default if empty)"),
                Field("configs", "Configs (key=value, one per line)", is_long=True),
            ),
            _create_topic,
        ),
        "add-partitions": Action(
            "Add partitions",
            "topic",
            (_NAME, Field("count", "Partitions in all")),
            _add_partitions,
            _BY_NAME,
        ),
        "topic-configs": Action(
            "Alter configs", "topic", (_NAME, *_CONFIGS), _topic_configs, _BY_NAME
        ),
        "delete-topic": Action(
            "Delete the topic", "topic", (_NAME,), _delete_topic, _BY_NAME
        ),
        "broker-configs": Action(
            "Alter configs",
            "broker",
            (Field("id", "Broker (all if empty)"), *_CONFIGS),
            _broker_configs,
            MappingProxyType({"id": "id"}),
        ),
        "reset-offsets": Action(
            "Reset offsets",
            "group",
            (
                Field("name", "Group"),
                Field("topic", "Topic (all with offsets if empty)"),
                _PARTITION,
                Field("to", "To", ("earliest", "latest", "offset", "shift by", "time")),
                Field("value", "Offset, number of records, or time (UTC)"),
            ),
            _reset_offsets,
            _BY_NAME,
        ),
        "elect-leaders": Action(
            "Elect leaders",
            "topic",
            (
                Field("kind", "Election", ("preferred", "unclean")),
                _TOPIC,
                _PARTITION,
            ),
            _elect,
            MappingProxyType({"topic": "name"}),
        ),
        "elect-all-leaders": Action(
            "Elect leaders",
            "cluster",
            (Field("kind", "Election", ("preferred", "unclean")), _TOPIC, _PARTITION),
            _elect,
        ),
        **reassignment.ACTIONS,
        **scheduling.ACTIONS,
    }
)
