"""Reading of ``manifest.json``, with its checks.

A breach of the contract ends the analysis with a message that names the file, the value
found and the expected one. A point of a sweep that has not run yet is no breach: it is
left out, and the report lists it.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from spark_analysis.recordings.columns import OUTCOMES
from spark_analysis.recordings.contract import (
    MARGIN_WORLDS,
    SCHEMA,
    SLO_SHARE,
    Arm,
    Episodes,
    Look,
    Manifest,
    Options,
    Point,
    RecordingError,
    RequestClass,
    Run,
    Sessions,
)

Raw = Mapping[str, Any]
_T = TypeVar("_T")
_INT64: Final = 2**63
MANIFEST: Final = "manifest.json"


def load_manifest(directory: Path) -> Manifest:
    """Read and check ``manifest.json``.

    :raises RecordingError: if it is absent, of another schema, or incomplete.
    """
    path = directory / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RecordingError(f"{path}: there is no such file; is this a run?") from None
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from error
    return parse_manifest(content, directory)


def parse_manifest(content: bytes, directory: Path, location: str = "") -> Manifest:
    """Return the manifest with this content, checked.

    ``location`` is the URI of a directory that is not on this machine.

    :raises RecordingError: if it is of another schema, or incomplete.
    """
    path = f"{location}/{MANIFEST}" if location else directory / MANIFEST
    try:
        raw = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise RecordingError(f"{path}: no manifest, but a JSON {type(raw).__name__}")
    if raw.get("schema") != SCHEMA:
        found = raw.get("schema")
        raise RecordingError(f"{path}: schema {found!r} found, {SCHEMA} expected")
    try:
        _refuse_extremes(raw)
        manifest = replace(_manifest(directory, raw), location=location)
        check(manifest, path)
    except KeyError as error:
        raise RecordingError(f"{path}: {error} is missing") from error
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        where = ".".join(map(str, found["loc"]))
        raise RecordingError(
            f"{path}: {error.title}.{where}: {found['msg']}"
        ) from error
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise RecordingError(f"{path}: {type(error).__name__}: {error}") from error
    return manifest


def _refuse_extremes(value: object) -> None:
    """Refuse numbers and texts that are valid JSON but not valid in a recording.

    :raises ValueError: at the first one.
    """
    match value:
        case bool():
            return
        case int() | float() if not -_INT64 <= value < _INT64:
            # Also infinity and NaN.
            raise ValueError(f"{value} is no number of a recording")
        case str():
            value.encode()
        case Mapping():
            for key, each in value.items():
                _refuse_extremes(key)
                _refuse_extremes(each)
        case list():
            for each in value:
                _refuse_extremes(each)


@functools.cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _typed(kind: type[_T], /, **fields: object) -> _T:
    """Create a value of the contract, with the types of its fields checked.

    :raises pydantic.ValidationError: naming the first field of another type.
    """
    adapter: TypeAdapter[_T] = _adapter(kind)  # type: ignore[arg-type]  # it is hashable
    return adapter.validate_python(fields)


def _manifest(directory: Path, raw: Raw) -> Manifest:
    return _typed(
        Manifest,
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
            _typed(
                Arm,
                name=arm["name"],
                scheduler=arm["scheduler"],
                settings=arm["set"],
                again_of=arm["again_of"],
                factors={} if arm["again_of"] else arm.get("factors") or {},
            )
            for arm in raw["arms"]
        ),
        points=_points(raw),
        options=_options(raw["analysis"]),
        runs=tuple(_run(run, _session_rounds(raw)) for run in raw["runs"]),
        code=raw["code"],
        environment=raw["environment"],
        config=raw["config"],
        config_sha256=raw["config_sha256"],
        sessions=_sessions(raw),
        episodes=_episodes(raw),
    )


def _sessions(raw: Raw) -> Sessions:
    """Return the sessions; without the key, a block is a session of one round."""
    found = raw.get("sessions") or _sessions_without_key(raw)
    return _typed(
        Sessions,
        planned=found["planned"],
        rounds=found["rounds"],
        primary=found["primary"],
        quantile=exact_quantile(found["quantile"]),
        exploratory=raw.get("exploratory", False),
    )


def _sessions_without_key(raw: Raw) -> Raw:
    episodes = raw["config"].get("episodes") or {}
    rounds = _session_rounds(raw)
    quantiles = raw["analysis"]["quantiles"]
    classes = [entry["class"] for entry in raw["classes"]] or [""]
    return {
        "planned": -(-raw["blocks"] // rounds),
        "rounds": rounds,
        "primary": episodes.get("primary") or classes[0],
        "quantile": episodes.get("quantile")
        or min(quantiles, key=lambda level: abs(level - 0.99)),
    }


def _session_rounds(raw: Raw) -> int:
    found: int = (raw["config"].get("episodes") or {}).get("session_rounds", 1)
    return found


def _episodes(raw: Raw) -> Episodes | None:
    if raw["config"].get("sessions") is not None:
        return _planned(raw["sessions"])
    found = raw["config"].get("episodes")
    if found is None:
        return None
    return _typed(
        Episodes,
        primary=found["primary"] or raw["classes"][0]["class"],
        quantile=exact_quantile(found["quantile"]),
        precision=found["precision"],
        rounds_min=found["rounds_min"],
        minutes=found["minutes"],
        speed_band=found["speed_band"],
        looks=tuple(_typed(Look, **look) for look in raw["looks"]),
        slowest_band=found.get("slowest_band"),
    )


def _planned(sessions: Raw) -> Episodes:
    """Return the rounds of planned sessions, which no stopping rule ends."""
    return _typed(
        Episodes,
        primary=sessions["primary"],
        quantile=exact_quantile(sessions["quantile"]),
        precision=0.0,
        rounds_min=sessions["planned"] * sessions["rounds"],
        minutes=math.inf,
        speed_band=math.inf,
        looks=(),
    )


def _points(raw: Raw) -> tuple[Point, ...]:
    """Return the points in the order of the design.

    Values that a point does not state are the top-level ones; without a sweep, all are.
    """
    whole = {"point": "", "levels": {}}
    return tuple(
        _point({"classes": raw["classes"], "window_ns": raw["window_ns"]} | point)
        for point in raw.get("points") or [whole]
    )


def _point(raw: Raw) -> Point:
    start, end = raw["window_ns"]
    costs = raw.get("costs")
    return _typed(
        Point,
        name=raw["point"],
        levels={factor: str(level) for factor, level in raw["levels"].items()},
        classes=tuple(
            _typed(
                RequestClass,
                name=entry["class"],
                apis=tuple(entry["apis"]),
                slo_ns=entry["slo_ns"],
                offered_per_s=entry["offered_per_s"],
            )
            for entry in raw["classes"]
        ),
        window_ns=(int(start), int(end)),
        mean_request_ms=costs["mean_request_ns"] / 1e6 if costs else None,
        stretch=costs["stretch"] if costs else None,
        nominal=raw.get("nominal") or {},
    )


def _options(raw: Raw) -> Options:
    return _typed(
        Options,
        quantiles=tuple(exact_quantile(found) for found in sorted(raw["quantiles"])),
        alpha=raw["alpha"],
        margin_latency=raw["margin_latency"],
        margin_goodput=raw["margin_goodput"],
        exceedances_shown=raw["exceedances_shown"],
        pairs=tuple((first, second) for first, second in raw.get("compare", ())),
        margin_worlds=raw.get("margin_worlds", MARGIN_WORLDS),
        slo_share=raw.get("slo_share", SLO_SHARE),
        fairness_window_ms=raw.get("fairness_window_ms"),
        recovery_s=tuple((start, end) for start, end in raw.get("recovery_s", ())),
    )


def exact_quantile(number: float) -> Fraction:
    """Return the quantile that a decimal number means: 0.999 is 999/1000.

    :raises ValueError: unless it lies strictly between 0 and 1.
    """
    quantile = Fraction(repr(number))
    if not 0 < quantile < 1:
        raise ValueError(f"a quantile lies between 0 and 1, found {number!r}")
    return quantile


def _session(raw: Raw, session_rounds: int) -> int:
    """Return a run's session; without the key, that of its block."""
    found = raw.get("session")
    return raw["block"] // session_rounds if found is None else int(found)


