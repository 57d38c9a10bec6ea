"""Check of host names: a resolver accepts names that IDNA can encode."""

from __future__ import annotations

import idna


def can_be_encoded(host: str) -> bool:
    """Return whether a resolver accepts ``host``.

    An empty label or one of 64 characters raises `UnicodeError` in the resolver, before
    any name server is queried. Trio encodes non-ASCII names by IDNA 2008, after Python
    has encoded them by IDNA 2003.

    >>> [can_be_encoded(host) for host in ("kafka-1.example", "::1", "a..b", "a" * 64)]
    [True, True, False, False]
    """
    try:
        host.encode("idna")
        if not host.isascii():
            idna.encode(host, uts46=True)
    except UnicodeError:
        return False
    return "\0" not in host
