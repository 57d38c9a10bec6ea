"""An experiment as a TOML file, read strictly.

Most benchmark tools ignore a mistyped key and measure the default. Here an unknown key,
a value of the wrong type, or an arm with a key unknown to the broker stops the
experiment before it starts. The message has the key's path and the expected value.

Arms of an experiment differ in the scheduler and in broker keys, never in the load.
With ``again`` the baseline runs twice in each block, the second time as ``NAME-again``.
Any difference between the two is noise by construction.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, ValidationError, model_validator

from broker.config.doorkeeper_keys import DOORKEEPER_CLIENT_QUOTAS
from experiments.design.calibration import Calibration
from experiments.design.cluster_config import Cluster, lacking
from experiments.design.config_errors import ExperimentError, first_error
from experiments.design.faults import Fault, ScaleLoad, conflict, refusal
from experiments.design.model_config import ModelArm, ModelSection, misfit
from experiments.design.sessions import Sessions
from experiments.design.sweep import Bisection, Sweep
from experiments.design.values import Mean, Name, Rate, Seconds, Section
from experiments.design.workload import Workload
from experiments.design.world_config import (
    WORLDS,
    BrokerKeys,
    KafkaArm,
    MeasuredWorld,
    VirtualWorld,
    known,
)

AGAIN = "-again"
BLOCKS_MAX = 999
SEEDS = 2**53
_NAME_MAX = 40
NO_KEYS: Mapping[str, str | int | float | bool] = MappingProxyType({})


Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
WindowMs: TypeAlias = Annotated[float, Field(ge=1e-3, le=1e9, allow_inf_nan=False)]


class Header(Section):
    """Name, seed and number of repetitions.

    ``blocks`` is absent if ``[sessions]`` states the number of rounds.
    """

    name: Name
    title: str = ""
    seed: Annotated[int, Field(ge=0, lt=SEEDS)]
    blocks: Annotated[int, Field(ge=1, le=BLOCKS_MAX)] | None = None
    baseline: Name
    again: bool = True
    world: Annotated[str, AfterValidator(known)] = "live"


class Arm(Section):
    """One alternative: a scheduler, its broker keys, its model settings.

    ``factors`` names the arm's parts (``reader = "own"``) if arms are combinations of
    parts; the report then separates the parts' effects. ``controller`` selects how a
    controller sends requests that wait for a broker's earlier answer: ``in-turn``, or
    ``merged`` into one of each kind (as in LinkedIn's fork of Kafka).
    """

    name: Name
    scheduler: str
    controller: Literal["in-turn", "merged"] = "in-turn"
    factors: dict[Name, Name] = Field(default_factory=dict)
    set: BrokerKeys = Field(default_factory=dict)
    model: ModelArm = ModelArm()
    kafka: KafkaArm = KafkaArm()


class BrokerSection(Section):
    """Broker keys that all arms share; an arm's own ``set`` has precedence."""

    set: BrokerKeys = Field(default_factory=dict)


class Limits(Section):
    """Limits of a run's duration, and of its generator's lateness.

    A run is discarded if the generator offered requests later than ``lateness_p99_ms``,
    or, in a session, was without its CPU for that long at once. It is then repeated up
    to ``retries`` times; after that the round is discarded for all arms. No behaviour
    of a broker discards a run. ``timeout_ms`` is the client's ``request.timeout.ms``.
    ``drain_s`` is the time that a run waits for answers after the last arrival. If
    loads are shares of a machine, the lateness and ``drain_s`` are in nominal time, as
    the load is.
    """

    lateness_p99_ms: Mean = 1.0
    retries: Annotated[int, Field(ge=0)] = 2
    drain_s: Seconds = 5.0
    timeout_ms: Mean = 30_000.0


class Analysis(Section):
    """Settings of the analysis: quantiles, margins, pairs.

    ``compare`` are pairs of arms to compare with each other; all arms are compared with
    the baseline. Two worlds agree on a ratio if it is equal within ``margin_worlds``.
    A quantile with fewer effective exceedances than ``exceedances_shown`` is refused.
    The objective of a class is met if a share of ``slo_share`` of its requests gets a
    good answer within ``slo_ms``. ``fairness_window_ms`` is the width of the windows in
    which fairness between the flows of a class is measured; without it, it is not.
    ``recovery_s`` are intervals that follow bursts, in each of which recovery is
    measured. Both are in nominal time, as the load is.
    """

    quantiles: Annotated[tuple[Share, ...], Field(min_length=1)] = (
        0.5,
        0.95,
        0.99,
        0.999,
    )
    alpha: Share = 0.05
    margin_latency: Share = 0.05
    margin_goodput: Share = 0.02
    margin_worlds: Mean = 0.25
    exceedances_shown: Annotated[int, Field(ge=1)] = 10
    compare: tuple[tuple[Name, Name], ...] = ()
    slo_share: Share = 0.99
    fairness_window_ms: WindowMs | None = None
    recovery_s: tuple[tuple[Rate, Seconds], ...] = ()


class Experiment(Section):
    """The whole file.

    ``nominal`` are the costs in whose time the traffic is stated, ``machine`` those of
    the machine that replays it (``--calibration``). ``cluster`` replaces the broker by
    several, and ``faults`` are their faults. ``kafka`` is for both worlds of Apache
    Kafka.
    """

    experiment: Header
    workload: Workload
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)]
    broker: BrokerSection = BrokerSection()
    limits: Limits = Limits()
    analysis: Analysis = Analysis()
    virtual: VirtualWorld = VirtualWorld()
    live: MeasuredWorld = MeasuredWorld()
    kafka: MeasuredWorld = MeasuredWorld()
    model: ModelSection = ModelSection()
    nominal: Calibration | None = None
    machine: Calibration | None = None
    sweep: Sweep | None = None
    sessions: Sessions | None = None
    cluster: Cluster | None = None
    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = [arm.name for arm in self.arms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two arms are called {twice[0]!r}")
        reserved = [name for name in names if name.endswith(AGAIN)]
        if reserved:
            raise ValueError(f"arm {reserved[0]!r}: {AGAIN!r} is kept for the A/A arm")
        if self.experiment.again and len(self.experiment.baseline + AGAIN) > _NAME_MAX:
            raise ValueError(
                f"baseline {self.experiment.baseline!r} is called {AGAIN!r} too, and "
                f"a name has at most {_NAME_MAX} characters"
            )
        if self.experiment.baseline not in names:
            raise ValueError(
                f"baseline {self.experiment.baseline!r} is none of the arms "
                + ", ".join(names)
            )
        strangers = {arm for pair in self.analysis.compare for arm in pair} - set(names)
        if strangers:
            raise ValueError(f"analysis.compare: no arm is {min(strangers)!r}")
        _check_factors(self.arms)
        _check_costs(self.nominal, self.workload)
        self._check_sessions()
        self._check_cluster()
        self._check_trace()
        _check_recovery(self.analysis, self.workload)
        self._check_bisection()
        for arm in self.arms:
            if fault := misfit(arm.model.settings(self.model), arm.scheduler):
                raise ValueError(f"arm {arm.name!r}: model: {fault}")
            keys = {**self.broker.set, **arm.set}
            if (
                DOORKEEPER_CLIENT_QUOTAS.name in keys
                and self.experiment.world == "model"
            ):
                raise ValueError(f"arm {arm.name!r}: the model has no client quotas")
        return self

    def _check_sessions(self) -> None:
        """Refuse blocks with sessions, and a primary class that does not exist."""
        blocks = self.experiment.blocks
        if self.sessions is None:
            if blocks is None:
                raise ValueError(
                    "experiment.blocks: missing, and there is no [sessions]"
                )
            return
        if blocks is not None:
            raise ValueError(
                "experiment.blocks: [sessions] states the number of rounds"
            )
        if self.blocks > BLOCKS_MAX:
            raise ValueError(
                f"sessions: {self.blocks} rounds in all, at most {BLOCKS_MAX} expected"
            )
        classes = [entry.reported_class for entry in self.workload.traffic]
        if self.sessions.primary not in classes:
            raise ValueError(
                f"sessions.primary {self.sessions.primary!r} is none of the classes "
                + ", ".join(dict.fromkeys(classes))
            )

    def _check_cluster(self) -> None:
        """Refuse settings that a cluster cannot have, and impossible faults."""
        world = self.experiment.world
        merging = [arm.name for arm in self.arms if arm.controller != "in-turn"]
        if self.cluster is None and merging:
            raise ValueError(f"arm {merging[0]!r}: a controller needs a [cluster]")
        if self.cluster is not None and self.sessions is not None:
            raise ValueError("a run on a cluster starts its own brokers: no [sessions]")
        if self.cluster is not None:
            on_seats = self.virtual.server == "seats"
            if fault := lacking(self.cluster, self.workload, world, on_seats=on_seats):
                raise ValueError(fault)
        brokers = 1 if self.cluster is None else self.cluster.brokers
        for number, each in enumerate(self.faults):
            if why := refusal(each, world, brokers, self.workload):
                raise ValueError(f"faults[{number}]: {why}")
        if why := conflict(self.faults, world):
            raise ValueError(why)

    def _check_trace(self) -> None:
        """Refuse worlds and faults that cannot replay the requests of a file."""
        recorded = [entry.name for entry in self.workload.traffic if entry.is_recorded]
        if not recorded:
            return
        world = self.experiment.world
        if not WORLDS[world].computed or self.cluster is not None:
            where = f"the {world} world" if self.cluster is None else "a cluster"
            raise ValueError(
                f"workload.trace: its service times cannot be imposed on {where}; the "
                "model and virtual worlds replay it"
            )
        for number, fault in enumerate(self.faults):
            if isinstance(fault, ScaleLoad) and fault.traffic in (None, *recorded):
                raise ValueError(
                    f"faults[{number}]: a trace cannot arrive faster; name traffic "
                    "with arrivals of its own"
                )

    def _check_bisection(self) -> None:
        """Refuse a bisection in a measured world, or without an objective."""
        sweep, world = self.sweep, self.experiment.world
        if not isinstance(sweep, Bisection):
            return
        if not WORLDS[world].computed:
            raise ValueError(
                f"sweep.design: the {world} world measures the machine; a bisection is "
                "for the model and virtual worlds"
            )
        objectives = {
            entry.reported_class: entry.slo_ms
            for entry in self.workload.traffic
            if entry.slo_ms is not None
        }
        if sweep.request_class not in objectives:
            raise ValueError(
                f"sweep.class: {sweep.request_class!r} is no class with a slo_ms; "
                f"there is {', '.join(objectives) or 'none'}"
            )

    @property
    def blocks(self) -> int:
        """Return the number of blocks: of rounds, over all sessions."""
        if self.sessions is not None:
            return self.sessions.count * self.sessions.rounds
        assert self.experiment.blocks is not None
        return self.experiment.blocks

    @property
    def primary(self) -> tuple[str, float]:
        """Return the class and the quantile of the configured metric.

        Without ``[sessions]``: the first class, and the quantile nearest to the p99.
        """
        if self.sessions is not None:
            return self.sessions.primary, self.sessions.quantile
        nearest = min(self.analysis.quantiles, key=lambda it: abs(it - 0.99))
        return self.workload.traffic[0].reported_class, nearest

    def session_of(self, block: int) -> int:
        """Return the session of a block."""
        return block if self.sessions is None else block // self.sessions.rounds

    @property
    def name(self) -> str:
        """Return the experiment's name."""
        return self.experiment.name

    def all_arms(self) -> tuple[Arm, ...]:
        """Return the arms in order, the A/A arm last."""
        if not self.experiment.again:
            return self.arms
        baseline = self.arm(self.experiment.baseline)
        return (*self.arms, baseline.changed(name=baseline.name + AGAIN))

    def arm(self, name: str) -> Arm:
        """Return the arm called ``name``."""
        return next(arm for arm in self.arms if arm.name == name)

    def again_of(self, arm: Arm) -> str | None:
        """Return the arm that ``arm`` repeats, if it is the A/A arm."""
        return arm.name.removesuffix(AGAIN) if arm.name.endswith(AGAIN) else None

    def broker_keys(
        self, arm: Arm, world: Mapping[str, str | int | float | bool] = NO_KEYS
    ) -> dict[str, str]:
        """Return an arm's broker configuration, as in ``server.properties``.

        ``world`` are keys that only one world sets; an arm's own have precedence.
        """
        own = {**arm.set, "doorkeeper.scheduler": arm.scheduler}
        merged = {**self.broker.set, **world, **own}
        return {key: _property(value) for key, value in merged.items()}

    def with_schedulers(self, names: Iterable[str]) -> Experiment:
        """Keep the named arms; add an arm for a scheduler without one.

        :raises ExperimentError: if the baseline is not among them, or one is no name.
        """
        content = self.model_dump(mode="json", by_alias=True)
        known = {arm["name"]: arm for arm in content["arms"]}
        arms = [
            known.get(name) or {"name": _arm_name(name), "scheduler": name}
            for name in names
        ]
        content["arms"] = arms
        kept = {arm["name"] for arm in arms}
        pairs = content["analysis"]["compare"]
        content["analysis"]["compare"] = [p for p in pairs if kept.issuperset(p)]
        return parse(content)

    def with_world(self, world: str) -> Experiment:
        """Return the same experiment in another world."""
        content = self.model_dump(mode="json", by_alias=True)
        content["experiment"]["world"] = world
        return parse(content)

    def with_traces(self, seed: int | None, sessions: int | None) -> Experiment:
        """Return the same experiment on other traces, in another number of sessions.

        Without ``[sessions]`` each block is a session.
        """
        header, planned = self.experiment, self.sessions
        if seed is None and sessions is None:
            return self
        if seed is not None:
            header = header.changed(seed=seed)
        if sessions is not None:
            if planned is None:
                header = header.changed(blocks=sessions)
            else:
                planned = planned.changed(count=sessions)
        return self.changed(experiment=header, sessions=planned)

    def with_machine(self, machine: Calibration) -> Experiment:
        """Return the same experiment for a machine with these costs.

        :raises ExperimentError: if some traffic has no cost there.
        """
        missing = [
            entry.name
            for entry in self.workload.traffic
            if entry.name not in machine.costs
        ]
        if missing:
            raise ExperimentError("the calibration", f"has no cost of {missing[0]!r}")
        return self.changed(machine=machine)

    def content(self) -> dict[str, Any]:
        """Return the file's content with every default filled in."""
        return self.model_dump(mode="json", by_alias=True)

    def sha256(self) -> str:
        """Return the hash of the content; a trace counts by its own hash."""
        content = self.content()
        del content["workload"]["trace"]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def parse(content: Mapping[str, Any]) -> Experiment:
    """Check an experiment's content.

    :raises ExperimentError: at the first key or value that is not as expected.
    """
    try:
        # As JSON, because strict types then still accept an array as a tuple.
        return Experiment.model_validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        raise first_error(error, Experiment) from error


def check_broker_keys(experiment: Experiment) -> None:
    """Create each arm's planes, as a broker with the arm's keys would.

    :raises ExperimentError: naming the arm, the key, and the value that the broker
        expected.
    """
    from broker.config import BrokerConfig
    from broker.protocol.errors import ConfigError
    from broker.requests import topology

    for arm, world in product(experiment.arms, (experiment.live, experiment.kafka)):
        try:
            keys = experiment.broker_keys(arm, world.set)
            topology.build(BrokerConfig.load(None, keys), random.Random(0))
        except ConfigError as error:
            raise ExperimentError(f"arms[{arm.name!r}]", str(error)) from error


def _check_factors(arms: Iterable[Arm]) -> None:
    """Refuse arms with different factors, or with the same combination."""
    seen: dict[tuple[tuple[str, str], ...], str] = {}
    expected: set[str] = set()
    for arm in arms:
        if not arm.factors:
            continue
        expected = expected or set(arm.factors)
        if set(arm.factors) != expected:
            raise ValueError(
                f"arm {arm.name!r} has the factors {', '.join(arm.factors)}; "
                f"an arm before it has {', '.join(sorted(expected))}"
            )
        made_of = tuple(sorted(arm.factors.items()))
        if made_of in seen:
            raise ValueError(
                f"arms {seen[made_of]!r} and {arm.name!r} have the same factors"
            )
        seen[made_of] = arm.name


def _check_recovery(analysis: Analysis, workload: Workload) -> None:
    """Refuse intervals outside the window, overlapping ones, and a lack of any SLO."""
    if not analysis.recovery_s:
        return
    if all(entry.slo_ms is None for entry in workload.traffic):
        raise ValueError("analysis.recovery_s: no traffic has a slo_ms to recover to")
    before_s = workload.warmup_s
    for start_s, end_s in analysis.recovery_s:
        if not before_s <= start_s < end_s <= workload.duration_s:
            raise ValueError(
                f"analysis.recovery_s: {start_s} to {end_s}, expected ascending "
                f"intervals between warmup_s = {workload.warmup_s} and "
                f"duration_s = {workload.duration_s}"
            )
        before_s = end_s


def _check_costs(nominal: Calibration | None, workload: Workload) -> None:
    """Refuse nominal costs of traffic that does not exist."""
    names = [entry.name for entry in workload.traffic]
    strangers = sorted(set(nominal.costs if nominal else ()) - set(names))
    if strangers:
        raise ValueError(
            f"nominal.costs: no traffic is called {strangers[0]!r}; there is "
            + ", ".join(names)
        )


def _property(value: str | int | float | bool) -> str:
    """Return a TOML value as text of ``server.properties``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _arm_name(scheduler: str) -> str:
    """Return an arm's name for a scheduler (``module:factory``)."""
    return scheduler.replace(":", ".").lower()
