"""The states of a connection that must authenticate, and authenticate again.

Kafka's ``SaslServerAuthenticator``, without I/O. Requests of an unauthenticated peer
are scheduled and billed like all others. Two callers therefore change the state: the
network, which calls `admits` for each received frame, and the handlers of SaslHandshake
and SaslAuthenticate. A connection has one request in progress, so no two steps overlap.

    BEGUN --ApiVersions--> VERSIONED --SaslHandshake--> EXCHANGE --tokens--> COMPLETE
      +-----------------SaslHandshake------------------->^                      |
                                                         +---SaslHandshake------+

A handshake of version 0 is followed by bare tokens, without headers. A session ends
after ``connections.max.reauth.ms`` or when the credential expires: the first request
after the end closes the connection (KIP-368). Until then the client may authenticate
again, with the same mechanism and name, at most once a second.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.authentication.sasl_server import SaslRefused, SaslServer
from broker.protocol.api_keys import ApiKey
from broker.protocol.principal import USER, KafkaPrincipal

MakeServer: TypeAlias = Callable[[], SaslServer]

_REAUTHENTICATION_INTERVAL_NS: Final = 1_000_000_000
# Longer than any real token; a token up to this length is parsed in one step.
_TOKEN_BYTES_MAX: Final = 65_536


class AuthState(enum.Enum):
    """The next message that the peer may send."""

    BEGUN = enum.auto()
    VERSIONED = enum.auto()
    EXCHANGE = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """Authentication on one listener.

    ``mechanisms`` make a server for each exchange, in the order in which they are
    offered. ``reauth_ms`` bounds sessions by mechanism; 0 does not.
    """

    mechanisms: Mapping[str, MakeServer]
    reauth_ms: Mapping[str, int]
    frame_bytes_max: int
    failure_delay_ns: int


class SaslAuthenticator:
    """The authentication of one connection."""

    __slots__ = (
        "_mechanism",
        "_now_ms",
        "_now_ns",
        "_reauthentication_ns",
        "_server",
        "expires_ns",
        "principal",
        "settings",
        "state",
        "takes_bare_tokens",
    )

    def __init__(
        self,
        settings: SaslSettings,
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.state = AuthState.BEGUN
        self.principal: KafkaPrincipal | None = None
        # End of the session, by ``now_ns``; None: never.
        self.expires_ns: int | None = None
        self.takes_bare_tokens = False
        self._now_ns = now_ns
        self._now_ms = now_ms
        self._server: SaslServer | None = None
        self._mechanism = ""
        self._reauthentication_ns: int | None = None

    @property
    def mechanism(self) -> str:
        """The mechanism of the last handshake; empty before the first."""
        return self._mechanism

    @property
    def has_authenticated(self) -> bool:
        """Return whether the peer has been authenticated, now or before."""
        return self.principal is not None

    @property
    def expects_bare_token(self) -> bool:
        """Return whether the next frame is a token and not a request."""
        return self.takes_bare_tokens and self.state is AuthState.EXCHANGE

    def admits(self, api_key: int, received_ns: int) -> bool:
        """Return whether a request may be served; otherwise the connection is closed.

        A handshake on an authenticated connection starts a re-authentication if the
        session has an end. Otherwise its handler refuses it.
        """
        state = self.state
        if state is AuthState.COMPLETE:
            if api_key == ApiKey.SASL_HANDSHAKE and self._may_begin_anew(received_ns):
                self._reauthentication_ns = received_ns
                self.state = AuthState.VERSIONED
                return True
            return self.expires_ns is None or received_ns <= self.expires_ns
        if state is AuthState.EXCHANGE:
            return api_key in (ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE)
        if api_key == ApiKey.API_VERSIONS:
            return state is AuthState.BEGUN
        return api_key == ApiKey.SASL_HANDSHAKE and state is not AuthState.FAILED

    def _may_begin_anew(self, received_ns: int) -> bool:
        if self.expires_ns is None:
            return False
        began_ns = self._reauthentication_ns
        return (
            began_ns is None or received_ns - began_ns >= _REAUTHENTICATION_INTERVAL_NS
        )

    def versions_answered(self) -> None:
        """Record that ApiVersions has been answered."""
        if self.state is AuthState.BEGUN:
            self.state = AuthState.VERSIONED

    @property
    def expects_handshake(self) -> bool:
        """Return whether a handshake is allowed now."""
        return self.state in (AuthState.BEGUN, AuthState.VERSIONED)

    @property
    def expects_token(self) -> bool:
        """Return whether a token is allowed now."""
        return self.state is AuthState.EXCHANGE

    def fail(self) -> None:
        """Refuse all further requests of the peer."""
        self.state, self._server = AuthState.FAILED, None

    def choose(self, mechanism: str, version: int) -> bool:
        """Begin an exchange; return whether the mechanism is enabled.

        Authenticating again with another mechanism fails, but the response has no
        error: the connection is closed at the next request, as in Kafka.
        """
        make = self.settings.mechanisms.get(mechanism)
        if make is None:
            self.fail()
            return False
        if self.has_authenticated and mechanism != self._mechanism:
            self.fail()
            return True
        self._mechanism = mechanism
        self._server = make()
        self.takes_bare_tokens = version == 0
        self.state = AuthState.EXCHANGE
        return True

    def respond(self, token: bytes) -> bytes:
        """Process a token; after a `SaslRefused`, all further requests are refused."""
        server = self._server
        assert server is not None
        try:
            if len(token) > _TOKEN_BYTES_MAX:
                raise SaslRefused("the token is too long")
            answer = server.respond(token)
            if server.is_complete:
                self._complete(KafkaPrincipal(USER, server.name), server.expires_ms)
        except SaslRefused:
            self.fail()
            raise
        return answer

    def session_lifetime_ms(self) -> int:
        """Return the remaining lifetime of the session; 0: unlimited."""
        if self.state is not AuthState.COMPLETE or self.expires_ns is None:
            return 0
        return max(0, self.expires_ns - self._now_ns()) // 1_000_000

    def failure(self) -> str:
        """Return Kafka's error message for invalid credentials."""
        step = "re-authentication" if self.has_authenticated else "authentication"
        return (
            f"Authentication failed during {step} due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )

    def _complete(self, principal: KafkaPrincipal, expires_ms: int | None) -> None:
        before = self.principal
        if before not in (None, principal):
            assert before is not None
            sentence = (
                "Cannot change principals during re-authentication from "
                f"{before.principal_type}.{before.name}: "
                f"{principal.principal_type}.{principal.name}"
            )
            raise SaslRefused("another principal", sentence)
        lifetimes = []
        if expires_ms is not None:
            lifetimes.append(max(0, expires_ms - self._now_ms()))
        reauth_ms = self.settings.reauth_ms.get(self._mechanism, 0)
        if reauth_ms > 0:
            lifetimes.append(reauth_ms)
        self.expires_ns = None
        if lifetimes:
            self.expires_ns = self._now_ns() + min(lifetimes) * 1_000_000
        self.principal, self._server = principal, None
        self.state = AuthState.COMPLETE
