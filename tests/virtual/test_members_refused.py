"""A member that cannot find its cluster, or finds another one, does not start."""

from __future__ import annotations

import pytest

from broker.protocol.errors import ConfigError
from tests.virtual.members import Members, with_members


def test_a_zookeeper_that_nobody_reaches_is_named() -> None:
    async def scenario(members: Members) -> None:
        raise AssertionError("nobody has started")

    with pytest.raises(ExceptionGroup) as caught:
        with_members(
            scenario,
            count=1,
            zookeeper_connect="127.0.0.1:2999",
            zookeeper_connection_timeout_ms="3000",
        )
    (fault,) = caught.value.exceptions
    assert isinstance(fault, ConfigError)
    assert fault.key == "zookeeper.connect"
    assert "3000 ms" in fault.expected


def test_directories_of_another_cluster_are_refused() -> None:
    async def scenario(members: Members) -> None:
        await members.stop(0)
        session = await members.session()
        await session.set("/cluster/id", b'{"version":"1","id":"another"}')
        with pytest.raises(ConfigError, match=r"log\.dirs"):
            await members.start(0)

    with_members(scenario, count=1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"broker_id": "1001"}, "at most 1000"),
        ({"broker_id": "", "broker_id_generation_enable": "false"}, "a number"),
    ],
)
def test_a_number_that_may_be_anothers_is_refused(
    settings: dict[str, str], expected: str
) -> None:
    async def scenario(members: Members) -> None:
        raise AssertionError("nobody has started")

    with pytest.raises(ExceptionGroup) as caught:
        with_members(scenario, count=1, **settings)
    (fault,) = caught.value.exceptions
    assert isinstance(fault, ConfigError)
    assert fault.key == "broker.id"
    assert expected in fault.expected
