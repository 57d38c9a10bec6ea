"""A request between the network and its handler, and the handler's response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, Protocol, TypeAlias

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


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Request(Task):
    """A task that came over the wire: header fields, the frame, and its connection.

    ``api`` is the declaration of its API. ``frame`` is the request without its size
    prefix, until it is released; the body starts at ``body_offset``. ``error_code`` is
    the first error that the response carries, for the record. ``is_denied`` says that
    its connection may not claim its role: it is answered undecoded.
    """

    api: DeclaredApi | None = None
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    frame: bytes
    body_offset: int
    peer: Peer
    error_code: int = 0
    is_denied: bool = False
    # Ends the wait of a handler that waits no longer than there is a connection.
    end_wait: Callable[[], None] | None = None
    # Whether the connection has ended.
    is_orphaned: bool = False

    def abandon(self) -> None:
        """Note that the connection has ended, and end the wait for its sake."""
        self.is_orphaned = True
        if self.end_wait is not None:
            self.end_wait()

    def may_be_refused(self) -> bool:
        """Return whether the answer can be THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
        api = self.api
        return api is not None and self.api_version >= api.quota_exceeded_since

    def let_frame_go(self) -> None:
        """Release the frame's memory once it is no longer read."""
        self.peer.release(len(self.frame))
        self.frame = b""

    def __repr__(self) -> str:
        return (
            f"<request #{self.number} api={self.api_key}v{self.api_version} "
            f"{self.request_class} from {self.client_id!r}>"
        )


def _compile_received_request() -> Callable[..., Request]:
    """Return a function that makes a `Request` from the fields known at its receipt.

    It takes the fields of ``_RECEIVED`` by position and sets all others that an
    initialiser sets to their defaults. A dataclass's own ``__init__`` would take so
    many fields by name, for every request. Source compiled once, as ``dataclasses``
    does it.
    """
    parameters = ", ".join(_RECEIVED)
    lines = [f"def received_request({parameters}):", "    made = new(Request)"]
    for field in fields(Request):
        if not field.init:
            continue
        known = field.name in _RECEIVED
        assert known or field.default is not MISSING, field.name
        value = field.name if known else repr(field.default)
        lines.append(f"    made.{field.name} = {value}")
    lines += ["    made.arrived_ns = received_ns", "    return made"]
    names: dict[str, Any] = {"Request": Request, "new": Request.__new__}
    exec(compile("\n".join(lines), "<received_request>", "exec"), names)
    compiled: Callable[..., Request] = names["received_request"]
    return compiled


_RECEIVED: Final = (
    "number",
    "request_class",
    "level",
    "flow",
    "size_bytes",
    "cost_ns",
    "received_ns",
    "done",
    "api",
    "api_key",
    "api_version",
    "correlation_id",
    "client_id",
    "frame",
    "body_offset",
    "peer",
    "is_denied",
)
received_request: Final = _compile_received_request()
