"""Sources of random choices: a seed, or the bytes that a fuzzer mutates.

All modules of this folder draw from a ``random.Random``. `Drawn` reads its numbers from
given bytes, then returns zeros, so a coverage-guided fuzzer mutates the structure of a
case. The simplest alternative always comes first: zeros give the simplest case.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Drawn(random.Random):
    """A generator that reads its numbers from ``data``, and zeros after its end."""

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
    """Return True with probability 1 / ``n``, and never if all numbers are zero."""
    return rng.randrange(n) == n - 1


def either(rng: random.Random, n: int, usual: Sequence[T], rare: Sequence[T]) -> T:
    """Return one of ``rare`` once in ``n`` times, else one of ``usual``."""
    return rng.choice(rare if one_in(rng, n) else usual)
