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

# Returns the replica id that stands in the frame of a request; below 0, a consumer's.
ReplicaId: TypeAlias = Callable[[RequestHeader, bytes], int]
# A whole frame, size prefix included, in pieces; empty: acks=0, nothing is sent.
Response: TypeAlias = "Sequence[Piece] | Throttled | CloseConnection | FinalResponse"


class CloseConnection:
    """The answer that closes the connection instead (``CloseConnectionResponse``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """A response that is sent at once, to a client that is then not read for a time.

    The response's ``throttle_time_ms`` has the time (KIP-219).
    """

    pieces: Sequence[Piece]
    throttle_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalResponse:
    """A response that is sent after a delay, and then the connection is closed.

    Kafka's answer to failed authentication. Without pieces nothing is sent.
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
        """Whether the peer has finished sending."""

    def authenticated(self, principal: KafkaPrincipal) -> None:
        """Take the peer for ``principal`` from now on."""

    def release(self, count: int) -> None:
        """Give back memory that a request was read into."""


class DeclaredApi(Protocol):
    """The declaration of an API (`broker.apis`), as used before its handler."""

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last version that is served."""

    @property
    def request_class(self) -> str:
        """The class of its requests."""

    @property
    def role(self) -> Role | None:
        """The role that each of its requests claims."""

    @property
    def replica_id(self) -> ReplicaId | None:
        """The reader of a frame's replica id, by which it claims a broker's role."""

    @property
    def quota_exceeded_since(self) -> int:
        """The first version that knows THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """A request as it came over the wire: header fields, the frame, its connection.

    ``task`` is its job and its stamps, for planes and observers; ``task.subject`` is
    this request until it has been answered. ``frame`` is the request without its size
    prefix, until it is released; the body starts at ``body_offset``. ``is_denied`` says
    that its connection may not claim its role: it is answered undecoded.
    ``error_code`` is the first error that the response carries, for the record.
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
    # Ends the wait of a handler that waits no longer than there is a connection.
    end_wait: Callable[[], None] | None = None
    # CPU that its client's request quota has counted (`broker.quotas`).
    counted_ns: int = 0
    # Whether the connection has ended.
    is_orphaned: bool = False

    def abandon(self) -> None:
        """Note that the connection has ended, and end the wait for its sake."""
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
