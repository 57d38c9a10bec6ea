"""A connection of a processor: reading, muting, writing (Kafka: ``KafkaChannel``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.authentication.authenticator import SaslAuthenticator
from broker.network.memory_pool import MemoryPool
from broker.network.mute import TRANSITIONS, MuteEvent, MuteState
from broker.network.receive import Receive
from broker.network.send import Send
from broker.network.transport import Connection, Selector
from broker.protocol.buffer import Piece
from broker.protocol.principal import ANONYMOUS, KafkaPrincipal
from broker.requests.entitlement import CLIENT, Entitlement
from broker.requests.request import Request

_NOT_MUTED: Final = MuteState.NOT_MUTED
_MUTED: Final = MuteState.MUTED
_PENDING: Final = MuteState.MUTED_AND_RESPONSE_PENDING


class KafkaChannel:
    """A connection with its mute state; ``Request.peer`` for handlers.

    ``request`` is the request in the broker, if any; ``send`` the rest of its response;
    ``active_ns`` the time of the last transferred bytes. ``reading_ns`` is the CPU used
    so far for the request that is being read. ``principal`` is the peer's, once it is
    authenticated; without an ``authenticator`` no authentication is needed.
    """

    __slots__ = (
        "_frame_bytes_max",
        "_pool",
        "active_ns",
        "authenticator",
        "closes_after_send",
        "connection",
        "connection_id",
        "entitlement",
        "host",
        "listener",
        "mute_state",
        "opened_ns",
        "principal",
        "reading_ns",
        "receive",
        "request",
        "send",
    )

    def __init__(
        self,
        connection: Connection,
        *,
        connection_id: int,
        host: str,
        listener: str,
        entitlement: Entitlement = CLIENT,
        frame_bytes_max: int,
        pool: MemoryPool | None,
        now_ns: int,
        authenticator: SaslAuthenticator | None = None,
    ) -> None:
        self.connection = connection
        self.connection_id = connection_id
        self.host = host
        self.listener = listener
        self.entitlement = entitlement
        self.principal: KafkaPrincipal = ANONYMOUS
        self.mute_state = MuteState.NOT_MUTED
        self._pool = pool
        self._frame_bytes_max = frame_bytes_max
        self.authenticator = authenticator
        if authenticator is not None:
            frame_bytes_max = authenticator.settings.frame_bytes_max
        self.receive = Receive(connection, frame_bytes_max=frame_bytes_max, pool=pool)
        self.request: Request | None = None
        self.send: Send | None = None
        self.closes_after_send = False
        self.opened_ns = self.active_ns = now_ns
        self.reading_ns = 0

    def __repr__(self) -> str:
        state = self.mute_state.name
        return f"<channel {self.connection_id} {self.listener} {self.host} {state}>"

    @property
    def has_hung_up(self) -> bool:
        """True if the peer has finished sending."""
        return self.receive.peer_finished

    def authenticated(self, principal: KafkaPrincipal) -> None:
        """Set the peer's principal, and lift the frame bound of authentication."""
        self.principal = principal
        self.receive.frame_bytes_max = self._frame_bytes_max

    def release(self, count: int) -> None:
        """Release memory of a request that was read."""
        if self._pool is not None:
            self._pool.release(count)

    def mute(self) -> None:
        """Stop reading, because a request was received."""
        assert self.mute_state is _NOT_MUTED, self
        # MUTED and the event REQUEST_RECEIVED in one step.
        self.mute_state = _PENDING

    def handle(self, event: MuteEvent) -> None:
        """Change the mute state by an event."""
        state = TRANSITIONS.get((self.mute_state, event))
        assert state is not None, f"{event.name} while {self.mute_state.name}"
        self.mute_state = state

    def response_sent(self) -> bool:
        """Record that a response has been written; return whether to read on."""
        if self.mute_state is _PENDING:
            # The usual case, both transitions in one step.
            self.mute_state = _NOT_MUTED
            return True
        self.handle(MuteEvent.RESPONSE_SENT)
        return self.maybe_unmute()

    def maybe_unmute(self) -> bool:
        """Unmute, unless a response or a throttle is pending.

        Return whether unmuted.
        """
        if self.mute_state is not _MUTED:
            return False
        self.mute_state = _NOT_MUTED
        return True

    def start_send(
        self, selector: Selector, pieces: Sequence[Piece], sent_bytes: int
    ) -> None:
        """Keep a response for writing; the socket has taken ``sent_bytes`` already."""
        assert self.send is None, self
        self.send = Send(self.connection, selector, pieces)
        self.send.skip(sent_bytes)
