"""The shards this broker coordinates, and the way effects take from object to log.

The one place where answers are given and records appended, whatever verb asked for it:
a coordinator's verbs find their object here and hand back the core's `Effects`. The
clock is handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from broker.protocol.errors import ErrorCode, KafkaError
from broker.shards.effects import Answered, Effects, Instant, Write
from broker.shards.group_partition import partition_for
from broker.shards.shard import Shard
from broker.shards.shard_log import ShardLog, coordinator_error

E = TypeVar("E")

# Answers that are given in one step.
ANSWERS_PER_STEP: Final = 128

Clock = Callable[[], Instant]


class Shards(Generic[E]):
    """Shards by partition of an internal topic, which has ``partitions`` of them.

    ``on_unsettled`` is called when `settle_some` has something to do.
    """

    def __init__(
        self,
        partitions: int,
        log: ShardLog,
        clock: Clock,
        on_unsettled: Callable[[], None] = lambda: None,
    ) -> None:
        self.partitions = partitions
        self.log = log
        self.clock = clock
        self.partition_loads = 0
        self.by_partition: dict[int, Shard[E]] = {}
        # Partitions whose objects, of a term that is over, are not all gone yet.
        self.unloading: set[int] = set()
        # The rest of answers to very many; `settle_some` gives them.
        self.unsettled: deque[Iterator[Answered]] = deque()
        self._on_unsettled = on_unsettled

    def add(self, partition: int, epoch: int) -> Shard[E]:
        """Add a shard that is to be loaded."""
        shard = Shard[E](partition, lambda it: self.partition(it) == partition, epoch)
        self.by_partition[partition] = shard
        return shard

    def is_loading(self) -> bool:
        """Return whether some partition's objects cannot be asked for yet."""
        return any(shard.loading for shard in self.by_partition.values())

    def partition(self, name: str) -> int:
        """Return the partition that an object belongs to by its id."""
        return partition_for(name, self.partitions)

    def shard(self, name: str) -> Shard[E]:
        """Return the loaded shard of an object, or raise why there is none here."""
        shard = self.by_partition.get(self.partition(name))
        if shard is None:
            raise KafkaError(ErrorCode.not_coordinator)
        if shard.loading:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return shard

    def find(self, name: str) -> E | None:
        """Return the object, None if there is none; raise if it is not ours to know."""
        return self.shard(name).by_id.get(name)

    def all(self) -> Iterator[E]:
        """Iterate over all objects of loaded shards, in the order of partitions."""
        for _, shard in sorted(self.by_partition.items()):
            if not shard.loading:
                yield from tuple(shard.by_id.values())

    def perform(self, name: str, effects: Effects) -> None:
        """Append the writes, then give the due answers."""
        for write in effects.writes:
            self.append(name, write)
        for waiting, answer in effects.answers:
            waiting.settle(answer)
        for answers in effects.in_turn:
            if self._settle_some(answers):
                self.unsettled.append(answers)
                self._on_unsettled()

    def wake(self) -> None:
        """Wake the caller of `settle_some`, who also does other work."""
        self._on_unsettled()

    def settle_some(self) -> bool:
        """Give some of the answers that are left; False if there are none."""
        if not self.unsettled:
            return False
        answers = self.unsettled.popleft()
        if self._settle_some(answers):
            self.unsettled.append(answers)
        return True

    def _settle_some(self, answers: Iterator[Answered]) -> bool:
        """Give some answers; return whether there may be more."""
        given = 0
        for waiting, answer in islice(answers, ANSWERS_PER_STEP):
            waiting.settle(answer)
            given += 1
        return given == ANSWERS_PER_STEP

    def append(self, name: str, write: Write) -> None:
        """Append an object's records; what follows from the outcome is done then.

        An object that is being unloaded appends nothing: the log may be led here again.
        """

        def done(error: ErrorCode) -> None:
            effects = write.done(coordinator_error(error), self.clock())
            self.perform(name, effects)

        partition = self.partition(name)
        if partition in self.unloading:
            done(ErrorCode.not_coordinator)
        else:
            self.log.append(partition, write.records, done, write.transaction)

    def has(self, name: str, one: E) -> bool:
        """Return whether this very object is still one of ours."""
        shard = self.by_partition.get(self.partition(name))
        return shard is not None and shard.by_id.get(name) is one

    def remove(self, name: str, one: E) -> None:
        """Forget an object."""
        if self.has(name, one):
            del self.by_partition[self.partition(name)].by_id[name]
