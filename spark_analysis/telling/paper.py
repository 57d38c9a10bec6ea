"""``doorkeeper paper``: set the paper with the numbers of one recorded experiment.

The sources in ``paper/`` hold no number: they read ``generated/facts.json``, which is
made here from the manifest and the report. Typst compiles offline, and with a fixed
date the same recordings give the same bytes.
"""

from __future__ import annotations

import datetime
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.statistics.sign_flip import smallest_p
from spark_analysis.telling.sentences.numbers import (
    THIN_SPACE,
    digits,
    p_value,
    percent,
)

SOURCES: Final = Path(__file__).parents[2] / "paper"
FIGURES: Final = ("ccdf", "ratios", "phases", "queue")


def build(run_dir: Path, out_pdf: Path) -> None:
    """Typeset the paper of an analysed run directory, or of one of worlds.

    Of several worlds it gives the answer of all, and the numbers of the witness.

    :raises RecordingError: if the directory has no report yet, or is no run.
    """
    run_dir, report, answer = _what_to_set(run_dir)
    manifest = load_manifest(run_dir)
    if len(manifest.points) > 1:
        raise RecordingError(f"{run_dir}: a sweep; the paper is set from one point")
    if not manifest.brokers_recorded:
        raise RecordingError(
            f"{run_dir}: brokers of the {manifest.world} world keep no rows, and the "
            "paper shows what they would say of queue and phases"
        )
    facts = facts_of(manifest, _words(report) | answer)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "paper")
        shutil.copytree(
            SOURCES, root, ignore=shutil.ignore_patterns("generated", "*.pdf")
        )
        generated = root / "generated"
        generated.mkdir()
        text = json.dumps(facts, ensure_ascii=False, indent=1)
        (generated / "facts.json").write_text(text, encoding="utf-8")
        panel = ("incident",) if facts["incident"] else ()
        for name in (*FIGURES, *panel):
            shutil.copy(report / "figures" / f"{name}.svg", generated)
        _compile(root / "main.typ", out_pdf, manifest)


def _what_to_set(directory: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Return a run directory, its report, and what is said over all worlds, if any."""
    report = directory / "report"
    if (directory / "manifest.json").exists() or not report.is_dir():
        return directory, report, {}
    said = _words(report)
    # The first is the witness.
    world, folder = next(iter(said["directories"].items()))
    return directory / folder, report / world, {"lead": said["lead"]}


def facts_of(manifest: Manifest, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return every number and every generated sentence of the paper."""
    options = manifest.options
    runs = manifest.runs_compared
    start, end = manifest.window_ns
    requests = sum(run.counts["sent"] for run in runs)
    return {
        "name": manifest.name,
        "world": manifest.world,
        "seed": str(manifest.seed),
        "commit": str(manifest.code.get("commit", "unknown"))[:10],
        "config": manifest.config_sha256[:12],
        "date": manifest.created[:10],
        "requests": f"{requests // len(manifest.arms_compared):,}".replace(
            ",", THIN_SPACE
        ),
        "blocks": str(len(manifest.blocks)),
        "runs_all": str(len(manifest.runs)),
        "excluded": str(len(manifest.runs) - len(runs)),
        "arms": [
            {
                "name": arm.name,
                "scheduler": arm.scheduler,
                "settings": " ".join(f"{k}={v}" for k, v in arm.settings.items()),
                "again_of": arm.again_of,
            }
            for arm in manifest.arms_compared
        ],
        "classes": ", ".join(
            f"{entry.name} ({', '.join(entry.apis)}, {digits(entry.offered_per_s)} a "
            "second)"
            for entry in manifest.classes
        ),
        "window": [f"{start / 1e9:g}", f"{end / 1e9:g}"],
        "level": percent(options.confidence),
        "smallest_p": p_value(smallest_p(len(manifest.blocks))),
        "margin_latency": percent(options.margin_latency),
        "margin_goodput": percent(options.margin_goodput),
        "shown": f"{options.exceedances_shown:g}",
        "headline": f"{options.exceedances_headline:g}",
        "machine": _machine(manifest.environment),
        # None where nobody was elected.
        "incident": words.get("incident"),
        **{
            key: words[key]
            for key in ("lead", "stories", "again", "cautions", "captions", "main")
        },
    }


def _machine(environment: Mapping[str, Any]) -> str:
    """Write the machine in a line."""
    facts = [
        str(environment.get("cpu_model") or "unknown processor"),
        f"{environment.get('cores', '?')} CPUs",
        f"kernel {environment.get('kernel', '?')}",
        f"Python {environment.get('python', '?')}",
        "pinned" if environment.get("pinned") else "not pinned",
    ]
    return ", ".join(facts)


def _words(report: Path) -> dict[str, Any]:
    path = report / "words.json"
    if not path.is_file():
        raise RecordingError(f"{path}: not there; run `doorkeeper analyze` first")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _compile(source: Path, out_pdf: Path, manifest: Manifest) -> None:
    import matplotlib as mpl
    import typst

    created = datetime.datetime.fromisoformat(manifest.created)
    out_pdf.parent.mkdir(parents=True, exist_ok=True)
    typst.compile(
        str(source),
        output=str(out_pdf),
        root=str(source.parent),
        # The figures' own type; and none of the machine's, so that all set it alike.
        font_paths=[str(Path(mpl.get_data_path(), "fonts", "ttf"))],
        ignore_system_fonts=True,
        timestamp=int(created.timestamp()),
    )
