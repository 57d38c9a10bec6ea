"""The epoch of a leader's offset, and the ends of its epochs.

Kafka's leader assigns its epoch to the log when its leadership begins; here the log
learns an epoch with its first record, so the leader's own is added.
"""

from __future__ import annotations

from broker.log.log import Log
from broker.protocol.sentinels import NO_EPOCH
from broker.protocol.wire.hot import EpochEnd


def epoch_of(log: Log, offset: int, leader_epoch: int, start: int | None) -> int:
    """Return the epoch that ``offset`` is or would be written in, -1 if unknown.

    ``start`` is the log's end when the leadership of ``leader_epoch`` began; None while
    following.
    """
    if start is not None and offset >= start:
        return leader_epoch
    return log.epochs.epoch_of(offset)


def epoch_end_offset(
    log: Log, epoch: int, leader_epoch: int, start: int | None
) -> EpochEnd:
    """Return the largest epoch up to ``epoch``, and where it ended.

    Kafka's ``endOffsetForEpoch``; ``start`` as in `epoch_of`.
    """
    if start is not None and epoch >= log.epochs.latest:
        if epoch == leader_epoch:
            return EpochEnd(epoch, log.log_end_offset)
        if NO_EPOCH < epoch < leader_epoch:
            latest = log.epochs.latest
            return EpochEnd(epoch if latest == NO_EPOCH else latest, start)
    return log.epoch_end_offset(epoch)
