"""``doorkeeper results``: the page of findings from analysed recordings."""

from __future__ import annotations

from pathlib import Path

import click

from doorkeeper.shared import CONFIG_FILE, DIRECTORY, FILE, failing


@click.command()
@click.argument("template", type=CONFIG_FILE)
@click.argument("runs", type=DIRECTORY, nargs=-1)
@click.option("--out", type=FILE, required=True, help="The page to write.")
@click.option("--data", type=DIRECTORY, help="The folder of results of several pages.")
def results(
    template: Path, runs: tuple[Path, ...], out: Path, data: Path | None
) -> None:
    """Render TEMPLATE with the analysed experiments in the directories RUNS.

    Their results and tables, and the figures that TEMPLATE names, are copied to DATA,
    or to a folder beside the page (``--out docs/results.md``: ``docs/results/``).
    Experiments without recordings in RUNS keep the files that are there.
    """
    from spark_analysis.recordings.contract import RecordingError
    from spark_analysis.report.findings import collect, render

    with failing(RecordingError):
        data_dir = data or out.with_suffix("")
        names = [name for of in runs for name in collect(of, data_dir, template)]
        text = render(template, data_dir)
    out.write_text(text, encoding="utf-8")
    click.echo(f"{out}: new results of {', '.join(names) or 'no experiment'}")
