"""The segments of one log in order, and their addition and removal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from broker.log.segments.segment import Segment


class Segments:
    """At least one segment, in order; the last one is active. Cost: O(log n) lookups.

    A segment leaves the list before its files are removed, so that after an error no
    reader finds a partial segment. At the start the oldest segment is removed first, at
    the end the newest: a crash in between leaves no gap.
    """

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments, "a log has a segment"
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    def index_of(self, offset: int) -> int:
        """Return the number of the segment of ``offset``; 0 if it is below all."""
        if offset >= self.active.base_offset:
            return len(self._segments) - 1
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, number: int, log_end_offset: int) -> int:
        """Return the end of the segment's range of offsets."""
        following = number + 1
        if following < len(self._bases):
            return self._bases[following]
        return log_end_offset

    def holds(self, segment: Segment) -> bool:
        """Return whether a segment is still part of the log."""
        return self._segments[self.index_of(segment.base_offset)] is segment

    def size_bytes(self) -> int:
        """Return the bytes of all segments, without indexes."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Make a new segment the active one."""
        assert segment.base_offset > self._bases[-1], (segment, self._bases[-1])
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def drop_oldest(self) -> Segment:
        """Remove and return the first segment, which must not be active."""
        assert len(self._segments) > 1, "the active segment stays"
        del self._bases[0]
        return self._segments.pop(0)

    def drop_newest(self) -> Segment:
        """Remove and return the active segment; the previous one becomes active."""
        assert len(self._segments) > 1, "a log has a segment"
        del self._bases[-1]
        dropped = self._segments.pop()
        self.active = self._segments[-1]
        return dropped

    def replace(self, first: int, last: int, segment: Segment) -> None:
        """Replace the segments numbered ``first`` to ``last`` by one segment."""
        assert 0 <= first <= last < len(self._segments) - 1, (first, last)
        self._segments[first : last + 1] = [segment]
        self._bases[first : last + 1] = [segment.base_offset]

    def restart(self, segment: Segment) -> None:
        """Replace all segments by ``segment``."""
        self._segments = [segment]
        self._bases = [segment.base_offset]
        self.active = segment

    def check(self) -> None:
        """Assert order, and every segment's own invariants."""
        assert self._bases == sorted(set(self._bases)), self._bases
        assert self._bases == [segment.base_offset for segment in self._segments]
        assert self.active is self._segments[-1]
        for segment in self._segments:
            segment.check()
