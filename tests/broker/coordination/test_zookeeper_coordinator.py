"""A member's coordinator keeps the contract under ZooKeeper in memory."""

from __future__ import annotations

from broker.coordination.coordinator_roles import ConfigKind
from broker.coordination.features import (
    NO_FEATURES,
    TRANSACTION_VERSION,
    FeatureUpdate,
)
from broker.protocol.errors import ErrorCode
from tests.broker.coordination.contract_coordinator import (
    CoordinatorContract,
    Place,
    Scenario,
    refused,
    served,
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

    def test_no_feature_is_finalized_under_zookeeper(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                admin = coordinator.admin
                assert admin.finalized_features == NO_FEATURES
                for validates in (True, False):
                    updates = {TRANSACTION_VERSION: FeatureUpdate(2, 1)}
                    verb = admin.update_features(updates, validates_only=validates)
                    await refused(ErrorCode.invalid_request, verb)
                await served(admin.update_features({}, validates_only=False))
                assert admin.finalized_features.transaction_version == 0

        self.run(scenario)

    def test_groups_have_no_configs_under_zookeeper(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                verb = coordinator.admin.set_configs(
                    ConfigKind.RESOURCE, "groups/g", {"a": "1"}
                )
                await refused(ErrorCode.invalid_request, verb)
                assert coordinator.admin.configs[ConfigKind.RESOURCE] == {}

        self.run(scenario)


class TestMemberThatCrashes(TestMemberThatLeaves):
    crashes = True
