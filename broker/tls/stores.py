"""Key stores and trust stores, read into a context of OpenSSL.

Formats are PEM, in a file or in the configuration, and PKCS12, which the library
``cryptography`` reads (extra ``tls``). OpenSSL reads a private key only from a file.
Therefore keys are written to an anonymous file in memory.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from broker.protocol.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        PKCS12KeyAndCertificates,
    )
    from cryptography.x509 import Certificate

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[^-]*)-----END (?P=label)-----"
)
_LINE: Final = 64
_LARGEST: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A store as configured; ``prefix`` precedes its keys.

    ``kind`` is ``keystore`` or ``truststore``; ``inline`` is PEM text.
    """

    kind: str
    prefix: str = ""
    type: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    inline: str | None = field(default=None, repr=False)
    # Key stores only: the private key in PEM, and the password of a key in PEM.
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    def name(self, end: str) -> str:
        """Return the name of one of the store's configuration keys."""
        return f"{self.prefix}ssl.{self.kind}.{end}"

    @property
    def is_set(self) -> bool:
        """Return whether a store is configured."""
        return any(it is not None for it in (self.location, self.inline, self.key))

    @property
    def stamp(self) -> tuple[int, int] | None:
        """Return a value that changes when the file is rewritten."""
        if self.location is None:
            return None
        try:
            found = os.stat(self.location)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def content(self) -> bytes:
        """Return the bytes of the file; raise `ConfigError`."""
        assert self.location is not None
        try:
            with open(self.location, "rb") as file:
                return file.read(_LARGEST)
        except OSError as fault:
            expected = f"a file that can be read ({fault.strerror})"
            raise ConfigError(self.name("location"), self.location, expected) from None

    def check(self) -> None:
        """Reject combinations that Kafka rejects, and unsupported formats."""
        if self.type.upper() not in (PEM, PKCS12):
            raise ConfigError(
                self.name("type"), self.type, f"{PEM} or {PKCS12}: no other is read"
            )
        if self.inline is None and self.key is None:
            if self.is_pem and self.password is not None:
                self._refuse("password", "[hidden]", "none: PEM has no store password")
            return
        if not self.is_pem:
            self._refuse("type", self.type, f"{PEM}, as the store is in the config")
        if self.location is not None:
            self._refuse(
                "location", self.location, "none, as the store is in the config"
            )
        if self.password is not None:
            self._refuse("password", "[hidden]", "none: PEM has no store password")
        if self.kind == "keystore" and self.inline is None:
            self._refuse("certificate.chain", None, "the certificates of the key")
        if self.kind == "keystore" and self.key is None:
            self._refuse("key", None, "the key of the certificates")

    @property
    def is_pem(self) -> bool:
        """Return whether the format is PEM."""
        return self.type.upper() == PEM

    def _refuse(self, end: str, found: object, expected: str) -> None:
        raise ConfigError(self.name(end), found, expected)


def load_key(context: ssl.SSLContext, store: Store) -> None:
    """Load a certificate and private key into a context; raise `ConfigError`."""
    store.check()
    password = store.key_password
    if not store.is_pem:
        key, chain = _key_of_pkcs12(store)
        password = None
    elif store.location is not None:
        key = chain = _lines(store.content().decode("latin-1"))
    else:
        key, chain = _lines(store.key or ""), _lines(store.inline or "")
    # Without a password OpenSSL would prompt for one at the terminal.
    secret = (password or "").encode()
    where = "location" if store.location is not None else "key"
    found = store.location if store.location is not None else "[hidden]"
    with _in_memory(chain) as chain_path, _in_memory(key) as key_path:
        try:
            context.load_cert_chain(chain_path, key_path, lambda: secret)
        except (OSError, ValueError) as fault:
            expected = (
                "a private key with its certificates, and the password of the key in "
                f"{store.prefix}ssl.key.password if it is encrypted ({_reason(fault)})"
            )
            raise ConfigError(store.name(where), found, expected) from None


def load_trust(context: ssl.SSLContext, store: Store) -> None:
    """Load trusted certificates into a context; raise `ConfigError`."""
    store.check()
    if not store.is_pem:
        trusted = "".join(_certificates_of_pkcs12(store))
    elif store.location is not None:
        trusted = _lines(store.content().decode("latin-1"))
    else:
        trusted = _lines(store.inline or "")
    where = "location" if store.location is not None else "certificates"
    found = store.location if store.location is not None else "[hidden]"
    try:
        context.load_verify_locations(cadata=trusted)
    except (OSError, ValueError) as fault:
        expected = f"certificates ({_reason(fault)})"
        raise ConfigError(store.name(where), found, expected) from None


def _lines(written: str) -> str:
    """Return the blocks of PEM text with line breaks, which config values may lack."""
    return "".join(
        f"-----BEGIN {it['label']}-----\n{_body(it['body'])}"
        f"-----END {it['label']}-----\n"
        for it in _BLOCK.finditer(written)
    )


def _body(body: str) -> str:
    if ":" in body:
        # A header: the key is in OpenSSL's older format.
        return body.lstrip("\n")
    letters = "".join(body.split())
    rows = range(0, len(letters), _LINE)
    return "".join(letters[at : at + _LINE] + "\n" for at in rows)


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Yield the path of an anonymous file in memory, private to this process."""
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _key_of_pkcs12(store: Store) -> tuple[str, str]:
    opened = _opened_pkcs12(store)
    from cryptography.hazmat.primitives import serialization

    if opened.key is None or opened.cert is None:
        expected = "a private key with its certificates"
        raise ConfigError(store.name("location"), store.location, expected)
    key = opened.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = (opened.cert, *opened.additional_certs)
    return key.decode(), "".join(_pem(it.certificate) for it in chain)


def _certificates_of_pkcs12(store: Store) -> Sequence[str]:
    opened = _opened_pkcs12(store)
    return [_pem(it.certificate) for it in opened.additional_certs]


def _opened_pkcs12(store: Store) -> PKCS12KeyAndCertificates:
    """Return the content of a file; raise `ConfigError`, also without the library."""
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        expected = f"{PEM}, as {PKCS12} needs the extra: pip install 'doorkeeper[tls]'"
        raise ConfigError(store.name("type"), store.type, expected) from None
    password = None if store.password is None else store.password.encode()
    content = store.content()
    try:
        return pkcs12.load_pkcs12(content, password)
    except ValueError:
        expected = f"a {PKCS12} file, and its password in {store.name('password')}"
        raise ConfigError(store.name("location"), store.location, expected) from None


def _pem(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _reason(fault: OSError | ValueError) -> str:
    """Return OpenSSL's reason for a fault, without a path."""
    if isinstance(fault, ssl.SSLError):
        return fault.reason or "not readable"
    return "not readable"
