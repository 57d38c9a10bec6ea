"""``doorkeeper paper``: typeset the paper with the results of experiments.

The sources in ``paper/`` hold no measured number: they read ``generated/facts.json``,
which is made here from files ``results.json``. Typst compiles offline. With a fixed
date equal results give equal bytes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from spark_analysis.recordings.contract import RecordingError
from spark_analysis.report.content.numbers import digits
from spark_analysis.report.content.paper_tables import (
    arms_table,
    contradictions,
    further_table,
    parts,
    reader_by_order,
    recordings_table,
    tables_of,
)
from spark_analysis.report.content.schema import Results
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.content.tables import Table, confidence
from spark_analysis.report.doses import DOSES, DoseResponse, figure
from spark_analysis.report.figures.listing import plots
from spark_analysis.report.figures.style import styled
from spark_analysis.report.predictions import JUDGEMENT, OutOfSample
from spark_analysis.report.results import SCHEMA

SOURCES: Final = Path(__file__).parents[2] / "paper"
# Exceptions for a file whose content this program did not write.
FAULTS: Final = (
    *(ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
# Experiments with a place in the text of ``main.typ``, and those with a figure there.
PLACED: Final = (
    *("quickstart", "kafka-reader", "kafka-agent", "operators"),
    *("price", "load-curves", "kafka-4453", "policies"),
)
_DRAWN: Final = ("quickstart", "load-curves")
_DOSE: Final = "kafka-4453-dose"


def build(source: Path, out_pdf: Path) -> None:
    """Typeset the paper of a run directory, or of a directory of kept results.

    ``docs/results`` is a directory of kept results: ``NAME.json`` for each experiment.

    :raises RecordingError: if the source has no report and no results.
    """
    recorded = list(_recorded(source))
    alone = recorded[0][0].parent != source
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "paper")
        ignored = shutil.ignore_patterns("generated", "*.pdf", "__pycache__")
        shutil.copytree(SOURCES, root, ignore=ignored)
        generated = root / "generated"
        generated.mkdir()
        facts, dates = [], []
        for path, results in recorded:
            with naming(path):
                facts.append(facts_of(results))
                if alone or results["name"] in _DRAWN:
                    facts[-1]["figure"] = _first_figure(
                        results, generated / f"{len(facts)}.svg"
                    )
                dates.append(datetime.datetime.fromisoformat(results["created"]))
        with naming(source):
            found = {
                "alone": alone,
                "experiments": facts,
                **_over_all([results for _, results in recorded]),
                "doses": _doses(source, generated),
                "prediction": _prediction(source / JUDGEMENT),
            }
        text = json.dumps(found, ensure_ascii=False, indent=1)
        (generated / "facts.json").write_text(text, encoding="utf-8")
        _compile(root / "main.typ", out_pdf, max(dates))


def _recorded(source: Path) -> Iterator[tuple[Path, Results]]:
    """Yield each file of results with its content, the placed experiments first."""
    kept = sorted(source.glob("*.json"))
    if (source / "report").is_dir() or not kept:
        kept = [source / "report" / "results.json"]
    found = [(path, read_results(path)) for path in kept]
    for path, results in found:
        with naming(path):
            results["name"].encode()
    yield from sorted(found, key=lambda it: _place(it[1]["name"]))


def _place(name: str) -> tuple[int, str]:
    return (PLACED.index(name) if name in PLACED else len(PLACED)), name


def _first_figure(found: Results, file: Path) -> dict[str, Any] | None:
    for plot in plots(found):
        return {**_drawn(plot.draw, file), "caption": plot.caption}
    return None


def judged_predictions(path: Path) -> OutOfSample | None:
    """Return the judgement of predictions, None before a measurement.

    :raises RecordingError: if the file is damaged.
    """
    if not path.is_file():
        return None
    with naming(path):
        found = OutOfSample(json.loads(path.read_bytes()))
        for words in (found.sentences, found.source, found.markdown):
            words.encode()
    return found


def read_doses(path: Path) -> DoseResponse:
    """Return an incident's dose and response.

    :raises RecordingError: if the file is damaged.
    """
    with naming(path):
        found = DoseResponse(json.loads(path.read_bytes()))
        for text in (found.markdown, found.source):
            text.encode()
    return found


def _prediction(path: Path) -> dict[str, Any] | None:
    found = judged_predictions(path)
    if found is None:
        return None
    return {
        "sentences": found.sentences,
        "source": found.source,
        "table": _written(found.table),
    }


def _doses(source: Path, folder: Path) -> dict[str, Any] | None:
    path = source / DOSES / f"{_DOSE}.json"
    if not path.is_file():
        return None
    doses = read_doses(path)
    with naming(path):
        return {
            "source": doses.source,
            "table": _written(doses.table),
            "figure": _drawn(lambda: figure(doses.found), folder / "doses.svg"),
        }


def read_results(path: Path) -> Results:
    """Return the content of a ``results.json``.

    :raises RecordingError: if it is missing, damaged, or of another schema.
    """
    if not path.is_file():
        raise RecordingError(f"{path}: missing; run `doorkeeper analyze` first")
    with naming(path):
        found: Results = json.loads(path.read_bytes())
        schema = found["schema"]
        # Refuse content that JSON or UTF-8 cannot represent: NaN, half a character.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    if schema != SCHEMA:
        raise RecordingError(f"{path}: schema {schema!r} found, {SCHEMA} expected")
    return found


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a ``results.json`` that ``doorkeeper analyze`` did not write.

    :raises RecordingError: instead of an exception caused by the file's content.
    """
    try:
        yield
    except RecordingError:
        raise
    except FAULTS as error:
        fault = f"damaged or edited: {type(error).__name__}: {error}"
        raise RecordingError(f"{path}: {fault}") from error


