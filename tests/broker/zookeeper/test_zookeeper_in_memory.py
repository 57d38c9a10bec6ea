"""The in-memory server meets both contracts, in virtual time."""

from __future__ import annotations

from tests.broker.zookeeper.contract_sessions import SessionsContract
from tests.broker.zookeeper.contract_znodes import ZnodesContract
from tests.broker.zookeeper.own_chroot import OwnChroot, Scenario
from tests.broker.zookeeper.zoo import Zoo, with_zoo


class TestInMemory(ZnodesContract, SessionsContract):
    def run(self, scenario: Scenario) -> None:
        async def in_zoo(zoo: Zoo) -> None:
            await scenario(OwnChroot("zoo:2181", "/contract", zoo.connect))

        with_zoo(in_zoo)
