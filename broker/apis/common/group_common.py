"""What the handlers of the group APIs share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeVar

from broker.groups.state.waiting import Waiting
from broker.protocol.topic_partition import TopicPartition
from planes.slices import parked

T = TypeVar("T")
P = TypeVar("P")


async def answer_to(waiting: Waiting[T]) -> T:
    """Return the coordinator's answer, parked in purgatory until there is one."""
    if not waiting.answered:
        await parked(waiting.register)
    return waiting.answer()


def by_topic(
    answers: Iterable[tuple[TopicPartition, P]],
) -> Iterator[tuple[str, list[tuple[int, P]]]]:
    """Put answers by partition under their topics, in the order they come in."""
    for topic, group in groupby(answers, key=lambda answer: answer[0].topic):
        yield topic, [(target.partition, answer) for target, answer in group]
