"""``doorkeeper results``: the page of findings, every figure from recordings."""

from __future__ import annotations

from pathlib import Path

import click

from doorkeeper.shared import CONFIG_FILE, FILE, RUN_DIR, failing, refusing


@click.command()
@click.argument("spec", type=CONFIG_FILE)
@click.argument("runs", type=RUN_DIR)
@click.option(
    "--out",
    type=FILE,
    required=True,
    help="The page to write.",
)
def results(spec: Path, runs: Path, out: Path) -> None:
    """Write the page that SPEC describes from the analysed recordings in RUNS.

    Paths of configs and pictures are relative to the working directory. A section whose
    config is no longer what was run is refused; one that was recorded elsewhere stays
    as it is on the page, if that is of the same config and the code still answers the
    same.
    """
    from experiments.design.config import load, parse
    from experiments.design.config_errors import ExperimentError
    from experiments.running.answers import answers
    from spark_analysis.telling.findings import page
    from spark_analysis.telling.findings.spec import SpecError
    from spark_analysis.telling.findings.spec import load as load_spec

    with refusing(SpecError, ExperimentError), failing(page.OutOfDate):
        before = out.read_text(encoding="utf-8") if out.exists() else ""
        told = page.with_what_ran(load_spec(spec), runs, before)
        kept = page.kept(told, runs, Path(), before)
        found = {}
        for section in told.sections:
            experiment = load(Path(section.config))
            found[section.config] = answers(experiment)
            mark = kept.get(section.config)
            if mark is not None and mark.answers == found[section.config]:
                continue
            kept.pop(section.config, None)
            page.check_ran(
                section, runs, experiment.content(), lambda ran: parse(ran).content()
            )
        text = page.page(told, runs, Path(), found, kept)
    out.write_text(text, encoding="utf-8")
    stayed = f", of which {len(kept)} were recorded elsewhere" if kept else ""
    click.echo(f"{out}: {len(told.sections)} sections{stayed}")
