"""Waits and rows that the handlers of the group APIs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from broker.apis.common.waiting import parked_for_client
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.requests.request import Request
from broker.shards.waiting import Waiting
from planes.slices import in_steps, parked

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")


async def answer_to(waiting: Waiting[T], request: Request | None = None) -> T:
    """Return the coordinator's answer, parked in purgatory until there is one.

    :raises ConnectionGone: if ``request`` is given and its connection ends meanwhile;
        the answer is given to nobody then.
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
