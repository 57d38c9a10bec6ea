"""``doorkeeper analyze`` and ``doorkeeper paper``: from a recording to what it says."""

from __future__ import annotations

from pathlib import Path

import click

from doorkeeper.shared import DIRECTORY, FILE, RUN_DIR, failing


@click.command()
@click.argument("run_dir", type=RUN_DIR)
@click.option("--out", type=DIRECTORY, help="Default RUN_DIR/report.")
@click.option("--master", metavar="URL", help="A Spark cluster; default local.")
@click.option(
    "--skip-damaged", is_flag=True, help="Leave out runs whose files cannot be read."
)
def analyze(
    run_dir: Path, out: Path | None, master: str | None, skip_damaged: bool
) -> None:
    """Compare the arms of a recorded experiment: tables, figures, verdicts."""
    from spark_analysis import analyze as analysis
    from spark_analysis.recordings.contract import RecordingError
    from spark_analysis.recordings.java import NoJava
    from spark_analysis.recordings.session import SparkFailed

    with failing(RecordingError, NoJava, SparkFailed):
        analysis.analyze(run_dir, out, master, skip_damaged=skip_damaged)


@click.command()
@click.argument("run_dir", type=RUN_DIR)
@click.option("--out", type=FILE, default=Path("paper.pdf"), show_default=True)
def paper(run_dir: Path, out: Path) -> None:
    """Typeset the paper with the numbers of a recorded experiment."""
    from spark_analysis.recordings.contract import RecordingError
    from spark_analysis.report import paper as typesetting

    with failing(RecordingError):
        typesetting.build(run_dir, out)
