"""Attacks on a SASL listener of a whole broker, each refused as Kafka refuses it."""

from __future__ import annotations

import hashlib
import json
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.sasl.bearer import unsecured_token, write_initial_response
from broker.protocol.wire.codec import encode_request, request_type
from simulation.virtual_time.apis import START_MS, receive_frame
from tests.broker.apis.requests import entity
from tests.broker.authentication.test_scram_server import client_final
from tests.virtual.kafka import SETTINGS as KAFKA
from tests.virtual.kafka import ask, kafka
from tests.virtual.world import World, in_world

PASSWORDS = ("plain-password", "scram-password")
JAAS = "listener.name.plaintext.{}.sasl.jaas.config"
SETTINGS = {
    **KAFKA,
    "listeners": "PLAINTEXT://127.0.0.1:9092,ADMIN://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,ADMIN:PLAINTEXT",
    "inter.broker.listener.name": "ADMIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    JAAS.format("plain"): (
        f'a.PlainLoginModule required user_alice="{PASSWORDS[0]}" user_eve="e";'
    ),
    JAAS.format("scram-sha-256"): (
        f'a.ScramLoginModule required user_bob="{PASSWORDS[1]}";'
    ),
    "doorkeeper.sasl.timeout.ms": "5000",
}
REAUTH = {"connections.max.reauth.ms": "60000"}
DELAY_S = 0.1
FAILED = ErrorCode.sasl_authentication_failed
GENERAL = (
    "Authentication failed during {} due to invalid credentials with SASL mechanism {}"
)
HANDSHAKE, TOKEN, METADATA = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.METADATA,
)
Scenario = Callable[[World], Awaitable[None]]


def with_broker(scenario: Scenario, **settings: str) -> None:
    """Run a scenario with a broker that has a SASL listener."""
    names = {key.replace("_", "."): value for key, value in settings.items()}
    in_world(scenario, {**SETTINGS, **names}, application=kafka)


async def choose(stream: Any, mechanism: str, version: int = 1) -> None:
    """Choose a mechanism; check that it is accepted."""
    found = await ask(stream, HANDSHAKE, version, mechanism=mechanism)
    assert found.error_code is ErrorCode.none
    assert ",".join(found.mechanisms) == SETTINGS["sasl.enabled.mechanisms"]


async def token(stream: Any, content: bytes, version: int = 2) -> Any:
    """Send a token and return the response."""
    return await ask(stream, TOKEN, version, auth_bytes=content)


async def authenticate(stream: Any, user: str = "alice", password: str = "") -> Any:
    """Authenticate by PLAIN and return the response."""
    password = password or PASSWORDS[0]
    await choose(stream, "PLAIN")
    return await token(stream, f"\0{user}\0{password}".encode())


async def is_served(stream: Any) -> bool:
    """Return whether a request is answered, rather than the connection closed."""
    try:
        await ask(stream, METADATA, 9, topics=())
    except (EOFError, trio.BrokenResourceError):
        return False
    return True


async def is_closed(stream: Any) -> bool:
    """Return whether the broker closes the connection without a response."""
    try:
        return await stream.receive_some(1) == b""
    except trio.BrokenResourceError:
        return True


async def is_refused(world: World, stream: Any, found: Any, sentence: str) -> None:
    """Check the response to a failure, and the end of the connection."""
    assert found.error_code is FAILED
    assert found.error_message == sentence
    assert found.auth_bytes == b""
    assert await is_closed(stream)


# ---- accepted attempts --------------------------------------------------------------


def test_plain_authenticates_and_large_requests_are_read_afterwards() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await ask(stream, ApiKey.API_VERSIONS, 0)
        found = await authenticate(stream)
        assert (found.error_code, found.error_message) == (ErrorCode.none, None)
        assert found.session_lifetime.total_seconds() == 0
        assert await is_served(stream)
        (processor,) = (it for it in world.server.processors.values() if it)
        channel = next(
            channel for each in processor for channel in each._selector._by_id.values()
        )
        assert str(channel.principal) == "User:alice"
        await stream.send_all(struct.pack(">i", 600_000))
        await trio.sleep(1)
        await stream.send_all(b"x")  # the connection is still read

    with_broker(scenario)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_by_credentials_of_the_registry(mechanism: str) -> None:
    async def scenario(world: World) -> None:
        if mechanism == "SCRAM-SHA-512":
            await alter_user(world.connect("ADMIN"), "bob", 2, "scram-password")
        stream = world.connect()
        await choose(stream, mechanism)
        hash_name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        assert await scram(stream, "bob", PASSWORDS[1], hash_name) is ErrorCode.none
        assert await is_served(stream)

    with_broker(scenario)


