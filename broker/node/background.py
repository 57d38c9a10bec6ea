"""Work that no request asked for, each kind contained: what fails is tried again.

Timers of requests and groups, upkeep of logs: a fault in one must neither end the
process nor keep the others from their work, and must not be tried in a loop that takes
all the CPU. So a duty that failed is logged and rests for a second. Where a duty has
many objects, it sees to it itself that one object's fault does not come first for ever.

Pure: clocks are handed in, and whoever drives it calls `Duty.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from logging import getLogger
from typing import Final

from broker.observation.logs import fields
from broker.observation.metric import Metric
from broker.observation.supervisor import breaks_a_plane

logger = getLogger(__name__)

RETRY_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Duty:
    """One duty: when it has something to do, and what does a small piece of it."""

    name: str
    next_ns: Callable[[], int | None]
    work: Callable[[int], object]
    failures: int = 0
    _resting_until_ns: int = 0

    def due_ns(self) -> int | None:
        """Return when `run` has something to do; None: not before something happens."""
        try:
            at_ns = self.next_ns()
        except Exception:  # `run` meets it again, and counts it
            at_ns = self._resting_until_ns
        return None if at_ns is None else max(at_ns, self._resting_until_ns)

    def run(self, now_ns: int) -> None:
        """Do a piece if one is due; whatever it raises is logged and counted."""
        if now_ns < self._resting_until_ns:
            return
        try:
            at_ns = self.next_ns()
            if at_ns is not None and at_ns <= now_ns:
                self.work(now_ns)
        except Exception as error:
            if breaks_a_plane(error):
                raise
            self.failures += 1
            self._resting_until_ns = now_ns + RETRY_NS
            logger.exception(
                "a background duty failed and is tried again",
                extra=fields(duty=self.name, fault=repr(error)),
            )


def duty_metrics(duties: Iterable[Duty]) -> Iterator[Metric]:
    """Iterate over how often each duty has failed."""
    for duty in duties:
        yield Metric(
            name="doorkeeper_background_failures",
            kind="counter",
            value=duty.failures,
            labels={"duty": duty.name},
            suffix="_total",
        )
