"""Identity of a connection's client (Kafka: ``KafkaPrincipal``).

Authentication sets the principal of a connection (``Request.peer.principal``), and each
of its requests has this principal. Without authentication it is `ANONYMOUS`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class KafkaPrincipal(NamedTuple):
    """A type and a name; written ``User:alice``."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER, "ANONYMOUS")


def parse_principal(written: str) -> KafkaPrincipal:
    """Return the principal of ``TYPE:NAME``; raise ValueError.

    The first colon is the separator, so a name may contain further colons.

    >>> parse_principal("User:CN=broker,O=example:eu").name
    'CN=broker,O=example:eu'
    """
    principal_type, colon, name = written.partition(":")
    if not colon or not principal_type:
        raise ValueError("a principal as type:name, such as User:alice")
    return KafkaPrincipal(principal_type, name)
