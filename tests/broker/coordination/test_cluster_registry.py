"""The registry loses no answered change, and a change writes only its own bytes.

The expected state is kept in plain dicts. The disk counts the bytes of each change.
"""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from broker.authorization.acls import (
    AclEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from broker.cluster.cluster_topics import Topic
from broker.coordination.cluster_state import (
    Change,
    ClusterState,
    Deletion,
    write_change,
)
from broker.coordination.coordinator_roles import ConfigKind
from broker.coordination.embedded_registry import Registry
from broker.coordination.registry_file import FILE_NAME
from broker.disk.checkpoints import MalformedCheckpoint
from broker.disk.log_dirs import LogDirs
from broker.disk.memory import Crashed, Faults, MemoryFile, MemoryStorage
from broker.disk.storage import read_whole, write_atomically
from broker.log.steps import run
from broker.protocol.buffer import Buffer
from tests.seeds import seeds

ONE, TWO = "/one", "/two"
KINDS = tuple(ConfigKind)
PATTERN_TYPES = (PatternType.LITERAL, PatternType.PREFIXED)
READS = AclEntry("User:ü\n", "*", AclOperation.READ, PermissionType.ALLOW)
PATH = f"{ONE}/{FILE_NAME}"
# Three topics with such a config exceed the length at which compaction is due.
LONG = {"config": "x" * 100_000}


def disk(*directories: str) -> MemoryStorage:
    storage = MemoryStorage()
    for directory in directories:
        storage.make_directory(directory)
    for parent in ("", "/"):
        storage.sync_directory(parent)
    return storage


def opened(storage: MemoryStorage, *directories: str) -> Registry:
    """Return a registry as it is after a start."""
    registry = loaded(storage, *directories)
    registry.renew(registry.state)
    return registry


def loaded(storage: MemoryStorage, *directories: str) -> Registry:
    registry = Registry(storage, LogDirs(directories))
    registry.load()
    return registry


def topic(name: str, partitions: int = 1, **configs: str) -> Topic:
    return Topic(
        name=name,
        topic_id=UUID(int=len(name)),
        leader_epochs=(0,) * partitions,
        configs=configs,
    )


def create(*names: str, **configs: str) -> Change:
    return Change(topics={name: topic(name, **configs) for name in names})


def seen(state: ClusterState) -> dict[str, Any]:
    """Return the contents of a state, without the number of its changes."""
    return {
        "numbers": (state.broker_epoch, state.next_producer_id),
        "topics": dict(state.topics),
        "deleting": dict(state.deleting),
        "acls": dict(state.acls),
        "features": dict(state.features),
        **{kind: dict(configs) for kind, configs in state.configs.items()},
    }


def some_changes(rng: random.Random) -> Iterator[Change]:
    """Iterate over changes of every kind, some of them long."""
    names = [f"t{number}" for number in range(6)]
    while True:
        name = rng.choice(names)
        deletion = Deletion(topic_id=UUID(int=7), partitions=rng.randint(1, 9))
        configs = rng.choice([{}, {"a": "ü\n"}, LONG])
        kind = rng.choice(KINDS)
        pattern = ResourcePattern(ResourceType.TOPIC, name, rng.choice(PATTERN_TYPES))
        yield rng.choice(
            [
                Change(topics={name: topic(name, rng.randint(1, 9), **configs)}),
                Change(topics={name: None}, deleting={name: deletion}),
                Change(deleting={name: None}),
                Change(configs={kind: {rng.choice(["", "a/b"]): configs or None}}),
                Change(acls={pattern: rng.choice([None, frozenset({READS})])}),
                Change(features={name: rng.choice([None, 1, 2])}),
                Change(next_producer_id=rng.randint(0, 2**62)),
                Change(broker_epoch=rng.randint(0, 2**62)),
            ]
        )


def after(state: dict[str, Any], change: Change) -> dict[str, Any]:
    """Return the contents of a state after a change, by definition."""
    epoch, producer_id = state["numbers"]
    changed: dict[str, Any] = {
        "numbers": (
            epoch if change.broker_epoch is None else change.broker_epoch,
            producer_id if change.next_producer_id is None else change.next_producer_id,
        )
    }
    changes: Mapping[str, Mapping[str, Any]] = {
        "topics": change.topics,
        "deleting": change.deleting,
        "acls": change.acls,
        "features": change.features,
        **{kind: change.configs.get(kind, {}) for kind in KINDS},
    }
    for key, of_key in changes.items():
        both = {**state[key], **of_key}
        changed[key] = {k: v for k, v in both.items() if v is not None}
    return changed


@pytest.mark.parametrize("seed", seeds(16, 40))
@pytest.mark.parametrize("loss", ["kill", "power"])
def test_a_change_is_durable_or_was_not_answered_wherever_it_stops(
    seed: int, loss: str
) -> None:
    rng = random.Random(seed)
    changes = some_changes(rng)
    storage = disk(ONE, TWO)
    registry = opened(storage, ONE, TWO)
    expected = seen(registry.state)
    for _ in range(12):
        registry = opened(storage, ONE, TWO)
        crash_at = rng.randint(1, 40)
        storage.faults = Faults(crash_at, crash=True, short=rng.randint(0, 200))
        possible = [expected]
        try:
            for change in changes:
                possible = [expected, after(expected, change)]
                registry.change(change)
                expected = possible[1]
                assert seen(registry.state) == expected
                if registry.is_long:
                    possible = [expected]
                    run(registry.compaction())
        except Crashed:
            pass
        left = storage.after_kill()
        storage = left if loss == "kill" else storage.after_power_loss(rng)
        if rng.random() < 0.3:
            lose(storage, rng.choice((ONE, TWO)))
        expected = seen(loaded(storage, ONE, TWO).state)
        assert expected in possible


def lose(storage: MemoryStorage, directory: str) -> None:
    """Empty a directory."""
    for name in storage.names(directory):
        storage.remove(f"{directory}/{name}")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("short", [0, 30])
def test_every_call_that_fails_changes_nothing_or_is_outlived(
    error: int, short: int
) -> None:
    """One of two directories fails once; no change is lost."""
    calls = 0
    for fail_at in range(1, 100):
        storage = disk(ONE, TWO)
        registry = opened(storage, ONE, TWO)
        storage.faults = Faults(fail_at, error=error, short=short)
        for number in range(4):
            registry.change(create(f"t{number}", **LONG))
        if registry.is_long:
            with suppress(OSError):
                run(registry.compaction())
        registry.change(create("last"))
        found = loaded(storage.after_kill(), ONE, TWO).state
        assert seen(found) == seen(registry.state)
        assert set(found.topics) == {"t0", "t1", "t2", "t3", "last"}
        if not storage.faults.reached:
            break
        calls += 1
    assert calls > 10


def test_a_change_that_no_directory_takes_is_refused_and_the_next_is_whole() -> None:
    storage = disk(ONE)
    registry = opened(storage, ONE)
    registry.change(create("a"))
    storage.faults = Faults(1, error=errno.ENOSPC, short=10)
    with pytest.raises(OSError, match="No space"):
        registry.change(create("refused"))
    assert set(registry.state.topics) == {"a"}
    # The partial line of the failed change is ignored.
    assert set(loaded(storage.after_kill(), ONE).state.topics) == {"a"}
    registry.change(create("b"))
    assert set(loaded(storage.after_kill(), ONE).state.topics) == {"a", "b"}


def test_a_change_is_encoded_by_the_call_that_writes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The change is encoded once for all directories, and not on the event loop."""
    registry = opened(disk(ONE, TWO), ONE, TWO)
    encoded: list[int] = []

    def counted(change: Change, generation: int, after: int) -> str:
        encoded.append(generation)
        return write_change(change, generation, after)

    monkeypatch.setattr("broker.coordination.embedded_registry.write_change", counted)
    steps = registry.changing(create("a"))
    call = next(steps)
    assert encoded == []
    assert call is not None
    call()
    assert len(encoded) == 1
    with pytest.raises(StopIteration):
        next(steps)
    assert set(registry.state.topics) == {"a"}


def test_a_creation_costs_its_own_bytes_however_many_there_are() -> None:
    storage = CountingStorage()
    for directory in (ONE, TWO):
        storage.make_directory(directory)
    registry = opened(storage, ONE, TWO)
    costs = []
    for number in range(6_000):
        before = storage.written_bytes
        registry.change(create(f"topic-{number:05}"))
        costs.append(storage.written_bytes - before)
    assert max(costs) - min(costs) < 20
    assert max(costs) < 2 * 200
    total = storage.written_bytes
    assert registry.is_long
    run(registry.compaction())
    # A compaction writes the state once, so it costs less than the changes did.
    assert storage.written_bytes - total < sum(costs)
    assert not registry.is_long
    assert len(loaded(storage.after_kill(), ONE, TWO).state.topics) == 6_000


class CountingStorage(MemoryStorage):
    """A storage that counts the bytes written to it."""

    written_bytes = 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        plain = super().open(path, create=create)
        return CountedFile(self, path, plain._node)


class CountedFile(MemoryFile):
    """A file that adds the size of each write to the count of its storage."""

    __slots__ = ()

    def write(self, position: int, pieces: Sequence[Buffer], size: int) -> None:
        super().write(position, pieces, size)
        assert isinstance(self._storage, CountingStorage)
        self._storage.written_bytes += size


def test_a_compaction_and_what_follows_it_outlive_a_loss_of_power() -> None:
    storage = disk(ONE)
    registry = opened(storage, ONE)
    registry.change(create("a", "b", "c", **LONG))
    registry.change(Change(topics=dict.fromkeys("abc")))
    registry.change(create("before"))
    length = storage.open(PATH).size()
    run(registry.compaction())
    assert storage.open(PATH).size() < length // 10
    registry.change(create("last"))
    found = loaded(storage.after_power_loss(random.Random(1)), ONE).state
    assert set(found.topics) == {"before", "last"}


def test_a_full_disk_does_not_have_it_compacted_again_and_again() -> None:
    storage = disk(ONE)
    registry = opened(storage, ONE)
    registry.change(create("a", "b", "c", **LONG))
    storage.fill_up()
    with pytest.raises(OSError, match="No space"):
        run(registry.compaction())
    assert not registry.is_long
    storage.capacity_bytes = None
    registry.change(create("d", "e", "f", **LONG))
    registry.change(create("g", **LONG))
    assert registry.is_long
    run(registry.compaction())
    assert len(loaded(storage.after_kill(), ONE).state.topics) == 7


def test_a_torn_end_loses_the_last_change_and_no_other() -> None:
    storage = disk(ONE)
    registry = opened(storage, ONE)
    registry.change(create("a"))
    whole = storage.open(PATH).size()
    registry.change(create("b"))
    content = read_whole(storage, PATH)
    # A change is whole even without its line's end.
    for size in range(whole, len(content) - 1):
        for torn in (content[:size], content[:size] + bytes(len(content) - size)):
            write_atomically(storage, ONE, FILE_NAME, torn)
            assert set(loaded(storage, ONE).state.topics) == {"a"}


def test_damage_in_front_of_what_is_whole_stops_the_start() -> None:
    storage = disk(ONE)
    registry = opened(storage, ONE)
    for name in "abc":
        registry.change(create(name))
    content = read_whole(storage, PATH)
    first, a, b, c, end = content.split(b"\n")
    for damaged in (
        [first, a.replace(b"configs", b"confugs"), b, c, end],
        [first, a, c, end],
        [first, b, a, c, end],
        [a, b, c, end],
        [first[1:], a, b, c, end],
        [b"", a, b],
        [b""],
    ):
        write_atomically(storage, ONE, FILE_NAME, b"\n".join(damaged))
        with pytest.raises(MalformedCheckpoint, match="doorkeeper-cluster"):
            loaded(storage, ONE)


@pytest.mark.parametrize(
    ("written", "deletion"),
    [
        ({"version": 1, "deleting": {"d": 3}}, None),
        (
            {
                "version": 2,
                "generation": 41,
                "deleting": {"d": {"id": str(UUID(int=9)), "partitions": 3}},
            },
            UUID(int=9),
        ),
    ],
)
def test_files_of_before_are_read_and_written_as_those_of_today(
    written: dict[str, Any], deletion: UUID | None
) -> None:
    id_of_t = UUID(int=5)
    written |= {
        "broker_epoch": 6,
        "next_producer_id": 7000,
        "broker_configs": {"": {"a": "1"}},
        "topics": {"t": {"id": str(id_of_t), "leader_epochs": [3, 4], "configs": {}}},
    }
    storage = disk(ONE)
    write_atomically(storage, ONE, FILE_NAME, json.dumps(written).encode())
    registry = loaded(storage, ONE)
    assert registry.state.generation == written.get("generation", 1)
    # A change may precede the first rewrite of the file in the new format.
    registry.change(create("u"))
    state = loaded(storage.after_kill(), ONE).state
    assert seen(state) == {
        "numbers": (6, 7000),
        "topics": {
            "t": Topic(name="t", topic_id=id_of_t, leader_epochs=(3, 4), configs={}),
            "u": topic("u"),
        },
        "deleting": {"d": Deletion(topic_id=deletion, partitions=3)},
        "acls": {},
        "features": {},
        **{kind: {} for kind in KINDS},
        ConfigKind.BROKER: {"": {"a": "1"}},
    }
