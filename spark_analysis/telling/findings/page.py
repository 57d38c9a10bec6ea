"""A page of findings: typed prose, and between two marks what recordings say.

The opening mark of a section names what it was made from: the config, by the hash of
its content; what its first trials answer, by theirs; code and commit; and the text up
to the closing mark. So a test can tell of each section that nobody typed in it, that
its config is still the same, and that the code still answers the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_analysis.telling.findings.spec import Section, Spec, SpecError
from spark_analysis.telling.findings.tables import ahead_table, ratios_table
from spark_analysis.telling.sentences.numbers import counted, listed

_HEX: Final = 12
# What the command line and the machine decide, and not the config.
_CHOSEN: Final = ("experiment", "arms", "machine", "analysis")
_WORLD: Final = {"world": ""}

Completed = Callable[[Mapping[str, Any]], Mapping[str, Any]]
END: Final = "<!-- end -->"
_MADE: Final = re.compile(
    r"<!-- made from (?P<config>\S+) (?P<content>\w+), answers (?P<answers>[\w-]+), "
    r"code (?P<code>\w+), commit (?P<commit>\w+), text (?P<text>\w+) -->\n"
    r"(?P<body>.*?)\n" + re.escape(END),
    re.DOTALL,
)


class OutOfDate(Exception):
    """A recording is not of its section's config as that is; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a section says that it was made from, and the hash of what follows.

    ``body`` is what was made, ``whole`` the same with both marks.
    """

    config: str
    content: str
    answers: str
    code: str
    commit: str
    text: str
    body: str
    whole: str

    @property
    def untouched(self) -> bool:
        """Whether the section's text is the one that was made."""
        return _short_hash(self.body) == self.text


def page(
    spec: Spec,
    runs: Path,
    root: Path,
    answers: Mapping[str, str],
    kept: Mapping[str, Mark],
) -> str:
    """Return the page; figures are copied to their places below ``root``.

    ``answers`` has, by config, the hash of what its first trials answer, ``kept`` the
    sections that stay as they were made.

    :raises SpecError: if a section names what its report does not hold.
    """
    made = [
        kept[it.config].whole
        if it.config in kept
        else _made(it, runs, root, answers[it.config])
        for it in spec.sections
    ]
    return _whole(spec, made)


def kept(spec: Spec, runs: Path, root: Path, before: str) -> dict[str, Mark]:
    """Return the sections of the page before that were not recorded here.

    By config. Those are kept in which nobody has typed and whose config says what it
    said; what the code answers to it, the caller knows.
    """
    elsewhere = {it.config for it in spec.sections if not ran(it, runs)}
    return {
        mark.config: mark
        for mark in marks(before)
        if mark.config in elsewhere
        and mark.untouched
        and mark.content == content_hash(root / mark.config)
    }


def ran(section: Section, runs: Path) -> bool:
    """Say whether a section's experiment was recorded here, and analysed."""
    at = runs / section.runs
    return (at / ("theory.json" if section.theory else "report")).exists()


def typed(spec: Spec) -> str:
    """Return the page without what is made."""
    return _whole(spec, [""] * len(spec.sections))


def with_what_ran(spec: Spec, runs: Path, before: str) -> Spec:
    """Return the page without optional sections that neither ran nor stood there."""
    stood = {mark.config for mark in marks(before)}
    return spec.with_optional(
        [it.config for it in spec.sections if ran(it, runs) or it.config in stood]
    )


def check_ran(
    section: Section, runs: Path, content: Mapping[str, Any], completed: Completed
) -> None:
    """Hold that a section's recordings are of its config, whose content is given.

    Worlds may have been chosen on the command line, and arms left out. ``completed``
    fills in the defaults of keys that a recorded config is too old to have.

    :raises OutOfDate: if they are not.
    """
    arms = {arm["name"]: arm for arm in content["arms"]}
    for manifest in _manifests(runs / section.runs):
        ran = completed(manifest["config"])
        apart = [key for key in content if key not in _CHOSEN]
        apart = [key for key in apart if ran.get(key) != content[key]]
        if any(arms.get(arm["name"]) != arm for arm in ran["arms"]):
            apart.append("arms")
        if ran["experiment"] | _WORLD != content["experiment"] | _WORLD:
            apart.append("experiment")
        if apart:
            raise OutOfDate(
                f"{section.config}: its {listed(apart)} changed since "
                f"{runs / section.runs} was recorded: run it again"
            )


def without_made(text: str) -> str:
    """Return a page without what stands between marks, as `typed` returns it."""
    return _MADE.sub("", text)


