"""``doorkeeper paper``: typeset the paper with the results of one experiment.

The sources in ``spark_analysis/paper/`` hold no number: they read
``generated/facts.json``, made here from the report's ``results.json``. Typst compiles
offline; with a fixed date the same results give the same bytes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

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
from spark_analysis.report.results import SCHEMA

SOURCES: Final = Path(__file__).parents[1] / "paper"
# Raised where the content of a file is not as the program has written it.
FAULTS: Final = (
    *(ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
# Rows beyond which a table of the paper would not fit a page.
_ROWS_MAX: Final = 45


def build(run_dir: Path, out_pdf: Path) -> None:
    """Typeset the paper of an analysed run directory, or of one of several worlds.

    :raises RecordingError: if the directory has no report.
    """
    report = run_dir / "report"
    path = report / "results.json"
    found = read_results(path)
    with naming(path):
        facts = facts_of(found)
        moment = datetime.datetime.fromisoformat(found["created"])
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "paper")
        ignored = shutil.ignore_patterns("generated", "*.pdf")
        shutil.copytree(SOURCES, root, ignore=ignored)
        generated = root / "generated"
        generated.mkdir()
        for plot in plots(found):
            shutil.copy(report / "figures" / f"{plot.name}.svg", generated)
        text = json.dumps(facts, ensure_ascii=False, indent=1)
        (generated / "facts.json").write_text(text, encoding="utf-8")
        _compile(root / "main.typ", out_pdf, moment)


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


def facts_of(found: Results) -> dict[str, Any]:
    """Return every number, table and sentence of the paper."""
    summary = Summary(found)
    tables = [summary.table, *_tables(found)]
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
        "figures": [
            {"file": f"generated/{plot.name}.svg", "caption": plot.caption}
            for plot in plots(found)
        ],
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
