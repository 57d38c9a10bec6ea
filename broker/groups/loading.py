"""Loading and unloading of partitions of ``__consumer_offsets``, in bounded steps.

Kafka: ``CoordinatorRuntime.scheduleLoadOperation`` and ``scheduleUnloadOperation``. An
election only notes the partition, and a resignation only takes it out of the map of
shards, so a LeaderAndIsr that moves a thousand groups costs no more than one that moves
none. ``work`` does the rest, a step at a time:

- A partition is unloaded before it is loaded again, since timers know groups by name.
  Meanwhile its groups write nothing, so no record of the former term enters the log
  after the load has read it.
- A load ends with its shard: each step looks the shard up anew.
- A topic that is deleted while a shard loads is noted in the shard. Its offsets are
  deleted when they have been read, before the groups can be queried.

A load that fails, other than by its disk, starts again from the beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from logging import DEBUG, INFO, getLogger

from broker.groups.commits import Commits
from broker.groups.membership import Membership
from broker.groups.rebalance import Rebalance
from broker.groups.shard import GROUPS_PER_STEP, Shard, Steps
from broker.groups.shards import Shards
from broker.groups.state.group import Group
from broker.groups.state.messages import Effects
from broker.groups.state.records import MEMBERS_PER_STEP
from broker.observation.logs import fields
from broker.protocol.errors import KafkaError

logger = getLogger(__name__)

Wake = Callable[[], None]


class Loading:
    """The partitions that begin and end to be coordinated here.

    ``on_loaded`` is called with the partition when its groups can be asked for.
    ``on_work`` is called when ``next_ns`` has come nearer.
    """

    def __init__(
        self,
        shards: Shards,
        rebalance: Rebalance,
        membership: Membership,
        offsets: Commits,
        *,
        on_loaded: Callable[[int], None],
        on_work: Callable[[], None],
    ) -> None:
        self._shards = shards
        self._rebalance = rebalance
        self._membership = membership
        self._offsets = offsets
        self._on_loaded = on_loaded
        self._on_work = on_work
        # The groups of each partition in `Shards.unloading`, and the running unloads.
        self._leaving: dict[int, deque[Group]] = {}
        self._unloads: dict[int, Steps] = {}
        self._woken_by_deletions: list[Wake] = []

    def elect(self, partition: int) -> None:
        """Begin to coordinate a partition's groups, unless they are here already."""
        if partition in self._shards.by_partition:
            return
        self._shards.add(partition)
        is_left = partition not in self._shards.unloading
        if is_left and self._shards.log.is_empty(partition):
            # Nothing to read: clients of a new broker do not meet a load.
            self._loaded(self._shards.by_partition[partition])
        else:
            self._on_work()

    def resign(self, partition: int) -> None:
        """Stop coordinating a partition's groups."""
        shard = self._shards.by_partition.pop(partition, None)
        if shard is None:
            return
        shard.steps = None
        if shard.groups:
            # A shard has groups only once those of its former term are unloaded.
            assert partition not in self._shards.unloading, partition
            self._shards.unloading.add(partition)
            self._leaving[partition] = deque(shard.groups.values())
            self._on_work()
        self._wake_by_deletions()

    # ---- work -------------------------------------------------------------------

    def next_ns(self) -> int | None:
        """Return 0 if `work` has something to do, else None.

        0 is always due: the present time would be later than that of an earlier call.
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

    def _next_load(self) -> Shard | None:
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
            # It costs the group at which it happened; the next step begins anew.
            del self._unloads[partition]
            raise

    def _unload(self, groups: deque[Group]) -> Steps:
        """Answer the requests that wait for the groups, and end the groups."""
        number = 0
        while groups:
            group = groups.popleft()
            for effects in self._membership.unloading(group, self._shards.clock()):
                self._shards.perform(group.group_id, effects)
                yield
            number += 1
            if not number % GROUPS_PER_STEP:
                yield

    # ---- loading ----------------------------------------------------------------

    def _load_some(self, shard: Shard) -> None:
        if shard.steps is None:
            shard.steps = self._load(shard)
        try:
            next(shard.steps)
        except StopIteration:
            self._loaded(shard)
        except KafkaError as fault:
            # Its disk fails: its groups have no coordinator here, all others have.
            logger.error(
                "groups cannot be loaded",
                extra=fields(partition=shard.partition, fault=fault),
            )
            self.resign(shard.partition)
        except Exception:
            self.resign(shard.partition)
            self.elect(shard.partition)
            raise

    def _load(self, shard: Shard) -> Steps:
        clock = self._shards.clock
        yield from shard.read(self._shards.log.replay(shard.partition), clock)
        for number, group in enumerate(shard.groups.values(), 1):
            yield from self._revive(group)
            if not number % GROUPS_PER_STEP:
                yield
        while shard.deleted:
            for _ in self._offsets.delete_topics_of(
                shard.deleted[0], shard.groups.values()
            ):
                yield
            shard.deleted.popleft()

    def _revive(self, group: Group) -> Steps:
        """Begin the sessions of a group's members."""
        now = self._shards.clock()
        for number, member in enumerate(group.roster, 1):
            self._rebalance.touch(group, member, now)
            if not number % MEMBERS_PER_STEP:
                yield
        if len(group.roster) > self._shards.config.group_max_size:
            # The bound was lowered: let the members commit, then lose the last.
            effects = Effects()
            self._rebalance.prepare(group, effects, now)
            self._shards.perform(group.group_id, effects)

    def _loaded(self, shard: Shard) -> None:
        shard.steps = None
        shard.loading = False
        self._shards.counters.partition_loads += 1
        self._on_loaded(shard.partition)
        logger.log(
            INFO if shard.groups else DEBUG,
            "groups are loaded",
            extra=fields(partition=shard.partition, groups=len(shard.groups)),
        )
        self._wake_by_deletions()

    # ---- deletions that wait for loads --------------------------------------------

    def has_deletions(self) -> bool:
        """Return whether a load has a deleted topic to forget."""
        return any(
            it.loading and it.deleted for it in self._shards.by_partition.values()
        )

    def register(self, wake: Wake) -> bool:
        """Ask to be woken when no load has a deleted topic to forget any more.

        Returns False if none has: then ``wake`` is not called.
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
