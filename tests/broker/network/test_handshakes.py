"""TLS handshakes: which clients are admitted, and limits on unauthenticated peers."""

import random
import ssl
from contextlib import suppress

import pytest
import trio
import trio.testing
from trio.testing import MockClock
from trustme import KeyType

from broker.protocol.errors import ConfigError
from broker.protocol.principal import ANONYMOUS, KafkaPrincipal
from tests.broker.network.harness import Harness, echo
from tests.broker.network.tls_wire import TlsWire, limits, tls_config
from tests.certificates import client_context, leaf, server_keys
from tests.seeds import seeds
from tests.virtual.hosting import frame

ALICE = "CN=Alice,OU=Unit,O=Tests"
REQUIRED = {"ssl_client_auth": "required"}
REQUESTED = {"ssl_client_auth": "requested"}


@pytest.fixture
def clock():
    return MockClock(autojump_threshold=0)


def alice(**fields):
    return leaf("client@tests", common_name="Alice", **fields)


def of_version(version):
    context = client_context(alice())
    context.minimum_version = context.maximum_version = version
    return context


# Client context, client authentication setting, and principal; None if refused.
ATTEMPTS = {
    "no certificate, none asked for": (client_context(), {}, "ANONYMOUS"),
    "a certificate that is not asked for": (client_context(alice()), {}, "ANONYMOUS"),
    "no certificate, though one is asked for": (
        client_context(),
        REQUESTED,
        "ANONYMOUS",
    ),
    "a certificate, asked for": (client_context(alice()), REQUESTED, ALICE),
    "no certificate, though it is required": (client_context(), REQUIRED, None),
    "a certificate, required": (client_context(alice()), REQUIRED, ALICE),
    "an RSA certificate": (client_context(alice(key=KeyType.RSA)), REQUIRED, ALICE),
    "an expired certificate": (client_context(alice(expired=True)), REQUIRED, None),
    "a certificate of another CA": (
        client_context(alice(of="unknown")),
        REQUIRED,
        None,
    ),
    "another CA's, only asked for": (
        client_context(alice(of="unknown")),
        REQUESTED,
        None,
    ),
    "a client that does not trust the broker": (
        client_context(alice(), trusts="unknown"),
        {},
        None,
    ),
    "TLS 1.2": (of_version(ssl.TLSVersion.TLSv1_2), REQUIRED, ALICE),
    "TLS 1.3": (of_version(ssl.TLSVersion.TLSv1_3), REQUIRED, ALICE),
    "TLS 1.2, which is not enabled": (
        of_version(ssl.TLSVersion.TLSv1_2),
        {"ssl_enabled_protocols": "TLSv1.3"},
        None,
    ),
    "TLS 1.3, without a common suite": (
        of_version(ssl.TLSVersion.TLSv1_3),
        {"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
        None,
    ),
    "TLS 1.2, with a common suite": (
        of_version(ssl.TLSVersion.TLSv1_2),
        {"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
        "ANONYMOUS",
    ),
    "a name that is mapped": (
        client_context(alice()),
        {**REQUIRED, "ssl_principal_mapping_rules": "RULE:^CN=(.*?),.*$/$1/L"},
        "alice",
    ),
    "a name that no rule maps": (
        client_context(alice()),
        {**REQUIRED, "ssl_principal_mapping_rules": "RULE:^CN=bob$/b/"},
        None,
    ),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_a_client_gets_in_with_what_is_demanded(attempt, clock, caplog):
    context, keys, principal = ATTEMPTS[attempt]
    wire = TlsWire(keys=keys)
    wire.context = context
    seen = []

    async def note(request):
        seen.append(request.peer.principal)
        return await echo(request)

    harness = Harness(wire.network, wire.now_ns, note)
    async with harness.running():
        client = await harness.client(wire)
        if principal is None:
            with suppress(trio.BrokenResourceError):
                await client.send(frame())
            with suppress(trio.BrokenResourceError):
                assert await client.is_closed()
            await client.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert (seen, harness.quotas.total) == ([], 0)
            (line,) = caplog.records
            assert line.getMessage().startswith("a handshake of TLS has failed")
        else:
            assert await client.ask(b"hello") == (1, b"hello")
            name = KafkaPrincipal("User", principal)
            assert seen == [ANONYMOUS if principal == "ANONYMOUS" else name]
            assert caplog.records == []


async def test_a_client_refuses_the_certificate_of_another_host(clock):
    wire = TlsWire()
    wire.network.tls = tls_config(certificate=leaf("elsewhere.test"))[1]
    async with Harness(wire.network, wire.now_ns).running() as harness:
        client = await harness.client(wire)
        with pytest.raises(trio.BrokenResourceError) as caught:
            await client.send(frame())
        assert "IP address mismatch" in str(caught.value.__cause__)


async def test_plaintext_at_a_listener_with_tls_ends_the_connection(clock, caplog):
    wire = TlsWire()
    async with Harness(wire.network, wire.now_ns).running() as harness:
        stream = wire.open(harness.port())
        await stream.send_all(frame(b"hello"))
        assert await stream.receive_some() == b""
        (line,) = caplog.records
        assert line.fields["why"] == "plaintext bytes at a listener with TLS"
        # A peer that connects and closes at once, as a port scan does, is not logged.
        await wire.open(harness.port()).aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert harness.quotas.total == 0
        assert len(caplog.records) == 1


async def test_a_peer_that_trickles_has_no_more_time(clock, caplog):
    """Single bytes that arrive in time and never complete a TLS record."""
    wire = TlsWire(handshakes=limits(timeout_s=10))
    async with Harness(wire.network, wire.now_ns).running() as harness:
        begun_s = trio.current_time()
        stream = wire.open(harness.port())
        with suppress(trio.BrokenResourceError):
            for byte in bytes([22, 3, 1, 2, 0]) + bytes(100):
                await stream.send_all(bytes([byte]))
                await trio.sleep(1)
        assert 10 <= trio.current_time() - begun_s < 12
        assert [line.fields["why"] for line in caplog.records] == [
            "not finished in time"
        ]


async def test_a_flood_of_half_open_connections_is_bounded(clock, caplog):
    """A thousand silent peers connect; a client is still admitted among them."""
    wire = TlsWire(handshakes=limits(half_open_max=20))
    harness = Harness(wire.network, wire.now_ns)
    async with harness.running():
        (acceptor,) = harness.server.acceptors
        silent = []
        for number in range(1000):
            silent.append(wire.open(harness.port()))
            if number % 100 == 50:
                await trio.testing.wait_all_tasks_blocked()
                assert len(acceptor.handshakes) == 20
                client = await harness.client(wire)
                assert await client.ask(b"in") == (1, b"in")
                assert harness.quotas.total <= 20 + len(harness.clients)
        # Failures are logged once per second, and no virtual time has passed.
        assert len(caplog.records) == 1
        await trio.sleep(11)
        assert len(acceptor.handshakes) == 0
        assert harness.quotas.total == len(harness.clients) == 10
        for stream in silent:
            await stream.aclose()


async def test_computed_steps_are_bounded_and_in_turn(clock):
    """The event loop serves requests while threads compute handshake steps."""
    inside, most = 0, 0

    async def slowly(call):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await trio.sleep(0.1)
        call()
        inside -= 1

    wire = TlsWire(handshakes=limits(threads=2, compute=slowly))
    async with Harness(wire.network, wire.now_ns).running() as harness:
        early = await harness.client(wire)
        assert await early.ask() == (1, b"")
        others = [await harness.client(wire) for _ in range(10)]
        answers = []

        async def ask(client):
            answers.append(await client.ask())

        async with trio.open_nursery() as nursery:
            for client in others:
                nursery.start_soon(ask, client)
            before_s = trio.current_time()
            for _ in range(5):
                assert await early.ask() == (1, b"")
            assert trio.current_time() - before_s < 0.05
        assert answers == [(1, b"")] * 10
        assert most == 2


@pytest.mark.parametrize("seed", seeds(10, 25))
async def test_bytes_changed_on_their_way_end_at_most_their_connection(seed, clock):
    """Change, cut or repeat some bytes of a whole handshake."""
    rng = random.Random(seed)
    wire = TlsWire(keys=REQUIRED, rng=rng)
    async with Harness(wire.network, wire.now_ns).running() as harness:
        good = await harness.client(wire)
        assert await good.ask() == (1, b"")
        stream = wire.open(harness.port())
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = wire.context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        damage_at = rng.randrange(3000)
        sent, ended = 0, False
        with trio.move_on_after(30):
            while not ended:
                try:
                    client.do_handshake()
                    client.write(frame(b"x" * 50))
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    ended = True
                data = bytearray(outgoing.read())
                if sent <= damage_at < sent + len(data):
                    _damage(data, damage_at - sent, rng)
                sent += len(data)
                try:
                    await stream.send_all(bytes(data))
                    received = await stream.receive_some()
                except trio.BrokenResourceError:
                    break
                incoming.write(received)
                ended = ended or not received
        await stream.aclose()
        assert await good.ask(b"still") == (1, b"still")
        await trio.sleep(11)
        assert harness.quotas.total == 1


def _damage(data, at, rng):
    kind = rng.randrange(4)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at : at + rng.randrange(1, 40)]
    elif kind == 2:
        data[at:at] = rng.randbytes(rng.randrange(1, 40))
    else:
        data[at:at] = data[max(at - 200, 0) : at]


@pytest.mark.parametrize("seed", range(8))
async def test_noise_ends_its_connection(seed, clock):
    """Send random records with the first bytes of a handshake."""
    rng = random.Random(seed)
    wire = TlsWire(rng=rng)
    async with Harness(wire.network, wire.now_ns).running() as harness:
        stream = wire.open(harness.port())
        with suppress(trio.BrokenResourceError):
            for _ in range(60):
                size = rng.randrange(300)
                kind = rng.choice((20, 21, 22, 22, 22, 23))
                head = bytes([kind, 3, rng.randrange(5)]) + size.to_bytes(2, "big")
                await stream.send_all(head + rng.randbytes(size))
                await trio.sleep(0.5)
        assert harness.quotas.total == 0


async def test_large_requests_pass_a_narrow_transport(clock):
    """The transport carries 100 bytes at a time, so that each write is partial."""
    wire = TlsWire(buffer_bytes=100)
    body = random.Random(1).randbytes(200_000)
    async with Harness(wire.network, wire.now_ns).running() as harness:
        client = await harness.client(wire)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, frame(body) + frame(body[:7]))
            assert await client.answer() == (1, body)
            assert await client.answer() == (1, body[:7])


async def test_the_end_of_a_connection_is_announced_by_both_sides(clock):
    """The broker sends a ``close_notify`` when it closes, and the client does too."""
    wire = TlsWire()
    async with Harness(wire.network, wire.now_ns).running() as harness:
        client = await harness.client(wire)
        assert await client.ask() == (1, b"")
        strict = trio.SSLStream(
            wire.open(harness.port()), wire.context, server_hostname="127.0.0.1"
        )
        await strict.send_all(frame(version=77))
        # Without ``close_notify`` Trio would raise an error here.
        assert await strict.receive_some() == b""
        # The client sends only the notice after a request and keeps the transport open.
        await client.send(frame(b"last"))
        with pytest.raises(ssl.SSLWantReadError):
            client.stream.tls._ssl_object.unwrap()
        await client.stream.beneath.send_all(client.stream.tls._outgoing.read())
        await trio.testing.wait_all_tasks_blocked()
        assert harness.quotas.total == 0


def test_a_listener_with_tls_needs_a_key_store():
    with pytest.raises(ConfigError) as caught:
        tls_config(ssl_keystore_location="")
    assert caught.value.key == "ssl.keystore.location"


def test_an_altered_file_is_loaded_anew(tmp_path):
    config, tls = tls_config(tmp_path)
    first = tls.begin(None)._tls.context
    tls.reconfigure(config)
    assert tls.begin(None)._tls.context is first
    server_keys(tmp_path, leaf(common_name="another broker"))
    tls.reconfigure(config)
    second = tls.begin(None)._tls.context
    assert second is not first
    # An invalid file leaves the previous one in force.
    (tmp_path / "broker.pem").write_text("nothing")
    tls.reconfigure(config)
    assert tls.begin(None)._tls.context is second
