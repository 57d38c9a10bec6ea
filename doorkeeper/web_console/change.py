"""The form of a change: its fields, their values, and the change that they make.

Every change has three steps. The user fills in a form. Its values make a `Change`,
which shows Kafka's commands and is confirmed. Then its calls are made.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.cluster_view import ClusterView

_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
# Rows of an outcome that are shown and logged.
_FAILURES_SHOWN: Final = 20


class Refused(Exception):
    """Values that make no change; the message is one sentence."""


class Field(NamedTuple):
    """A field of a form. A hidden one is computed, and returned on confirmation."""

    name: str
    label: str
    choices: tuple[str, ...] = ()
    is_long: bool = False
    is_hidden: bool = False


class Form:
    """Values of fields, as text; each method raises `Refused`."""

    def __init__(self, fields: Sequence[Field], given: Mapping[str, str]) -> None:
        self.values = {
            it.name: given.get(it.name, "").replace("\r\n", "\n") for it in fields
        }
        for it in fields:
            chosen = self.values[it.name]
            if it.choices and chosen not in it.choices:
                if chosen:
                    raise Refused(f"{it.label}: not one of {', '.join(it.choices)}")
                self.values[it.name] = it.choices[0]
        self._labels = {it.name: it.label for it in fields}

    def text(self, name: str) -> str:
        """Return a value that is not empty."""
        found = self.values[name]
        if not found:
            raise self.refused(name, "is empty")
        return found

    def optional(self, name: str) -> str | None:
        """Return a value, None if it is empty."""
        return self.values[name] or None

    def number(self, name: str) -> int:
        """Return a whole number."""
        found = self.values[name].strip()
        if not _NUMBER.fullmatch(found):
            raise self.refused(name, "is not a number")
        return int(found)

    def count(self, name: str) -> int | None:
        """Return a number above zero, None if it is empty."""
        if not self.values[name].strip():
            return None
        found = self.number(name)
        if found < 1:
            raise self.refused(name, "is not above zero")
        return found

    def lines(self, name: str) -> list[str]:
        """Return the lines of a value, each once."""
        return list(
            dict.fromkeys(
                it.strip() for it in self.values[name].split("\n") if it.strip()
            )
        )

    def pairs(self, name: str) -> dict[str, str]:
        """Return lines of ``key=value``."""
        found = {}
        for line in self.lines(name):
            key, equals, value = line.partition("=")
            if not (equals and key.strip()):
                raise self.refused(name, "has a line that is not key=value")
            found[key.strip()] = value.strip()
        return found

    def refused(self, name: str, why: str) -> Refused:
        """Return an error about a field."""
        return Refused(f"{self._labels[name]} {why}")


class Outcome(NamedTuple):
    """Results of a change, one line each."""

    done: Sequence[str]
    failed: Sequence[str] = ()


class Change(NamedTuple):
    """A change that has been described but not made.

    ``commands`` are equivalent shell commands, with the contents of ``files``.
    ``table`` is a head and its rows; ``computed`` are values of hidden fields.
    """

    commands: Sequence[str]
    carry_out: Callable[[], Awaitable[Outcome]]
    warning: str = ""
    files: Mapping[str, str] = MappingProxyType({})
    table: Sequence[Sequence[str]] = ()
    computed: Mapping[str, str] = MappingProxyType({})


class Action(NamedTuple):
    """A kind of change, offered on a page; ``given`` maps fields to its query."""

    title: str
    page: str
    fields: Sequence[Field]
    prepare: Callable[[ClusterView, Form], Awaitable[Change]]
    given: Mapping[str, str] = MappingProxyType({})


def command(view: ClusterView, program: str, *arguments: str) -> str:
    """Return a command of Kafka's tools for a POSIX shell."""
    return shlex.join([f"{program}.sh", "--bootstrap-server", view.name, *arguments])


def outcome_of(
    rows: Mapping[TopicPartition, tuple[ErrorCode, str | None]],
    *harmless: ErrorCode,
) -> Outcome:
    """Return the outcome of a call that has an error per partition."""
    failed = [
        f"{it.topic}-{it.partition}: {message or code.name}"
        for it, (code, message) in sorted(rows.items())
        if code not in (ErrorCode.none, *harmless)
    ]
    done = [f"{len(rows) - len(failed)} partitions"]
    if len(failed) > _FAILURES_SHOWN:
        failed[_FAILURES_SHOWN:] = [f"{len(failed) - _FAILURES_SHOWN} more"]
    return Outcome(done, failed)
