"""The requests that a broker has received, as a test sees them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.codec import decode

# Arrays of structs that name topics; those called topic... do, too.
_AROUND_TOPICS = ("groups", "forgotten_topics_data")


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request, as it came over the wire.

    ``topics`` are those that it names, by name. A FETCH of a session has the topics of
    its session.
    """

    api: ApiKey
    version: int
    client_id: str
    topics: tuple[str, ...]
    frame: bytes = dataclasses.field(repr=False)
    body_offset: int = dataclasses.field(repr=False)

    @property
    def body(self) -> Any:
        """The decoded request, with Kafka's field names in snake case."""
        return decode(self.api, self.version, self.frame, self.body_offset)


def topics_named(body: Any) -> Iterator[str | UUID]:
    """Yield the topics that a request names, by name or by id, with repetitions."""
    yield from _named(body, in_topic=False)


def _named(struct: Any, *, in_topic: bool) -> Iterator[str | UUID]:
    for field in dataclasses.fields(struct):
        name, value = field.name, getattr(struct, field.name)
        if name in ("topic", "topic_name", "topic_id") or (in_topic and name == "name"):
            if value:
                yield value
        elif name == "topic_names":
            yield from value
        elif isinstance(value, tuple) and (
            name.startswith("topic") or name in _AROUND_TOPICS
        ):
            for item in filter(dataclasses.is_dataclass, value):
                yield from _named(item, in_topic=name != "groups")