async def scram(
    stream: Any, user: str, password: str, hash_name: str = "sha256"
) -> ErrorCode:
    """Send the two messages of SCRAM and return the error of the last response."""
    first = f"n,,n={user},r=nonce".encode()
    found = await token(stream, first)
    if found.error_code is not ErrorCode.none:
        return found.error_code
    last = client_final(password, first, found.auth_bytes, hash_name)
    found = await token(stream, last)
    return found.error_code


async def alter_user(stream: Any, user: str, mechanism: int, password: str) -> Any:
    """Set a credential as Kafka's Admin does, and return the row of the response."""
    found = await ask(
        stream,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=(),
        upsertions=[scram_credential(user, mechanism, password)],
    )
    (row,) = found.results
    return row


def scram_credential(
    user: str, mechanism: int, password: str, iterations: int = 4096
) -> dict[str, Any]:
    """Return a credential in its wire form."""
    hash_name = {1: "sha256", 2: "sha512"}.get(mechanism, "sha256")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), b"salt", iterations)
    return {
        "name": user,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": salted,
    }


def test_bare_tokens_follow_a_handshake_of_version_0() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await choose(stream, "PLAIN", version=0)
        content = f"\0alice\0{PASSWORDS[0]}".encode()
        await stream.send_all(struct.pack(">i", len(content)) + content)
        assert await receive_frame(stream) == b""
        assert await is_served(stream)

    with_broker(scenario)


# ---- refused attempts ---------------------------------------------------------------


def test_a_mechanism_that_is_not_enabled() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        began = trio.current_time()
        found = await ask(stream, HANDSHAKE, 1, mechanism="GSSAPI")
        assert found.error_code is ErrorCode.unsupported_sasl_mechanism
        assert found.mechanisms[0] == "PLAIN"
        assert trio.current_time() - began >= DELAY_S
        assert await is_closed(stream)

    with_broker(scenario)


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", PASSWORDS[0])]
)
def test_wrong_plain_credentials(user: str, password: str) -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await choose(stream, "PLAIN")
        began = trio.current_time()
        found = await token(stream, f"\0{user}\0{password}".encode())
        assert trio.current_time() - began >= DELAY_S
        sentence = "Authentication failed: Invalid username or password"
        await is_refused(world, stream, found, sentence)

    with_broker(scenario)


@pytest.mark.parametrize(
    ("user", "password"), [("bob", "wrong"), ("nobody", PASSWORDS[1])]
)
def test_wrong_scram_credentials_fail_at_the_proof(user: str, password: str) -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await choose(stream, "SCRAM-SHA-256")
        first = f"n,,n={user},r=nonce".encode()
        found = await token(stream, first)
        assert found.error_code is ErrorCode.none
        found = await token(stream, client_final(password, first, found.auth_bytes))
        sentence = GENERAL.format("authentication", "SCRAM-SHA-256")
        await is_refused(world, stream, found, sentence)

    with_broker(scenario)


def test_replayed_scram_messages() -> None:
    async def scenario(world: World) -> None:
        first = b"n,,n=bob,r=nonce"
        stream = world.connect()
        await choose(stream, "SCRAM-SHA-256")
        found = await token(stream, first)
        last = client_final(PASSWORDS[1], first, found.auth_bytes)
        assert (await token(stream, last)).error_code is ErrorCode.none
        replaying = world.connect()
        await choose(replaying, "SCRAM-SHA-256")
        await token(replaying, first)
        found = await token(replaying, last)
        sentence = GENERAL.format("authentication", "SCRAM-SHA-256")
        await is_refused(world, replaying, found, sentence)

    with_broker(scenario)


