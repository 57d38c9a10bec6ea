"""ApiVersions (18): which APIs this broker speaks, and in which versions.

Versions: 0-4.

Behaviour:
- A version above ours is answered in version 0 with UNSUPPORTED_VERSION and the one
  range that helps, ApiVersions' own (KIP-511); the client asks again.
- The response header is version 0 always: the client cannot know better yet.
- Only APIs with a handler are listed, in the versions of ``broker.wire.api_keys``.

Version notes:
- v1 adds the throttle time; v3 is flexible and takes the client's name and version,
  which must look like names (KIP-511); v4 may list features whose minimum is 0.

Left out: features. None is finalized, so that clients use neither the new transaction
protocol (KIP-890) nor the new group protocol (KIP-848).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from broker.apis.answer import Row, answer
from broker.errors import ErrorCode
from broker.request import Request, Response
from broker.wire.api_keys import SUPPORTED, ApiKey
from broker.wire.codec import Entity, encode

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


def listed(request: Request, body: Entity, served: Iterable[int]) -> Row:
    """List the APIs of ``served``; INVALID_REQUEST for an odd software name."""
    if request.api_version >= 3 and not (
        _SOFTWARE.fullmatch(body.client_software_name)
        and _SOFTWARE.fullmatch(body.client_software_version)
    ):
        return _answer(ErrorCode.invalid_request, ())
    return _answer(ErrorCode.none, served)


def unsupported(request: Request) -> Response:
    """Answer, in version 0, a version that we do not speak."""
    request.error_code = int(ErrorCode.unsupported_version)
    found = _answer(ErrorCode.unsupported_version, (ApiKey.API_VERSIONS,))
    return (encode(ApiKey.API_VERSIONS, 0, request.correlation_id, found),)


def _answer(error: ErrorCode, served: Iterable[int]) -> Row:
    return answer(
        error_code=error,
        api_keys=[
            Row(
                api_key=int(key),
                min_version=SUPPORTED[key].min,
                max_version=SUPPORTED[key].max,
            )
            for key in sorted(map(ApiKey, served))
        ],
        supported_features=(),
        finalized_features_epoch=-1,
        finalized_features=(),
        zk_migration_ready=False,
    )
