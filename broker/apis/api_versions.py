"""ApiVersions (18): the APIs that this broker serves, with their versions.

Versions: 0-5.

Behaviour:
- An unsupported version is answered in version 0 with UNSUPPORTED_VERSION and the range
  of ApiVersions itself (KIP-511); the client then retries.
- The response header always has version 0, since the client knows no other yet.
- The response lists the APIs that are declared in this package.
- The finalized levels of features have an epoch, by which clients keep the newest.
- REBOOTSTRAP_REQUIRED (KIP-1242) is returned to an authenticated client that expects
  another cluster or broker.
- Admission never refuses this API: a response costs no more than a refusal, and clients
  without a response close the connection.

Version notes:
- v1 adds the throttle time; v3 is flexible and has the client's software name and
  version, whose format is checked (KIP-511); v4 may list features whose minimum is 0;
  v5 has the cluster and the broker that the client expects, both or neither.

Left out: features other than ``transaction.version`` and ``group.version``; under
ZooKeeper none is finalized.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from broker.apis.common.access import PUBLIC
from broker.apis.common.api import Api
from broker.coordination.features import (
    NO_FEATURES,
    SUPPORTED,
    FinalizedFeatures,
    Levels,
)
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from broker.protocol.wire.codec import encode
from broker.requests.classifier import METADATA
from broker.requests.request import Request, Response

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
# The first version whose clients accept features with minimum level 0 (KAFKA-17492).
_LEVEL_0_SINCE: Final = 4
_NO_NODE: Final = -1


def declare(apis: Mapping[int, Api]) -> Api:
    """Return the API that lists all ``apis``, to which it is added afterwards."""

    async def handle(
        request: Request, body: ApiVersionsRequest, broker: Broker
    ) -> ApiVersionsResponse:
        if request.api_version >= 3 and not _is_valid(body):
            return _answer(ErrorCode.invalid_request, ())
        authenticator = request.peer.authenticator
        if authenticator is None or authenticator.has_authenticated:
            if _means_another(body, broker):
                return _answer(ErrorCode.rebootstrap_required, ())
        else:
            authenticator.versions_answered()
        return _answer(
            ErrorCode.none,
            apis.values(),
            supported=SUPPORTED if request.api_version >= _LEVEL_0_SINCE else {},
            finalized=broker.coordinator.admin.finalized_features,
        )

    def handle_at_once(request: Request, broker: Broker) -> Response | None:
        """Answer an unsupported version in version 0."""
        if request.api_version in listing.served:
            return None
        request.error_code = int(ErrorCode.unsupported_version)
        found = _answer(ErrorCode.unsupported_version, (listing,))
        return (encode(ApiKey.API_VERSIONS, 0, request.correlation_id, found),)

    listing = Api(
        key=ApiKey.API_VERSIONS,
        versions=(0, 5),
        request_class=METADATA,
        handle=handle,
        access=PUBLIC,
        handle_at_once=handle_at_once,
        refusable=False,
    )
    return listing


def _is_valid(body: ApiVersionsRequest) -> bool:
    """Return whether the software's name is valid, and both ids are set or neither."""
    return (
        _SOFTWARE.fullmatch(body.client_software_name) is not None
        and _SOFTWARE.fullmatch(body.client_software_version) is not None
        and (body.cluster_id is None) == (body.node_id == _NO_NODE)
    )


def _means_another(body: ApiVersionsRequest, broker: Broker) -> bool:
    """Return whether the client expects another cluster or broker."""
    meant = body.cluster_id, body.node_id
    return body.cluster_id is not None and meant != (
        broker.cluster_id,
        broker.config.node_id,
    )


def _answer(
    error: ErrorCode,
    listed: Iterable[Api],
    supported: Mapping[str, Levels] = MappingProxyType({}),
    finalized: FinalizedFeatures = NO_FEATURES,
) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersion(
                api_key=int(api.key),
                min_version=api.advertised[0],
                max_version=api.advertised[1],
            )
            for api in sorted(listed, key=lambda api: api.key)
        ],
        supported_features=[
            SupportedFeatureKey(
                name=name, min_version=levels.lowest, max_version=levels.highest
            )
            for name, levels in supported.items()
        ],
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(
                name=name, max_version_level=level, min_version_level=level
            )
            for name, level in finalized.levels.items()
        ],
        zk_migration_ready=False,
    )
