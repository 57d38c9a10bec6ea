"""The declaration of an API, the only source about it for the rest of the broker.

Each file in ``broker.apis`` declares an API next to its handler. The declarations
determine dispatch, ApiVersions, the class of a request, the responses to refusals and
failures, the versions that report a quota, and the table of SKIPPED.md. Numbers, names
and first flexible versions of APIs are in `broker.protocol.api_keys`, since clients use
them, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from broker.apis.common.access import Access
from broker.node.broker import Broker
from broker.protocol.api_keys import NEVER, ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.message import ResponseMessage
from broker.protocol.schemas.message import Versioned
from broker.protocol.wire.codec import (
    CLIENT_ITEMS_MAX,
    CLUSTER_ITEMS_MAX,
    CLUSTER_NUMBERS,
)
from broker.requests.classifier import CONTROL, REPLICATION
from broker.requests.entitlement import Role
from broker.requests.request import ReplicaId, Request, Response

# A message to be encoded, or an encoded response.
Answer: TypeAlias = "ResponseMessage | Versioned | Response"
# Handlers annotate the class of their request; a test compares it with the API's key.
Handle: TypeAlias = Callable[[Request, Any, Broker], Awaitable[Answer]]
HandleAtOnce: TypeAlias = Callable[[Request, Broker], "Response | None"]


def _is_answered(body: object) -> bool:
    return True


def _as_it_is(request: Request, body: object, answer: object, broker: Broker) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErrorAnswer:
    """The response with only an error (Kafka: getErrorResponse).

    ``try_again`` is the code after which this API's clients retry.

    ``rows`` maps an array of the response to the arrays of the request whose rows it
    mirrors, in versions up to ``rows_last``. Arrays that the request's version lacks
    are ignored; ``dirs.topics`` is an array in the rows of another array. All other
    arrays of the response are empty.

    ``is_answered`` returns whether the client of a request expects a response;
    otherwise an error closes the connection. ``complete`` adds fields that clients need
    in addition to the error.
    """

    try_again: ErrorCode = ErrorCode.request_timed_out
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows_last: int = NEVER
    is_answered: Callable[[Any], bool] = _is_answered
    complete: Callable[[Request, Any, Any, Broker], None] = _as_it_is


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Api:
    """One API.

    ``versions`` are the first and the last served one. ``advertised_from`` is a lower
    first version in ApiVersions, since some clients infer the broker's age from the
    range. librdkafka up to 2.11.0 disables codecs unless Produce begins at 0, and its
    older releases require ListOffsets, OffsetCommit and OffsetFetch near 0 to balance
    consumers; Kafka 4 does the same (KAFKA-18659). A request below the served versions
    is answered as an unsupported version.

    ``access`` is the rule by which an authorizer decides about its requests.

    ``role`` is the role that each request claims, if only controllers or brokers send
    it (Kafka's ClusterAction). ``replica_id`` reads a replica id from a frame; a
    request with one claims a broker's role.

    ``request_class`` determines the priority level (`broker.requests.classifier`).

    ``handle_at_once`` may respond without waiting and without a coroutine; None means
    that ``handle`` is to be run. ``keeps_frame``: the body refers to the request's
    frame.

    ``items_max`` bounds the items in the arrays of a client's request.

    ``quota_exceeded_since`` is the first version with THROTTLING_QUOTA_EXCEEDED
    (KIP-599). ``refusable``: admission may refuse requests with an error; otherwise
    they are always served.

    """

    key: ApiKey
    versions: tuple[int, int]
    request_class: str
    handle: Handle
    access: Access
    advertised_from: int | None = None
    handle_at_once: HandleAtOnce | None = None
    keeps_frame: bool = False
    role: Role | None = None
    replica_id: ReplicaId | None = None
    items_max: int = CLIENT_ITEMS_MAX
    refusable: bool = True
    quota_exceeded_since: int = NEVER
    error_answer: ErrorAnswer = field(default_factory=ErrorAnswer)

    def items_bound(self, request: Request) -> tuple[int, int]:
        """Return the bound of items in the request's arrays, and numbers per item.

        The second value is the number of plain numbers that count as one item. Classes
        of cluster requests are granted by listener, so clients cannot claim the larger
        bound.
        """
        if request.task.request_class in (CONTROL, REPLICATION):
            return CLUSTER_ITEMS_MAX, CLUSTER_NUMBERS
        return self.items_max, 1

    @property
    def served(self) -> range:
        """All served versions."""
        first, last = self.versions
        return range(first, last + 1)

    @property
    def advertised(self) -> tuple[int, int]:
        """The first and the last version in ApiVersions."""
        first, last = self.versions
        return (first if self.advertised_from is None else self.advertised_from), last