def test_a_downgrade_amid_an_exchange() -> None:
    """A second handshake cannot turn SCRAM into PLAIN."""

    async def scenario(world: World) -> None:
        stream = world.connect()
        await choose(stream, "SCRAM-SHA-256")
        found = await ask(stream, HANDSHAKE, 1, mechanism="PLAIN")
        assert found.error_code is ErrorCode.illegal_sasl_state
        assert await is_closed(stream)

    with_broker(scenario)


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("key", [METADATA, ApiKey.PRODUCE, ApiKey.FETCH, TOKEN])
def test_no_other_request_before_authentication(key: ApiKey, steps: int) -> None:
    """The connection is closed without a response, after each step of the handshake."""

    async def scenario(world: World) -> None:
        stream = world.connect()
        if steps >= 1:
            await ask(stream, ApiKey.API_VERSIONS, 3, **_SOFTWARE)
        if steps >= 2:
            await choose(stream, "SCRAM-SHA-256")
        version = 2 if key is TOKEN else 9
        content = struct.pack(">hhih", key, version, 1, -1) + b"\0"
        if key is TOKEN and steps == 2:
            found = await token(stream, b"no message of SCRAM")
            assert found.error_code is FAILED
        else:
            await stream.send_all(struct.pack(">i", len(content)) + content)
        assert await is_closed(stream)

    with_broker(scenario)


_SOFTWARE = {"client_software_name": "a", "client_software_version": "1"}


def test_versions_are_asked_for_once() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        found = await ask(stream, ApiKey.API_VERSIONS, 0)
        assert ApiKey.SASL_AUTHENTICATE in {each.api_key for each in found.api_keys}
        with pytest.raises(EOFError):
            await ask(stream, ApiKey.API_VERSIONS, 0)

    with_broker(scenario)


def test_the_intended_broker_is_checked_after_authentication() -> None:
    """As in Kafka 4.4, whose authenticator answers ApiVersions without the check."""
    meant = {**_SOFTWARE, "cluster_id": "another", "node_id": 7}

    async def scenario(world: World) -> None:
        stream = world.connect()
        found = await ask(stream, ApiKey.API_VERSIONS, 5, **meant)
        assert found.error_code is ErrorCode.none
        await authenticate(stream)
        found = await ask(stream, ApiKey.API_VERSIONS, 5, **meant)
        assert found.error_code is ErrorCode.rebootstrap_required

    with_broker(scenario)


def test_a_frame_of_600_kib_before_authentication() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await stream.send_all(struct.pack(">i", 600 << 10))
        assert await is_closed(stream)

    with_broker(scenario)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_token_of_500_kib(mechanism: str) -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await choose(stream, mechanism)
        found = await token(stream, b"n,,\x01auth=Bearer " + b"e" * (500 << 10))
        sentence = GENERAL.format("authentication", mechanism)
        await is_refused(world, stream, found, sentence)

    with_broker(scenario)


def test_a_peer_that_sends_a_byte_now_and_then() -> None:
    """Slow and silent peers are disconnected after five seconds."""

    async def scenario(world: World) -> None:
        silent, slow, served = (world.connect() for _ in range(3))
        await authenticate(served)
        began = trio.current_time()
        body = entity(request_type(HANDSHAKE, 1), {"mechanism": "PLAIN"})
        frame = encode_request(HANDSHAKE, 1, 1, "c" * 100, body)
        with pytest.raises(trio.BrokenResourceError):
            await drip(slow, frame)
        assert 5 <= trio.current_time() - began < 6
        assert await is_closed(silent)
        await trio.sleep(10)
        assert await is_served(served)

    with_broker(scenario)


async def drip(stream: Any, content: bytes) -> None:
    """Send a byte five times a second."""
    for byte in content:
        await stream.send_all(bytes([byte]))
        await trio.sleep(0.2)


# ---- re-authentication (KIP-368) ----------------------------------------------------


def test_a_session_ends_with_the_first_request_after_its_time() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        found = await authenticate(stream)
        assert found.session_lifetime.total_seconds() == 60
        await trio.sleep(59)
        assert await is_served(stream)
        await trio.sleep(2)
        assert not await is_served(stream)

    with_broker(scenario, **REAUTH)


def test_a_session_is_prolonged() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        for _ in range(3):
            assert (await authenticate(stream)).error_code is ErrorCode.none
            await trio.sleep(59)
            assert await is_served(stream)
        # Also after its expiry, if the peer has sent no other request.
        await trio.sleep(59)
        assert (await authenticate(stream)).error_code is ErrorCode.none
        assert await is_served(stream)

    with_broker(scenario, **REAUTH)


