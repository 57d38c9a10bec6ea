"""Waits and rows shared by the handlers of the group APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from broker.apis.common.access import operations
from broker.apis.common.parked_handlers import parked_for_client
from broker.authorization.acls import ResourceType
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.requests.request import Request
from broker.shards.parked_answer import Waiting
from planes.slices import in_steps, parked, preempt

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")


class GroupRow(Protocol):
    """The description of one group in a response."""

    error_code: ErrorCode
    authorized_operations: int


Row = TypeVar("Row", bound=GroupRow)


async def answer_to(waiting: Waiting[T], request: Request | None = None) -> T:
    """Return the coordinator's answer, parked in purgatory until there is one.

    :raises ConnectionEnded: if ``request`` is given and its connection ends meanwhile;
        the answer is then dropped.
    """
    if not waiting.answered:
        if request is None:
            await parked(waiting.register)
        else:
            await parked_for_client(request, waiting.register)
    return waiting.answer()


def require_consumer_groups(broker: Broker) -> None:
    """Raise UNSUPPORTED_VERSION unless the cluster serves consumer groups (KIP-848)."""
    if not broker.coordinator.admin.finalized_features.group_version:
        raise KafkaError(ErrorCode.unsupported_version)


async def by_topic(
    answers: Iterable[tuple[TopicPartition, P]], row: Callable[[int, P], R]
) -> dict[str, list[R]]:
    """Return the rows of the partitions of each topic, in the order given."""
    topics: dict[str, list[R]] = {}
    async for target, answer in in_steps(answers):
        topics.setdefault(target.topic, []).append(row(target.partition, answer))
    return topics


async def described(
    request: Request,
    broker: Broker,
    group_ids: Iterable[str],
    describe: Callable[[Request, str, Broker], Awaitable[Row]],
    *,
    with_operations: bool,
) -> list[Row]:
    """Return the row of each group; the request can be preempted between groups.

    ``with_operations``: rows without an error have the allowed operations (KIP-430).
    """
    rows = []
    for group_id in group_ids:
        row = await describe(request, group_id, broker)
        if with_operations and row.error_code is ErrorCode.none:
            row.authorized_operations = operations(
                request, broker, ResourceType.GROUP, group_id
            )
        rows.append(row)
        await preempt()
    return rows
