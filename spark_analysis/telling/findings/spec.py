"""What a page of findings is made of: a TOML file of sections, read strictly.

The file holds the prose, which has no figures, and says which figures stand where. A
section is about one experiment: a run directory with its report, or a directory of
worlds.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

Made = TypeVar("Made")


class SpecError(Exception):
    """The file is not as expected; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table of findings: its heading, and which rows stand in it."""

    heading: str
    where: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """A table of values or ratios from the ``rows`` of a report's results.

    ``rows`` is what differs from line to line (``arm`` or ``point``), ``where`` what is
    the same in the whole table: keys of a row, or factors of its point. ``cell`` is
    what is shown, ``ratio`` or ``value``, with its interval.
    """

    heading: str
    rows: str
    cell: str
    where: Mapping[str, str]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A table of who is ahead: of two arms, at how many points of each level."""

    factor: str
    pair: tuple[str, str]
    where: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure of the report, the place that it is copied to, and its words."""

    name: str
    to: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One experiment: what is asked, and what of its report is shown.

    ``runs`` is its directory below that of all runs. ``say`` are names of sentences in
    ``words.json``, ``files`` are tables of the report that are shown whole; with
    ``theory`` what ``doorkeeper theory`` says of all its predictions is shown, too. An
    ``optional`` one is left out where its experiment has not been run.
    """

    title: str
    config: str
    runs: str
    before: str
    after: str = ""
    ratios: tuple[Ratios, ...] = ()
    ahead: tuple[Ahead, ...] = ()
    say: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    theory: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The whole page."""

    title: str
    before: str
    sections: tuple[Section, ...]
    after: str = ""

    def with_optional(self, configs: Collection[str]) -> Spec:
        """Return the page with no other optional sections than those of ``configs``."""
        kept = (it for it in self.sections if not it.optional or it.config in configs)
        return replace(self, sections=tuple(kept))


def load(path: Path) -> Spec:
    """Read the file.

    :raises SpecError: at the first key that is unknown or missing.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: no TOML: {error}") from error
    sections = tuple(_section(each) for each in raw.pop("sections", []))
    return _made(Spec, {**raw, "sections": sections}, str(path))


def _section(raw: dict[str, Any]) -> Section:
    where = f"section {raw.get('title', '?')!r}"
    parts: dict[str, Any] = {
        "ratios": tuple(_ratios(each, where) for each in raw.pop("ratios", [])),
        "ahead": tuple(_ahead(each, where) for each in raw.pop("ahead", [])),
        "pictures": tuple(
            _made(Picture, each, where) for each in raw.pop("pictures", [])
        ),
        "say": tuple(raw.pop("say", ())),
        "files": tuple(raw.pop("files", ())),
    }
    return _made(Section, {**raw, **parts}, where)


def _ratios(raw: dict[str, Any], where: str) -> Ratios:
    columns = tuple(_made(Column, each, where) for each in raw.pop("columns", []))
    found = _made(Ratios, {**raw, "columns": columns}, where)
    if found.cell not in ("ratio", "value"):
        raise SpecError(f"{where}: cell {found.cell!r}, expected 'ratio' or 'value'")
    return found


def _ahead(raw: dict[str, Any], where: str) -> Ahead:
    first, second = raw.pop("pair")
    return _made(Ahead, {**raw, "pair": (first, second)}, where)


def _made(kind: type[Made], raw: Mapping[str, Any], where: str) -> Made:
    """Make a record of a table.

    :raises SpecError: if a key is unknown or missing.
    """
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if strangers := sorted(set(raw) - known):
        raise SpecError(f"{where}: unknown key {strangers[0]!r}")
    try:
        return kind(**raw)
    except TypeError as error:
        raise SpecError(f"{where}: {error}") from error
