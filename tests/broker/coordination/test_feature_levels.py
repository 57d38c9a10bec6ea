"""Feature levels in the registry: writes, reads, and files of older releases."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordination.cluster_state import (
    VERSION,
    Change,
    ClusterState,
    read_change,
    read_state,
    write_change,
    write_state,
)
from broker.coordination.embedded_registry import Registry
from broker.coordination.features import (
    GROUP_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
    FeatureUpdate,
    check_update,
)
from broker.disk.log_dirs import LogDirs
from broker.disk.memory import MemoryStorage
from broker.protocol.errors import ErrorCode, KafkaError

LEVELS = st.dictionaries(st.text(max_size=9), st.integers(0, 2**15 - 1), max_size=4)


@given(LEVELS, LEVELS)
def test_levels_are_read_as_they_were_written(
    before: dict[str, int], after: dict[str, int]
) -> None:
    state = ClusterState(generation=3, features=dict(before))
    found = read_state((VERSION,), json.loads(write_state(state)))
    assert found == state
    change = Change(features={name: level or None for name, level in after.items()})
    written = read_change(json.loads(write_change(change, 4, 3)))
    assert written.change == change
    found.apply(written.change, written.generation)
    assert found.features == {
        name: level
        for name, level in {**before, **after}.items()
        if level or name not in after
    }


def test_a_new_registry_has_the_newest_levels_and_an_older_file_none() -> None:
    storage = MemoryStorage()
    storage.make_directory("/data")
    new = Registry(storage, LogDirs(["/data"]))
    new.load()
    assert new.state.features == {TRANSACTION_VERSION: 2, GROUP_VERSION: 1}
    new.renew(new.state)
    again = Registry(storage, LogDirs(["/data"]))
    again.load()
    assert again.state.features == {TRANSACTION_VERSION: 2, GROUP_VERSION: 1}
    # A file of a release without features.
    again.renew(ClusterState())
    upgraded = Registry(storage, LogDirs(["/data"]))
    upgraded.load()
    assert upgraded.state.features == {}


def naive(level: int, upgrade_type: int, present: int) -> bool:
    """Return whether Kafka 4.4's ``FeatureControlManager`` accepts an update."""
    if upgrade_type not in (1, 2, 3) or level not in (0, 1, 2):
        return False
    if upgrade_type == 1:
        return level >= present
    return level <= present


@given(st.integers(-3, 5), st.integers(-1, 5), st.integers(0, 2))
def test_a_level_is_left_as_kafka_lets_it(
    level: int, upgrade_type: int, present: int
) -> None:
    update = FeatureUpdate(level, upgrade_type)
    if naive(level, upgrade_type, present):
        check_update(TRANSACTION_VERSION, update, present)
        return
    with pytest.raises(KafkaError) as refused:
        check_update(TRANSACTION_VERSION, update, present)
    assert refused.value.code is ErrorCode.invalid_update_version


@given(st.text(max_size=40), st.integers(-(2**15), 2**15 - 1), st.integers(-128, 127))
def test_a_feature_that_is_not_supported_has_no_level(
    name: str, level: int, upgrade_type: int
) -> None:
    if name in SUPPORTED:
        return
    with pytest.raises(KafkaError) as refused:
        check_update(name, FeatureUpdate(level, upgrade_type), 0)
    assert refused.value.code is ErrorCode.invalid_update_version
