"""The offset at which a follower cuts its log, when its leader's history diverges."""

from __future__ import annotations

from typing import Protocol

from broker.protocol.wire.hot import EpochEnd

UNDEFINED = -1


class Epochs(Protocol):
    """The question to the follower's log."""

    log_end_offset: int

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to ``epoch``, and where it ended."""


def truncation_offset(log: Epochs, leader_epoch: int, leader_end_offset: int) -> int:
    """Return the offset to cut ``log`` to, at most its end.

    The leader says that ``leader_epoch``, the largest that it knows up to the
    follower's latest, ended at ``leader_end_offset``.
    """
    end = log.log_end_offset
    if leader_epoch == UNDEFINED:
        return min(leader_end_offset, end)
    known = log.epoch_end_offset(leader_epoch)
    if known.end_offset == UNDEFINED:
        return min(leader_end_offset, end)
    if known.epoch != leader_epoch:
        # The leader's epoch is not known here: what follows ours is certainly wrong.
        return min(known.end_offset, end)
    return min(known.end_offset, leader_end_offset, end)
