"""The offset to which a follower truncates its log when the leader's log diverges."""

from __future__ import annotations

from typing import Protocol

from broker.protocol.wire.hot import EpochEnd

UNDEFINED = -1


class Epochs(Protocol):
    """The interface of the follower's log."""

    log_end_offset: int

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to ``epoch``, and its end offset."""


def truncation_offset(log: Epochs, leader_epoch: int, leader_end_offset: int) -> int:
    """Return the offset to truncate ``log`` to, at most its end.

    ``leader_epoch`` is the leader's largest epoch up to the follower's latest epoch,
    and ``leader_end_offset`` the end of ``leader_epoch`` in the leader's log.
    """
    end = log.log_end_offset
    if leader_epoch == UNDEFINED:
        return min(leader_end_offset, end)
    known = log.epoch_end_offset(leader_epoch)
    if known.end_offset == UNDEFINED:
        return min(leader_end_offset, end)
    if known.epoch != leader_epoch:
        # The leader's epoch is unknown here: offsets after the known epoch are wrong.
        return min(known.end_offset, end)
    return min(known.end_offset, leader_end_offset, end)
