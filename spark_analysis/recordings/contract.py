"""The content of a run directory: its manifest, and the comparable runs.

The manifest is the only file that lists the valid runs. A run that its recorder marked
as not valid (the load generator was late, a process died) is listed, but never
compared. A block in which some arm has no valid run is left out for every arm, so that
all arms are judged by the same requests. A sweep is one experiment at several points;
``Manifest.at`` is its part at one of them, and all judgements are made there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = 1
# Value in recordings without the key.
MARGIN_WORLDS: Final = 0.25
SLO_SHARE: Final = 0.99


class RecordingError(Exception):
    """A recording breaks its contract; the message states where."""


class DamagedFile(RecordingError):
    """An unreadable file of a recording; without its run the others are readable."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(
            f"{path}: {' '.join(why.split())} "
            "(--skip-damaged leaves out the blocks of such files)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A rival: a scheduler with its settings; ``again_of`` marks the A/A arm.

    ``factors`` names the level of each treatment factor where arms form a design.
    """

    name: str
    scheduler: str
    settings: Mapping[str, object]
    again_of: str | None
    factors: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """A class of requests; an answer within ``slo_ns`` counts as good."""

    name: str
    apis: tuple[str, ...]
    slo_ns: int | None
    offered_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a sweep: its levels by factor, and their changes.

    An experiment without a sweep has one point without a name. ``mean_request_ms`` is
    the mean cost of a request for the broker, None where unknown, and ``stretch`` the
    factor from the time in which its traces were drawn. ``nominal`` holds its costs of
    requests with their intervals; recordings without the key have those of the config.
    """

    name: str
    levels: Mapping[str, str]
    classes: tuple[RequestClass, ...]
    window_ns: tuple[int, int]
    mean_request_ms: float | None = None
    stretch: float | None = None
    nominal: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Rules of judgement, fixed before the experiment ran.

    ``pairs`` are arms to compare with each other, besides all with the baseline.
    ``margin_worlds`` is the largest distance between ratios of two worlds that agree.
    ``slo_share`` is the share of good answers that meets an objective. Fairness and
    recovery are measured if the config states their windows and intervals, in nominal
    time.
    """

    quantiles: tuple[Fraction, ...]
    alpha: float
    margin_latency: float
    margin_goodput: float
    exceedances_shown: float
    pairs: tuple[tuple[str, str], ...] = ()
    margin_worlds: float = MARGIN_WORLDS
    slo_share: float = SLO_SHARE
    fairness_window_ms: float | None = None
    recovery_s: tuple[tuple[float, float], ...] = ()

    @property
    def confidence(self) -> float:
        """The confidence of every interval."""
        return 1 - self.alpha


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One broker process with one block's requests.

    ``violations`` counts the scheduler's violations by law. ``billed_share`` is the
    share of the broker's CPU time billed to requests or to housekeeping; None if no
    process was measured. ``accounts`` are the billed parts in nanoseconds.
    ``probes_ns`` are the times of a fixed loop on the broker's CPU during the run.
    ``machine`` has the kernel's accounts (steal_s and others_s of watched_s), and
    ``seconds`` is the length of the run. Runs on a cluster have a file of ``attempts``.
    ``cost_ratio`` is the measured cost of requests over the calibrated one. The
    processes of a ``session`` were started together, one per arm. ``late_requests``
    counts, by class, requests sent later than the limit. ``loop_us`` is the mean time
    of the reference loop.
    """

    run_id: str
    point: str
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
    violations: Mapping[str, int]
    billed_share: float | None
    seconds: float = 0.0
    lateness_p99_by_class_ns: Mapping[str, int] = field(default_factory=dict)
    probes_ns: tuple[int, ...] = ()
    machine: Mapping[str, float] = field(default_factory=dict)
    attempts: str | None = None
    accounts: Mapping[str, int] = field(default_factory=dict)
    cost_ratio: float | None = None
    session: int = 0
    late_requests: Mapping[str, int] = field(default_factory=dict)
    loop_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The state of the sequential rule of episodes at the end of a session.

    ``half_widths`` are those of the log-ratios to the baseline, by arm; None while
    there was no interval.
    """

    rounds: int
    half_widths: Mapping[str, float | None]
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """The sequential rule of an experiment in rounds, and all its looks.

    ``primary`` is the class whose ``quantile`` decides. The machine's speed may differ
    between a round's arms by the factor ``speed_band``. If ``slowest_band`` is set, no
    part of an episode was slower than an idle machine by more than that factor.
    """

    primary: str
    quantile: Fraction
    precision: float
    rounds_min: int
    minutes: float
    speed_band: float
    looks: tuple[Look, ...]
    slowest_band: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The sessions of an experiment, as planned before it ran.

    A session replays ``rounds`` traces, one per block. The configured metric is the
    ``quantile`` of the class ``primary``. An ``exploratory`` experiment was continued
    with more sessions than planned.
    """

    planned: int
    rounds: int
    primary: str
    quantile: Fraction
    exploratory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a run directory, as far as the analysis reads it.

    ``episodes`` is None if each run has its own broker; otherwise a block is a round.
    ``location`` is the URI of a directory on another file system, else empty.
    """

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
    points: tuple[Point, ...]
    options: Options
    runs: tuple[Run, ...]
    code: Mapping[str, Any]
    environment: Mapping[str, Any]
    config: Mapping[str, Any]
    config_sha256: str
    sessions: Sessions
    episodes: Episodes | None = None
    location: str = ""

    def at(self, point: Point) -> Manifest:
        """Return the manifest of one point."""
        runs = tuple(run for run in self.runs if run.point == point.name)
        return replace(self, points=(point,), runs=runs)

    @property
    def point(self) -> Point:
        """The only point; every manifest that ``at`` returns has one."""
        (point,) = self.points
        return point

    @property
    def classes(self) -> tuple[RequestClass, ...]:
        """The request classes of the only point, the most important first."""
        return self.point.classes

    @property
    def window_ns(self) -> tuple[int, int]:
        """The window of the only point: requests with intended instants in it count."""
        return self.point.window_ns

    @property
    def runs_valid(self) -> tuple[Run, ...]:
        """Runs that their recorder marked as valid."""
        return tuple(run for run in self.runs if run.valid)

    @property
    def speed_band(self) -> float | None:
        """Factor by which the machine's speed may differ between compared arms.

        None in recordings older than this limit.
        """
        if self.episodes is not None:
            band = self.episodes.speed_band
            return band if math.isfinite(band) else None
        found: float | None = self.config.get("limits", {}).get("speed_band")
        return found

    @property
    def cost_band(self) -> float:
        """Factor by which requests may be more or less expensive than calibrated.

        Infinite in recordings older than this band.
        """
        band: float = self.config.get("limits", {}).get("cost_band", math.inf)
        return band

    @property
    def deterministic(self) -> bool:
        """Whether the world answers equal requests equally."""
        return self.world in ("model", "virtual")

    @property
    def old_leader(self) -> int | None:
        """The broker that an election takes partitions from, or None."""
        config = self.config
        elects = [it["kind"] == "elect" for it in config.get("faults") or ()]
        if config.get("cluster") is None or not any(elects):
            return None
        return int(config["cluster"]["leader"])

    @property
    def brokers_recorded(self) -> bool:
        """Whether the brokers recorded a row per request; phases need these rows."""
        return self.world not in ("kafka", "kraft")

    @property
    def arms_missing(self) -> tuple[str, ...]:
        """Arms without any valid run, which cannot be compared."""
        present = {run.arm for run in self.runs if run.valid}
        return tuple(arm.name for arm in self.arms if arm.name not in present)

    @property
    def arms_compared(self) -> tuple[Arm, ...]:
        """Arms with valid runs, the baseline first, then in the config's order."""
        missing = self.arms_missing
        present = [arm for arm in self.arms if arm.name not in missing]
        return tuple(sorted(present, key=lambda arm: arm.name != self.baseline))

    @property
    def again(self) -> str | None:
        """The A/A arm of the baseline, if there is one."""
        for arm in self.arms_compared:
            if arm.again_of == self.baseline:
                return arm.name
        return None

    @property
    def rivals(self) -> tuple[str, ...]:
        """Arms that are neither the baseline nor its repetition."""
        return tuple(
            arm.name
            for arm in self.arms_compared
            if arm.name != self.baseline and arm.again_of is None
        )

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks of the only point in which every compared arm has a valid run."""
        assert len(self.points) == 1, "each point has blocks of its own"
        wanted = {arm.name for arm in self.arms_compared}
        have: dict[int, set[str]] = {}
        for run in self.runs:
            if run.valid:
                have.setdefault(run.block, set()).add(run.arm)
        return tuple(sorted(block for block, arms in have.items() if arms >= wanted))

    @property
    def comparable(self) -> bool:
        """Whether the only point has a baseline and a complete block."""
        return self.baseline not in self.arms_missing and bool(self.blocks)

    @property
    def runs_compared(self) -> tuple[Run, ...]:
        """Valid runs of complete blocks, the source of every number."""
        if len(self.points) > 1:
            views = [self.at(point) for point in self.points]
            return tuple(
                run for view in views if view.comparable for run in view.runs_compared
            )
        blocks = set(self.blocks)
        return tuple(run for run in self.runs if run.valid and run.block in blocks)

    def why_excluded(self, run: Run) -> str:
        """Return why a run of the only point is not compared, or an empty string."""
        if not run.valid:
            return run.reason or "marked as not valid"
        if run.block not in self.blocks:
            return f"block {run.block} lacks a valid run of some arm"
        return ""
