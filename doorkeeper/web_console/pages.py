"""Content of a cluster's pages, as values for their templates.

A page gets the query of its address. An unknown name or number in it raises
`NoSuchPage`. Lists are cut into pages of `ROWS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import trio

from broker.client.admin import LATEST
from broker.client.admin_changes import BROKER, TOPIC
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.describe_configs import DescribeConfigsResourceResult
from broker.protocol.messages.metadata import MetadataResponseTopic
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.cluster_view import (
    ClusterView,
    Group,
    TopicSummary,
    each_of,
    summary,
    total_lag,
)
from doorkeeper.web_console.group_members import Membership, membership
from doorkeeper.web_console.lag_history import chart
from doorkeeper.web_console.newest_records import PARTITIONS_MAX, newest_records
from doorkeeper.web_console.reassignment import throttles
from doorkeeper.web_console.record_text import FORMS, shown

_T = TypeVar("_T")
Query: TypeAlias = Mapping[str, str]
Content: TypeAlias = Mapping[str, Any]
ROWS: Final = 100
# Groups per page whose lag is queried.
_GROUP_ROWS: Final = 25
# Brokers per page whose metrics are read.
_BROKER_ROWS: Final = 25
_RECORDS: Final = 50
_HEADERS_SHOWN: Final = 20
_HOT_ROWS: Final = 10
# Kafka's DescribeConfigsResponse.ConfigSource.
SOURCES: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "topic",
        2: "broker, dynamic",
        3: "all brokers, dynamic",
        4: "broker's file",
        5: "default",
        6: "logger",
        7: "client metrics",
        8: "group",
    }
)


class NoSuchPage(Exception):
    """The address names something that does not exist."""


class Page(NamedTuple, Generic[_T]):
    """Some rows of a list; ``number`` counts from 1."""

    rows: Sequence[_T]
    number: int
    pages: int
    total: int


def page_of(rows: Sequence[_T], query: Query, size: int = ROWS) -> Page[_T]:
    """Return the page that the query names, or the nearest existing one."""
    pages = max(1, -(-len(rows) // size))
    number = min(max(1, _number(query, "page", 1)), pages)
    return Page(rows[(number - 1) * size : number * size], number, pages, len(rows))


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise NoSuchPage(f"{name} is not a number")
    return int(text)


# ---- cluster ------------------------------------------------------------------------


async def cluster_page(view: ClusterView, query: Query) -> Content:
    """Brokers, controller, health of partitions, disks."""
    cluster = await view.cluster()
    topics = await view.topics()
    disks = await view.disks()
    rows = [summary(it) for it in topics.values()]
    partitions = [it for topic in topics.values() for it in topic.partitions]
    return {
        "cluster": cluster,
        "brokers": page_of(sorted(cluster.brokers), query),
        "alive": sum(not it.is_fenced for it in cluster.brokers),
        "topics": len(rows),
        "partitions": len(partitions),
        "offline": sum(it.offline for it in rows),
        "under_replicated": sum(it.under_replicated for it in rows),
        "leaders": Counter(it.leader_id for it in partitions),
        "replicas": Counter(node for it in partitions for node in it.replica_nodes),
        "in_sync": Counter(node for it in partitions for node in it.isr_nodes),
        "directories": page_of(disks.directories, query),
        "days_left": view.disk_history.days_left,
        "failed": disks.failed,
        "ages": _ages(view, "brokers", "topics", "disks"),
    }


def _ages(view: ClusterView, *subjects: str) -> Mapping[str, int]:
    """Return the ages of the answers about some subjects, in seconds."""
    ages = view.ages_s()
    return {it: ages[it] for it in subjects}


async def broker_page(view: ClusterView, query: Query) -> Content:
    """One broker with its configs."""
    number = _number(query, "id", -1)
    found = [it for it in (await view.cluster()).brokers if it.id == number]
    if not found:
        raise NoSuchPage("there is no such broker")
    disks = await view.disks()
    return {
        "broker": found[0],
        "directories": [it for it in disks.directories if it.broker_id == number],
        "ages": _ages(view, "brokers", "disks"),
        "days_left": view.disk_history.days_left,
        **await _configs(view, BROKER, str(number), query),
    }


async def _configs(view: ClusterView, kind: int, name: str, query: Query) -> Content:
    """Return configs, explicitly set ones first; or the reason why there are none."""
    try:
        found = await view.admin.describe_configs(kind, name)
    except KafkaError as error:
        return {"configs": page_of([], query), "configs_error": reason(error)}

    def rank(row: DescribeConfigsResourceResult) -> tuple[bool, str]:
        return row.config_source == 5, row.name

    rows = sorted(found, key=rank)
    return {"configs": page_of(rows, query, 500), "configs_error": None}


# ---- topics -------------------------------------------------------------------------


async def topics_page(view: ClusterView, query: Query) -> Content:
    """All topics by name, size or rate, or those with problems; the hot partitions."""
    disks = await view.disks()
    wanted, only = query.get("like", ""), query.get("only", "")
    rows = [
        row
        for row in map(summary, (await view.topics()).values())
        if wanted in row.name and _is_wanted(row, only)
    ]
    if query.get("sort") == "size":
        rows.sort(key=lambda it: disks.of_topic(it.name), reverse=True)
    elif query.get("sort") == "rate":
        rows.sort(key=lambda it: view.rates.of_topic(it.name) or 0, reverse=True)
    page = page_of(rows, query)
    return {
        "topics": page,
        "sizes": {it.name: disks.of_topic(it.name) for it in page.rows},
        "rates": view.rates,
        "hottest": view.rates.hottest(_HOT_ROWS),
        "failed": disks.failed,
        "like": wanted,
        "only": only,
        "sort": query.get("sort", "name"),
        "ages": _ages(view, "topics", "disks"),
    }


def _is_wanted(row: TopicSummary, only: str) -> bool:
    if only == "offline":
        return row.offline > 0
    return row.under_replicated > 0 if only == "under-replicated" else True


async def _topic(view: ClusterView, query: Query) -> MetadataResponseTopic:
    found = await view.topic(query.get("name", ""))
    if found is None:
        raise NoSuchPage("there is no such topic")
    return found


async def topic_page(view: ClusterView, query: Query) -> Content:
    """One topic with its partitions and configs."""
    topic = await _topic(view, query)
    disks = await view.disks()
    name = topic.name or ""
    rows = sorted(topic.partitions, key=lambda it: it.partition_index)
    page = page_of(rows, query)
    places = [TopicPartition(name, it.partition_index) for it in page.rows]
    sizes = disks.sizes.get(name, {})
    return {
        "topic": summary(topic),
        "topic_id": topic.topic_id,
        "size_bytes": disks.of_topic(name),
        "partitions": page,
        "sizes": {it: max(by.values(), default=-1) for it, by in sizes.items()},
        "ends": await view.offsets(places, LATEST, [topic]),
        "rates": view.rates,
        "places": TopicPartition,
        "failed": disks.failed,
        "ages": _ages(view, "disks"),
        **await _configs(view, TOPIC, name, {}),
    }


async def records_page(view: ClusterView, query: Query) -> Content:
    """The newest records of a topic, or of one of its partitions."""
    topic = await _topic(view, query)
    name = topic.name or ""
    numbers = sorted(it.partition_index for it in topic.partitions)
    chosen = _number(query, "partition", -1)
    if chosen >= 0 and chosen not in numbers:
        raise NoSuchPage("there is no such partition")
    form = next((it for it in FORMS if it == query.get("form")), FORMS[0])
    read = [chosen] if chosen >= 0 else numbers[:PARTITIONS_MAX]
    newest = await newest_records(view, topic, read, _RECORDS)
    rows = [
        {
            "record": it,
            "key": shown(it.key, form),
            "value": shown(it.value, form),
            "headers": [
                (key, shown(value, form)) for key, value in it.headers[:_HEADERS_SHOWN]
            ],
            "headers_left_out": max(0, len(it.headers) - _HEADERS_SHOWN),
        }
        for it in newest.records
    ]
    return {
        "topic": name,
        "numbers": numbers[:ROWS],
        "chosen": chosen,
        "unread": 0 if chosen >= 0 else len(numbers) - len(read),
        "form": form,
        "forms": FORMS,
        "rows": rows,
        "failed": newest.failed,
    }


# ---- groups -------------------------------------------------------------------------


async def groups_page(view: ClusterView, query: Query) -> Content:
    """All groups with their states, and the lag of those on this page."""
    groups = await view.groups()
    wanted = query.get("like", "")
    names = [it for it in groups.by_name if wanted in it]
    page = page_of(names, query, _GROUP_ROWS)
    lags = await view.lags({it: groups.by_name[it] for it in page.rows})
    return {
        "groups": page,
        "by_name": groups.by_name,
        "lags": lags.by_group,
        "failed": groups.failed,
        "like": wanted,
        "ages": _ages(view, "groups"),
    }


class LagRow(NamedTuple):
    """A partition of a group; an unknown offset is None."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    owner: str


