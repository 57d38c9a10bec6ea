"""ApiVersions (18): which APIs this broker speaks, and in which versions.

Versions: 0-5.

Behaviour:
- A version above ours is answered in version 0 with UNSUPPORTED_VERSION and the one
  range that helps, ApiVersions' own (KIP-511); the client asks again.
- The response header is version 0 always: the client cannot know better yet.
- Listed is what is declared in this folder.
- The finalized levels of features come with an epoch, by which clients keep the newest.
- A client that means another cluster or broker than this one is told
  REBOOTSTRAP_REQUIRED (KIP-1242), once it is authenticated.
- Never refused: the answer costs no more than a refusal, and clients that do not get it
  give up the connection.

Version notes:
- v1 adds the throttle time; v3 is flexible and takes the client's name and version,
  which must look like names (KIP-511); v4 may list features whose minimum is 0; v5
  names the cluster and the broker that the client means, both or neither.

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
# The first version whose clients read a feature with the lowest level 0 (KAFKA-17492).
_LEVEL_0_SINCE: Final = 4
_NO_NODE: Final = -1


def declare(apis: Mapping[int, Api]) -> Api:
    """Return the API that lists all ``apis``, itself among them once it is there."""

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
        """Answer, in version 0, a version that we do not speak."""
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
    """Return whether the software has a name, and cluster and broker go together."""
    return (
        _SOFTWARE.fullmatch(body.client_software_name) is not None
        and _SOFTWARE.fullmatch(body.client_software_version) is not None
        and (body.cluster_id is None) == (body.node_id == _NO_NODE)
    )


def _means_another(body: ApiVersionsRequest, broker: Broker) -> bool:
    """Return whether the client means another cluster or broker than this one."""
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
