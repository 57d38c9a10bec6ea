"""The declaration of an API: all that the rest of the broker knows of it.

Each file in ``broker.apis`` declares one, beside its handler. From these declarations
follow dispatch, ApiVersions, the class of a request, the answers to refusals and
failures, the versions that report a quota, and the table of SKIPPED.md.
Numbers, names and first flexible versions of APIs are the protocol's
(`broker.protocol.api_keys`), since clients need them, too.
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

# A message to be encoded; or a whole response.
Answer: TypeAlias = "ResponseMessage | Versioned | Response"
# Each handler names the class of its request; a test compares it with the API's key.
Handle: TypeAlias = Callable[[Request, Any, Broker], Awaitable[Answer]]
HandleAtOnce: TypeAlias = Callable[[Request, Broker], "Response | None"]


def _is_answered(body: object) -> bool:
    return True


def _as_it_is(request: Request, body: object, answer: object, broker: Broker) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErrorAnswer:
    """The answer that carries an error and nothing else (Kafka: getErrorResponse).

    ``try_again`` is the code on which this API's clients try again.

    ``rows`` gives, for an array of the answer, the arrays of the request (those that
    its version has) whose rows it mirrors, in versions up to ``rows_last``;
    ``dirs.topics`` are those in the rows of another array. An array not named is left
    empty.

    ``is_answered`` says of a request whether its client expects an answer; otherwise an
    error closes the connection. ``complete`` adds what clients need beside the error.
    """

    try_again: ErrorCode = ErrorCode.request_timed_out
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows_last: int = NEVER
    is_answered: Callable[[Any], bool] = _is_answered
    complete: Callable[[Request, Any, Any, Broker], None] = _as_it_is


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Api:
    """One API.

    ``versions`` are the first and the last one served. ``advertised_from``, where it is
    lower, is what ApiVersions tells as the first: some clients take the range for the
    broker's age (librdkafka up to 2.11.0 turns codecs off unless Produce goes down to
    0, and its older releases want ListOffsets, OffsetCommit and OffsetFetch near 0
    before they balance consumers; KAFKA-18659 has Kafka 4 do the same). A request below
    the versions served is answered as one of an unsupported version.

    ``access`` is the rule by which an authorizer decides about its requests.

    ``role`` is the one that each request claims, where only controllers or brokers send
    it (Kafka's ClusterAction). ``replica_id`` reads a replica id from a frame; a
    request with one claims a broker's role.

    ``request_class`` decides the priority level (`broker.requests.classifier`).

    ``handle_at_once`` may answer without waiting, and without a coroutine; None means
    that ``handle`` has to. ``keeps_frame`` says that what ``handle`` is handed refers
    to the request's frame.

    ``items_max`` bounds the items in the arrays of a client's request.

    ``quota_exceeded_since`` is the first version whose answers may say
    THROTTLING_QUOTA_EXCEEDED (KIP-599). ``refusable`` says whether admission may have a
    request answered with an error; one that is not is served all the same.

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
        """Return how many items ``request`` may have in its arrays.

        And how many plain numbers count as one item.

        The classes of the cluster's own requests are granted by listener, so that the
        larger bound is not a client's to claim.
        """
        if request.task.request_class in (CONTROL, REPLICATION):
            return CLUSTER_ITEMS_MAX, CLUSTER_NUMBERS
        return self.items_max, 1

    @property
    def served(self) -> range:
        """All versions served."""
        first, last = self.versions
        return range(first, last + 1)

    @property
    def advertised(self) -> tuple[int, int]:
        """The first and the last version that ApiVersions tells."""
        first, last = self.versions
        return (first if self.advertised_from is None else self.advertised_from), last
