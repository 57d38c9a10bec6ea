"""Connections that authenticate by SASL: PLAIN, SCRAM and OAUTHBEARER.

`authenticated` wraps a function that opens a stream, with or without TLS. The stream is
returned after the broker has accepted the credentials. Kafka's
``SaslClientAuthenticator``, with SaslHandshake version 1 and SaslAuthenticate version
1, which brokers support since Kafka 2.2.

At the end of a session (KIP-368) the broker closes the connection after the next
request. The client then connects and authenticates again.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import trio

from broker.client.connection import Stream
from broker.client.network_client import Connect
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from broker.protocol.sasl import scram
from broker.protocol.sasl.bearer import ABORT, write_initial_response
from broker.protocol.sasl.scram import ScramMechanism
from broker.protocol.wire.codec import decode_response, encode_request

# Yields tokens to send; receives the broker's response to each.
Exchange: TypeAlias = AsyncGenerator[bytes, bytes]

_VERSION: Final = 1
_FRAME_MAX: Final = 1 << 20
_NONCE_BYTES: Final = 24
# A bound, since a broker could otherwise make its clients compute for hours.
_ITERATIONS_MAX: Final = 1 << 20
_FAILED: Final = ErrorCode.sasl_authentication_failed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlainLogin:
    """A name and a password, sent as plain text."""

    name: str
    password: str

    @property
    def mechanism(self) -> str:
        """The mechanism's name."""
        return "PLAIN"

    async def exchange(self) -> Exchange:
        """Send the single message."""
        yield f"\0{self.name}\0{self.password}".encode()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScramLogin:
    """A name and a password, proven without sending the password."""

    scram_mechanism: ScramMechanism
    name: str
    password: str
    # Salted passwords by salt and iterations, each computed once, in a thread.
    salted: dict[tuple[bytes, int], bytes] = field(default_factory=dict)

    @property
    def mechanism(self) -> str:
        """The mechanism's name."""
        return self.scram_mechanism.sasl_name

    async def exchange(self) -> Exchange:
        """Prove the password, and check the broker's signature."""
        mechanism = self.scram_mechanism
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        bare = f"n={scram.write_name(self.name)},r={nonce}"
        server_first = yield f"n,,{bare}".encode()
        first = scram.read_server_first(server_first)
        if not first.nonce.startswith(nonce) or first.nonce == nonce:
            raise ValueError("the broker's nonce does not extend the client's")
        if not scram.ITERATIONS_MIN <= first.iterations <= _ITERATIONS_MAX:
            raise ValueError(f"{first.iterations} iterations")
        salted = await self._salted_password(first)
        final_bare = f"c={scram.encode(b'n,,')},r={first.nonce}"
        about = scram.auth_message(bare, server_first.decode(), final_bare)
        client_key = mechanism.client_key(salted)
        signature = mechanism.hmac(mechanism.digest(client_key), about)
        proof = scram.encode(scram.xor(client_key, signature))
        server_final = yield f"{final_bare},p={proof}".encode()
        expected = mechanism.hmac(mechanism.server_key(salted), about)
        if not hmac.compare_digest(scram.read_server_final(server_final), expected):
            raise ValueError("the broker does not know the password")

    async def _salted_password(self, first: scram.ServerFirst) -> bytes:
        key = first.salt, first.iterations
        if key not in self.salted:
            compute = self.scram_mechanism.salted_password
            found = await trio.to_thread.run_sync(compute, self.password, *key)
            self.salted.clear()
            self.salted[key] = found
        return self.salted[key]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BearerLogin:
    """A token; ``token`` returns a valid one."""

    token: Callable[[], str]

    @property
    def mechanism(self) -> str:
        """The mechanism's name."""
        return "OAUTHBEARER"

    async def exchange(self) -> Exchange:
        """Send the token; a response is an error, which the client acknowledges."""
        answer = yield write_initial_response(self.token())
        if answer:
            yield ABORT


Login: TypeAlias = PlainLogin | ScramLogin | BearerLogin


def authenticated(connect: Connect, login: Login, client_id: str) -> Connect:
    """Wrap ``connect`` with authentication, which may raise `KafkaError`."""

    async def open_stream(host: str, port: int) -> Stream:
        stream = await connect(host, port)
        try:
            await _authenticate(stream, login, client_id)
        except BaseException:
            with trio.CancelScope() as at_once:
                at_once.cancel()
                await stream.aclose()
            raise
        return stream

    return open_stream


async def _authenticate(stream: Stream, login: Login, client_id: str) -> None:
    calls = _Calls(stream, client_id)
    handshake = SaslHandshakeRequest(mechanism=login.mechanism)
    found = await calls.call(ApiKey.SASL_HANDSHAKE, handshake)
    if found.error_code is not ErrorCode.none:
        enabled = ", ".join(found.mechanisms)
        sentence = f"the broker has no {login.mechanism}, but {enabled}"
        raise KafkaError(ErrorCode(found.error_code), sentence)
    exchange = login.exchange()
    try:
        token = await anext(exchange)
        while True:
            request = SaslAuthenticateRequest(auth_bytes=token)
            found = await calls.call(ApiKey.SASL_AUTHENTICATE, request)
            if found.error_code is not ErrorCode.none:
                raise KafkaError(ErrorCode(found.error_code), found.error_message)
            token = await exchange.asend(found.auth_bytes)
    except StopAsyncIteration:
        return
    except ValueError as error:
        raise KafkaError(_FAILED, f"SASL: {error}") from None
    finally:
        await exchange.aclose()


class _Calls:
    """Requests over a bare stream, one at a time."""

    def __init__(self, stream: Stream, client_id: str) -> None:
        self._stream = stream
        self._client_id = client_id
        self._number = 0

    async def call(self, key: ApiKey, request: object) -> Any:
        """Send a request and return the response; raise OSError or `KafkaError`."""
        self._number += 1
        frame = encode_request(key, _VERSION, self._number, self._client_id, request)
        try:
            await self._stream.send_all(frame)
            answer = await self._frame()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise OSError(f"SASL: the connection broke: {error}") from error
        try:
            number, found = decode_response(key, _VERSION, answer)
        except MalformedFrame as error:
            raise OSError(f"SASL: the broker answers nonsense: {error}") from error
        if number != self._number:
            raise OSError("SASL: an answer to another request")
        return found

    async def _frame(self) -> bytes:
        """Return the next frame; no bytes may follow it."""
        received, size = bytearray(), 4
        while len(received) < size:
            chunk = await self._stream.receive_some()
            if not chunk:
                raise OSError("SASL: the broker closed the connection")
            received += chunk
            if len(received) >= 4:
                size = 4 + int.from_bytes(received[:4])
            if size > _FRAME_MAX or len(received) > size:
                raise OSError("SASL: the broker sends more than an answer")
        return bytes(received[4:])
