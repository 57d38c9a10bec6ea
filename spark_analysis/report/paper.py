"""``doorkeeper paper``: typeset the paper with the results of experiments.

The sources in ``paper/`` hold no measured number: they read ``generated/facts.json``,
made here from files ``results.json``. Typst compiles offline; with a fixed date the
same results give the same bytes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from spark_analysis.recordings.contract import RecordingError
from spark_analysis.report.content.numbers import digits, p_value
from spark_analysis.report.content.schema import Results
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.content.tables import (
    Table,
    agreement_table,
    comparison_table,
    confidence,
    incident_table,
)
from spark_analysis.report.figures.listing import plots
from spark_analysis.report.predictions import JUDGEMENT, OutOfSample
from spark_analysis.report.results import SCHEMA

SOURCES: Final = Path(__file__).parents[2] / "paper"
# Raised where the content of a file is not as the program has written it.
FAULTS: Final = (
    *(ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
# The experiment of the abstract, where several are set.
_FIRST: Final = "quickstart"
# Rows beyond which a table of the paper would not fit a page.
_ROWS_MAX: Final = 45


class Recorded(NamedTuple):
    """One experiment of the paper: its file, and its figures with their captions."""

    path: Path
    found: Results
    figures: Mapping[Path, str]


def build(source: Path, out_pdf: Path) -> None:
    """Typeset the paper of a run directory, or of a directory of kept results.

    ``docs/results`` is a directory of kept results: ``NAME.json`` and ``NAME-*.svg``.

    :raises RecordingError: if the source has no report and no results.
    """
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "paper")
        ignored = shutil.ignore_patterns("generated", "*.pdf", "__pycache__")
        shutil.copytree(SOURCES, root, ignore=ignored)
        (root / "generated").mkdir()
        facts, dates = [], []
        for path, results, figures in _recorded(source):
            with naming(path):
                facts.append(facts_of(results, alone=path.parent != source))
                dates.append(datetime.datetime.fromisoformat(results["created"]))
            for file, caption in figures.items():
                name = f"generated/{results['name']}-{file.name}"
                shutil.copy(file, root / name)
                facts[-1]["figures"].append({"file": name, "caption": caption})
        facts.sort(key=lambda it: (it["name"] != _FIRST, it["name"]))
        found = {"experiments": facts, "prediction": _prediction(source / JUDGEMENT)}
        text = json.dumps(found, ensure_ascii=False, indent=1)
        (root / "generated" / "facts.json").write_text(text, encoding="utf-8")
        _compile(root / "main.typ", out_pdf, max(dates))


def judged_predictions(path: Path) -> OutOfSample | None:
    """Return the judgement of predictions, None before there was a measurement.

    :raises RecordingError: if the file is damaged.
    """
    if not path.is_file():
        return None
    with naming(path):
        found = OutOfSample(json.loads(path.read_bytes()))
        for words in (found.sentences, found.source, found.markdown):
            words.encode()
    return found


def _prediction(path: Path) -> dict[str, Any] | None:
    found = judged_predictions(path)
    if found is None:
        return None
    return {"sentences": found.sentences, "table": _written(found.table)}


def _recorded(source: Path) -> Iterator[Recorded]:
    kept = sorted(source.glob("*.json"))
    if (source / "report").is_dir() or not kept:
        path = source / "report" / "results.json"
        found = read_results(path)
        with naming(path):
            names = {plot.name: plot.caption for plot in plots(found)}
        yield Recorded(
            path,
            found,
            {path.parent / "figures" / f"{it}.svg": names[it] for it in names},
        )
        return
    for path in kept:
        found = read_results(path)
        with naming(path):
            drawn = {
                path.with_name(f"{path.stem}-{it.name}.svg"): it.caption
                for it in plots(found)
            }
        yield Recorded(path, found, {it: drawn[it] for it in drawn if it.is_file()})


def read_results(path: Path) -> Results:
    """Return the content of a ``results.json``.

    :raises RecordingError: if it is missing, damaged, or of another schema.
    """
    if not path.is_file():
        raise RecordingError(f"{path}: missing; run `doorkeeper analyze` first")
    with naming(path):
        found: Results = json.loads(path.read_bytes())
        schema = found["schema"]
        # Refuses what JSON or UTF-8 cannot hold: NaN, half a character.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    if schema != SCHEMA:
        raise RecordingError(f"{path}: schema {schema!r} found, {SCHEMA} expected")
    return found


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a ``results.json`` that is not as ``doorkeeper analyze`` has written it.

    :raises RecordingError: in place of the exception that its content leads to.
    """
    try:
        yield
    except RecordingError:
        raise
    except FAULTS as error:
        fault = f"damaged or edited: {type(error).__name__}: {error}"
        raise RecordingError(f"{path}: {fault}") from error


def facts_of(found: Results, *, alone: bool = True) -> dict[str, Any]:
    """Return every number, table and sentence of an experiment.

    Details follow the first table where the paper is about this experiment ``alone``.
    """
    summary = Summary(found)
    incidents = incident_table(found)
    tables = [incidents if incidents.rows and not alone else summary.table]
    if alone:
        tables += _tables(found)
    return {
        "name": found["name"],
        "title": found["title"],
        "date": found["created"][:10],
        "baseline": found["baseline"],
        "level": confidence(found),
        "worlds": [
            {
                "world": world["world"],
                "deterministic": world["deterministic"],
                "sessions": str(world["sessions"]),
                "planned": str(world["sessions_planned"]),
                "rounds": str(world["rounds"]),
                "runs": digits(world["runs"]),
                "discarded": str(sum(world["discarded"].values())),
                "requests": digits(world["requests"]),
                "seed": str(world["seed"]),
                "commit": world["commit"],
                "config": world["config_sha256"],
                "machine": world["machine"],
                "p_min": p_value(world["p_min"]),
                "window": [f"{edge:g}" for edge in world["window_s"]],
            }
            for world in found["worlds"]
        ],
        "arms": [
            {
                **arm,
                "settings": " ".join(f"{k}={v}" for k, v in arm["settings"].items()),
            }
            for arm in found["arms"]
        ],
        "classes": ", ".join(
            f"{it['name']} ({', '.join(it['apis'])}, "
            f"{digits(it['offered_per_s'])} a second)"
            for it in found["classes"]
        ),
        "sentences": summary.sentences,
        "cautions": summary.cautions,
        "noise": summary.noise,
        "tables": [_written(table) for table in tables],
        "figures": [],
    }


def _tables(found: Results) -> list[Table]:
    tables = (comparison_table(found), agreement_table(found), incident_table(found))
    return [table for table in tables if 0 < len(table.rows) <= _ROWS_MAX]


def _written(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "caption": table.caption,
        "headings": [column.heading for column in table.columns],
        "numeric": [column.numeric for column in table.columns],
        "rows": [[it.text(row) for it in table.columns] for row in table.rows],
        "groups": [],
    }


def _compile(source: Path, out_pdf: Path, moment: datetime.datetime) -> None:
    import matplotlib as mpl
    import typst

    out_pdf.parent.mkdir(parents=True, exist_ok=True)
    typst.compile(
        str(source),
        output=str(out_pdf),
        root=str(source.parent),
        # The figures' own type; and none of the machine's, so that all set it alike.
        font_paths=[str(Path(mpl.get_data_path(), "fonts", "ttf"))],
        ignore_system_fonts=True,
        timestamp=int(moment.timestamp()),
    )
