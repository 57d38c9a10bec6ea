"""The load's requests as bytes, and the errors in their answers, by Kafka's schemas.

Each API has one fixed version: the newest served one that is not *flexible* (KIP-482),
if there is one, so the load also works on Apache Kafka from 2.4 to 3.9. Requests are
encoded before the run and answers decoded after it, which costs the generator nothing
during the run. The tests compare every byte with requests written by hand.

There is no negotiation and no retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from broker.handling.api_registry import APIS
from broker.log.steps import run
from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.protocol.wire import codec
from broker.protocol.wire.first_error import first_error

# The head of a frame: size, API key, version, correlation id.
HEAD_BYTES: Final = 12


class SetupRequest(NamedTuple):
    """One request that prepares a broker for a load."""

    api_key: int
    body: object

    def frame(self, correlation_id: int) -> bytes:
        """Return the bytes of the request."""
        return encode(self.api_key, correlation_id, "doorkeeper-setup", self.body)


def version(api_key: int) -> int:
    """Return the version in which the load sends an API."""
    first, last = APIS[api_key].versions
    return max(first, min(last, FIRST_FLEXIBLE[api_key] - 1))


def encode(api_key: int, correlation_id: int, client_id: str, body: object) -> bytes:
    """Return a request's whole frame."""
    return codec.encode_request(
        api_key, version(api_key), correlation_id, client_id, body
    )


def error_of(api_key: int, answer: bytes) -> int:
    """Return the first error code of an answer, 0 if there is none.

    ``answer`` is a response frame without its size. Raises `MalformedFrame` if it is
    not an answer of that API. Cost: O(partitions).
    """
    return run(first_error(api_key, version(api_key), decoded(api_key, answer)))


def decoded(api_key: int, answer: bytes) -> Any:
    """Return an answer, of the response class of its API."""
    return codec.decode_response(api_key, version(api_key), answer)[1]


def create_topics(partitions: Mapping[str, int]) -> SetupRequest:
    """Return a request that creates unreplicated topics with these partition counts."""
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        for name, count in partitions.items()
    ]
    body = CreateTopicsRequest(topics=topics, timeout=timedelta(seconds=30))
    return SetupRequest(ApiKey.CREATE_TOPICS, body)
