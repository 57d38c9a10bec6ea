"""Topics after a crash at each call to the disk in turn.

Answered requests hold after the restart. An unanswered request has taken effect as a
whole or not at all, and can be repeated. The same holds for a disk that is full once.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest

from broker.disk.memory import Crashed, Faults, MemoryStorage
from broker.disk.storage import read_whole
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import SECONDS_30, new_topic, values_of

Step = Callable[[World], bool]


def create(name: str, partitions: int) -> Step:
    def step(world: World) -> bool:
        answer = world.send(
            ApiKey.CREATE_TOPICS,
            7,
            topics=[new_topic(name, partitions)],
            timeout=SECONDS_30,
        )
        return answer.topics[0].error_code is NONE

    return step


def extend(name: str, count: int) -> Step:
    def step(world: World) -> bool:
        topics = [{"name": name, "count": count}]
        answer = world.send(ApiKey.CREATE_PARTITIONS, 3, topics=topics)
        return answer.results[0].error_code is NONE

    return step


def delete(name: str) -> Step:
    def step(world: World) -> bool:
        answer = world.send(
            ApiKey.DELETE_TOPICS, 6, topics=[{"name": name}], timeout=SECONDS_30
        )
        return answer.responses[0].error_code is NONE

    return step


def produce(name: str, value: bytes) -> Step:
    return lambda world: world.produce(name, value).error_code is NONE


STEPS = (
    create("kept", 2),
    produce("kept", b"one"),
    create("doomed", 2),
    extend("kept", 3),
    delete("doomed"),
    produce("kept", b"two"),
    create("late", 1),
)
SETTINGS = {"log.flush.interval.messages": "1"}
TWO_DISKS = {**SETTINGS, "log.dirs": "/data/one,/data/two"}


def topics(world: World) -> dict[str, int]:
    """Return the topics of a Metadata answer, with their partition counts."""
    answer = world.send(ApiKey.METADATA, 12, topics=None)
    for topic in answer.topics:
        for partition in topic.partitions:
            assert partition.error_code is NONE, (topic.name, partition)
    return {topic.name: len(topic.partitions) for topic in answer.topics}


# Possible topics by the number of answered steps. The next entry is possible as well,
# since the step under way may have taken effect.
STATES: list[dict[str, int]] = [
    {},
    {"kept": 2},
    {"kept": 2},
    {"kept": 2, "doomed": 2},
    {"kept": 3, "doomed": 2},
    {"kept": 3},
    {"kept": 3},
    {"kept": 3, "late": 1},
]


def run(world: World) -> int:
    """Run the steps until the machine stops; return how many were answered."""
    for number, step in enumerate(STEPS):
        try:
            assert step(world)
        except Crashed:
            return number
    return len(STEPS)


def check_after(world: World, answered: int) -> None:
    assert topics(world) in STATES[answered : answered + 2], answered
    written = [b"one"] * (answered > 1) + [b"two"] * (answered > 5)
    if "kept" in world.broker.coordinator.admin.topics:
        found = [value for _, value in values_of(world.fetch("kept").records)]
        assert found[: len(written)] == written, (answered, found)
    world.check()
    # Each topic can be deleted and created again, whatever the crash has left.
    for name in ("kept", "doomed", "late"):
        if name in world.broker.coordinator.admin.topics:
            assert delete(name)(world)
        assert create(name, 4)(world)
        assert world.produce(name, b"new", partition=3).base_offset == 0
    world.check()


def crashed(fail_at: int, settings: dict[str, str]) -> tuple[MemoryStorage, int] | None:
    """Run until the ``fail_at``-th call; return None if there are fewer calls."""
    storage = MemoryStorage(Faults(fail_at, crash=True))
    try:
        world = World(settings, storage)
    except Crashed:
        return storage, 0
    answered = run(world)
    return None if answered == len(STEPS) else (storage, answered)


@pytest.mark.parametrize("settings", [SETTINGS, TWO_DISKS], ids=["one", "two"])
@pytest.mark.parametrize("loss", ["kill", "power"])
def test_a_stop_at_any_call_loses_nothing_that_was_answered(
    loss: str, settings: dict[str, str]
) -> None:
    fail_at = 0
    while (left := crashed(fail_at := fail_at + 1, settings)) is not None:
        storage, answered = left
        rng = random.Random(fail_at)
        disk = storage.after_kill() if loss == "kill" else storage.after_power_loss(rng)
        check_after(World(settings, disk), answered)
    assert fail_at > 50, "the faults were not reached"


def test_a_stop_at_any_call_of_a_start_is_survived() -> None:
    world = World(SETTINGS)
    assert run(world) == len(STEPS)
    fail_at, survived = 1, False
    while not survived:
        storage = world.storage.after_kill(Faults(fail_at, crash=True))
        survived = True
        try:
            World(SETTINGS, storage)
        except Crashed:
            survived = False
            check_after(World(SETTINGS, storage.after_kill()), len(STEPS))
        fail_at += 1
    assert fail_at > 5, "the faults were not reached"


def test_a_disk_that_refuses_anything_at_the_start_is_named() -> None:
    world = World(SETTINGS)
    assert run(world) == len(STEPS)
    fail_at = 0
    while True:
        storage = world.storage.after_kill(
            Faults(fail_at := fail_at + 1, error=errno.ENOSPC)
        )
        if not _starts(storage):
            assert storage.faults.reached
            check_after(World(SETTINGS, storage.after_kill()), len(STEPS))
        elif not storage.faults.reached:
            break
    assert fail_at > 5, "the faults were not reached"


def _starts(storage: MemoryStorage) -> bool:
    try:
        World(SETTINGS, storage)
    except ConfigError as refused:
        return refused.key != "log.dirs"
    return True


@pytest.mark.parametrize(
    "content", [b"1\n", b"1\n0\n", b"0\n5\n", b"\xff", b"0\n1\nt 0\n"]
)
def test_a_damaged_checkpoint_is_named_and_left_as_it_is(content: bytes) -> None:
    storage = World(SETTINGS).storage.after_kill()
    name = "recovery-point-offset-checkpoint"
    path = f"/data/{name}"
    file = storage.open(path, create=True)
    file.truncate(0)
    file.write(0, (content,), len(content))
    with pytest.raises(ConfigError, match=name):
        World(SETTINGS, storage)
    assert read_whole(storage, path) == content


STEPS_OF_ONE = (create("a", 2), produce("a", b"old"), extend("a", 3), delete("a"))


def test_a_disk_that_is_full_once_refuses_once() -> None:
    fail_at, refusals = 0, 0
    while True:
        world = World(SETTINGS)
        # Other errors take the log directory offline: see test_log_dir_failure.
        faults = Faults(fail_at := fail_at + 1, error=errno.ENOSPC)
        world.storage.faults = faults
        outcomes: list[Any] = []
        for step in STEPS_OF_ONE:
            outcomes.append(step(world))
            world.check()
        if not faults.reached:
            assert all(outcomes)
            break
        refusals += not all(outcomes)
        world.storage.faults = Faults()
        topics(world)
        if "a" in world.broker.coordinator.admin.topics:
            assert delete("a")(world)
        answer = world.produce("a", b"x")
        assert answer.error_code is ErrorCode.unknown_topic_or_partition
        assert create("a", 5)(world), fail_at
        assert world.produce("a", b"new").base_offset == 0, fail_at
    assert refusals > 10
