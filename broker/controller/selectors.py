"""Choice of a leader: Kafka's ``PartitionLeaderElectionAlgorithms``.

All functions take replicas in the order of the assignment, which is the order of
preference, and return None if no replica is eligible.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def offline_leader(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int]
) -> int | None:
    """Return the first live replica in the ISR, for a partition without a leader."""
    return next((it for it in assignment if it in live and it in isr), None)


def unclean_leader(assignment: Sequence[int], live: Collection[int]) -> int | None:
    """Return the first live replica, even if it is out of sync."""
    return next((it for it in assignment if it in live), None)


def reassigned_leader(
    target: Sequence[int], isr: Collection[int], live: Collection[int]
) -> int | None:
    """Return the first live replica in the ISR among the target of a reassignment."""
    return offline_leader(target, isr, live)


def preferred_leader(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int]
) -> int | None:
    """Return the first replica, if it is live and in the ISR."""
    return offline_leader(assignment[:1], isr, live)


def leader_at_shutdown(
    assignment: Sequence[int],
    isr: Collection[int],
    live_or_shutting_down: Collection[int],
    shutting_down: Collection[int],
) -> int | None:
    """Return the first live replica in the ISR whose broker is not stopping."""
    staying = [it for it in assignment if it not in shutting_down]
    return offline_leader(staying, isr, live_or_shutting_down)