def marks(text: str) -> list[Mark]:
    """Return the marks of a page, in order."""
    return [
        Mark(**found.groupdict(), whole=found.group()) for found in _MADE.finditer(text)
    ]


def content_hash(config: Path) -> str:
    """Return the hash of what a TOML file says, comments and layout aside."""
    content = tomllib.loads(config.read_text(encoding="utf-8"))
    return _short_hash(json.dumps(content, sort_keys=True))


def _short_hash(text: str) -> str:
    """Return the first digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_HEX]


def _whole(spec: Spec, made: Sequence[str]) -> str:
    parts = [f"# {spec.title}", spec.before.strip()]
    for section, text in zip(spec.sections, made, strict=True):
        parts += _framed(section, text)
    parts += [spec.after.strip()] if spec.after else []
    return "\n\n".join(parts) + "\n"


def _framed(section: Section, made: str) -> list[str]:
    after = [section.after.strip()] if section.after else []
    return [f"## {section.title}", section.before.strip(), made, *after]


def _made(section: Section, runs: Path, root: Path, answers: str) -> str:
    directory = runs / section.runs
    manifests = _manifests(directory)
    body = "\n\n".join(_body(section, directory, manifests, root))
    code = manifests[0]["code"]
    return (
        f"<!-- made from {section.config} {content_hash(root / section.config)}, "
        f"answers {answers}, code {str(code['sha256'])[:_HEX]}, "
        f"commit {str(code['commit'])[:_HEX]}, text {_short_hash(body)} -->\n"
        f"{body}\n{END}"
    )


def _manifests(directory: Path) -> list[dict[str, Any]]:
    """Return the manifest of a run, or those of the worlds in a directory."""
    found = sorted(directory.glob("manifest.json")) or sorted(
        directory.glob("*/manifest.json")
    )
    if not found:
        raise SpecError(f"{directory}: no manifest.json; has it been run?")
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


def _body(
    section: Section, directory: Path, manifests: list[dict[str, Any]], root: Path
) -> Iterator[str]:
    """Yield the paragraphs, pictures and tables of a section."""
    yield _source(section, manifests)
    if section.theory:
        said = json.loads(_read(directory / "theory.json"))["said"]
        yield f"{said[:1].upper()}{said[1:]}."
    report = directory / "report"
    for picture in section.pictures:
        shutil.copy(report / "figures" / f"{picture.name}.svg", root / picture.to)
        yield f"![{picture.alt}](../{picture.to})"
    if section.ratios or section.ahead:
        results = json.loads(_read(report / "results.json"))
        for ratios in section.ratios:
            yield "\n".join(ratios_table(ratios, results))
        for ahead in section.ahead:
            yield "\n".join(ahead_table(ahead, results))
    for name in section.files:
        yield _read(report / "tables" / f"{name}.md").strip()
    if not section.theory:
        yield from _words(section, json.loads(_read(report / "words.json")))


def _words(section: Section, words: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader must know before believing a number, then what was asked."""
    if words["cautions"]:
        yield "\n".join(f"- Beware: {text}" for text in words["cautions"])
    for name in section.say:
        yield "\n".join(f"- {text}" for text in _said(words, name))


def _source(section: Section, manifests: list[dict[str, Any]]) -> str:
    """Say by which command a section's figures are made, and on how many runs."""
    of = [
        f"{counted(sum(run['valid'] for run in manifest['runs']), 'run')} in the "
        f"{manifest['world']} world"
        for manifest in manifests
    ]
    first = manifests[0]
    points = len(first["points"])
    where = f" at {counted(points, 'point')}" if points > 1 else ""
    # Worlds end by the rule in the file, each when it knows enough.
    blocks = (
        f"at most {counted(first['blocks'], 'round')}"
        if first["config"].get("episodes")
        else counted(first["blocks"], "block")
    )
    return (
        f"`{section.config}`, seed {first['seed']}, "
        f"{blocks}{where}: {listed(of)}. Intervals are "
        f"{_level(first)}, each by itself where nothing else is said."
    )


def _level(manifest: Mapping[str, Any]) -> str:
    return f"{(1 - manifest['analysis']['alpha']) * 100:g} %"


def _said(words: Mapping[str, Any], name: str) -> list[str]:
    """Return sentences by their name; what has a plain form is told plainly."""
    if name not in words:
        raise SpecError(f"no sentences are called {name!r}")
    found = words[name]
    texts = [found] if isinstance(found, str) else found
    return [it if isinstance(it, str) else it["plain"] for it in texts]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"{path}: not there; run `doorkeeper analyze` first") from None
