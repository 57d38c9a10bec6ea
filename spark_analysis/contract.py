"""What a run directory holds: its manifest, checked, and which runs may be compared.

The manifest is the only file that says which runs count. A run that its recorder marked
as not valid (the load generator was late, a process died) is never compared, only
listed. A block in which some arm has no valid run is left out for every arm, so that
all arms are judged by the same requests. Anything that breaks the contract stops the
analysis with a sentence that names the file, what was found and what was expected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from spark_analysis.statistics.quantiles import level_of

SCHEMA: Final = 1
OUTCOMES: Final = ("ok", "error", "timeout", "unfinished")


class RecordingError(Exception):
    """A recording breaks its contract; the message names the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A rival: a scheduler with its settings; ``again_of`` marks the A/A arm."""

    name: str
    scheduler: str
    settings: Mapping[str, str]
    again_of: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """A class of requests; an answer within ``slo_ns`` counts as good."""

    name: str
    apis: tuple[str, ...]
    slo_ns: int | None
    offered_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to judge, named before the experiment ran."""

    levels: tuple[Fraction, ...]
    alpha: float
    margin_latency: float
    margin_goodput: float
    exceedances_shown: float
    exceedances_headline: float
    resamples: int

    @property
    def confidence(self) -> float:
        """The level of every interval."""
        return 1 - self.alpha


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One broker process that met one block's requests."""

    run_id: str
    block: int
    arm: str
    order: int
    attempt: int
    valid: bool
    reason: str
    requests: str | None
    samples: str | None
    trace_sha256: str
    counts: Mapping[str, int]
    lateness_p99_ns: int | None
    load_average: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a run directory, as far as the analysis reads it."""

    directory: Path
    name: str
    title: str
    world: str
    seed: int
    created: str
    finished: bool
    blocks_planned: int
    baseline: str
    arms: tuple[Arm, ...]
    classes: tuple[RequestClass, ...]
    window_ns: tuple[int, int]
    options: Options
    runs: tuple[Run, ...]
    code: Mapping[str, Any]
    environment: Mapping[str, Any]
    config: Mapping[str, Any]
    config_sha256: str

    @property
    def arms_missing(self) -> tuple[str, ...]:
        """Arms without a single valid run: they cannot be compared at all."""
        present = {run.arm for run in self.runs if run.valid}
        return tuple(arm.name for arm in self.arms if arm.name not in present)

    @property
    def arms_compared(self) -> tuple[Arm, ...]:
        """Arms with valid runs, the baseline first, then in the config's order."""
        missing = self.arms_missing
        present = [arm for arm in self.arms if arm.name not in missing]
        return tuple(sorted(present, key=lambda arm: arm.name != self.baseline))

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks in which every compared arm has a valid run."""
        wanted = {arm.name for arm in self.arms_compared}
        have: dict[int, set[str]] = {}
        for run in self.runs:
            if run.valid:
                have.setdefault(run.block, set()).add(run.arm)
        return tuple(sorted(block for block, arms in have.items() if arms >= wanted))

    @property
    def runs_compared(self) -> tuple[Run, ...]:
        """Valid runs of complete blocks: what every number rests on."""
        blocks = set(self.blocks)
        return tuple(run for run in self.runs if run.valid and run.block in blocks)

    def why_excluded(self, run: Run) -> str:
        """Return why a run is not compared, or an empty string."""
        if not run.valid:
            return run.reason or "marked as not valid"
        if run.block not in self.blocks:
            return f"block {run.block} lacks a valid run of some arm"
        return ""


def load_manifest(directory: Path) -> Manifest:
    """Read and check ``manifest.json``.

    :raises RecordingError: if it is absent, of another schema, or incomplete.
    """
    path = directory / "manifest.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordingError(f"{path}: there is no such file; is this a run?") from None
    except ValueError as error:
        raise RecordingError(f"{path}: not JSON: {error}") from error
    if raw.get("schema") != SCHEMA:
        found = raw.get("schema")
        raise RecordingError(f"{path}: schema {found!r} found, {SCHEMA} expected")
    try:
        manifest = _manifest(directory, raw)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"{path}: {type(error).__name__}: {error}") from error
    _check(manifest, path)
    return manifest


def _manifest(directory: Path, raw: Mapping[str, Any]) -> Manifest:
    start, end = raw["window_ns"]
    return Manifest(
        directory=directory,
        name=raw["name"],
        title=raw["title"],
        world=raw["world"],
        seed=raw["seed"],
        created=raw["created"],
        finished=raw["finished"] is not None,
        blocks_planned=raw["blocks"],
        baseline=raw["baseline"],
        arms=tuple(
            Arm(
                name=arm["name"],
                scheduler=arm["scheduler"],
                settings=arm["set"],
                again_of=arm["again_of"],
            )
            for arm in raw["arms"]
        ),
        classes=tuple(
            RequestClass(
                name=entry["class"],
                apis=tuple(entry["apis"]),
                slo_ns=entry["slo_ns"],
                offered_per_s=entry["offered_per_s"],
            )
            for entry in raw["classes"]
        ),
        window_ns=(int(start), int(end)),
        options=_options(raw["analysis"]),
        runs=tuple(_run(run) for run in raw["runs"]),
        code=raw["code"],
        environment=raw["environment"],
        config=raw["config"],
        config_sha256=raw["config_sha256"],
    )


def _options(raw: Mapping[str, Any]) -> Options:
    return Options(
        levels=tuple(level_of(quantile) for quantile in sorted(raw["quantiles"])),
        alpha=raw["alpha"],
        margin_latency=raw["margin_latency"],
        margin_goodput=raw["margin_goodput"],
        exceedances_shown=raw["exceedances_shown"],
        exceedances_headline=raw["exceedances_headline"],
        resamples=raw["resamples"],
    )


def _run(raw: Mapping[str, Any]) -> Run:
    return Run(
        run_id=raw["run_id"],
        block=raw["block"],
        arm=raw["arm"],
        order=raw["order"],
        attempt=raw["attempt"],
        valid=raw["valid"],
        reason=raw["reason"],
        requests=raw["requests"],
        samples=raw["samples"],
        trace_sha256=raw["trace_sha256"],
        counts=raw["counts"],
        lateness_p99_ns=raw["lateness_ns"].get("p99"),
        load_average=raw["load_average"],
    )


def _check(manifest: Manifest, path: Path) -> None:
    """Refuse what no comparison can be made of."""
    _check_arms(manifest, path)
    cells = [(run.block, run.arm) for run in manifest.runs if run.valid]
    twice = sorted({cell for cell in cells if cells.count(cell) > 1})
    if twice:
        raise RecordingError(f"{path}: more than one valid run of {twice[0]}")
    if not manifest.blocks:
        counts = {
            arm.name: sum(cell[1] == arm.name for cell in cells)
            for arm in manifest.arms_compared
        }
        raise RecordingError(
            f"{path}: no block has a valid run of every arm; valid runs: {counts}"
        )
    for run in manifest.runs_compared:
        _check_run(run, manifest.runs_compared, path)


def _check_arms(manifest: Manifest, path: Path) -> None:
    names = [arm.name for arm in manifest.arms]
    if manifest.baseline not in names:
        raise RecordingError(
            f"{path}: the baseline {manifest.baseline!r} is none of {names}"
        )
    if manifest.baseline in manifest.arms_missing:
        raise RecordingError(
            f"{path}: the baseline {manifest.baseline!r} has no valid run"
        )
    if manifest.window_ns[0] >= manifest.window_ns[1]:
        raise RecordingError(f"{path}: the window {manifest.window_ns} is empty")


def _check_run(run: Run, runs: Sequence[Run], path: Path) -> None:
    """Hold the count identity, and the same trace for all arms of a block."""
    if run.requests is None or run.samples is None:
        raise RecordingError(f"{path}: valid run {run.run_id} names no files")
    total = sum(run.counts[outcome] for outcome in OUTCOMES)
    if total != run.counts["sent"]:
        raise RecordingError(
            f"{path}: run {run.run_id} sent {run.counts['sent']} requests, "
            f"but its outcomes add up to {total}"
        )
    first = next(other for other in runs if other.block == run.block)
    if run.trace_sha256 != first.trace_sha256:
        raise RecordingError(
            f"{path}: runs {first.run_id} and {run.run_id} of block {run.block} "
            "met different traces"
        )
