"""Random transactions over few paths, so that operations often collide."""

from __future__ import annotations

import random

from broker.zookeeper.znodes import Check, Create, Delete, Op, SetData

_NAMES = ("a", "b", "c")
_BAD_PATHS = ("/a/", "/a//b", "//", "/a/./b", "/b/..", "/a/\x00", "/b\x7f")


def draw_ops(rng: random.Random) -> list[Op]:
    """Return the operations of one transaction, in most cases a single one."""
    count = 1 if rng.random() < 0.7 else rng.randint(2, 5)
    return [_draw_op(rng) for _ in range(count)]


def draw_path(rng: random.Random) -> str:
    """Return a path at most three levels deep; in rare cases an invalid one."""
    if rng.random() < 0.04:
        return rng.choice(_BAD_PATHS)
    return "".join(f"/{rng.choice(_NAMES)}" for _ in range(rng.randint(1, 3)))


def _draw_op(rng: random.Random) -> Op:
    path, version = draw_path(rng), rng.choice((-1, -1, -1, 0, 1, 2))
    kind = rng.random()
    if kind < 0.45:
        data = rng.randbytes(rng.randint(0, 3))
        return Create(path, data, rng.random() < 0.2, rng.random() < 0.2)
    if kind < 0.65:
        return SetData(path, rng.randbytes(rng.randint(0, 3)), version)
    if kind < 0.85:
        return Delete(path, version)
    return Check(path, version)
