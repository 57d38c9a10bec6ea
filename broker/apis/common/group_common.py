"""What the handlers of the group APIs share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeVar

from broker.apis.common.waiting import parked_for_client
from broker.groups.state.waiting import Waiting
from broker.protocol.topic_partition import TopicPartition
from broker.requests.request import Request
from planes.slices import parked

T = TypeVar("T")
P = TypeVar("P")


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


def by_topic(
    answers: Iterable[tuple[TopicPartition, P]],
) -> Iterator[tuple[str, list[tuple[int, P]]]]:
    """Put answers by partition under their topics, in the order they come in."""
    for topic, group in groupby(answers, key=lambda answer: answer[0].topic):
        yield topic, [(target.partition, answer) for target, answer in group]
