"""Key stores and trust stores: all formats open; errors name the config key."""

from __future__ import annotations

import ssl
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from trustme import KeyType

from broker.protocol.errors import ConfigError
from broker.tls.contexts import TlsSettings, client_context, server_context
from broker.tls.stores import Store
from tests.certificates import (
    chain_pem,
    encrypted_key_pem,
    key_pem,
    leaf,
    pem,
    pkcs12_key,
    pkcs12_trust,
    trusted_pem,
)

SECRET = "open sesame"
PREFIX = "listener.name.x."


def settings(key: Store, trust: Store | None = None) -> TlsSettings:
    return TlsSettings(
        prefix=PREFIX,
        keystore=key,
        truststore=trust or trust_store(inline=trusted_pem()),
        protocols=("TLSv1.2", "TLSv1.3"),
        suites=(),
        checks_host=True,
    )


def key_store(**fields: str) -> Store:
    return Store(kind="keystore", prefix=PREFIX, **{"type": "PEM", **fields})


def trust_store(**fields: str) -> Store:
    return Store(kind="truststore", prefix=PREFIX, **{"type": "PEM", **fields})


def one_line(text: str) -> str:
    """Return PEM in the form of a properties file, with its lines joined."""
    return text.replace("\n", " ")


def write(directory: Path, content: str | bytes) -> str:
    path = directory / "store"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Make an in-memory handshake; return the client's common name."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for _ in range(3):
        for side in (theirs, ours):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    found = ours.getpeercert()
    if not found:
        return None
    return dict(pair for (pair,) in found["subject"])["commonName"]


@pytest.mark.parametrize("key", [KeyType.ECDSA, KeyType.RSA])
@pytest.mark.parametrize("form", ["file", "inline", "one line", "encrypted", "PKCS12"])
def test_a_key_store_opens(form: str, key: KeyType, tmp_path: Path) -> None:
    broker = leaf(key=key)
    chain = chain_pem(broker)
    stores = {
        "file": lambda: key_store(location=write(tmp_path, pem(broker))),
        "inline": lambda: key_store(key=key_pem(broker), inline=chain),
        "one line": lambda: key_store(
            key=one_line(key_pem(broker)), inline=one_line(chain)
        ),
        "encrypted": lambda: key_store(
            key=encrypted_key_pem(broker, SECRET), inline=chain, key_password=SECRET
        ),
        "PKCS12": lambda: key_store(
            type="PKCS12",
            location=write(tmp_path, pkcs12_key(broker, SECRET)),
            password=SECRET,
        ),
    }
    server = server_context(settings(stores[form]()), "none")
    client = client_context(settings(key_store()))
    assert handshake(server, client) is None


@pytest.mark.parametrize("form", ["file", "inline", "PKCS12"])
def test_a_trust_store_opens(form: str, tmp_path: Path) -> None:
    stores = {
        "file": lambda: trust_store(location=write(tmp_path, trusted_pem())),
        "inline": lambda: trust_store(inline=one_line(trusted_pem())),
        "PKCS12": lambda: trust_store(
            type="PKCS12",
            location=write(tmp_path, pkcs12_trust(SECRET)),
            password=SECRET,
        ),
    }
    broker, alice = leaf(), leaf("a@b", common_name="Alice")
    server = server_context(
        settings(
            key_store(key=key_pem(broker), inline=chain_pem(broker)), stores[form]()
        ),
        "required",
    )
    client = client_context(
        settings(key_store(key=key_pem(alice), inline=chain_pem(alice)))
    )
    assert handshake(server, client) == "Alice"


