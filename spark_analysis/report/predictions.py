"""Files of predictions and of their judgement, with a table and sentences.

Both files are kept next to the results of experiments, in ``predictions/``. The first
is committed before the measurement, the second is written after it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

import numpy as np
from scipy.stats import binomtest

from spark_analysis.judging.registered_predictions import (
    Condition,
    Judged,
    Prediction,
    Predictions,
)
from spark_analysis.judging.study import Study
from spark_analysis.report.content.numbers import percent, ratio
from spark_analysis.report.content.rendering import sentence
from spark_analysis.report.content.tables import (
    Column,
    Table,
    as_markdown,
    count,
    ends,
    text,
)
from spark_analysis.report.json_text import json_text
from spark_analysis.report.results import finite
from spark_analysis.statistics.intervals import Estimate

# The judgement, next to the results of experiments.
JUDGEMENT: Final = Path("predictions", "judgement.json")

# Functional syntax, because ``class`` is a keyword.
JudgedRow = TypedDict(
    "JudgedRow",
    {
        "world": str,
        "point": str,
        "class": str,
        "arm": str,
        "predicted": float,
        "low": float,
        "high": float | None,
        "measured": float | None,
        "measured_low": float | None,
        "measured_high": float | None,
        "error": float | None,
        "is_covered": bool,
    },
)


class Judgement(TypedDict):
    """Content of the file of a judgement; ``error`` is a logarithm.

    ``high`` is null where an interval is unbounded, ``measured`` where it was refused.
    """

    name: str
    metric: str
    baseline: str
    primary: str
    confidence: float
    written: str
    simulated: dict[str, int]
    world: str
    created: str
    commit: str
    sessions: int
    planned: int
    rows: list[JudgedRow]


def written_predictions(predictions: Predictions) -> str:
    """Return the content of a file of predictions."""
    rows = [
        {
            "world": it.world,
            **it.condition._asdict(),
            "ratio": it.ratio.value,
            "low": it.ratio.low,
            "high": finite(it.ratio.high),
        }
        for it in predictions.found
    ]
    return json_text({**asdict(predictions), "found": rows})


def read_predictions(text: str) -> Predictions:
    """Return the predictions of a file."""
    content: dict[str, Any] = json.loads(text)
    found = tuple(
        Prediction(
            world=row["world"],
            condition=Condition(row["point"], row["class_name"], row["arm"]),
            ratio=Estimate(
                float(row["ratio"]),
                float(row["low"]),
                math.inf if row["high"] is None else float(row["high"]),
            ),
        )
        for row in content.pop("found")
    )
    return Predictions(**content, found=found)


def judgement_of(
    predictions: Predictions, judged: Sequence[Judged], study: Study
) -> Judgement:
    """Return the content of the file of a judgement."""
    manifest = study.manifest
    runs = [it.manifest.runs_compared for it in study.comparisons]
    return {
        "name": predictions.name,
        "metric": next(
            it.label for it in study.metrics if it.name == predictions.metric
        ),
        "baseline": predictions.baseline,
        "primary": predictions.primary,
        "confidence": predictions.confidence,
        "written": predictions.written,
        "simulated": dict(predictions.worlds),
        "world": manifest.world,
        "created": manifest.created,
        "commit": str(manifest.code.get("commit", "unknown"))[:10],
        "sessions": min(len({run.session for run in of}) for of in runs),
        "planned": manifest.sessions.planned,
        "rows": [_row(it) for it in judged],
    }


def _row(judged: Judged) -> JudgedRow:
    prediction, measured = judged.prediction, judged.measured
    condition, interval = prediction.condition, prediction.ratio
    return {
        "world": prediction.world,
        "point": condition.point,
        "class": condition.class_name,
        "arm": condition.arm,
        "predicted": interval.value,
        "low": interval.low,
        "high": finite(interval.high),
        "measured": None if measured is None else finite(measured.value),
        "measured_low": None if measured is None else finite(measured.low),
        "measured_high": None if measured is None else finite(measured.high),
        "error": judged.error,
        "is_covered": judged.is_covered,
    }


def written_judgement(judgement: Judgement) -> str:
    """Return the content of the file of a judgement as JSON."""
    return json_text(judgement)


@dataclass(frozen=True, slots=True)
class OutOfSample:
    """A judgement as used by the page of findings and the paper."""

    found: Judgement

    @property
    def level(self) -> str:
        """The nominal coverage of the intervals."""
        return percent(self.found["confidence"])

    @property
    def source(self) -> str:
        """Origin of the numbers: predictions, then measurement."""
        simulated = ", ".join(
            f"{world} ({sessions} sessions)"
            for world, sessions in self.found["simulated"].items()
        )
        return (
            f"predictions of {self.found['written'][:10]}, {simulated}; "
            f"{self.found['world']} ({self.found['sessions']} of "
            f"{self.found['planned']} sessions, {self.found['created'][:10]}, commit "
            f"`{self.found['commit']}`)"
        )

    @property
    def sentences(self) -> str:
        """One sentence for each world, about the primary class."""
        primary = self.found["primary"]
        return " ".join(
            sentence(
                "out_of_sample",
                label=f"{primary} {self.found['metric']}",
                level=self.level,
                world=row["world"],
                predicted=row["predicted"],
                judged=row["judged"],
                covered=row["covered"],
                median=ratio(row["median"]),
                most=ratio(row["most"]),
            )
            for row in self._rows()
            if row["class"] == primary and row["judged"]
        )

    @property
    def table(self) -> Table:
        """Coverage and error by world and class."""
        return Table(
            name="out-of-sample",
            caption=sentence(
                "out_of_sample_caption",
                metric=self.found["metric"],
                baseline=self.found["baseline"],
                level=self.level,
            ),
            columns=(
                text("world"),
                text("class"),
                count("predicted"),
                count("measured", "judged"),
                count("inside", "covered"),
                ends("share, 95 % CI", "share_low", "share_high"),
                _factor("measured / predicted", "bias"),
                _factor("error factor, median", "median"),
                _factor("90 % of errors", "most"),
                _factor("interval factor", "width"),
            ),
            rows=tuple(self._rows()),
        )

    @property
    def markdown(self) -> str:
        """The table in Markdown."""
        return as_markdown(self.table).strip()

    def _rows(self) -> Iterator[dict[str, Any]]:
        places = dict.fromkeys((it["world"], it["class"]) for it in self.found["rows"])
        for world, class_name in places:
            mine = [
                it
                for it in self.found["rows"]
                if (it["world"], it["class"]) == (world, class_name)
            ]
            yield {"world": world, "class": class_name, **_summary(mine)}


def _factor(heading: str, key: str) -> Column:
    return Column(heading=heading, keys=(key,), write=ratio)


def _summary(rows: Sequence[JudgedRow]) -> dict[str, int | float | None]:
    """Return coverage and error distribution of some conditions.

    ``median`` and ``most`` are factors that half and nine tenths of the errors do not
    exceed, in either direction; ``bias`` is the median of measured over predicted.
    ``width`` is the median factor from a prediction to an end of its interval. The
    interval of the coverage is Clopper and Pearson's, for independent conditions.
    """
    judged = [it for it in rows if it["measured"] is not None]
    errors = np.array([it["error"] for it in judged if it["error"] is not None])
    widths = [
        math.log(it["high"] / it["low"]) / 2
        for it in rows
        if it["high"] is not None and it["low"] > 0
    ]
    covered = sum(it["is_covered"] for it in judged)
    found = {"predicted": len(rows), "judged": len(judged), "covered": covered}
    if not judged or not len(errors) or not widths:
        return {**found, **dict.fromkeys(_DISTRIBUTION)}
    share = binomtest(covered, len(judged)).proportion_ci(method="exact")
    most = np.quantile(np.abs(errors), 0.9, method="inverted_cdf")
    return {
        **found,
        "share_low": float(share.low),
        "share_high": float(share.high),
        "bias": math.exp(float(np.median(errors))),
        "median": math.exp(float(np.median(np.abs(errors)))),
        "most": math.exp(float(most)),
        "width": math.exp(float(np.median(widths))),
    }


_DISTRIBUTION: Final = ("share_low", "share_high", "bias", "median", "most", "width")
