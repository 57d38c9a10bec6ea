"""The requests that a broker has received, as a test sees them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar, cast
from uuid import UUID

from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.message import RequestMessage
from broker.protocol.wire.codec import decode

M = TypeVar("M", bound=RequestMessage[Any])

# Arrays of structs that name topics, in addition to arrays called topic...
_AROUND_TOPICS = ("groups", "forgotten_topics_data")


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request, as received on the wire.

    ``topics`` are the names of its topics. A FETCH of a session has all topics of the
    session.
    """

    api: ApiKey
    version: int
    client_id: str
    topics: tuple[str, ...]
    frame: bytes = dataclasses.field(repr=False)
    body_offset: int = dataclasses.field(repr=False)

    @property
    def body(self) -> object:
        """The decoded request, with Kafka's field names in snake case."""
        decoded: object = decode(self.api, self.version, self.frame, self.body_offset)
        return decoded

    def body_as(self, message: type[M]) -> M:
        """Return the body with a static type: ``body_as(ProduceRequest).acks``.

        The classes are in `broker.protocol.messages`.
        """
        if message.api_key != self.api:
            raise TypeError(f"{self.api.name} is no {message.__name__}")
        return cast(M, self.body)


def topics_named(body: object) -> Iterator[str | UUID]:
    """Yield the topics that a request names, by name or by id, with repetitions."""
    yield from _named(body, in_topic=False)


def _named(struct: object, *, in_topic: bool) -> Iterator[str | UUID]:
    assert dataclasses.is_dataclass(struct), struct
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
