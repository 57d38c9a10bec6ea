"""Validation of bearer tokens: unsecured tokens, and tokens signed by a key of a set.

A validator returns the name and the expiry of a valid token. Signatures are checked by
PyJWT, of the extra ``oauth``; claims are checked here, by the broker's own clock, as
Kafka's ``BrokerJwtValidator`` (signed) and ``OAuthBearerUnsecuredValidator`` do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from broker.protocol.sasl.bearer import read_unsecured_token

if TYPE_CHECKING:
    from jwt import PyJWKSet

# Excludes unsecured tokens ("none") and signatures by a shared secret.
_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)


class ValidToken(NamedTuple):
    """The name in a token, and its expiry by the wall clock."""

    name: str
    expires_ms: int


# Arguments: a token, and the wall-clock time in ms; raises ValueError.
ValidateToken: TypeAlias = Callable[[str, int], ValidToken]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims that a token must have; empty audiences and no issuer allow any."""

    subject: str = "sub"
    scope: str = "scope"
    required_scope: frozenset[str] = frozenset()
    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_ms: int = 0
    needs_issue_time: bool = False

    def check(self, found: Mapping[str, Any], now_ms: int) -> ValidToken:
        """Return the name and the expiry of a token with the claims ``found``.

        Raises ValueError. Messages name claims and show no values.
        """
        expires_ms = self._check_times(found, now_ms)
        if self.issuer is not None and found.get("iss") != self.issuer:
            raise ValueError("the token has another issuer")
        if self.audiences and not self.audiences & set(_texts(found.get("aud"))):
            raise ValueError("the token is for another audience")
        scopes = {
            word for each in _texts(found.get(self.scope)) for word in each.split()
        }
        if not self.required_scope <= scopes:
            raise ValueError("the token lacks a scope")
        name = found.get(self.subject)
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"the token has no {self.subject}")
        return ValidToken(name, expires_ms)

    def _check_times(self, found: Mapping[str, Any], now_ms: int) -> int:
        """Return the expiry of a token that is valid now."""
        expires_ms = _time_ms(found, "exp")
        if expires_ms is None:
            raise ValueError("the token has no exp")
        if now_ms - self.skew_ms >= expires_ms:
            raise ValueError("the token has expired")
        issued_ms = _time_ms(found, "iat")
        if issued_ms is None and self.needs_issue_time:
            raise ValueError("the token has no iat")
        if issued_ms is not None:
            if issued_ms > now_ms + self.skew_ms:
                raise ValueError("the token was issued in the future")
            if issued_ms >= expires_ms:
                raise ValueError("the token ends before it was issued")
        starts_ms = _time_ms(found, "nbf")
        if starts_ms is not None and starts_ms > now_ms + self.skew_ms:
            raise ValueError("the token is not valid yet")
        return expires_ms


def unsecured(claims: Claims) -> ValidateToken:
    """Return the validator of tokens without a signature, which prove nothing."""

    def validate(token: str, now_ms: int) -> ValidToken:
        return claims.check(read_unsecured_token(token), now_ms)

    return validate


def signed(key_set: bytes, claims: Claims) -> ValidateToken:
    """Return the validator of tokens signed by a key of ``key_set``, a JWKS document.

    :raises ModuleNotFoundError: without the extra ``oauth``.
    :raises ValueError: if the document holds no key.
    """
    from jwt import PyJWKSet
    from jwt.exceptions import PyJWTError

    try:
        keys = PyJWKSet.from_json(key_set.decode())
    except (PyJWTError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("a JSON Web Key Set with at least one key") from error
    return _signed_by(keys, claims)


def _signed_by(keys: PyJWKSet, claims: Claims) -> ValidateToken:
    from jwt.api_jws import PyJWS
    from jwt.exceptions import PyJWTError

    verifier = PyJWS()

    def validate(token: str, now_ms: int) -> ValidToken:
        try:
            key_id = verifier.get_unverified_header(token).get("kid")
            # The key determines the algorithm, not the token's header.
            candidates = [it for it in keys.keys if key_id in (None, it.key_id)]
            for key in candidates:
                algorithm = key.algorithm_name
                if algorithm not in _ALGORITHMS:
                    continue
                try:
                    payload = verifier.decode(token, key, algorithms=[algorithm])
                except PyJWTError:
                    continue
                found = json.loads(payload)
                if not isinstance(found, dict):
                    raise ValueError("the token holds no claims")
                return claims.check(found, now_ms)
        except PyJWTError as error:
            raise ValueError("the token is malformed") from error
        raise ValueError("the token is not signed by a known key")

    return validate


def _time_ms(found: Mapping[str, Any], claim: str) -> int | None:
    value = found.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the token's {claim} is no number")
    try:
        return round(value * 1000)
    except (OverflowError, ValueError):
        raise ValueError(f"the token's {claim} is no time") from None


def _texts(value: object) -> list[str]:
    """Return a claim that may be one text or a list of texts."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