async def group_page(view: ClusterView, query: Query) -> Content:
    """One group: members and the lag of each partition."""
    name = query.get("name")
    group = None if name is None else (await view.groups()).by_name.get(name)
    if name is None or group is None:
        raise NoSuchPage("there is no such group")
    described, problem = await _membership(view, name, group)
    members = () if described is None else described.members
    owners = {place: it.member_id for it in members for place in it.partitions or ()}
    committed = await view.committed(group.coordinator_id, name)
    partitions = sorted(committed.keys() | owners.keys())
    ends = await view.offsets(partitions, LATEST)
    lags = [_lag(it, committed.get(it), ends.get(it), owners) for it in partitions]
    return {
        "name": name,
        "group": group,
        "described": described,
        "problem": problem,
        "members": page_of(members, query),
        "lags": page_of(lags, query),
        "total": total_lag(committed, ends),
        "chart": chart(
            view.history.of(name), trio.current_time(), view.history.period_s
        ),
        "period_s": round(view.history.period_s),
    }


def _lag(
    partition: TopicPartition,
    committed: int | None,
    end: int | None,
    owners: Mapping[TopicPartition, str],
) -> LagRow:
    lag = None if committed is None or end is None else end - committed
    return LagRow(partition, committed, end, lag, owners.get(partition, ""))


