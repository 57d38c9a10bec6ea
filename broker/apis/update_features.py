"""UpdateFeatures (57): finalize levels of features (KIP-584).

Versions: 0-2.

Behaviour: the controller decides; other brokers return NOT_CONTROLLER. Either all
updates are made, durably, or none. INVALID_UPDATE_VERSION is returned for an
unsupported feature or level, an unknown upgrade type, a lower level without a
downgrade, and a higher level with a downgrade. The last of several updates of a feature
counts. Downgrades of ``transaction.version`` lose no data, so safe and unsafe ones are
treated alike.

Version notes: v0 cannot downgrade, v1 has the upgrade type and a validation only mode,
v2 returns no rows. Errors concern the whole request, in any version.

Left out: features other than ``transaction.version`` and ``group.version``, and so
``metadata.version``.
Under ZooKeeper any update is INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation
from broker.coordination.features import SUPPORTED, FeatureUpdate, check_update
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps

_ROWS_UNTIL: Final = 1
# Kafka's message in rows without an error.
_NO_ERROR: Final = "NONE"


async def handle(
    request: Request, body: UpdateFeaturesRequest, broker: Broker
) -> UpdateFeaturesResponse:
    """Make all updates, or none."""
    try:
        broker.coordinator.controller.check_is_controller()
        updates = await _supported(body)
        await broker.coordinator.admin.update_features(
            updates, validates_only=body.validate_only
        )
    except KafkaError as refused:
        return UpdateFeaturesResponse(
            error_code=refused.code,
            error_message=f"No feature is updated: {refused.message}",
        )
    rows: list[UpdatableFeatureResult] = []
    if request.api_version <= _ROWS_UNTIL:
        rows = [
            UpdatableFeatureResult(
                feature=update.feature,
                error_code=ErrorCode.none,
                error_message=_NO_ERROR,
            )
            async for update in in_steps(body.feature_updates)
        ]
    return UpdateFeaturesResponse(
        error_code=ErrorCode.none, error_message=None, results=rows
    )


async def _supported(body: UpdateFeaturesRequest) -> dict[str, FeatureUpdate]:
    """Return the update of each feature; raise for an unsupported one."""
    updates: dict[str, FeatureUpdate] = {}
    async for row in in_steps(body.feature_updates):
        update = FeatureUpdate(row.max_version_level, row.upgrade_type)
        if row.feature not in SUPPORTED:
            check_update(row.feature, update, present=0)
        updates[row.feature] = update
    return updates


API: Final = Api(
    key=ApiKey.UPDATE_FEATURES,
    versions=(0, 2),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER),
)
