"""A member's coordinator keeps the contract under ZooKeeper in memory."""

from __future__ import annotations

from tests.broker.coordination.contract_coordinator import (
    CoordinatorContract,
    Scenario,
)
from tests.broker.coordination.member_place import MemberPlace
from tests.broker.zookeeper.zoo import Zoo, with_zoo


class TestMemberThatLeaves(CoordinatorContract):
    crashes = False

    def run(self, scenario: Scenario) -> None:
        async def in_zoo(zoo: Zoo) -> None:
            place = MemberPlace("zoo:2181/kafka", zoo.connect, crashes=self.crashes)
            await scenario(place)

        with_zoo(in_zoo)


class TestMemberThatCrashes(TestMemberThatLeaves):
    crashes = True