def _run(raw: Raw, session_rounds: int) -> Run:
    return _typed(
        Run,
        run_id=raw["run_id"],
        point=raw.get("point", ""),
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
        violations=raw.get("violations") or {},
        billed_share=_billed_share(raw.get("accounts") or {}),
        seconds=raw.get("seconds") or 0.0,
        lateness_p99_by_class_ns={
            name: late["p99"]
            for name, late in (raw.get("lateness_by_class_ns") or {}).items()
        },
        probes_ns=_loop_ns(raw),
        machine=raw.get("machine") or {},
        attempts=raw.get("attempts"),
        accounts=raw.get("accounts") or {},
        cost_ratio=raw.get("cost_ratio"),
        session=_session(raw, session_rounds),
        late_requests=raw.get("late_requests") or {},
        loop_us=raw.get("loop_us"),
    )


def _loop_ns(raw: Raw) -> tuple[int, ...]:
    """Return the time of the reference loop, if one was timed."""
    if raw.get("loop_us") is not None:
        return (round(raw["loop_us"] * 1000),)
    return tuple(raw.get("probes_ns") or ())


def _billed_share(accounts: Mapping[str, int]) -> float | None:
    if not accounts.get("cpu_ns"):
        return None
    billed_ns = accounts["requests_ns"] + accounts["housekeeping_ns"]
    # Bills are wall-clock times of the loop's thread. If it waited for its CPU, it was
    # busy for longer than it computed.
    return billed_ns / max(accounts["cpu_ns"], accounts.get("busy_ns", 0))


