"""The login of a console: a password, kept as a hash, and a bound on attempts."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from typing import Final

import trio

LENGTH_MIN: Final = 8
# Allowed failures in a period, of one address and of all addresses.
PERIOD_S: Final = 60.0
OF_AN_ADDRESS: Final = 5
OF_ALL: Final = 50
_LENGTH_MAX: Final = 1_000
# 16 MiB and some 50 ms: RFC 7914's parameters for interactive logins.
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1


class TooManyAttempts(Exception):
    """Too many attempts have failed; the user must wait."""


class Password:
    """A password. Attempts are compared by their hash, in constant time."""

    def __init__(self, password: str) -> None:
        self._salt = secrets.token_bytes(16)
        self._hash = self._hashed(password)
        # Instants and addresses of failed attempts, oldest first.
        self._failed: deque[tuple[float, str]] = deque()

    def is_right(self, attempt: str, address: str) -> bool:
        """Return whether an attempt is the password; raises `TooManyAttempts`."""
        now_s = trio.current_time()
        while self._failed and self._failed[0][0] <= now_s - PERIOD_S:
            self._failed.popleft()
        own = sum(failed == address for _, failed in self._failed)
        if own >= OF_AN_ADDRESS or len(self._failed) >= OF_ALL:
            raise TooManyAttempts
        found = hmac.compare_digest(self._hashed(attempt[:_LENGTH_MAX]), self._hash)
        if not found:
            self._failed.append((now_s, address))
        return found

    def _hashed(self, password: str) -> bytes:
        text = password.encode(errors="surrogatepass")
        return hashlib.scrypt(text, salt=self._salt, n=_COST, r=_BLOCK, p=_PARALLEL)