async def _membership(
    view: ClusterView, name: str, group: Group
) -> tuple[Membership | None, str | None]:
    """Return a group's description, or the reason why there is none."""
    try:
        return await membership(view.admin, name, group), None
    except KafkaError as error:
        return None, reason(error)


# ---- requests -----------------------------------------------------------------------


async def requests_page(view: ClusterView, query: Query) -> Content:
    """Queues and schedulers of brokers, and the requests of one of them."""
    alive = [it.id for it in (await view.cluster()).brokers if not it.is_fenced]
    page = page_of(sorted(alive), query, _BROKER_ROWS)
    chosen = _number(query, "id", -1)
    if "id" in query and chosen not in alive:
        raise NoSuchPage("there is no such broker")
    chosen_rows = {*page.rows, chosen} if chosen >= 0 else {*page.rows}
    found, failed = await each_of(chosen_rows, view.requests)
    if chosen < 0:
        ours = [it for it in page.rows if it in found and found[it].scheduler]
        chosen = (*ours, *page.rows, -1)[0]
    return {
        "brokers": page,
        "found": found,
        "failed": failed,
        "chosen": chosen,
        "shown": found.get(chosen),
    }


# ---- reassignments ------------------------------------------------------------------


class MoveRow(NamedTuple):
    """A moving partition; ``share`` has been copied, None if unknown."""

    partition: TopicPartition
    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]
    share: float | None


async def reassignments_page(view: ClusterView, query: Query) -> Content:
    """Moving partitions, and throttles."""
    moving = await view.admin.list_reassignments()
    disks = await view.disks()
    rates, failed = await throttles(view)
    rows = []
    for it, row in sorted(moving.items()):
        sizes = disks.sizes.get(it.topic, {}).get(it.partition, {})
        whole = max(sizes.values(), default=0) * len(row.adding_replicas)
        copied = sum(sizes.get(node, 0) for node in row.adding_replicas)
        share = copied / whole if whole else None
        rows.append(
            MoveRow(it, row.replicas, row.adding_replicas, row.removing_replicas, share)
        )
    return {
        "moves": page_of(rows, query),
        "throttles": rates,
        "failed": failed,
        "ages": _ages(view, "disks"),
    }


# ---- all of them --------------------------------------------------------------------


def reason(error: KafkaError) -> str:
    """Return an error as text for the user."""
    if error.code is ErrorCode.unsupported_version:
        return "not served by this broker"
    return str(error)


PAGES: Final[Mapping[str, Callable[[ClusterView, Query], Awaitable[Content]]]] = (
    MappingProxyType(
        {
            "cluster": cluster_page,
            "broker": broker_page,
            "topics": topics_page,
            "topic": topic_page,
            "records": records_page,
            "groups": groups_page,
            "group": group_page,
            "requests": requests_page,
            "reassignments": reassignments_page,
        }
    )
)
