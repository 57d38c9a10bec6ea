"""A broker over a damaged disk: it serves, or refuses to start with a reason."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.disk.memory import MemoryStorage
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import values_of
from tests.fuzzing import disks
from tests.fuzzing.known import is_known

SEEDS = 20


def started(storage: MemoryStorage) -> World | None:
    """Return a broker on this disk, or None if it refused to start."""
    try:
        return World(storage=storage)
    except ConfigError:
        return None


def raises_nothing_new(play: Callable[[random.Random], None]) -> None:
    """Play all seeds; raise any failure that is not known."""
    for seed in range(SEEDS):
        try:
            play(random.Random(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            if not is_known(error):
                raise


def goes_on(world: World) -> None:
    world.create("fresh")
    assert world.produce("fresh", b"x").error_code is NONE
    assert values_of(world.fetch("fresh").records) == [(0, b"x")]
    # Logs and groups are not checked: the broker trusts the files of an orderly stop,
    # and loads a group from another group's partition, as Kafka does.
    world.broker.replicas.check()
    world.broker.metadata_cache.check()
    # Run retention, compaction, checkpoints, and session expiry of loaded groups.
    world.pass_ms(3_600_000)
    world.broker.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("several", [1, 3])
def test_a_damaged_disk_is_served_or_refused_and_untouched_logs_stay(
    clean: bool, several: int
) -> None:
    sound = disks.written(clean=clean)

    def play(rng: random.Random) -> None:
        storage = sound.after_kill()
        before = disks.logs(storage)
        touched = [disks.damage(rng, storage) for _ in range(several)]
        world = started(storage)
        if not any("log-start-offset" in path for path in touched):
            # A log may have moved: renamed directories are not lost.
            left = disks.logs(storage).values()
            for home, content in before.items():
                if not any(path.startswith(home) for path in touched):
                    assert any(content in each for each in left), (touched, home)
        if world is not None:
            goes_on(world)

    raises_nothing_new(play)


def test_nonsense_in_the_offsets_topic_costs_nobody_a_commit() -> None:
    sound = disks.written(clean=False)

    def play(rng: random.Random) -> None:
        storage = sound.after_kill()
        disks.put_nonsense_into_offsets(rng, storage)
        world = started(storage)
        assert world is not None
        world.pass_ms(1_000)
        topics = [{"name": "t", "partition_indexes": [0]}]
        fields = {"group_id": disks.SOUND_GROUP, "topics": topics}
        answer = world.send(ApiKey.OFFSET_FETCH, 5, **fields)
        assert answer.error_code is NONE
        assert answer.topics[0].partitions[0].committed_offset == 42
        goes_on(world)

    raises_nothing_new(play)
