"""SCRAM on the server's side (RFC 5802): a challenge, and a proof of the password.

Follows Kafka's ``ScramSaslServer``, with two checks that some or all of its releases
lack. The nonce of the last message equals that of the first (CVE-2024-56128), and the
channel binding repeats the header of the first message, as RFC 5802 requires.

An unknown user receives a constant salt, derived from the name. The proof then fails at
the same cost as for a wrong password of a known user (RFC 5802, section 9). Kafka
rejects an unknown user at the first message.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, TypeAlias

from broker.authentication.sasl_server import SaslRefused
from broker.protocol.sasl import scram
from broker.protocol.sasl.scram import ScramCredential, ScramMechanism

FindCredential: TypeAlias = Callable[[str], ScramCredential | None]

_SALT_BYTES: Final = 20
_OTHER_NAME: Final = (
    "Authentication failed: Client requested an authorization id that is different "
    "from username"
)


class ScramServer:
    """One exchange; ``nonce`` is fresh, ``decoy_key`` the broker's own secret."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: FindCredential,
        *,
        nonce: str,
        decoy_key: bytes,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._decoy_key = decoy_key
        self._first: scram.ClientFirst | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._is_known = False
        self.name = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """Process the first or the last message of the client."""
        try:
            if self._first is None:
                return self._begin(scram.read_client_first(message))
            return self._end(self._first, scram.read_client_final(message))
        except ValueError as error:
            raise SaslRefused(str(error)) from None

    def _begin(self, first: scram.ClientFirst) -> bytes:
        if first.authorization_id not in ("", first.user):
            raise SaslRefused(_OTHER_NAME, _OTHER_NAME)
        found = self._find(first.user)
        decoy = self._decoy(first.user)
        self._is_known = found is not None and found.iterations >= scram.ITERATIONS_MIN
        credential = found if found is not None and self._is_known else decoy
        salt = scram.encode(credential.salt)
        nonce = first.nonce + self._nonce
        self._first, self._credential = first, credential
        self._server_first = f"r={nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _end(self, first: scram.ClientFirst, final: scram.ClientFinal) -> bytes:
        mechanism, credential = self._mechanism, self._credential
        assert credential is not None
        if final.nonce != first.nonce + self._nonce:
            raise SaslRefused("the nonce is not the one of this exchange")
        if final.binding != first.gs2.encode():
            raise SaslRefused("the channel binding is not the one of the first message")
        about = scram.auth_message(first.bare, self._server_first, final.bare)
        signature = mechanism.hmac(credential.stored_key, about)
        if len(final.proof) != len(signature):
            raise SaslRefused("the proof has another length")
        stored_key = mechanism.digest(scram.xor(final.proof, signature))
        is_proved = hmac.compare_digest(stored_key, credential.stored_key)
        if not is_proved or not self._is_known:
            raise SaslRefused("the proof is wrong, or the user is unknown")
        self.name, self.is_complete = first.user, True
        self._credential = None
        return (
            f"v={scram.encode(mechanism.hmac(credential.server_key, about))}".encode()
        )

    def _decoy(self, user: str) -> ScramCredential:
        """Return a credential without a password, always the same for one name."""
        mechanism = self._mechanism

        def drawn(purpose: str) -> bytes:
            return mechanism.hmac(self._decoy_key, f"{purpose} {user}".encode())

        return ScramCredential(
            salt=drawn("salt")[:_SALT_BYTES],
            stored_key=drawn("stored key"),
            server_key=drawn("server key"),
            iterations=scram.ITERATIONS_MIN,
        )
