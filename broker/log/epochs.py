"""Start offsets of leader epochs: Kafka's ``LeaderEpochFileCache``.

A returning follower requests the end offset of an epoch (KIP-101, KIP-279) and
truncates its log there. A consumer requests it to detect a truncation (KIP-320).
Entries grow in both columns. An assignment that contradicts later entries removes them,
since a new leader's history takes precedence.

Changes stay in memory until the call of `writing` is made, by any thread; each flush
makes it. The batches carry their epochs, so recovery uses the file only below the
batches that it reads, and assigns the other epochs again. Truncated entries therefore
do not reappear after their offsets were rewritten under an older epoch, provided that
the recovery point on disk was lowered before. A write never replaces the result of a
later change.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from broker.disk.checkpoints import EpochStart, read_epochs, write_epochs
from broker.disk.storage import Storage
from broker.disk.versioned_writes import VersionedWrites
from broker.log.steps import BlockingCall
from broker.protocol.wire.hot import EpochEnd

UNDEFINED: Final = -1
UNKNOWN_END: Final = EpochEnd(UNDEFINED, UNDEFINED)
_epoch_of = attrgetter("epoch")
_offset_of = attrgetter("offset")


class LeaderEpochs:
    """The epochs of one log, in memory and in ``leader-epoch-checkpoint``."""

    __slots__ = (
        "_changes",
        "_directory",
        "_entries",
        "_file",
        "_storage",
        "latest",
    )

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._entries = read_epochs(storage, directory)
        # Counts changes: the versions of the file.
        self._changes = 0
        self._file = VersionedWrites()
        # The latest epoch, -1 if there is none.
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that ``epoch`` begins at ``start_offset``, if it exceeds the latest.

        An epoch below the latest is that of a deposed leader; its batches are assigned
        to the latest epoch. -1 (a batch without an epoch) is ignored.
        """
        if epoch <= self.latest:
            return
        kept = [entry for entry in self._entries if entry.offset < start_offset]
        self._entries = [*kept, EpochStart(epoch, start_offset)]
        self.latest = epoch
        self._changes += 1

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest epoch not above ``epoch``, and its end offset.

        This is the content of an OffsetForLeaderEpoch response.
        """
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN_END
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        above = bisect_right(self._entries, epoch, key=_epoch_of)
        known = self._entries[above - 1].epoch if above else epoch
        return EpochEnd(known, self._entries[above].offset)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which ``offset`` was written, -1 if unknown."""
        above = bisect_right(self._entries, offset, key=_offset_of)
        return self._entries[above - 1].epoch if above else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove epochs that begin at ``end_offset`` or later.

        False if there are none.
        """
        kept = [entry for entry in self._entries if entry.offset < end_offset]
        if len(kept) == len(self._entries):
            return False
        self._changes += 1
        self._entries = kept
        self.latest = kept[-1].epoch if kept else UNDEFINED
        return True

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended before ``start_offset``."""
        above = bisect_right(self._entries, start_offset, key=_offset_of)
        if above > 1 or (above and self._entries[0].offset < start_offset):
            first = EpochStart(self._entries[above - 1].epoch, start_offset)
            self._entries = [first, *self._entries[above:]]
            self._changes += 1

    def entries(self) -> list[EpochStart]:
        """Return the epochs with their start offsets, oldest first."""
        return list(self._entries)

    def moved(self, directory: str) -> None:
        """Record that the log's directory was renamed."""
        self._directory = directory

    def writing(self) -> BlockingCall | None:
        """Return the call that writes unsaved changes, if there are any.

        The call may raise OSError; the caller syncs the directory afterwards.
        """
        if self._file.version == self._changes:
            return None
        return partial(self._write, tuple(self._entries), self._changes)

    def _write(self, entries: Sequence[EpochStart], changes: int) -> None:
        write = partial(write_epochs, self._storage, self._directory, entries)
        self._file.write(changes, write)

    def check(self) -> None:
        """Assert that both columns grow."""
        for before, after in itertools.pairwise(self._entries):
            assert before.epoch < after.epoch, self._entries
            assert before.offset < after.offset, self._entries
