"""A configuration key: its Kafka name, type, default, range and meaning.

A key is a typed value (`Key[int]`), so that ``config[NUM_IO_THREADS]`` is an ``int``
for the type checker. The constructors below correspond to Kafka's ``ConfigDef.Type``.
Values are parsed as by ``ConfigDef.parseType`` (trimmed; booleans ``true``/``false`` in
any case; lists split at commas); errors name the key.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.protocol.errors import ConfigError

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
# NUL ends names in the operating system. Surrogates represent bytes of a command line
# that are not UTF-8.
_UNUSABLE = re.compile(r"[\0\ud800-\udfff]")
# Leading zeros are allowed, as in Kafka. Python's int() accepts at most 4,300 digits.
_INTEGER = re.compile("[-+]?[0-9]{1,4300}")
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


class ConfigType(enum.IntEnum):
    """Kafka's types, numbered as DescribeConfigs v3 reports them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Key(Generic[T]):
    """A key of the configuration; compared by identity, looked up by name.

    ``parse`` raises `ValueError` with the expectation. The value of an ``inert`` key is
    checked, but has no effect in this broker. An ``internal`` key is described only if
    it is set (Kafka: ``ConfigKey.internalConfig``).
    """

    name: str
    type: ConfigType
    default: T
    parse: Callable[[str], T]
    doc: str
    inert: bool = False
    internal: bool = False

    def __repr__(self) -> str:
        return f"<key {self.name}>"

    def read(self, written: str) -> T:
        """Return the parsed value of ``written``; raise `ConfigError`."""
        try:
            return self.parse(_usable(written.strip()))
        except ValueError as error:
            secret = self.type is ConfigType.PASSWORD
            found = "[hidden]" if secret else written
            raise ConfigError(self.name, found, str(error)) from None


def integer(
    name: str,
    default: int,
    doc: str,
    *,
    low: int = -(2**31),
    high: int = INT_MAX,
    without: tuple[int, ...] = (),
    type: ConfigType = ConfigType.INT,
    inert: bool = False,
) -> Key[int]:
    """Return a key whose value is a whole number in ``low``..``high``.

    ``without`` are excluded numbers of this range.
    """

    def parse(written: str) -> int:
        value = _whole_number(written, low, high)
        if value in without:
            raise ValueError(f"a whole number from {low} to {high}, and not {value}")
        return value

    return Key(name=name, type=type, default=default, parse=parse, doc=doc, inert=inert)


def long(
    name: str,
    default: int,
    doc: str,
    *,
    low: int = -(2**63),
    high: int = LONG_MAX,
    inert: bool = False,
) -> Key[int]:
    """Return a key whose value is a 64-bit whole number in ``low``..``high``."""
    return integer(
        name, default, doc, low=low, high=high, type=ConfigType.LONG, inert=inert
    )


def optional_integer(
    name: str,
    doc: str,
    *,
    low: int = -(2**63),
    high: int = LONG_MAX,
    type: ConfigType = ConfigType.LONG,
) -> Key[int | None]:
    """Return a key that is a whole number when set, and ``None`` otherwise."""

    def parse(written: str) -> int | None:
        return _whole_number(written, low, high)

    return Key(name=name, type=type, default=None, parse=parse, doc=doc)


