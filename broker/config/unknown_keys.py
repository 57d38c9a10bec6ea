"""Unknown configuration keys: all in one message, each with the nearest known key."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Final

from broker.protocol.errors import ConfigError

# A key with one or two wrong letters is above this ratio; another vendor's key with a
# similar end is below.
_SIMILARITY: Final = 0.85
# The search for similar names takes about 2 ms per key.
_PROPOSALS_MAX: Final = 100


class UnknownKeys(ConfigError):
    """Keys that neither Kafka nor Doorkeeper has; values are not shown."""

    def __init__(self, names: Sequence[str], known: Collection[str]) -> None:
        self.names = tuple(names)
        super().__init__(", ".join(names), len(names), "keys of Kafka or Doorkeeper")
        self._described = described(names, known)

    def __str__(self) -> str:
        key = "key" if len(self.names) == 1 else "keys"
        return (
            f"unknown {key}: {self._described}. Correct or remove them, or set "
            "doorkeeper.unknown.configs=warn to ignore them"
        )


def described(names: Sequence[str], known: Collection[str]) -> str:
    """Return the names in one line, each with the nearest known one where close."""
    return ", ".join(
        _described(name, known if number < _PROPOSALS_MAX else ())
        for number, name in enumerate(names)
    )


def _described(name: str, known: Collection[str]) -> str:
    shown = name if name and name.isprintable() else repr(name)
    # listener.name.NAME.KEY: the last part is misspelt.
    start = ""
    if name.startswith("listener.name."):
        start = ".".join(name.split(".", 3)[:3]) + "."
    wanted = name.removeprefix(start)
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=_SIMILARITY)
    return f"{shown} (the nearest is {start}{near[0]})" if near else shown
