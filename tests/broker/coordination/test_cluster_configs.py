"""Slow reads of configs do not undo changes that arrive meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import pytest

from broker.coordination.zookeeper.cluster_discovery import prepare_znodes
from broker.coordination.zookeeper.configs import ClusterConfigs
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.zookeeper.znodes import Znode
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from simulation.virtual_time.apis import START_MS
from tests.broker.zookeeper.zoo import Zoo, with_zoo

OLD, NEW = {"retention.ms": "1000"}, {"retention.ms": "2000"}


class Late(RetryingZnodes):
    """Znodes whose first ``find_all`` runs a function before it returns."""

    def __init__(
        self, session: ZooKeeperSession, happens: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(session)
        self._happens = [happens]

    async def find_all(
        self, paths: Iterable[str], *, watch: bool = False
    ) -> dict[str, Znode]:
        found = await super().find_all(paths, watch=watch)
        if self._happens:
            await self._happens.pop()()
        return found


@pytest.mark.parametrize("reads", ["some topics", "all"])
def test_configs_altered_during_a_read_are_in_force_after_it(reads: str) -> None:
    async def scenario(zoo: Zoo) -> None:
        session = await zoo.opened("zoo:2181")
        znodes = RetryingZnodes(session)
        await prepare_znodes(znodes)
        theirs, ours = ClusterConfigs(), ClusterConfigs()
        await theirs.write("topics/t", OLD, None, znodes)
        await ours.read_all(znodes)

        async def alter() -> None:
            await theirs.write("topics/t", NEW, None, znodes)
            await theirs.write("topics/created", NEW, None, znodes)
            assert "topics/t" in await ours.read_changes(znodes, START_MS)

        late = Late(session, alter)
        if reads == "all":
            await ours.read_all(late)
        else:
            await ours.read_topics(late, ["t", "created"])
        assert ours.topics == {"t": NEW, "created": NEW}
        # All notifications have been read.
        assert await ours.read_changes(znodes, START_MS) == []

    with_zoo(scenario)


def test_a_topic_that_is_learned_during_the_first_read_stays_known() -> None:
    """The topic is created with its configs, without a notification of them."""

    async def scenario(zoo: Zoo) -> None:
        session = await zoo.opened("zoo:2181")
        znodes = RetryingZnodes(session)
        await prepare_znodes(znodes)
        theirs, ours = ClusterConfigs(), ClusterConfigs()
        await theirs.write("topics/t", OLD, None, znodes)

        async def create() -> None:
            await theirs.write("topics/created", NEW, None, znodes)
            await ours.read_topics(znodes, ["created"])

        await ours.read_all(Late(session, create))
        assert ours.topics == {"t": OLD, "created": NEW}

    with_zoo(scenario)
