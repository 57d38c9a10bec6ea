"""CreateAcls (30): allow or deny principals operations on resources.

Versions: 1-3.

Behaviour:
- Each entry succeeds or fails independently; a created entry is durable before the
  response. Creating an existing entry succeeds.
- INVALID_REQUEST is returned for an unknown kind, an empty name, a cluster other than
  ``kafka-cluster``, and a principal without a type; under ZooKeeper also for a name
  with a slash.
- For kinds of filters (ANY, MATCH) the whole request fails with UNKNOWN_SERVER_ERROR,
  as in Kafka. Without an authorizer each entry fails with SECURITY_DISABLED.
- A request can be preempted between entries.

Version notes: v1 has pattern types (KIP-290), v2 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.acl_requests import SECURITY_DISABLED, alter_acls, known
from broker.apis.common.answer import NO_ERROR
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from broker.protocol.principal import parse_principal
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps

_ONLY_IN_FILTERS: Final = KafkaError(
    ErrorCode.unknown_server_error, "ANY and MATCH are for filters only."
)


async def handle(
    request: Request, body: CreateAclsRequest, broker: Broker
) -> CreateAclsResponse:
    """Create the valid entries, and return the outcome of each entry."""
    bindings = [_binding(row) async for row in in_steps(body.creations)]
    outcomes: list[KafkaError] = [NO_ERROR] * len(bindings)
    if broker.authorizer is None:
        outcomes = [SECURITY_DISABLED] * len(bindings)
    elif any([_is_filter(binding) async for binding in in_steps(bindings)]):
        outcomes = [_ONLY_IN_FILTERS] * len(bindings)
    else:
        await _create(bindings, outcomes, broker)
    return CreateAclsResponse(
        results=[
            AclCreationResult(
                error_code=outcome.code,
                error_message=outcome.message,
            )
            async for outcome in in_steps(outcomes)
        ]
    )


async def _create(
    bindings: list[AclBinding], outcomes: list[KafkaError], broker: Broker
) -> None:
    added: dict[ResourcePattern, set[AclEntry]] = {}
    async for index, binding in in_steps(enumerate(bindings)):
        try:
            _check(binding)
        except KafkaError as error:
            outcomes[index] = error
        else:
            added.setdefault(binding.pattern, set()).add(binding.entry)
    failed = await alter_acls(
        {pattern: partial(_with, entries) for pattern, entries in added.items()}, broker
    )
    if failed:
        async for index, binding in in_steps(enumerate(bindings)):
            if outcomes[index] is NO_ERROR:
                outcomes[index] = failed.get(binding.pattern, NO_ERROR)


def _with(added: set[AclEntry], present: frozenset[AclEntry]) -> frozenset[AclEntry]:
    # Cheap: sets store the hashes of their members, so none is computed here.
    return present.union(added)


def _binding(row: AclCreation) -> AclBinding:
    """Return a request's binding; raise `MalformedFrame` for UNKNOWN."""
    return AclBinding(
        ResourcePattern(
            known(ResourceType, row.resource_type),
            row.resource_name,
            known(PatternType, row.resource_pattern_type),
        ),
        AclEntry(
            row.principal,
            row.host,
            known(AclOperation, row.operation),
            known(PermissionType, row.permission_type),
        ),
    )


def _is_filter(binding: AclBinding) -> bool:
    pattern, entry = binding
    return (
        pattern.resource_type is ResourceType.ANY
        or pattern.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or entry.operation is AclOperation.ANY
        or entry.permission is PermissionType.ANY
    )


def _check(binding: AclBinding) -> None:
    kind, name, pattern_type = binding.pattern
    if 0 in (kind, pattern_type, binding.entry.operation, binding.entry.permission):
        raise _invalid("The ACL has an unknown kind")
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(
            f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        )
    if not name:
        raise _invalid("Invalid empty resource name")
    try:
        parse_principal(binding.entry.principal)
    except ValueError as error:
        raise _invalid(
            f"Could not parse principal from `{binding.entry.principal}` "
            "(no colon is present separating the principal type from the principal "
            "name)"
        ) from error


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


API: Final = Api(
    key=ApiKey.CREATE_ACLS,
    versions=(1, 3),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER),
    error_answer=ErrorAnswer(rows={"results": ("creations",)}),
)
