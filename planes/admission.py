"""Who may enter a full request queue.

Kafka blocks the network processor until there is room (``block``). ``reserve`` keeps
the last slots for some classes, ``exempt`` lets some classes exceed the bound. What
a refused request costs the *other* connections of its processor is the reader's choice
(``broker.network.processor``), not the plane's.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedulers import Job

BLOCK, RESERVE, EXEMPT = "block", "reserve", "exempt"
ADMISSIONS = (BLOCK, RESERVE, EXEMPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The bound of a plane's queue and the rule for the classes it favours.

    ``capacity`` counts waiting requests that were never served
    (``queued.max.requests``); ``reserved`` of those slots are kept for ``favoured``
    classes under ``reserve``.
    """

    capacity: int
    rule: str = BLOCK
    favoured: frozenset[str] = frozenset()
    reserved: int = 0

    def __post_init__(self) -> None:
        assert self.rule in ADMISSIONS, self.rule
        assert 0 <= self.reserved < self.capacity, (self.reserved, self.capacity)
        assert self.reserved == 0 or self.rule == RESERVE, self.rule

    def admits(self, job: Job, queued: int) -> bool:
        """Say whether ``job`` may enter a queue that holds ``queued`` requests."""
        if queued < self.capacity - self.reserved:
            return True
        if self.rule == EXEMPT and job.request_class in self.favoured:
            return True
        if self.rule == RESERVE and job.request_class not in self.favoured:
            return False
        return queued < self.capacity
