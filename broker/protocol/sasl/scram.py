"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): formulas and messages.

    SaltedPassword = Hi(password, salt, iterations)            PBKDF2
    ClientKey      = HMAC(SaltedPassword, "Client Key")
    StoredKey      = H(ClientKey)
    ServerKey      = HMAC(SaltedPassword, "Server Key")
    AuthMessage    = client-first-bare "," server-first "," client-final-without-proof
    ClientProof    = ClientKey XOR HMAC(StoredKey, AuthMessage)
    ServerSignature = HMAC(ServerKey, AuthMessage)

A server stores salt, StoredKey, ServerKey and iterations. With these it can verify a
proof, but not compute one. Grammar and limits are those of Kafka's ``ScramMessages``:
no channel binding, names in ASCII, and passwords as UTF-8 without SASLprep. Only the
client computes the slow formula, Hi, during an authentication.

Cost for a server: four HMACs of short texts per authentication.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384

_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_MORE: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_MORE})"
)
_SERVER_FIRST: Final = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),"
    rf"i=(?P<iterations>[0-9]{{1,9}}){_MORE}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_MORE}),"
    rf"p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(rf"v=(?P<signature>{_BASE64}){_MORE}")
_CREDENTIAL_FIELDS: Final = {"salt", "stored_key", "server_key", "iterations"}


class ScramMechanism(enum.Enum):
    """A mechanism: its name, its number in Kafka's requests, and its hash."""

    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, sasl_name: str, number: int, hash_name: str) -> None:
        self.sasl_name = sasl_name
        self.number = number
        self.hash_name = hash_name

    def digest(self, content: bytes) -> bytes:
        """Return H(content)."""
        return hashlib.new(self.hash_name, content).digest()

    def hmac(self, key: bytes, content: bytes) -> bytes:
        """Return HMAC(key, content)."""
        return hmac.digest(key, content, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return Hi(password, salt, iterations). Cost: milliseconds of CPU."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        """Return ClientKey."""
        return self.hmac(salted_password, b"Client Key")

    def server_key(self, salted_password: bytes) -> bytes:
        """Return ServerKey."""
        return self.hmac(salted_password, b"Server Key")

    def credential(
        self, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Return the credential that a server stores."""
        return ScramCredential(
            salt=salt,
            stored_key=self.digest(self.client_key(salted_password)),
            server_key=self.server_key(salted_password),
            iterations=iterations,
        )


SCRAM_MECHANISMS: Final = {it.sasl_name: it for it in ScramMechanism}
SCRAM_BY_NUMBER: Final = {it.number: it for it in ScramMechanism}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScramCredential:
    """The server's verifier of a user's password, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"<SCRAM credential of {self.iterations} iterations>"


def write_credential(credential: ScramCredential) -> str:
    """Return a credential in the form of Kafka's znodes."""
    return (
        f"salt={encode(credential.salt)},"
        f"stored_key={encode(credential.stored_key)},"
        f"server_key={encode(credential.server_key)},"
        f"iterations={credential.iterations}"
    )


def read_credential(written: str) -> ScramCredential:
    """Return a stored credential; raise ValueError without showing its content."""
    pairs = [item.partition("=") for item in written.split(",")]
    found = {name: value for name, _, value in pairs}
    if found.keys() != _CREDENTIAL_FIELDS or len(pairs) != len(found):
        raise ValueError("a SCRAM credential lacks a field")
    return ScramCredential(
        salt=_decoded(found["salt"]),
        stored_key=_decoded(found["stored_key"]),
        server_key=_decoded(found["server_key"]),
        iterations=int(found["iterations"]),
    )


# ---- messages -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    """The client's first message: ``gs2`` header, user, nonce."""

    gs2: str
    bare: str
    authorization_id: str
    user: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFirst:
    """The server's first message: the combined nonce, salt and iterations."""

    nonce: str
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientFinal:
    """The client's last message; ``binding`` repeats its gs2 header."""

    bare: str
    binding: bytes
    nonce: str
    proof: bytes


def read_client_first(message: bytes) -> ClientFirst:
    """Parse the client's first message; raise ValueError."""
    found = _matched(_CLIENT_FIRST, message)
    return ClientFirst(
        gs2=found["gs2"],
        bare=found["bare"],
        authorization_id=found["authzid"] or "",
        user=found["name"].replace("=2C", ",").replace("=3D", "="),
        nonce=found["nonce"],
    )


def read_server_first(message: bytes) -> ServerFirst:
    """Parse the server's first message; raise ValueError."""
    found = _matched(_SERVER_FIRST, message)
    return ServerFirst(
        nonce=found["nonce"],
        salt=_decoded(found["salt"]),
        iterations=int(found["iterations"]),
    )


def read_client_final(message: bytes) -> ClientFinal:
    """Parse the client's last message; raise ValueError."""
    found = _matched(_CLIENT_FINAL, message)
    return ClientFinal(
        bare=found["bare"],
        binding=_decoded(found["binding"]),
        nonce=found["nonce"],
        proof=_decoded(found["proof"]),
    )


def read_server_final(message: bytes) -> bytes:
    """Return the server's signature of its last message; raise ValueError."""
    return _decoded(_matched(_SERVER_FINAL, message)["signature"])


def write_name(user: str) -> str:
    """Return a user name in the escaped form of messages."""
    return user.replace("=", "=3D").replace(",", "=2C")


def auth_message(client_first_bare: str, server_first: str, final_bare: str) -> bytes:
    """Return AuthMessage, the input of proof and signature."""
    return f"{client_first_bare},{server_first},{final_bare}".encode()


def xor(one: bytes, other: bytes) -> bytes:
    """Return the exclusive or of two byte strings of equal length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def encode(content: bytes) -> str:
    """Return base64."""
    return base64.b64encode(content).decode()


def _decoded(written: str) -> bytes:
    return base64.b64decode(written, validate=True)


def _matched(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    # Latin-1 maps every byte to a character; non-ASCII ones match no pattern.
    found = pattern.fullmatch(message.decode("latin-1"))
    if found is None:
        raise ValueError("no SCRAM message of this step")
    return found
