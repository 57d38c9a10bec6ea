"""Refused connection attempts: Apache Kafka and Doorkeeper refuse the same ones.

The listener is SASL_SSL and requires a certificate. Each attempt uses its own
connection; the test compares how far it gets.
"""

from __future__ import annotations

import ssl
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.authentication.test_scram_server import client_final
from tests.certificates import client_context, leaf, server_keys
from tests.kafka.conftest import SETTINGS, Both, beside_kafka
from tests.kafka.guarded import SASL, UserPeer, password
from tests.kafka.java_tools import NEWEST, VERSIONS, KafkaPrograms
from tests.kafka.peer import CLOSED, Peer
from tests.kafka.requests import settle
from tests.virtual.test_sasl import HANDSHAKE, TOKEN, scram_credential

pytestmark = pytest.mark.kafka

SHA_256: Final = 1
SOFTWARE: Final = {"client_software_name": "a", "client_software_version": "1"}


def client(**fields: Any) -> ssl.SSLContext:
    return client_context(leaf("client@tests", common_name="Alice", **fields))


def of_version(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = client()
    # OpenSSL offers older versions only below its default security level.
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        # TLS 1.1 is deprecated; an attacker would choose it.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    return context


# Client context or none, expected host, and whether the broker accepts the client.
CERTIFICATES: Final[dict[str, tuple[ssl.SSLContext | None, str, bool]]] = {
    "a trusted certificate": (client(), "127.0.0.1", True),
    "TLS 1.2": (of_version(ssl.TLSVersion.TLSv1_2), "127.0.0.1", True),
    "TLS 1.1": (of_version(ssl.TLSVersion.TLSv1_1), "127.0.0.1", False),
    "no certificate": (client_context(), "127.0.0.1", False),
    "an expired certificate": (client(expired=True), "127.0.0.1", False),
    "a certificate of another CA": (client(of="unknown"), "127.0.0.1", False),
    "a broker of another host": (client(), "elsewhere.test", False),
    "a broker that is not trusted": (
        client_context(leaf("client@tests"), trusts="unknown"),
        "127.0.0.1",
        False,
    ),
    "plaintext": (None, "", False),
}


class TlsPeer(UserPeer):
    """A peer over TLS; a connection named after a user authenticates."""

    def _secured(self, stream: Any, connection: str) -> Any:
        context, host, _ = CERTIFICATES.get(
            connection, CERTIFICATES["a trusted certificate"]
        )
        if context is None:
            return stream
        return context.wrap_socket(stream, server_hostname=host)

    def _begin(self, connection: str) -> None:
        if connection == "main" or connection.startswith("alice"):
            super()._begin(connection)


@pytest.fixture(scope="module", params=[VERSIONS[0], NEWEST])
def secured(
    request: pytest.FixtureRequest,
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    """Yield a version of Kafka, and Doorkeeper, over SASL_SSL."""
    directory = tmp_path_factory.mktemp(f"secured-{request.param}")
    settings = {
        **SETTINGS,
        **SASL,
        "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL",
        **server_keys(directory),
        "listener_name_plaintext_ssl_client_auth": "required",
        "connections_max_reauth_ms": "3600000",
    }
    with beside_kafka(
        programs_of(request.param), directory, peer=TlsPeer, **settings
    ) as both:
        yield both


@pytest.mark.parametrize("attempt", CERTIFICATES)
def test_certificates(secured: Both, attempt: str) -> None:
    def talk(peer: Peer) -> None:
        gets_in = False
        try:
            peer.start(ApiKey.API_VERSIONS, 3, connection=attempt, **SOFTWARE)
            gets_in = isinstance(peer.receive(attempt), bytes)
        except OSError:
            # A TLS alert, or the end of the connection.
            pass
        assert gets_in is CERTIFICATES[attempt][2], peer.name
        peer.note(attempt, gets_in)

    secured.compare(talk)


# ---- SASL ---------------------------------------------------------------------------


def chosen(peer: Peer, connection: str, mechanism: str) -> None:
    """Send a SaslHandshake and compare the response."""
    answer = peer.ask(HANDSHAKE, 1, connection=connection, mechanism=mechanism)
    peer.note("handshake", (answer.error_code.name, sorted(answer.mechanisms)))


def token(peer: Peer, connection: str, content: bytes) -> bytes:
    """Send a token and return the broker's token; the error is compared."""
    answer = peer.ask(TOKEN, 2, connection=connection, auth_bytes=content)
    # Without an error the message is empty or null.
    peer.note("token", (answer.error_code.name, answer.error_message or None))
    found: bytes = answer.auth_bytes
    return found


def ended(peer: Peer, connection: str) -> None:
    """Check and compare that the broker closes the connection."""
    end = peer.receive(connection)
    assert end == CLOSED, (peer.name, end)
    peer.note("end", end)


def refused(peer: Peer, connection: str) -> None:
    """Compare that the connection is closed, possibly after an error response.

    Kafka answers some of these requests before it closes the connection; Doorkeeper
    decodes none of them.
    """
    end = peer.receive(connection)
    if isinstance(end, bytes):
        end = peer.receive(connection)
    assert end == CLOSED, (peer.name, end)
    peer.note("end", end)


def test_a_mechanism_that_is_not_enabled(secured: Both) -> None:
    def talk(peer: Peer) -> None:
        for number, mechanism in enumerate(("GSSAPI", "SCRAM-SHA-512", "plain", "")):
            chosen(peer, f"stranger-{number}", mechanism)
            ended(peer, f"stranger-{number}")

    secured.compare(talk)


@pytest.mark.parametrize(
    "content",
    [
        b"\0alice\0wrong",
        b"\0nobody\0nobody-secret",
        b"\0alice\0",
        b"\0\0alice-secret",
        b"eve\0alice\0alice-secret",
        b"alice",
        b"",
        b"\0alice\0alice-secret\0",
    ],
)
def test_plain_credentials(secured: Both, content: bytes) -> None:
    def talk(peer: Peer) -> None:
        chosen(peer, "stranger", "PLAIN")
        token(peer, "stranger", content)
        ended(peer, "stranger")

    secured.compare(talk)


def with_scram_user(peer: Peer) -> None:
    """Add a SCRAM credential for alice."""
    row = scram_credential("alice", SHA_256, password("alice"))
    answer = peer.ask(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=(), upsertions=[row]
    )
    assert answer.results[0].error_code is ErrorCode.none
    settle(peer)


def test_scram_credentials_and_replayed_messages(secured: Both) -> None:
    def talk(peer: Peer) -> None:
        with_scram_user(peer)
        first = b"n,,n=alice,r=nonce"
        for number, (user, secret) in enumerate(
            [("alice", "wrong"), ("nobody", "nobody-secret"), ("alice", "")]
        ):
            where = f"stranger-{number}"
            chosen(peer, where, "SCRAM-SHA-256")
            tried = f"n,,n={user},r=nonce".encode()
            answer = peer.ask(TOKEN, 2, connection=where, auth_bytes=tried)
            if answer.error_code is ErrorCode.none:
                answer = peer.ask(
                    TOKEN,
                    2,
                    connection=where,
                    auth_bytes=client_final(secret, tried, answer.auth_bytes),
                )
            # Kafka refuses an unknown user at the first message.
            peer.note("refused", answer.error_code.name)
            ended(peer, where)
        chosen(peer, "recorded", "SCRAM-SHA-256")
        last = client_final(password("alice"), first, token(peer, "recorded", first))
        assert token(peer, "recorded", last).startswith(b"v=")
        chosen(peer, "replayed", "SCRAM-SHA-256")
        token(peer, "replayed", first)
        token(peer, "replayed", last)
        ended(peer, "replayed")

    secured.compare(talk)


def test_a_downgrade_amid_an_exchange(secured: Both) -> None:
    def talk(peer: Peer) -> None:
        with_scram_user(peer)
        chosen(peer, "stranger", "SCRAM-SHA-256")
        chosen(peer, "stranger", "PLAIN")
        ended(peer, "stranger")
        chosen(peer, "amid", "SCRAM-SHA-256")
        token(peer, "amid", b"n,,n=alice,r=nonce")
        chosen(peer, "amid", "PLAIN")
        ended(peer, "amid")

    secured.compare(talk)


def test_other_requests_before_authentication(secured: Both) -> None:
    def talk(peer: Peer) -> None:
        requests: list[tuple[ApiKey, int, dict[str, Any]]] = [
            (ApiKey.METADATA, 9, {"topics": []}),
            (ApiKey.PRODUCE, 9, {}),
            (TOKEN, 2, {"auth_bytes": b"\0alice\0alice-secret"}),
        ]
        for number, (key, version, fields) in enumerate(requests):
            where = f"stranger-{number}"
            peer.start(key, version, connection=where, **fields)
            ended(peer, where)
        for key, version, fields in requests[:2]:
            where = f"stranger-{key.name}"
            chosen(peer, where, "PLAIN")
            peer.start(key, version, connection=where, **fields)
            refused(peer, where)
        peer.ask(ApiKey.API_VERSIONS, 3, connection="twice", **SOFTWARE)
        peer.start(ApiKey.API_VERSIONS, 3, connection="twice", **SOFTWARE)
        ended(peer, "twice")

    secured.compare(talk)


def test_a_large_frame_before_authentication(secured: Both) -> None:
    def talk(peer: Peer) -> None:
        peer.send_bytes(struct.pack(">i", 600 << 10), "stranger")
        ended(peer, "stranger")

    secured.compare(talk)


def test_another_user_cannot_take_a_session_over(secured: Both) -> None:
    def talk(peer: Peer) -> None:
        for number, content in enumerate((b"\0eve\0eve-secret", b"\0alice\0wrong")):
            where = f"alice-{number}"
            peer.ask(ApiKey.METADATA, 9, connection=where, topics=[])
            chosen(peer, where, "PLAIN")
            token(peer, where, content)
            ended(peer, where)

    secured.compare(talk)


def test_another_mechanism_cannot_take_a_session_over(secured: Both) -> None:
    def talk(peer: Peer) -> None:
        with_scram_user(peer)
        peer.ask(ApiKey.METADATA, 9, connection="alice", topics=[])
        # Kafka refuses the token after this handshake.
        peer.ask(HANDSHAKE, 1, connection="alice", mechanism="SCRAM-SHA-256")
        with suppress(OSError):
            first = b"n,,n=alice,r=nonce"
            peer.start(TOKEN, 2, connection="alice", auth_bytes=first)
        refused(peer, "alice")

    secured.compare(talk)
