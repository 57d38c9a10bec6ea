"""The interface of consumer groups to the cluster's topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol
from uuid import UUID


class KnownTopic(NamedTuple):
    """An existing topic; ``digest`` changes with its id, partitions and racks."""

    topic_id: UUID
    partitions: int
    digest: int


class ClusterTopics(Protocol):
    """The existing topics, by name.

    ``version`` increases whenever some topic may have changed.
    """

    version: int

    def find(self, name: str) -> KnownTopic | None:
        """Return the topic of a name; None if there is none, or it has no id."""

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic."""

    def names(self) -> Iterator[str]:
        """Iterate over the names of all topics, as they are now."""


class NoTopics:
    """A cluster without topics."""

    version = 0

    def find(self, name: str) -> KnownTopic | None:
        """Return None."""
        return None

    def name(self, topic_id: UUID) -> str | None:
        """Return None."""
        return None

    def names(self) -> Iterator[str]:
        """Iterate over nothing."""
        return iter(())
