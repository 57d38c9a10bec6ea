"""The condition of acks=all: all in-sync replicas have the appended records.

Between the append and the check of the replicas, a request may wait for a disk or for
its turn. Meanwhile its replica may have followed another leader, been truncated, and
become leader again. The records at the same offsets may then be another leader's; the
leader epoch of an offset distinguishes them (KIP-101).
"""

from __future__ import annotations

from typing import NamedTuple

from broker.log.log import Log


class Required(NamedTuple):
    """The offset after the appended records, and the leader epoch of the last one."""

    offset: int
    leader_epoch: int

    @classmethod
    def by(cls, log: Log, last_offset: int) -> Required:
        """Return the condition for records up to ``last_offset``."""
        return cls(last_offset + 1, log.epochs.epoch_of(last_offset))

    def still_stands(self, log: Log) -> bool:
        """Return whether a log has the records, or retention has deleted them."""
        if self.offset <= log.log_start_offset:
            return True
        return self.offset <= log.log_end_offset and self == Required.by(
            log, self.offset - 1
        )
