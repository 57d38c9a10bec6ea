"""The leader epoch of an offset, and the end offsets of epochs.

Kafka's leader assigns its epoch to the log when its leadership begins. Here a log adds
an epoch with its first record, so the leader's current epoch is an argument.
"""

from __future__ import annotations

from broker.log.log import Log
from broker.protocol.sentinels import NO_EPOCH
from broker.protocol.wire.hot import EpochEnd


def epoch_of(log: Log, offset: int, leader_epoch: int, start: int | None) -> int:
    """Return the leader epoch of an existing or the next offset; -1 if unknown.

    ``start`` is the log's end when the leadership of ``leader_epoch`` began; None for a
    follower.
    """
    if start is not None and offset >= start:
        return leader_epoch
    return log.epochs.epoch_of(offset)


def epoch_end_offset(
    log: Log, epoch: int, leader_epoch: int, start: int | None
) -> EpochEnd:
    """Return the largest epoch up to ``epoch``, and its end offset.

    Kafka's ``endOffsetForEpoch``; ``start`` as in `epoch_of`.
    """
    if start is not None and epoch >= log.epochs.latest:
        if epoch == leader_epoch:
            return EpochEnd(epoch, log.log_end_offset)
        if NO_EPOCH < epoch < leader_epoch:
            latest = log.epochs.latest
            return EpochEnd(epoch if latest == NO_EPOCH else latest, start)
    return log.epoch_end_offset(epoch)