FAULTS = {
    "ssl.keystore.type: found 'JKS', expected PEM or PKCS12": {"type": "JKS"},
    "ssl.keystore.location: found '/no/such', expected a file that can be read": {
        "location": "/no/such"
    },
    "ssl.keystore.location: found '{file}', expected a private key": {
        "location": "{file}"
    },
    "ssl.keystore.location: found '{file}', expected a PKCS12 file, and its password "
    "in listener.name.x.ssl.keystore.password": {
        "location": "{file}",
        "type": "PKCS12",
        "password": SECRET,
    },
    "ssl.keystore.password: found '[hidden]', expected none": {
        "location": "{file}",
        "password": SECRET,
    },
    "ssl.keystore.key: found '[hidden]', expected a private key": {
        "key": "{encrypted}",
        "inline": "{chain}",
        "key_password": SECRET + "!",
    },
    "ssl.keystore.key: found None, expected the key of": {"inline": "{chain}"},
    "ssl.keystore.certificate.chain: found None": {"key": "{encrypted}"},
    "ssl.keystore.type: found 'PKCS12', expected PEM": {
        "type": "PKCS12",
        "key": "{encrypted}",
        "inline": "{chain}",
    },
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_fault_names_its_key_and_no_secret(message: str, tmp_path: Path) -> None:
    broker = leaf()
    places = {
        "{file}": write(tmp_path, "nothing that was expected"),
        "{encrypted}": encrypted_key_pem(broker, SECRET),
        "{chain}": chain_pem(broker),
    }
    fields = {name: places.get(it, it) for name, it in FAULTS[message].items()}
    if len(fields) == 1 and "type" in fields:
        fields["location"] = places["{file}"]
    store = key_store(**fields)
    with pytest.raises(ConfigError) as caught:
        server_context(settings(store), "none")
    expected = PREFIX + message.replace("{file}", places["{file}"])
    assert str(caught.value).startswith(expected)
    for text in (str(caught.value), repr(store)):
        assert SECRET not in text
        assert "PRIVATE KEY" not in text


def test_a_key_that_is_of_another_certificate_is_refused() -> None:
    store = key_store(key=key_pem(leaf()), inline=chain_pem(leaf(common_name="other")))
    with pytest.raises(ConfigError, match="KEY_VALUES_MISMATCH"):
        server_context(settings(store), "none")


def test_without_its_extra_pkcs12_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(
        sys.modules, "cryptography.hazmat.primitives.serialization", None
    )
    store = key_store(type="PKCS12", location=write(tmp_path, b""))
    with pytest.raises(ConfigError, match=r"pip install 'doorkeeper\[tls\]'") as caught:
        server_context(settings(store), "none")
    assert caught.value.key == PREFIX + "ssl.keystore.type"


@pytest.mark.parametrize(
    ("suites", "versions"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", (2, 2)),
        (
            "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256",
            (3, 3),
        ),
        (
            "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,"
            "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_256_CBC_SHA256,"
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA",
            (2, 3),
        ),
    ],
)
def test_suites_choose_the_versions(suites: str, versions: tuple[int, int]) -> None:
    context = client_context(with_suites(suites))
    named = {2: ssl.TLSVersion.TLSv1_2, 3: ssl.TLSVersion.TLSv1_3}
    low, high = versions
    assert (context.minimum_version, context.maximum_version) == (
        named[low],
        named[high],
    )
    # OpenSSL always lists the suites of TLSv1.3, under other names.
    older = [it for it in context.get_ciphers() if it["protocol"] != "TLSv1.3"]
    if low == 2:
        assert len(older) == len([it for it in suites.split(",") if "WITH" in it])


@pytest.mark.parametrize(
    ("suites", "expected"),
    [
        ("TLS_AES_128_GCM_SHA256", "all suites of TLSv1.3 or none"),
        ("TLS_NO_SUCH_WITH_ANYTHING", "suites that OpenSSL has"),
    ],
)
def test_suites_that_cannot_be_chosen_are_refused(suites: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        client_context(with_suites(suites))


def with_suites(suites: str) -> TlsSettings:
    return TlsSettings(
        prefix="",
        keystore=key_store(),
        truststore=trust_store(inline=trusted_pem()),
        protocols=("TLSv1.2", "TLSv1.3"),
        suites=tuple(suites.split(",")),
        checks_host=True,
    )