def test_another_user_cannot_take_a_session_over() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await authenticate(stream)
        await trio.sleep(2)
        found = await authenticate(stream, "eve", "e")
        sentence = (
            "Cannot change principals during re-authentication from User.alice: "
            "User.eve"
        )
        await is_refused(world, stream, found, sentence)

    with_broker(scenario, **REAUTH)


def test_another_mechanism_cannot_take_a_session_over() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await authenticate(stream)
        await trio.sleep(2)
        await choose(stream, "SCRAM-SHA-256")
        assert not await is_served(stream)

    with_broker(scenario, **REAUTH)


def test_a_wrong_password_later_ends_the_session() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await authenticate(stream)
        await trio.sleep(2)
        found = await authenticate(stream, "alice", "wrong")
        sentence = "Authentication failed: Invalid username or password"
        await is_refused(world, stream, found, sentence)

    with_broker(scenario, **REAUTH)


@pytest.mark.parametrize("reauth", [{}, REAUTH])
def test_a_handshake_without_need_is_out_of_place(reauth: dict[str, str]) -> None:
    """Sessions without expiry, and a second handshake within a second."""

    async def scenario(world: World) -> None:
        stream = world.connect()
        await authenticate(stream)
        if reauth:
            await authenticate(stream)
        found = await ask(stream, HANDSHAKE, 1, mechanism="PLAIN")
        assert found.error_code is ErrorCode.illegal_sasl_state
        found = await token(stream, b"\0alice\0x")
        assert found.error_code is ErrorCode.illegal_sasl_state
        assert await is_served(stream)

    with_broker(scenario, **reauth)


# ---- bearer tokens ------------------------------------------------------------------

NOW_S = START_MS // 1000
CLAIMS = {"sub": "carol", "iat": NOW_S - 5, "exp": NOW_S + 100}


def test_a_token_ends_the_session_with_itself() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await choose(stream, "OAUTHBEARER")
        found = await token(stream, write_initial_response(unsecured_token(CLAIMS)))
        assert 99 <= found.session_lifetime.total_seconds() <= 100
        await trio.sleep(98)
        assert await is_served(stream)
        await trio.sleep(3)
        assert not await is_served(stream)

    with_broker(scenario)


def test_an_expired_token() -> None:
    async def scenario(world: World) -> None:
        stream = world.connect()
        await choose(stream, "OAUTHBEARER")
        expired = unsecured_token({**CLAIMS, "exp": NOW_S - 1})
        found = await token(stream, write_initial_response(expired))
        assert found.error_code is ErrorCode.none
        assert json.loads(found.auth_bytes) == {"status": "invalid_token"}
        found = await token(stream, b"\x01")
        await is_refused(world, stream, found, '{"status":"invalid_token"}')

    with_broker(scenario)


# ---- secrets ------------------------------------------------------------------------


def test_no_secret_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Logs, config responses and recorded requests contain no password."""
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []

    async def scenario(world: World) -> None:
        for user, password in (("alice", ""), ("alice", "guess"), ("guess", "guess")):
            await authenticate(world.connect(), user, password)
        stream = world.connect()
        await choose(stream, "SCRAM-SHA-256")
        await scram(stream, "bob", "guess")
        admin = world.connect("ADMIN")
        names = [name for name in SETTINGS if "jaas" in name]
        described = await ask(
            admin,
            ApiKey.DESCRIBE_CONFIGS,
            4,
            resources=[
                {
                    "resource_type": 4,
                    "resource_name": "0",
                    "configuration_keys": None,
                }
            ],
            include_synonyms=True,
            include_documentation=True,
        )
        configs = {each.name: each for each in described.results[0].configs}
        for name in names:
            assert configs[name].value is None
            assert configs[name].is_sensitive
            assert all(each.value is None for each in configs[name].synonyms)
        users = await ask(admin, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        seen.extend((repr(described), repr(users)))
        seen.extend(map(repr, world.observer.requests))
        assert world.observer.requests

    with_broker(scenario)
    records = [{**vars(each)} for each in caplog.records]
    failures = [it for it in records if it["msg"] == "authentication failed"]
    assert len(failures) == 3
    seen.append(repr(records))
    for secret in (*PASSWORDS, "guess", "stored_key", "server_key"):
        assert all(secret not in text for text in seen), secret
