"""A request between the network and its handler, and the handler's response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from broker.authentication.authenticator import SaslAuthenticator
from broker.protocol.buffer import Piece
from broker.protocol.principal import KafkaPrincipal
from broker.protocol.wire.header import RequestHeader
from broker.requests.entitlement import Entitlement, Role
from planes import Task

# Returns the replica id in the frame of a request; below 0 for a consumer.
ReplicaId: TypeAlias = Callable[[RequestHeader, bytes], int]
# A whole frame, including its size, in pieces; empty for acks=0, which has no response.
Response: TypeAlias = "Sequence[Piece] | Throttled | CloseConnection | FinalResponse"


class CloseConnection:
    """A response that closes the connection (``CloseConnectionResponse``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """A response that is sent at once, after which the connection is not read.

    The response's ``throttle_time_ms`` contains the time (KIP-219).
    """

    pieces: Sequence[Piece]
    throttle_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalResponse:
    """A response that is sent after a delay, before the connection is closed.

    Used after failed authentication, as in Kafka. Without pieces nothing is sent.
    """

    pieces: Sequence[Piece]
    delay_ns: int


NO_RESPONSE: Final[Sequence[Piece]] = ()
CLOSE: Final = CloseConnection()


class Peer(Protocol):
    """A handler's view of the connection of its request."""

    connection_id: int
    host: str
    listener: str
    entitlement: Entitlement
    principal: KafkaPrincipal
    authenticator: SaslAuthenticator | None

    @property
    def has_hung_up(self) -> bool:
        """True if the peer has finished sending."""

    def authenticated(self, principal: KafkaPrincipal) -> None:
        """Set the principal of the peer."""

    def release(self, count: int) -> None:
        """Release memory of a request that was read."""


class DeclaredApi(Protocol):
    """The declaration of an API (`broker.apis`), as used before its handler."""

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last served version."""

    @property
    def request_class(self) -> str:
        """The class of its requests."""

    @property
    def role(self) -> Role | None:
        """The role that each of its requests claims."""

    @property
    def replica_id(self) -> ReplicaId | None:
        """The reader of a frame's replica id, which claims a broker's role."""

    @property
    def quota_exceeded_since(self) -> int:
        """The first version with THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """A received request: header fields, the frame, its connection.

    ``task`` is its job and its stamps, for planes and observers; ``task.subject`` is
    this request until its response. ``frame`` is the request without its size prefix,
    until it is released; the body starts at ``body_offset``. ``is_denied``: its
    connection may not claim its role, and the request is rejected without decoding.
    ``error_code`` is the first error in the response, for the recording.
    """

    task: Task
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    frame: bytes
    body_offset: int
    peer: Peer
    is_denied: bool = False
    error_code: int = 0
    # Ends the wait of a parked handler when the connection ends.
    end_wait: Callable[[], None] | None = None
    # CPU that was counted for its client's request quota (`broker.quotas`).
    counted_ns: int = 0
    # True if the connection has ended.
    is_orphaned: bool = False

    def abandon(self) -> None:
        """Record that the connection has ended, and resume a parked handler."""
        self.is_orphaned = True
        if self.end_wait is not None:
            self.end_wait()

    def let_frame_go(self) -> None:
        """Release the frame's memory once it is no longer read."""
        self.peer.release(len(self.frame))
        self.frame = b""

    def __repr__(self) -> str:
        return (
            f"<request #{self.task.number} api={self.api_key}v{self.api_version} "
            f"{self.task.request_class} from {self.client_id!r}>"
        )
