"""What the model's controller says of an election, and how what waits is merged.

For each partition, or for all at once, a LEADER_AND_ISR and then an UPDATE_METADATA, as
of Kafka's controller. Requests of one kind that wait behind an earlier one can be
merged into one, as LinkedIn's fork of Kafka did: the newest word on a partition counts,
and UPDATE_METADATA still comes after what made it true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.protocol.api_keys import ApiKey
from broker.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Who leads a partition."""

    key: TopicPartition
    leader: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A request of the controller's to a broker: its kind, and what it tells."""

    api_key: ApiKey
    states: tuple[Leadership, ...]


def batch(states: Sequence[Leadership]) -> tuple[Command, ...]:
    """Return what a batch sends to one broker, in Kafka's order."""
    told = tuple(states)
    return (
        Command(api_key=ApiKey.LEADER_AND_ISR, states=told),
        Command(api_key=ApiKey.UPDATE_METADATA, states=told),
    )


def merged(waiting: Iterable[Command]) -> list[Command]:
    """Merge the commands that wait for one broker, one of each kind at most."""
    newest: dict[ApiKey, dict[TopicPartition, Leadership]] = {}
    for command in waiting:
        known = newest.setdefault(command.api_key, {})
        known.update({it.key: it for it in command.states})
    # The API keys of LEADER_AND_ISR and UPDATE_METADATA are in the order to keep.
    return [
        Command(api_key=key, states=tuple(newest[key].values()))
        for key in sorted(newest)
    ]