def floating(
    name: str,
    default: float,
    doc: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> Key[float]:
    """Return a key whose value is a number in ``low``..``high``."""

    def parse(written: str) -> float:
        expected = f"a number from {low} to {high}"
        try:
            # float() alone would also accept "1_000".
            value = math.nan if "_" in written else float(written)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= value <= high:
            raise ValueError(expected)
        return value

    return Key(name=name, type=ConfigType.DOUBLE, default=default, parse=parse, doc=doc)


def boolean(name: str, default: bool, doc: str, *, inert: bool = False) -> Key[bool]:
    """Return a key whose value is ``true`` or ``false``, in any case."""

    def parse(written: str) -> bool:
        match written.lower():
            case "true":
                return True
            case "false":
                return False
        raise ValueError("true or false")

    return Key(
        name=name,
        type=ConfigType.BOOLEAN,
        default=default,
        parse=parse,
        doc=doc,
        inert=inert,
    )


def text(
    name: str,
    default: str,
    doc: str,
    *,
    choices: tuple[str, ...] | None = None,
    check: Callable[[str], str] | None = None,
    inert: bool = False,
) -> Key[str]:
    """Return a key whose value is a string, optionally one of ``choices``."""

    def parse(written: str) -> str:
        if choices is not None and written not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return written if check is None else check(written)

    return Key(
        name=name,
        type=ConfigType.STRING,
        default=default,
        parse=parse,
        doc=doc,
        inert=inert,
    )


def optional_text(
    name: str,
    doc: str,
    *,
    type: ConfigType = ConfigType.STRING,
    inert: bool = False,
) -> Key[str | None]:
    """Return a key that is a string when set and not empty, and ``None`` otherwise."""

    def parse(written: str) -> str | None:
        return written or None

    return Key(name=name, type=type, default=None, parse=parse, doc=doc, inert=inert)


def words(
    name: str,
    default: tuple[str, ...],
    doc: str,
    *,
    choices: tuple[str, ...] | None = None,
    inert: bool = False,
) -> Key[tuple[str, ...]]:
    """Return a key whose value is a list separated by commas."""

    def parse(written: str) -> tuple[str, ...]:
        found = split(written)
        if choices is not None and not set(found) <= set(choices):
            raise ValueError(f"a list of {', '.join(choices)}")
        return found

    return Key(
        name=name,
        type=ConfigType.LIST,
        default=default,
        parse=parse,
        doc=doc,
        inert=inert,
    )


def pairs(
    name: str, default: dict[str, int], doc: str, *, low: int = 0
) -> Key[dict[str, int]]:
    """Return a key whose value is a list of ``word:number`` with distinct words.

    The word may contain colons (an IPv6 address); the last colon is the separator.
    """

    def parse(written: str) -> dict[str, int]:
        values: dict[str, int] = {}
        for item in split(written):
            word, colon, number = item.rpartition(":")
            if not colon or not word:
                raise ValueError(f"a list of word:number, not {item!r}")
            if word in values:
                raise ValueError(f"each word once, not {word!r} twice")
            values[word] = _whole_number(number, low, INT_MAX)
        return values

    return Key(name=name, type=ConfigType.LIST, default=default, parse=parse, doc=doc)


def measures(name: str, doc: str) -> Key[Mapping[str, float]]:
    """Return a key whose value is a list of ``word:number``, by default an empty one.

    Numbers may be decimal; words are distinct and may contain dots, but no colons.
    """

    def parse(written: str) -> Mapping[str, float]:
        values: dict[str, float] = {}
        for item in split(written):
            word, colon, number = item.partition(":")
            if not colon or not word or not _NUMBER.fullmatch(number):
                raise ValueError(f"a list of word:number, not {item!r}")
            if word in values:
                raise ValueError(f"each word once, not {word!r} twice")
            values[word] = float(number)
        return values

    return Key(name=name, type=ConfigType.LIST, default={}, parse=parse, doc=doc)


def split(written: str) -> tuple[str, ...]:
    """Return the trimmed items of a comma-separated list; none for an empty text."""
    if not written.strip():
        return ()
    return tuple(item.strip() for item in written.split(","))


def _usable(text: str) -> str:
    """Return ``text``; reject characters invalid in file names, hosts and responses."""
    if _UNUSABLE.search(text):
        raise ValueError("text in UTF-8 without NUL")
    return text


def _whole_number(written: str, low: int, high: int) -> int:
    expected = f"a whole number from {low} to {high}"
    # int() alone would also accept "1_000" and digits of other scripts.
    if not _INTEGER.fullmatch(written):
        raise ValueError(expected)
    value = int(written)
    if not low <= value <= high:
        raise ValueError(expected)
    return value
