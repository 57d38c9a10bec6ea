"""The condition of acks=all: all in-sync replicas have these very records.

Between the append and the check of the replicas a request may wait for a disk or for
its turn. Meanwhile its replica may have followed another leader, been truncated, and
lead again. The records at the offset may then be another leader's: the epoch of an
offset identifies it (KIP-101).
"""

from __future__ import annotations

from typing import NamedTuple

from broker.log.log import Log


class Required(NamedTuple):
    """The offset after records that were appended, and the epoch of the last one."""

    offset: int
    leader_epoch: int

    @classmethod
    def by(cls, log: Log, last_offset: int) -> Required:
        """Return what has to be everywhere, of records up to ``last_offset``."""
        return cls(last_offset + 1, log.epochs.epoch_of(last_offset))

    def still_stands(self, log: Log) -> bool:
        """Return whether a log holds the records, or has deleted them by and by."""
        if self.offset <= log.log_start_offset:
            return True
        return self.offset <= log.log_end_offset and self == Required.by(
            log, self.offset - 1
        )
