"""DescribeClientQuotas (48): the quotas that are set for entities (KIP-546).

Versions: 0-1.

Behaviour:
- A filter has components by entity type: a name, the default, or any. An entity matches
  if it has all types of the filter; a strict filter excludes entities with others.
- A duplicate type, an empty type, and addresses with users or client ids are
  INVALID_REQUEST; an unknown type is UNSUPPORTED_VERSION, as in Kafka.

Version notes: v1 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.apis.common.quota_keys import keys_of, stored_quotas
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from broker.quotas.client_quotas import read_bound
from broker.quotas.entity import CLIENT_ID, IP, USER, names_of
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
_TYPES: Final = (USER, CLIENT_ID, IP)
# Returns whether a name matches; None is the default entity.
Matches: TypeAlias = Callable[[str | None], bool]


async def handle(
    request: Request, body: DescribeClientQuotasRequest, broker: Broker
) -> DescribeClientQuotasResponse:
    """Describe the matching entities."""
    wanted: dict[str, Matches] = {}
    try:
        async for component in in_steps(body.components):
            _add(wanted, component)
        if IP in wanted and len(wanted) > 1:
            raise KafkaError(
                ErrorCode.invalid_request,
                "An address cannot be combined with a user or a client id.",
            )
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    entries = []
    async for entity, configs in in_steps(stored_quotas(broker)):
        names = names_of(entity)
        if _is_wanted(names, wanted, is_strict=body.strict):
            values = _values(names, configs)
            if values:
                entries.append(_entry(names, values))
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.none, error_message=None, entries=entries
    )


def _add(wanted: dict[str, Matches], component: ComponentData) -> None:
    kind = component.entity_type
    if not kind or kind in wanted:
        raise KafkaError(
            ErrorCode.invalid_request, f"Entity type {kind!r} is empty or named twice."
        )
    if kind not in _TYPES:
        raise KafkaError(
            ErrorCode.unsupported_version, f"Entity type {kind!r} is not supported."
        )
    if component.match_type == _EXACT and component.match is not None:
        wanted[kind] = lambda name: name == component.match
    elif component.match_type == _DEFAULT and component.match is None:
        wanted[kind] = lambda name: name is None
    elif component.match_type == _ANY and component.match is None:
        wanted[kind] = lambda name: True
    else:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Match type {component.match_type} does not fit its name.",
        )


def _is_wanted(
    names: Mapping[str, str | None], wanted: Mapping[str, Matches], *, is_strict: bool
) -> bool:
    if is_strict and names.keys() != wanted.keys():
        return False
    return all(
        kind in names and matches(names[kind]) for kind, matches in wanted.items()
    )


def _values(
    names: Mapping[str, str | None], configs: Mapping[str, str]
) -> list[ValueData]:
    bounds = {key: read_bound(configs.get(key)) for key in keys_of(names)}
    return [
        ValueData(key=key, value=bound)
        for key, bound in bounds.items()
        if bound is not None
    ]


def _entry(names: Mapping[str, str | None], values: list[ValueData]) -> EntryData:
    entity = [
        EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
    ]
    return EntryData(entity=entity, values=values)


API: Final = Api(
    key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
    versions=(0, 1),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.DESCRIBE_CONFIGS),
)
