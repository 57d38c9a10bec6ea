"""Overload: writes that waited at the old leader when the controller decided.

Arms differ in how a controller's request waits behind other requests. Without a
backlog all arms are alike, and the incident shows no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

from spark_analysis.incidents.incident_measures import of_backlog
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.load import aggregates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Kafka's default of queued.max.requests.
_PLACES: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """Number of writes that waited under the baseline, incident by incident.

    ``places`` are those of the old leader's request queue (``queued.max.requests``).
    """

    places: int
    waiting: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean number of waiting writes over incidents."""
        return fmean(self.waiting)

    @property
    def full(self) -> int:
        """Number of incidents with a full queue."""
        return sum(waiting >= self.places for waiting in self.waiting)

    @property
    def shown(self) -> bool:
        """Whether most incidents had a full queue."""
        return 2 * self.full > len(self.waiting)


def overload_of(attempts: DataFrame, manifest: Manifest, old_leader: int) -> Overload:
    """Return the overload of the baseline's runs; attempts have ``decided_ns``."""
    found = (
        attempts.where(attempts.arm == manifest.baseline)
        .groupBy("block")
        .agg(*aggregates({"waiting": of_backlog(old_leader)}))
        .orderBy("block")
        .toArrow()
        .to_pylist()
    )
    (baseline,) = (arm for arm in manifest.arms if arm.name == manifest.baseline)
    shared = manifest.config.get("broker", {}).get("set", {})
    settings = {**shared, **baseline.settings}
    return Overload(
        places=int(settings.get("queued.max.requests", _PLACES)),
        waiting=tuple(row["waiting"] for row in found),
    )
