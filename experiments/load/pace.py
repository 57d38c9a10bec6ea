"""A load whose speed changes: arrivals are drawn as work, and mapped to time.

While traffic is scaled by a factor, one second contains that many seconds of work. An
arrival process is drawn in work, without scales. Its shape (bursts, their sizes, the
order of its draws) is therefore kept, and only the clock between the arrivals changes.
Without a scale both times are the same integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from experiments.design.faults import Fault, ScaleLoad

_SECOND_NS = 1_000_000_000


class Scale(NamedTuple):
    """An interval in which arrivals are ``factor`` times as fast."""

    begin_ns: int
    end_ns: int
    factor: float


def scales_of(faults: Iterable[Fault], traffic: str) -> list[Scale]:
    """Return the scales of one traffic entry."""
    return [
        Scale(
            round(fault.at_s * _SECOND_NS),
            round(fault.until_s * _SECOND_NS),
            fault.factor,
        )
        for fault in faults
        if isinstance(fault, ScaleLoad) and fault.traffic in (None, traffic)
    ]


class _Piece(NamedTuple):
    """An interval with constant ``factor``, starting after ``done_ns`` of work."""

    begin_ns: int
    done_ns: int
    factor: float


class Pace:
    """Work as a function of time, piecewise linear; scales that overlap multiply."""

    def __init__(self, scales: Sequence[Scale]) -> None:
        edges = sorted(
            {0, *(edge for it in scales for edge in (it.begin_ns, it.end_ns))}
        )
        self._pieces: list[_Piece] = []
        work_ns = 0
        for number, edge_ns in enumerate(edges):
            factor = 1.0
            for scale in scales:
                if scale.begin_ns <= edge_ns < scale.end_ns:
                    factor *= scale.factor
            self._pieces.append(_Piece(edge_ns, work_ns, factor))
            if number + 1 < len(edges):
                work_ns += round((edges[number + 1] - edge_ns) * factor)

    def work(self, at_ns: int) -> int:
        """Return the work done by an instant."""
        begin_ns, work_ns, factor = next(
            piece for piece in reversed(self._pieces) if piece.begin_ns <= at_ns
        )
        return work_ns + round((at_ns - begin_ns) * factor)

    def instant(self, work_ns: int) -> int:
        """Return the instant at which this amount of work is done."""
        begin_ns, done_ns, factor = next(
            piece for piece in reversed(self._pieces) if piece.done_ns <= work_ns
        )
        return begin_ns + round((work_ns - done_ns) / factor)
