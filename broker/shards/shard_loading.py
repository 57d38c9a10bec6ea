"""Loading and unloading of partitions of an internal topic, in bounded steps.

Kafka: ``CoordinatorRuntime.scheduleLoadOperation`` and ``scheduleUnloadOperation``. An
election only records the partition, and a resignation only removes it from the map of
shards. Therefore the cost of a LeaderAndIsr does not depend on the number of objects.
``work`` does the rest, a step at a time:

- A partition is unloaded before it is loaded again, because timers refer to objects by
  name. Meanwhile its objects write nothing, so no record of the former term enters the
  log after the load has read it.
- A load ends with its shard: each step looks the shard up again.
- Work that arises while a shard loads is kept in `Shard.afterwards`. It is done when
  the objects are read, before requests can access them.

A load that fails for a reason other than its disk starts again from the beginning.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from logging import DEBUG, INFO, getLogger
from typing import Final, Generic, TypeVar

from broker.observation.logs import fields
from broker.protocol.errors import KafkaError
from broker.shards.effects import Effects
from broker.shards.shard import Shard, Steps
from broker.shards.shards import Shards

logger = getLogger(__name__)

E = TypeVar("E")

Wake = Callable[[], None]

# Objects read or ended in one step.
OBJECTS_PER_STEP: Final = 32


class Loading(Generic[E]):
    """Loading and unloading of the partitions that this broker coordinates.

    ``what`` names the objects in the log. ``on_loaded`` is called with the shard when
    requests can access its objects. ``on_work`` is called when ``next_ns`` has become
    earlier.
    """

    def __init__(
        self,
        what: str,
        shards: Shards[E],
        *,
        on_loaded: Callable[[Shard[E]], None],
        on_work: Callable[[], None],
    ) -> None:
        self._what = what
        self._shards = shards
        self._on_loaded = on_loaded
        self._on_work = on_work
        # The objects of each partition in `Shards.unloading`, and the started unloads.
        self._leaving: dict[int, deque[tuple[str, E]]] = {}
        self._unloads: dict[int, Steps] = {}
        self._woken_by_deletions: list[Wake] = []

    @abstractmethod
    def _read(self, shard: Shard[E]) -> Steps:
        """Read the objects of a shard from the log, in steps."""

    @abstractmethod
    def _end(self, one: E) -> Iterable[Effects]:
        """Complete the requests that wait for an unloaded object, in steps."""

    def elect(self, partition: int, epoch: int = 0) -> None:
        """Begin to coordinate a partition's objects, unless coordinated already."""
        if partition in self._shards.by_partition:
            return
        shard = self._shards.add(partition, epoch)
        is_left = partition not in self._shards.unloading
        if is_left and self._shards.log.is_empty(partition):
            # An empty log needs no load: clients of a new broker need not retry.
            self._loaded(shard)
        else:
            self._on_work()

    def resign(self, partition: int) -> None:
        """Stop coordinating a partition's objects."""
        shard = self._shards.by_partition.pop(partition, None)
        if shard is None:
            return
        shard.steps = None
        if shard.by_id:
            # A shard has objects only after those of its former term are unloaded.
            assert partition not in self._shards.unloading, partition
            self._shards.unloading.add(partition)
            self._leaving[partition] = deque(shard.by_id.items())
            self._on_work()
        self._wake_by_deletions()

    # ---- work -------------------------------------------------------------------

    def next_ns(self) -> int | None:
        """Return 0 if `work` has a step to do, else None.

        0 is always due. The present time would not be: a caller may have read its clock
        earlier.
        """
        return None if self._next_load() is None and not self._leaving else 0

    def work(self) -> bool:
        """Do one step; return False if there is nothing to do."""
        if self._leaving:
            self._unload_some(next(iter(self._leaving)))
            return True
        shard = self._next_load()
        if shard is None:
            return False
        self._load_some(shard)
        return True

    def _next_load(self) -> Shard[E] | None:
        unloading = self._shards.unloading
        for shard in self._shards.by_partition.values():
            if shard.loading and shard.partition not in unloading:
                return shard
        return None

    # ---- unloading --------------------------------------------------------------

    def _unload_some(self, partition: int) -> None:
        steps = self._unloads.get(partition)
        if steps is None:
            steps = self._unloads[partition] = self._unload(self._leaving[partition])
        try:
            next(steps)
        except StopIteration:
            del self._leaving[partition], self._unloads[partition]
            self._shards.unloading.discard(partition)
        except Exception:
            # Only the failing object is skipped; the next step restarts with the rest.
            del self._unloads[partition]
            raise

    def _unload(self, leaving: deque[tuple[str, E]]) -> Steps:
        """Complete the requests that wait for the objects, and end the objects."""
        number = 0
        while leaving:
            name, one = leaving.popleft()
            for effects in self._end(one):
                self._shards.perform(name, effects)
                yield
            number += 1
            if not number % OBJECTS_PER_STEP:
                yield

    # ---- loading ----------------------------------------------------------------

    def _load_some(self, shard: Shard[E]) -> None:
        if shard.steps is None:
            shard.steps = self._load(shard)
        try:
            next(shard.steps)
        except StopIteration:
            self._loaded(shard)
        except KafkaError as fault:
            # A failed disk leaves only this shard's objects without a coordinator.
            logger.error(
                "%s cannot be loaded",
                self._what,
                extra=fields(partition=shard.partition, fault=fault),
            )
            self.resign(shard.partition)
        except Exception:
            self.resign(shard.partition)
            self.elect(shard.partition, shard.epoch)
            raise

    def _load(self, shard: Shard[E]) -> Steps:
        yield from self._read(shard)
        while shard.afterwards:
            for _ in shard.afterwards[0](shard.by_id.values()):
                yield
            shard.afterwards.popleft()

    def _loaded(self, shard: Shard[E]) -> None:
        shard.steps = None
        shard.loading = False
        self._shards.partition_loads += 1
        self._on_loaded(shard)
        logger.log(
            INFO if shard.by_id else DEBUG,
            "%s are loaded",
            self._what,
            extra=fields(partition=shard.partition, count=len(shard.by_id)),
        )
        self._wake_by_deletions()

    # ---- deletions that wait for loads --------------------------------------------

    def has_deletions(self) -> bool:
        """Return whether a load has yet to remove a deleted topic."""
        return any(
            it.loading and it.afterwards for it in self._shards.by_partition.values()
        )

    def register(self, wake: Wake) -> bool:
        """Register a wake-up call for when all loads have removed deleted topics.

        Returns False if none has to: then ``wake`` is not called.
        """
        if not self.has_deletions():
            return False
        self._woken_by_deletions.append(wake)
        return True

    def _wake_by_deletions(self) -> None:
        if self._woken_by_deletions and not self.has_deletions():
            woken, self._woken_by_deletions = self._woken_by_deletions, []
            for wake in woken:
                wake()
