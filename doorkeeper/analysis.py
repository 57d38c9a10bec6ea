"""``doorkeeper analyze`` and ``doorkeeper paper``: from a recording to its results."""

from __future__ import annotations

import re
from pathlib import Path

import click

from doorkeeper.shared import DIRECTORY, FILE, RUN_DIR, failing


class _Recordings(click.ParamType):  # type: ignore[type-arg]
    """A run directory of this machine, or a URI that Spark reads."""

    name = "directory"

    def convert(
        self,
        value: str | Path,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | Path:
        """Return a URI as it is, and a path if there is such a directory."""
        if re.match("[a-z][a-z0-9+.-]*:/", str(value), re.IGNORECASE):
            return value
        found: Path = RUN_DIR.convert(value, param, ctx)
        return found


@click.command()
@click.argument("run_dir", type=_Recordings())
@click.option("--out", type=DIRECTORY, help="Default RUN_DIR/report.")
@click.option(
    "--master",
    metavar="URL",
    help="A Spark cluster (spark://) or a Spark Connect server (sc://); default local.",
)
@click.option(
    "--skip-damaged", is_flag=True, help="Leave out runs whose files cannot be read."
)
def analyze(
    run_dir: Path | str, out: Path | None, master: str | None, skip_damaged: bool
) -> None:
    """Compare the arms of a recorded experiment: tables, figures, verdicts.

    RUN_DIR is a path, or a URI such as s3a://bucket/run that Spark reads.
    """
    from spark_analysis import analyze as analysis
    from spark_analysis.recordings.contract import RecordingError
    from spark_analysis.recordings.java import NoJava
    from spark_analysis.recordings.spark_session import SparkFailed

    with failing(RecordingError, NoJava, SparkFailed):
        analysis.analyze(run_dir, out, master, skip_damaged=skip_damaged)


@click.command()
@click.argument("run_dir", type=RUN_DIR)
@click.option("--out", type=FILE, default=Path("paper.pdf"), show_default=True)
def paper(run_dir: Path, out: Path) -> None:
    """Typeset the paper of an analysed RUN_DIR, or of kept results (docs/results)."""
    from spark_analysis.recordings.contract import RecordingError
    from spark_analysis.report import paper as typesetting

    with failing(RecordingError):
        typesetting.build(run_dir, out)
