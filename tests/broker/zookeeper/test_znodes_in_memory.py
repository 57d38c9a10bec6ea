"""The server in memory keeps the contract, in virtual time."""

from __future__ import annotations

from tests.broker.zookeeper.contract_znodes import Place, Scenario, ZnodesContract
from tests.broker.zookeeper.zoo import Zoo, with_zoo


class TestZnodesInMemory(ZnodesContract):
    def run(self, scenario: Scenario) -> None:
        async def in_zoo(zoo: Zoo) -> None:
            await scenario(Place("zoo:2181", "/contract", zoo.connect))

        with_zoo(in_zoo)
