"""One sample of one metric, as every source of metrics yields it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One sample; ``kind`` is Prometheus' type of its family."""

    name: str
    kind: str
    value: float
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    suffix: str = ""


# What a source yields: samples, and None where others may be let run before the next.
Samples: TypeAlias = Iterable[Metric | None]
# How many objects a source tells of between two such moments.
PIECE: Final = 32
