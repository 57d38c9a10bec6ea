"""UpdateFeatures, and the features that ApiVersions answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.disk.storage import read_whole
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.records.batch import split_batches
from broker.protocol.records.batch_records import iter_records
from tests.broker.apis.broker_world import World
from tests.broker.apis.transaction_client import SETTINGS, TransactionClient

NONE, INVALID = ErrorCode.none, ErrorCode.invalid_update_version
UPGRADE, SAFE, UNSAFE = 1, 2, 3
FEATURE = "transaction.version"
GROUPS = "group.version"


def row(level: int, upgrade_type: int = UPGRADE, name: str = FEATURE) -> dict[str, Any]:
    return {"feature": name, "max_version_level": level, "upgrade_type": upgrade_type}


def update(
    world: World, *rows: dict[str, Any], version: int = 2, **fields: Any
) -> ErrorCode:
    answer = world.send(
        ApiKey.UPDATE_FEATURES, version, feature_updates=list(rows), **fields
    )
    code: ErrorCode = answer.error_code
    assert (answer.error_message is None) == (code is NONE), answer
    if version < 2:
        names = [each["feature"] for each in rows]
        found = [(each.feature, each.error_code) for each in answer.results]
        assert found == ([(name, NONE) for name in names] if code is NONE else [])
    return code


def versions(world: World, version: int = 4) -> Any:
    return world.send(
        ApiKey.API_VERSIONS,
        version,
        client_software_name="a",
        client_software_version="1",
    )


def level(world: World) -> int:
    """Return the finalized level in ApiVersions, or 0 if there is none."""
    answer = versions(world)
    found = {
        each.name: (each.min_version_level, each.max_version_level)
        for each in answer.finalized_features
    }
    low, high = found.pop(FEATURE, (0, 0))
    assert low == high
    assert found == {GROUPS: (1, 1)}
    (transaction,) = [world.broker.coordinator.admin.finalized_features]
    assert transaction.transaction_version == high
    return int(high)


def test_a_new_cluster_has_level_2() -> None:
    world = World()
    assert level(world) == 2
    answer = versions(world)
    supported = {
        each.name: (each.min_version, each.max_version)
        for each in answer.supported_features
    }
    assert supported == {FEATURE: (0, 2), GROUPS: (0, 1)}
    # Clients of version 3 cannot read a minimum level of 0 (KAFKA-17492).
    answer = versions(world, 3)
    assert not answer.supported_features
    assert len(answer.finalized_features) == 2


def test_a_level_is_changed_and_outlives_a_restart() -> None:
    world = World()
    for wanted, kind in ((2, SAFE), (1, SAFE), (1, UPGRADE), (0, UNSAFE), (2, UPGRADE)):
        epoch = versions(world).finalized_features_epoch
        before = level(world)
        for refused in (UPGRADE if wanted < before else SAFE, 0, 4):
            if wanted != before or refused in (0, 4):
                assert update(world, row(wanted, refused)) is INVALID
        assert update(world, row(wanted, kind), validate_only=True) is NONE
        assert (level(world), versions(world).finalized_features_epoch) == (
            before,
            epoch,
        )
        assert update(world, row(wanted, kind)) is NONE
        assert level(world) == wanted
        # Clients accept finalized levels only with a higher epoch.
        raised = versions(world).finalized_features_epoch > epoch
        assert raised == (wanted != before)
        world = world.restarted()
        assert level(world) == wanted


def test_all_updates_are_made_or_none() -> None:
    world = World()
    for name in ("metadata.version", "share.version", "", "x"):
        both = row(1, SAFE), row(0, UPGRADE, name)
        assert update(world, *both) is INVALID
        assert update(world, *reversed(both)) is INVALID
    assert level(world) == 2
    assert update(world) is NONE
    # The last of two updates of a feature counts, as in Kafka's map.
    assert update(world, row(7), row(1, SAFE)) is NONE
    assert level(world) == 1


@pytest.mark.parametrize("version", [0, 1])
def test_older_versions_have_a_row_for_each_feature(version: int) -> None:
    world = World()
    assert update(world, row(2), row(2), version=version) is NONE
    assert update(world, row(3), version=version) is INVALID
    # Version 0 has no upgrade type, and Kafka rejects its downgrades.
    expected = INVALID if version == 0 else NONE
    assert update(world, row(1, SAFE), version=version) is expected


def test_a_level_that_is_not_stored_is_not_finalized() -> None:
    world = World()
    world.storage.fill_up()
    assert update(world, row(1, SAFE)) is ErrorCode.kafka_storage_error
    assert level(world) == 2
    assert level(world.restarted()) == 2


@pytest.mark.parametrize("seed", range(3))
def test_random_updates_are_those_of_a_naive_model(seed: int) -> None:
    rng = random.Random(seed)
    world, present = World(), 2
    for _ in range(100):
        wanted, kind = rng.randrange(-1, 4), rng.randrange(5)
        validates = rng.random() < 0.3
        may = (
            wanted in (0, 1, 2)
            and kind in (UPGRADE, SAFE, UNSAFE)
            and (wanted >= present if kind == UPGRADE else wanted <= present)
        )
        code = update(world, row(wanted, kind), validate_only=validates)
        assert code is (NONE if may else INVALID), (wanted, kind, present)
        if may and not validates:
            present = wanted
        assert level(world) == present


def test_the_level_counts_for_transactions_from_then_on() -> None:
    world = World(SETTINGS)
    world.create("t")
    client = TransactionClient(world)
    client.begin()

    def formats() -> list[int]:
        """Return the format of each record of a transactional id, oldest first."""
        index = world.broker.transactions.partition_for(client.name)
        path = f"/data/__transaction_state-{index}/{0:020}.log"
        return [
            record.value[1]
            for header, batch in split_batches(read_whole(world.storage, path))
            for record in iter_records(header, batch)
            if record.value is not None
        ]

    # InitProducerId writes the first record, and each outcome writes two.
    expected = [1]
    assert formats() == expected
    for wanted, format_ in ((0, 0), (1, 1), (0, 0), (2, 1)):
        kind = UPGRADE if wanted > level(world) else SAFE
        assert update(world, row(wanted, kind)) is NONE
        assert client.end(False, version=5) is NONE
        world.pass_ms(0)
        expected += [format_, format_]
        assert formats() == expected
    world.check()
