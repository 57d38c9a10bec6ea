"""UpdateFeatures (57): levels of features, of which this broker has none.

Versions: 0.

Behaviour:
- Each named feature is INVALID_UPDATE_VERSION.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps


async def handle(
    request: Request, body: UpdateFeaturesRequest, broker: Broker
) -> UpdateFeaturesResponse:
    """Refuse each feature."""
    return UpdateFeaturesResponse(
        error_code=ErrorCode.none,
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=update.feature,
                error_code=ErrorCode.invalid_update_version,
                error_message="The broker has no such feature.",
            )
            async for update in in_steps(body.feature_updates)
        ],
    )


API: Final = Api(
    key=ApiKey.UPDATE_FEATURES,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER),
)
