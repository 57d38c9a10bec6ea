"""PLAIN, OAUTHBEARER and JAAS lines: Kafka's messages, and invalid tokens."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from broker.authentication.bearer_server import BearerServer
from broker.authentication.plain_server import PlainServer
from broker.authentication.sasl_server import SaslRefused
from broker.authentication.tokens import Claims, signed, unsecured
from broker.protocol.sasl.bearer import unsecured_token, write_initial_response
from broker.protocol.sasl.jaas import parse_jaas

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
GOOD = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600}
SHARED = b"secret " * 8
SHARED_KEY = base64.urlsafe_b64encode(SHARED).decode()
INVALID = '{"status":"invalid_token"}'


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (b"\0alice\0secret", None),
        (b"alice\0alice\0secret", None),
        ("\0bär\0pässwort".encode(), None),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0nobody\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is "
            "different from username",
        ),
        (b"alice secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
    ],
)
def test_plain_answers_in_kafkas_words(message: bytes, sentence: str | None) -> None:
    server = PlainServer({"alice": "secret", "bär": "pässwort"})
    if sentence is None:
        assert server.respond(message) == b""
        assert server.is_complete
        assert server.name in ("alice", "bär")
        return
    with pytest.raises(SaslRefused) as caught:
        server.respond(message)
    assert caught.value.shown == sentence
    assert not server.is_complete


# ---- tokens -------------------------------------------------------------------------


def outcome(token: str, validate: Any) -> str:
    """Return the name of a valid token, or the reason in the log."""
    server = BearerServer(validate, lambda: NOW_MS)
    answer = server.respond(write_initial_response(token))
    if server.is_complete:
        assert server.expires_ms == (NOW_S + 600) * 1000
        return server.name
    assert answer == INVALID.encode()
    with pytest.raises(SaslRefused) as caught:
        server.respond(b"\x01")
    assert caught.value.shown == INVALID
    return str(caught.value)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (GOOD, "alice"),
        (GOOD | {"scope": ["read", "write"]}, "alice"),
        (GOOD | {"exp": NOW_S}, "expired"),
        (GOOD | {"exp": "soon"}, "exp is no number"),
        (GOOD | {"exp": True}, "exp is no number"),
        (GOOD | {"exp": 1e400}, "exp is no time"),
        ({"sub": "alice"}, "no exp"),
        (GOOD | {"iat": NOW_S + 1}, "issued in the future"),
        (GOOD | {"iat": NOW_S - 1, "exp": NOW_S - 2}, "expired"),
        (GOOD | {"nbf": NOW_S + 1}, "not valid yet"),
        (GOOD | {"sub": " "}, "no sub"),
        (GOOD | {"sub": 7}, "no sub"),
    ],
)
def test_unsecured_tokens(claims: dict[str, Any], expected: str) -> None:
    assert expected in outcome(unsecured_token(claims), unsecured(Claims()))


@pytest.mark.parametrize(
    "token", ["a", "a.b", "a.b.c", "a.b.", "e30.e30.", "bnVsbA.e30.", "." * 9]
)
def test_malformed_unsecured_tokens(token: str) -> None:
    assert outcome(token, unsecured(Claims()))


def test_a_scope_may_be_required() -> None:
    validate = unsecured(Claims(required_scope=frozenset({"read"})))
    assert outcome(unsecured_token(GOOD | {"scope": "read write"}), validate) == "alice"
    assert "scope" in outcome(unsecured_token(GOOD | {"scope": "write"}), validate)


class Issuer:
    """An issuer of signed tokens, and the key set that it publishes."""

    def __init__(self) -> None:
        self.jwt = pytest.importorskip("jwt")
        from cryptography.hazmat.primitives.asymmetric import ec, rsa

        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        keys = [
            self._public("RSAAlgorithm", self.rsa.public_key())
            | {"kid": "one", "alg": "RS256"},
            self._public("ECAlgorithm", self.ec.public_key()) | {"kid": "two"},
            # A broker must not trust a shared secret in a key set.
            {"kty": "oct", "k": SHARED_KEY, "kid": "oct", "alg": "HS256"},
        ]
        self.key_set = json.dumps({"keys": keys}).encode()
        self.validate = signed(
            self.key_set,
            Claims(audiences=frozenset({"kafka"}), issuer="me", needs_issue_time=True),
        )

    def _public(self, algorithm: str, key: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            getattr(self.jwt.algorithms, algorithm).to_jwk(key)
        )
        return found

    def token(self, key: Any, algorithm: str, kid: str | None, **claims: Any) -> str:
        headers = {} if kid is None else {"kid": kid}
        body = GOOD | {"aud": "kafka", "iss": "me"} | claims
        written: str = self.jwt.encode(body, key, algorithm, headers=headers)
        return written


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def test_signed_tokens(issuer: Issuer) -> None:
    validate = issuer.validate
    by_rsa = issuer.token(issuer.rsa, "RS256", "one")
    head, body, signature = by_rsa.split(".")
    _, other_body, _ = issuer.token(issuer.rsa, "RS256", "one", sub="root").split(".")
    table = {
        by_rsa: "alice",
        issuer.token(issuer.rsa, "RS256", None): "alice",
        issuer.token(issuer.ec, "ES256", "two"): "alice",
        issuer.token(issuer.ec, "ES256", "two", aud=["x", "kafka"]): "alice",
        issuer.token(issuer.rsa, "RS256", "two"): "known key",
        issuer.token(issuer.rsa, "RS256", "three"): "known key",
        # A key verifies its own algorithm only, not the algorithm that the token names.
        issuer.token(issuer.rsa, "RS512", "one"): "known key",
        issuer.token(SHARED, "HS256", "oct"): "known key",
        issuer.token(None, "none", None): "known key",
        unsecured_token(GOOD | {"aud": "kafka", "iss": "me"}): "known key",
        f"{head}.{other_body}.{signature}": "known key",
        f"{head}.{body}.": "known key",
        issuer.token(issuer.rsa, "RS256", "one", aud="zookeeper"): "another audience",
        issuer.token(issuer.rsa, "RS256", "one", aud=None): "another audience",
        issuer.token(issuer.rsa, "RS256", "one", iss="you"): "another issuer",
        issuer.token(issuer.rsa, "RS256", "one", exp=NOW_S - 1): "expired",
        issuer.token(issuer.rsa, "RS256", "one", iat=None): "no iat",
        issuer.token(issuer.rsa, "RS256", "one", sub=""): "no sub",
    }
    for token, expected in table.items():
        assert expected in outcome(token, validate), (token, expected)


def test_a_key_set_without_keys_is_refused() -> None:
    pytest.importorskip("jwt")
    for written in (b"", b"{}", b'{"keys": []}', b"[1]", b'{"keys": [{"kty": "x"}]}'):
        with pytest.raises(ValueError, match="JSON Web Key Set"):
            signed(written, Claims())


# ---- JAAS ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "name", "options"),
    [
        ("a.B required;", "B", {}),
        ("B REQUIRED x=y ;", "B", {"x": "y"}),
        (
            'a.b.C sufficient user_a="p q" user_b=\'"\';',
            "C",
            {"user_a": "p q", "user_b": '"'},
        ),
        (r'C optional p="a\"b\\c\n";', "C", {"p": 'a"b\\c\n'}),
        ('C requisite\n  p="a;b=c"\n;', "C", {"p": "a;b=c"}),
        ('C required p="";', "C", {"p": ""}),
    ],
)
def test_jaas_lines(written: str, name: str, options: dict[str, str]) -> None:
    module = parse_jaas(written)
    assert (module.name, module.options) == (name, options)
    assert all(value not in repr(module) for value in options.values() if value)


@pytest.mark.parametrize(
    "written",
    [
        "",
        ";",
        "B",
        "B required",
        "B needed;",
        'B required p="topsecret',
        "B required p;",
        "B required topsecret=;",
        "B required =topsecret;",
        'B required p="topsecret"; C required;',
    ],
)
def test_a_bad_jaas_line_is_refused_unquoted(written: str) -> None:
    with pytest.raises(ValueError, match="required") as caught:
        parse_jaas(written)
    assert "topsecret" not in str(caught.value)
