"""Sources of a generator's choices: a seed, or the bytes that a fuzzer mutates.

Everything in this folder draws from a ``random.Random``. `Drawn` is one whose numbers
are given bytes and then zeros, so that a coverage-guided fuzzer steers what is made by
structure. The simplest choice stands first everywhere: zeros make the plainest case.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Drawn(random.Random):
    """A generator that reads its numbers from ``data``, and zeros behind its end."""

    def __new__(cls, data: bytes) -> Drawn:
        return super().__new__(cls, 0)

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        size = -(-k // 8)
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return int.from_bytes(taken, "big") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(53) * 2.0**-53

    @property
    def spent(self) -> bool:
        """Return whether all bytes have been read."""
        return self._at >= len(self._data)


def one_in(rng: random.Random, n: int) -> bool:
    """Return True once in ``n`` times; never where numbers are zeros."""
    return rng.randrange(n) == n - 1


def either(rng: random.Random, n: int, usual: Sequence[T], rare: Sequence[T]) -> T:
    """Return one of ``rare`` once in ``n`` times, else one of ``usual``."""
    return rng.choice(rare if one_in(rng, n) else usual)
