"""The server's side of SCRAM: the vector of RFC 7677, tampered and mutated messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.authentication.sasl_server import SaslRefused
from broker.authentication.scram_server import ScramServer
from broker.protocol.sasl.scram import (
    SCRAM_MECHANISMS,
    ScramCredential,
    read_credential,
    write_credential,
)

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
DECOY_KEY = b"decoys"
# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(password: str, mechanism=SHA_256, iterations=4096) -> ScramCredential:
    salted = mechanism.salted_password(password, SALT, iterations)
    return mechanism.credential(salted, SALT, iterations)


PENCIL = credential("pencil")


def server(nonce: str = SERVER_NONCE, users=None, mechanism=SHA_256) -> ScramServer:
    users = {"user": PENCIL} if users is None else users
    return ScramServer(mechanism, users.get, nonce=nonce, decoy_key=DECOY_KEY)


def client_final(
    password: str, first: bytes, answer: bytes, hash_name="sha256", binding=b"biws"
) -> bytes:
    """Return a client's final message, computed without the broker's code."""
    fields = dict(part.split(b"=", 1) for part in answer.split(b","))
    salt, iterations = base64.b64decode(fields[b"s"]), int(fields[b"i"])
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    bare = b"c=" + binding + b",r=" + fields[b"r"]
    signed = hmac.digest(stored_key, b",".join((first[3:], answer, bare)), hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signed, strict=True))
    return bare + b",p=" + base64.b64encode(proof)


def test_the_exchange_of_rfc_7677() -> None:
    exchange = server()
    assert exchange.respond(CLIENT_FIRST) == SERVER_FIRST
    assert not exchange.is_complete
    assert exchange.respond(CLIENT_FINAL) == SERVER_FINAL
    assert exchange.is_complete
    assert exchange.name == "user"


@pytest.mark.parametrize(
    ("user", "written"),
    [("a=b", b"a=3Db"), ("a,b", b"a=2Cb"), ("=2C", b"=3D2C"), ("=3D", b"=3D3D")],
)
def test_names_with_commas_and_equals_signs(user: str, written: bytes) -> None:
    mechanism = SCRAM_MECHANISMS["SCRAM-SHA-512"]
    users = {user: credential("x", mechanism)}
    exchange = server("s", users, mechanism)
    first = b"n,,n=" + written + b",r=c"
    answer = exchange.respond(first)
    exchange.respond(client_final("x", first, answer, "sha512"))
    assert exchange.name == user


@pytest.mark.parametrize(
    "tampered",
    [
        CLIENT_FINAL.replace(b"k0,p=", b"k1,p="),
        CLIENT_FINAL.replace(b"r=rOpr", b"r=sOpr"),
        CLIENT_FINAL.replace(b",p=d", b",p=e"),
        # The header `y,,`: a downgrade of a client that supports channel binding.
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),
        CLIENT_FINAL.replace(b"dVQ=", b"dVQ"),
        CLIENT_FINAL[:-8],
        CLIENT_FIRST,
        SERVER_FINAL,
        b"",
    ],
)
def test_a_tampered_last_message_is_refused(tampered: bytes) -> None:
    exchange = server()
    exchange.respond(CLIENT_FIRST)
    with pytest.raises(SaslRefused) as caught:
        exchange.respond(tampered)
    assert caught.value.shown is None
    assert not exchange.is_complete


def test_a_recorded_exchange_is_worth_nothing_later() -> None:
    exchange = server("another-nonce")
    exchange.respond(CLIENT_FIRST)
    with pytest.raises(SaslRefused, match="nonce"):
        exchange.respond(CLIENT_FINAL)


def test_a_proof_with_another_binding_is_refused_though_it_is_right() -> None:
    exchange = server()
    answer = exchange.respond(CLIENT_FIRST)
    with pytest.raises(SaslRefused, match="binding"):
        exchange.respond(client_final("pencil", CLIENT_FIRST, answer, binding=b"eSws"))


@pytest.mark.parametrize(
    "first",
    [
        b"y,,n=user,r=c",
        b"p=tls-unique,,n=user,r=c",
        b"n,,n=,r=c",
        b"n,,n=us=er,r=c",
        b"n,,n=us\xc3\xa9r,r=c",
        b"n,,n=user,r=",
        b"n,,r=c,n=user",
        CLIENT_FINAL,
    ],
)
def test_a_first_message_of_another_form_is_refused(first: bytes) -> None:
    with pytest.raises(SaslRefused):
        server().respond(first)


def test_no_user_acts_for_another() -> None:
    with pytest.raises(SaslRefused) as caught:
        server().respond(b"n,a=admin,n=user,r=c")
    assert "different from username" in str(caught.value.shown)
    assert server().respond(b"n,a=user,n=user,r=c")


def test_an_unknown_user_looks_like_a_known_one_until_the_proof() -> None:
    """The answer has the usual form, and the same salt each time."""
    answers = [server().respond(b"n,,n=nobody,r=c") for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(answers[0].split(b",")) == len(SERVER_FIRST.split(b","))
    assert server().respond(b"n,,n=other,r=c") != answers[0]
    exchange = server()
    answer = exchange.respond(b"n,,n=nobody,r=c")
    with pytest.raises(SaslRefused) as caught:
        exchange.respond(client_final("pencil", b"n,,n=nobody,r=c", answer))
    assert caught.value.shown is None


def test_a_credential_of_few_iterations_is_none() -> None:
    exchange = server(users={"user": credential("pencil", iterations=1000)})
    answer = exchange.respond(CLIENT_FIRST)
    assert answer.endswith(b"i=4096")
    with pytest.raises(SaslRefused):
        exchange.respond(client_final("pencil", CLIENT_FIRST, answer))


@given(st.data())
def test_no_mutation_of_the_exchange_authenticates(data: st.DataObject) -> None:
    """One byte of either message is replaced by up to two bytes."""
    messages = [CLIENT_FIRST, CLIENT_FINAL]
    which = data.draw(st.sampled_from([0, 1]))
    message = messages[which]
    at = data.draw(st.integers(0, len(message) - 1))
    new = data.draw(st.binary(max_size=2))
    messages[which] = message[:at] + new + message[at + 1 :]
    exchange = server()
    try:
        for each in messages:
            exchange.respond(each)
    except SaslRefused:
        assert not exchange.is_complete
    else:
        assert messages == [CLIENT_FIRST, CLIENT_FINAL]


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_bytes_of_any_kind_are_refused_and_nothing_else(
    first: bytes, second: bytes
) -> None:
    exchange = server()
    with suppress(SaslRefused):
        exchange.respond(b"n,,n=user,r=" + first)
        exchange.respond(b"c=biws,r=" + second)
    assert not exchange.is_complete


def test_credentials_are_written_as_kafka_writes_them() -> None:
    written = write_credential(PENCIL)
    assert written.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert written.endswith(",iterations=4096")
    assert read_credential(written) == PENCIL
    assert "W22Z" not in repr(PENCIL)


@pytest.mark.parametrize(
    "written", ["", "salt=", "salt=eA==,stored_key=eA==,server_key=eA==", "x" * 9]
)
def test_a_damaged_credential_is_not_quoted(written: str) -> None:
    with pytest.raises(ValueError, match="lacks a field") as caught:
        read_credential(written)
    assert written == "" or written not in str(caught.value)