def check(manifest: Manifest, path: Path | str) -> None:
    """Refuse recordings that cannot be compared.

    :raises RecordingError: naming the first fault.
    """
    _check_unique(manifest, path)
    _check_names(manifest, path)
    options = manifest.options
    if not 0 < options.alpha < 1:
        raise RecordingError(f"{path}: analysis: impossible values: {options}")
    times = Counter((run.point, run.block, run.arm) for run in manifest.runs_valid)
    twice = sorted(slot for slot, count in times.items() if count > 1)
    if twice:
        point, *slot = twice[0]
        at = f" at {point}" if point else ""
        raise RecordingError(f"{path}: more than one valid run of {tuple(slot)}{at}")
    if manifest.baseline in manifest.arms_missing:
        raise RecordingError(
            f"{path}: the baseline {manifest.baseline!r} has no valid run"
            f"{_reasons(manifest, manifest.baseline)}"
        )
    for run in manifest.runs_compared:
        _check_run(run, path)
    _check_traces(manifest.runs_compared, path)
    if not manifest.runs_compared:
        counts = Counter(run.arm for run in manifest.runs_valid)
        raise RecordingError(
            f"{path}: no block has a valid run of every arm; valid runs: "
            f"{dict(sorted(counts.items()))}"
        )


def _reasons(manifest: Manifest, arm: str) -> str:
    """Return in parentheses the number of an arm's runs, and why none is valid."""
    kinds = Counter(
        run.reason.partition(":")[0] or "marked as not valid"
        for run in manifest.runs
        if run.arm == arm
    )
    if not kinds:
        return " (it was never run)"
    counts = ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common())
    return f" (runs that do not count: {counts})"


def _check_unique(manifest: Manifest, path: Path | str) -> None:
    """Check that names of arms and points are unique."""
    for kind, found in (
        ("arms", [arm.name for arm in manifest.arms]),
        ("points", [point.name for point in manifest.points]),
    ):
        twice = [name for name, count in Counter(found).items() if count > 1]
        if twice:
            raise RecordingError(f"{path}: two {kind} are called {twice[0]!r}")


def _check_names(manifest: Manifest, path: Path | str) -> None:
    """Check that all names exist, and that no window is empty."""
    names = [arm.name for arm in manifest.arms]
    strangers = {run.arm for run in manifest.runs} - set(names)
    if strangers:
        raise RecordingError(
            f"{path}: arm {min(strangers)!r} of a run is none of {names}"
        )
    if manifest.baseline not in names:
        raise RecordingError(
            f"{path}: the baseline {manifest.baseline!r} is none of {names}"
        )
    for name in {name for pair in manifest.options.pairs for name in pair}:
        if name not in names:
            raise RecordingError(f"{path}: to compare {name!r}, an arm of {names}")
    points = [point.name for point in manifest.points]
    strays = [run.run_id for run in manifest.runs if run.point not in points]
    if strays:
        raise RecordingError(f"{path}: run {strays[0]} is at none of the points")
    for point in manifest.points:
        if not 0 <= point.window_ns[0] < point.window_ns[1]:
            raise RecordingError(f"{path}: the window {point.window_ns} is empty")
        if not point.classes:
            raise RecordingError(f"{path}: no class of requests is named")


def _check_run(run: Run, path: Path | str) -> None:
    """Check that the counts of requests add up."""
    if run.requests is None or run.samples is None:
        raise RecordingError(f"{path}: valid run {run.run_id} names no files")
    total = sum(run.counts[outcome] for outcome in OUTCOMES)
    if total != run.counts["sent"]:
        raise RecordingError(
            f"{path}: run {run.run_id} sent {run.counts['sent']} requests, "
            f"but its outcomes add up to {total}"
        )


def _check_traces(runs: Sequence[Run], path: Path | str) -> None:
    """Check that all arms of a block received the same trace."""
    met: dict[tuple[str, int], Run] = {}
    for run in runs:
        first = met.setdefault((run.point, run.block), run)
        if run.trace_sha256 != first.trace_sha256:
            raise RecordingError(
                f"{path}: runs {first.run_id} and {run.run_id} of block {run.block} "
                "met different traces"
            )
