"""Values at the ends of a key's range, and one beyond, from the key's own errors.

A key's error message for an invalid value names the valid range or words. These give
the extreme values. Strings that often break parsers are tried on every key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from broker.config import Key
from broker.protocol.errors import ConfigError

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
_WHOLE: Final = re.compile(r"a whole number from (-?\d+) to (-?\d+)")
_REAL: Final = re.compile(r"a number from (\S+) to (\S+)")
_WORDS: Final = re.compile(r"(?:one|a list) of ([^:]+)$")
_ODD: Final = ("", " ", ",", "a,,b", ":", "a:0", "a:1", f"a:{INT_MAX}", "x", "é", "0x1")
# Values of keys whose error message names no form.
_OWN: Final = {
    "advertised.listeners": (
        "PLAINTEXT://h:0",
        "PLAINTEXT://h:65535",
        "PLAINTEXT://h:65536",
        "PLAINTEXT://:1",
        "OTHER://h:1",
    ),
    "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT", "A:B"),
    "listeners": (
        "PLAINTEXT://:0",
        "PLAINTEXT://127.0.0.1:65535",
        "PLAINTEXT://127.0.0.1:65536",
        "PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2",
    ),
    "log.dir": ("/", "/a,/b", "/a,/a"),
    "log.dirs": ("/a,/b", "/a,/a", "/a/../a,/a"),
    "max.connections.per.ip.overrides": ("127.0.0.1:0", f"127.0.0.1:{INT_MAX}"),
    "doorkeeper.scheduler": ("priority", "nowhere:nothing", "math:pi"),
    "doorkeeper.data.scheduler": ("wfq", "nowhere:nothing"),
    "doorkeeper.class.levels": ("control:0", f"produce:{INT_MAX}", "produce:-1"),
    "doorkeeper.wfq.weights": (f"control:{INT_MAX}", "control:1", "control:0"),
    "doorkeeper.admission.rates.per.s": ("produce:1", f"produce:{INT_MAX}"),
    "doorkeeper.admission.deadline.ms": ("produce:1", f"produce:{INT_MAX}"),
}


def values_for(key: Key[Any]) -> list[str]:
    """Return the distinct values to try for a key."""
    expected = {str(fault.expected) for fault in _refusals(key)}
    # Two of the accepted odd strings represent all of them.
    taken = [value for value in _ODD if is_taken(key, value)][:2]
    refused = [value for value in _ODD if not is_taken(key, value)]
    found = [*refused, *taken, *_OWN.get(key.name, ())]
    for said in expected:
        found += _ends(said)
    return list(dict.fromkeys(found))


def is_taken(key: Key[Any], value: str) -> bool:
    """Return whether a key accepts a value, regardless of other keys."""
    try:
        key.read(value)
    except ConfigError:
        return False
    return True


def _refusals(key: Key[Any]) -> Iterator[ConfigError]:
    for value in _ODD:
        try:
            key.read(value)
        except ConfigError as fault:
            yield fault


def _ends(expected: str) -> list[str]:
    if match := _WHOLE.search(expected):
        low, high = int(match[1]), int(match[2])
        near = (low - 1, low, 1, high, high + 1)
        return [*map(str, near), f"{low}.0", f"+{high}"]
    if match := _REAL.search(expected):
        return [match[1], match[2], "5e-324", "1.7976931348623157e308", "nan", "-1e308"]
    if match := _WORDS.search(expected):
        words = match[1].split(", ")
        return [*words, ",".join(words), words[0].upper()]
    if expected == "true or false":
        return ["true", "FALSE", "1"]
    return []