def facts_of(found: Results) -> dict[str, Any]:
    """Return the numbers, tables and sentences of an experiment."""
    summary = Summary(found)
    return {
        "name": found["name"],
        "title": found["title"],
        "date": found["created"][:10],
        "baseline": found["baseline"],
        "level": confidence(found),
        "placed": found["name"] in PLACED,
        "machines": list(dict.fromkeys(it["machine"] for it in found["worlds"])),
        "classes": ", ".join(
            f"{it['name']} ({', '.join(it['apis'])}, "
            f"{digits(it['offered_per_s'])} a second)"
            for it in found["classes"]
        ),
        "sentences": summary.sentences,
        "cautions": summary.cautions,
        "noise": summary.noise,
        "tables": [_written(table) for table in tables_of(found)],
        "figure": None,
    }


def _over_all(found: Sequence[Results]) -> dict[str, Any]:
    """Return the tables and sentences over several experiments."""
    placed = [it for it in found if it["name"] in PLACED] or found
    further = [it for it in found if it["name"] not in PLACED]
    kafka_first = sorted(found, key=lambda it: it["worlds"][0]["world"] != "kafka")
    crossed = reader_by_order(kafka_first)
    return {
        "reader_by_order": None if crossed is None else _written(crossed),
        "parts": parts(kafka_first),
        "contradictions": contradictions(kafka_first),
        "arms": _written(arms_table(placed)),
        "recordings": _written(recordings_table(found)),
        "further": _written(further_table(further)),
    }


def _written(table: Table) -> dict[str, Any]:
    return {
        "caption": table.caption,
        "headings": [column.heading for column in table.columns],
        "numeric": [column.numeric for column in table.columns],
        "rows": [[it.text(row) for it in table.columns] for row in table.rows],
    }


def _drawn(draw: Callable[[], Figure], file: Path) -> dict[str, Any]:
    """Save a figure; return its name, and its height relative to its width."""
    with styled():
        drawn = draw()
        # No date, so that equal results give equal bytes.
        metadata = {"Date": None, "Creator": "doorkeeper"}
        drawn.savefig(file, metadata=metadata, transparent=True)
    width, height = drawn.get_size_inches()
    return {"file": f"{file.parent.name}/{file.name}", "tall": float(height / width)}


def _compile(source: Path, out_pdf: Path, moment: datetime.datetime) -> None:
    import matplotlib as mpl
    import typst

    out_pdf.parent.mkdir(parents=True, exist_ok=True)
    typst.compile(
        str(source),
        output=str(out_pdf),
        root=str(source.parent),
        # The figures' font, and no system fonts, so that all machines typeset alike.
        font_paths=[str(Path(mpl.get_data_path(), "fonts", "ttf"))],
        ignore_system_fonts=True,
        timestamp=int(moment.timestamp()),
    )
