"""First screen of a report: one table, one row per arm, and at most three sentences.

All content follows from ``results.json``. The reference world is the first recorded one
of ``judging.world_agreement.ORDER``: measurement before simulation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final

from spark_analysis.report.content.numbers import NONE, interval, ratio, ratio_interval
from spark_analysis.report.content.rendering import sentence
from spark_analysis.report.content.schema import Incident, Results, Row
from spark_analysis.report.content.tables import (
    Table,
    confidence,
    metric_label,
    p,
    ratio_columns,
    text,
    verdict,
)

SENTENCES_MAX: Final = 3
# Largest number of arms or cells that a sentence names before it counts the rest.
_NAMED_MAX: Final = 3
_DECIDED: Final = ("better", "worse", "equivalent")


@dataclass(frozen=True)
class Summary:
    """First screen of one experiment."""

    found: Results

    @property
    def swept(self) -> bool:
        """Whether the experiment has more than one point."""
        return bool(self.found["points"])

    @property
    def world(self) -> str:
        """The reference world."""
        return self.found["worlds"][0]["world"]

    @property
    def label(self) -> str:
        """The primary class and metric: ``control p99``."""
        primary = self.found["primary"]
        metric = metric_label(self.found, primary["metric"])
        return f"{primary['class_name']} {metric}"

    @property
    def rivals(self) -> list[str]:
        """Arms other than the baseline and the A/A arm."""
        apart = {self.found["baseline"], self.found["again"]}
        return [arm["name"] for arm in self.found["arms"] if arm["name"] not in apart]

    @property
    def price_classes(self) -> list[str]:
        """Classes other than the primary one, in the config's order."""
        primary = self.found["primary"]["class_name"]
        present = {row["class"] for row in self.found["rows"]}
        names = (entry["name"] for entry in self.found["classes"])
        return [name for name in names if name != primary and name in present]

    def row(self, world: str, class_name: str, arm: str, point: str = "") -> Row | None:
        """Return a row in the primary metric, None if the world lacks it."""
        return self._rows.get((world, point, class_name, arm))

    @cached_property
    def _rows(self) -> Mapping[tuple[str, str, str, str], Row]:
        metric = self.found["primary"]["metric"]
        return {
            (row["world"], row["point"], row["class"], row["arm"]): row
            for row in self.found["rows"]
            if row["metric"] == metric
        }

    # ---- the table ----

    @property
    def table(self) -> Table:
        """The first screen's table."""
        return self._sweep_table() if self.swept else self._point_table()

    def _point_table(self) -> Table:
        level = confidence(self.found)
        others = [it["world"] for it in self.found["worlds"][1:]]
        p_column = [p()] if any(self._p_values()) else []
        columns = [
            text("arm"),
            *ratio_columns(self.found),
            *p_column,
            verdict(),
            *(text(_world_heading(world), world) for world in others),
            *(text(_price_heading(name)) for name in self.price_classes),
        ]
        return Table(
            name="summary",
            caption=sentence(
                "summary_caption",
                label=self.label,
                baseline=self.found["baseline"],
                world=self.world,
                level=level,
            ),
            columns=tuple(columns),
            rows=tuple(self._point_rows(others)),
        )

    def _p_values(self) -> Iterator[bool]:
        for arm in self.rivals:
            row = self.row(self.world, self.found["primary"]["class_name"], arm)
            yield row is not None and row["p"] is not None

    def _point_rows(self, others: Sequence[str]) -> Iterator[dict[str, object]]:
        primary = self.found["primary"]["class_name"]
        for arm in self.rivals:
            row = self.row(self.world, primary, arm)
            if row is None:
                continue
            there = {world: self.row(world, primary, arm) for world in others}
            prices = {
                _price_heading(name): _price(self.row(self.world, name, arm))
                for name in self.price_classes
            }
            yield {
                **row,
                "verdict": _verdict(row),
                **{world: _with_interval(of) for world, of in there.items()},
                **prices,
            }

    def _sweep_table(self) -> Table:
        primary = self.found["primary"]["class_name"]
        classes = [primary, *self.price_classes]
        rows = []
        for arm in self.rivals:
            counts = {name: _counts(self._at_points(name, arm)) for name in classes}
            rows.append({"arm": arm, **counts})
        return Table(
            name="summary",
            caption=sentence(
                "sweep_caption",
                metric=metric_label(self.found, self.found["primary"]["metric"]),
                baseline=self.found["baseline"],
                points=len(self.found["points"]),
            ),
            columns=(text("arm"), *(text(name) for name in classes)),
            rows=tuple(rows),
        )

    def _at_points(self, class_name: str, arm: str) -> list[Row]:
        rows = (
            self.row(self.world, class_name, arm, point["point"])
            for point in self.found["points"]
        )
        return [row for row in rows if row is not None]

    # ---- the sentences ----

    @property
    def sentences(self) -> list[str]:
        """At most three sentences: effect, price, agreement of worlds."""
        if "election" in self.found:
            found = [*self._election_sentences()]
        elif self.swept:
            found = [self._sweep_sentence()]
        else:
            found = [self._effect_sentence(), self._price_sentence()]
        found += [self._worlds_sentence()] if len(self.found["worlds"]) > 1 else []
        return [it for it in found if it][:SENTENCES_MAX]

    @property
    def outcome(self) -> str:
        """Number of comparisons of the primary class with each verdict."""
        points = [it["point"] for it in self.found["points"]] or [""]
        primary = self.found["primary"]["class_name"]
        rows = [
            row
            for arm, point in product(self.rivals, points)
            if (row := self.row(self.world, primary, arm, point)) is not None
        ]
        counts = sentence(
            "outcome",
            label=self.label,
            world=self.world,
            baseline=self.found["baseline"],
            counts=_counts(rows),
        )
        return f"{counts} {self._worlds_sentence()}".strip()

    @property
    def noise(self) -> str:
        """The noise floor of the primary metric in a sentence, empty without A/A."""
        again = self.found["again"]
        if again is None or self.swept:
            return ""
        row = self.row(self.world, self.found["primary"]["class_name"], again)
        if row is None or row["ratio"] is None:
            return ""
        return sentence(
            "noise",
            label=self.label,
            world=self.world,
            again=again,
            baseline=self.found["baseline"],
            ratio=ratio(row["ratio"]),
            interval=ratio_interval(row["ratio_low"], row["ratio_high"]),
        )

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt a result, one sentence each."""
        several = len(self.found["worlds"]) > 1
        found = [
            (f"{world['world']}: " if several else "")
            + sentence("caution", kind=caution["kind"], **caution["values"])
            for world in self.found["worlds"]
            for caution in world["cautions"]
        ]
        if len({world["commit"] for world in self.found["worlds"]}) > 1:
            found.append(sentence("commits", worlds=self.found["worlds"]))
        silent = self.found["silent"].items()
        return [*found, *(sentence("silent", world=k, why=why) for k, why in silent)]

    def _effect_sentence(self) -> str:
        primary = self.found["primary"]["class_name"]
        rows = [self.row(self.world, primary, arm) for arm in self.rivals]
        known = [row for row in rows if row is not None]
        better = sorted(
            (row for row in known if row["verdict"] == "better"),
            key=lambda row: row["ratio"] or 0.0,
        )
        if not better:
            return sentence(
                "no_effect",
                label=self.label,
                world=self.world,
                baseline=self.found["baseline"],
                refused=sum(row["verdict"].startswith("refused") for row in known),
                arms=len(known),
            )
        first = better[0]
        alike = [row for row in better if _overlap(first, row)]
        return sentence(
            "effect",
            label=self.label,
            world=self.world,
            baseline=self.found["baseline"],
            best=[_named(row) for row in alike[:_NAMED_MAX]],
            more=len(alike[_NAMED_MAX:]),
            level=confidence(self.found),
        )

    def _price_sentence(self) -> str:
        rows = [
            row
            for name in self.price_classes
            for arm in self.rivals
            if (row := self.row(self.world, name, arm)) is not None
        ]
        if not rows:
            return ""
        known = {
            row["class"]
            for row in rows
            if row["ratio"] is not None or row["verdict"] in _DECIDED
        }
        worse = sorted(
            (row for row in rows if row["verdict"] == "worse"),
            key=lambda row: math.inf if row["ratio"] is None else row["ratio"],
            reverse=True,
        )
        return sentence(
            "price",
            metric=metric_label(self.found, self.found["primary"]["metric"]),
            compared=[it for it in self.price_classes if it in known],
            refused=[it for it in self.price_classes if it not in known],
            worse=[_named(row) for row in worse[:_NAMED_MAX]],
            more=len(worse[_NAMED_MAX:]),
            level=confidence(self.found),
        )

    def _worlds_sentence(self) -> str:
        primary = self.found["primary"]
        counts: dict[str, Counter[str]] = {}
        missed: dict[str, list[str]] = {}
        for row in self.found["agreement"]:
            asked = (primary["class_name"], primary["metric"])
            if row["first"] != self.world and row["world"] != self.world:
                continue
            if (row["class"], row["metric"]) != asked or row["arm"] not in self.rivals:
                continue
            other = row["world"] if row["first"] == self.world else row["first"]
            counts.setdefault(other, Counter())[row["agreement"]] += 1
            if row["agreement"] == "differs":
                missed.setdefault(other, []).append(row["arm"])
        return sentence(
            "worlds",
            world=self.world,
            margin=f"{self.found['margin_worlds'] * 100:g} %",
            others=[
                {
                    "world": world,
                    "agrees": of["agrees"],
                    "of": of.total(),
                    "missed": list(dict.fromkeys(missed.get(world, []))),
                }
                for world, of in counts.items()
            ],
        )

    def _sweep_sentence(self) -> str:
        primary = self.found["primary"]["class_name"]
        counts = [
            {
                "arm": arm,
                "better": 0,
                "worse": 0,
                "refused": 0,
                **_tally(self._at_points(primary, arm)),
            }
            for arm in self.rivals
        ]
        return sentence(
            "sweep",
            label=self.label,
            baseline=self.found["baseline"],
            points=len(self.found["points"]),
            arms=counts,
        )

    def _election_sentences(self) -> Iterator[str]:
        assert "election" in self.found
        election = self.found["election"]
        for overload in election["overload"][:1]:
            yield sentence("overload", **overload)
        for world in (it["world"] for it in self.found["worlds"]):
            measures = [row for row in election["measures"] if row["world"] == world]
            if measures:
                yield self._election_sentence(world, measures)

    def _election_sentence(self, world: str, measures: Sequence[Incident]) -> str:
        name = measures[0]["measure"]
        rows = [row for row in measures if row["measure"] == name]
        decided = [row for row in rows if row["verdict"] in ("better", "worse")]
        decided.sort(key=lambda row: row["value"] or 0.0)
        base = next(row for row in rows if row["arm"] == self.found["baseline"])
        worse: dict[str, list[str]] = {}
        for row in measures:
            if row["measure"] != name and row["verdict"] == "worse":
                worse.setdefault(row["label"], []).append(row["arm"])
        return sentence(
            "election",
            label=measures[0]["label"],
            unit=measures[0]["unit"],
            world=world,
            baseline={"arm": base["arm"], "value": base["value"]},
            arms=[
                {
                    "arm": row["arm"],
                    "value": row["value"],
                    "interval": interval(row["low"], row["high"]),
                    "verdict": row["verdict"],
                }
                for row in decided[:_NAMED_MAX]
            ],
            more=len(decided[_NAMED_MAX:]),
            worse=worse,
        )


def _world_heading(world: str) -> str:
    return f"{world} ratio (CI)"


def _price_heading(class_name: str) -> str:
    return f"{class_name} price"


def _verdict(row: Row) -> str:
    return row["verdict"].partition(":")[0]


def _price(row: Row | None) -> str:
    """Return the ratio of a secondary class, with its verdict if decided."""
    if row is None or row["ratio"] is None:
        return NONE if row is None else _verdict(row)
    word = f" {row['verdict']}" if row["verdict"] in _DECIDED else ""
    return f"{ratio(row['ratio'])}{word}"


def _with_interval(row: Row | None) -> str:
    if row is None or row["ratio"] is None:
        return NONE if row is None else _verdict(row)
    ends = ratio_interval(row["ratio_low"], row["ratio_high"])
    return f"{ratio(row['ratio'])} ({ends})"


def _named(row: Row) -> dict[str, str | None]:
    return {
        "arm": row["arm"],
        "class": row["class"],
        "ratio": None if row["ratio"] is None else ratio(row["ratio"]),
        "interval": ratio_interval(row["ratio_low"], row["ratio_high"]),
    }


def _overlap(one: Row, other: Row) -> bool:
    low, high = other["ratio_low"], one["ratio_high"]
    return low is None or high is None or low <= high


def _tally(rows: Sequence[Row]) -> dict[str, int]:
    return dict(Counter(_verdict(row) for row in rows))


def _counts(rows: Sequence[Row]) -> str:
    """Return the number of points with each verdict, decided ones first."""
    tally = _tally(rows)
    order = (*_DECIDED, "not significant", "refused")
    return ", ".join(f"{tally[word]} {word}" for word in order if tally.get(word))
