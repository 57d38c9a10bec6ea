"""Access to the resources of a request: the rule of an API, and checks in handlers.

Every API declares an `Access`. Checks of the whole request are made before its handler
runs; checks of rows are made by the handler, with the functions below. The rule lists
these checks, too, and a test makes each of them fail and succeed. Without an authorizer
all operations are allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker.authorization.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclOperation,
    ResourceType,
)
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode, KafkaError
from broker.requests.entitlement import Role, may_claim_role
from broker.requests.request import Request


class Check(NamedTuple):
    """An operation on a type of resource."""

    operation: AclOperation
    resource_type: ResourceType


DENIED: Final = MappingProxyType(
    {
        ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
        ResourceType.GROUP: ErrorCode.group_authorization_failed,
        ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
        ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
    }
)
MESSAGES: Final = MappingProxyType(
    {
        ErrorCode.topic_authorization_failed: "Topic authorization failed.",
        ErrorCode.group_authorization_failed: "Group authorization failed.",
        ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
        ErrorCode.transactional_id_authorization_failed: (
            "Transactional Id authorization failed."
        ),
    }
)


class WholeCheck(NamedTuple):
    """A check of the whole request; ``name`` returns the resource from the body."""

    check: Check
    name: Callable[[Any], str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Access:
    """The rule of one API.

    ``whole`` has the checks before the handler, in order; ``in_handler`` has the checks
    in the handler. ``by_role``: the request claims a role, which is checked before it
    is queued (`broker.requests.entitlement`).
    """

    whole: tuple[WholeCheck, ...] = ()
    in_handler: tuple[Check, ...] = ()
    by_role: bool = False

    def denial(self, request: Request, body: object, broker: Broker) -> ErrorCode:
        """Return the error for the whole request, or NONE."""
        if broker.authorizer is None:
            return ErrorCode.none
        for check, name in self.whole:
            if not allowed(request, broker, *check, name(body)):
                return DENIED[check.resource_type]
        return ErrorCode.none


def _on_group(operation: AclOperation) -> WholeCheck:
    return WholeCheck(
        Check(operation, ResourceType.GROUP), lambda body: str(body.group_id)
    )


def on_cluster(operation: AclOperation) -> Access:
    """Return the rule of an API that requires one operation on the cluster."""
    check = Check(operation, ResourceType.CLUSTER)
    return Access(whole=(WholeCheck(check, lambda body: CLUSTER_NAME),))


def on_group(operation: AclOperation, *in_handler: Check) -> Access:
    """Return the rule of an API of one group, ``body.group_id``."""
    return Access(whole=(_on_group(operation),), in_handler=in_handler)


def on_transaction(*in_handler: Check, and_group: bool = False) -> Access:
    """Return the rule of an API that writes as ``body.transactional_id``.

    ``and_group``: the API also reads the group ``body.group_id``.
    """
    check = Check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
    whole = WholeCheck(check, lambda body: str(body.transactional_id))
    group = (_on_group(AclOperation.READ),) if and_group else ()
    return Access(whole=(whole, *group), in_handler=in_handler)


def in_handler(*checks: Check) -> Access:
    """Return the rule of an API whose handler makes all checks."""
    return Access(in_handler=checks)


# APIs without checks, also before authentication.
PUBLIC: Final = Access()
# Requests of controllers and brokers only: ClusterAction on the cluster.
CLUSTER_ACTION: Final = Access(by_role=True)


def allowed(
    request: Request,
    broker: Broker,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str | None,
    *,
    logs_denial: bool = True,
) -> bool:
    """Return whether an operation is allowed; ``name`` None: on some resource."""
    authorizer = broker.authorizer
    return authorizer is None or authorizer.allows(
        request.peer,
        request.api_key,
        operation,
        resource_type,
        name,
        logs_denial=logs_denial,
    )


def allowed_on_topic(
    request: Request,
    broker: Broker,
    operation: AclOperation,
    name: str,
    *,
    logs_denial: bool = True,
) -> bool:
    """Return whether an operation on a topic is allowed."""
    return allowed(
        request, broker, operation, ResourceType.TOPIC, name, logs_denial=logs_denial
    )


def allowed_on_cluster(
    request: Request,
    broker: Broker,
    operation: AclOperation,
    *,
    logs_denial: bool = True,
) -> bool:
    """Return whether an operation on the cluster is allowed."""
    return allowed(
        request,
        broker,
        operation,
        ResourceType.CLUSTER,
        CLUSTER_NAME,
        logs_denial=logs_denial,
    )


def check(
    request: Request,
    broker: Broker,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> None:
    """Raise the error of the resource type unless an operation is allowed."""
    if not allowed(request, broker, operation, resource_type, name):
        raise denied(resource_type)


def check_topic(
    request: Request, broker: Broker, operation: AclOperation, name: str
) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED unless an operation on a topic is allowed."""
    if not allowed(request, broker, operation, ResourceType.TOPIC, name):
        raise denied(ResourceType.TOPIC)


def may_claim(request: Request, broker: Broker, role: Role) -> bool:
    """Return whether the client may claim a role that is found in the body only."""
    return may_claim_role(request.peer, request.api_key, role, broker.authorizer)


def denied(resource_type: ResourceType) -> KafkaError:
    """Return the error for a denied operation."""
    error = DENIED[resource_type]
    return KafkaError(error, MESSAGES[error])


def operations(
    request: Request, broker: Broker, resource_type: ResourceType, name: str
) -> int:
    """Return the allowed operations as a bit field (KIP-430)."""
    if broker.authorizer is None:
        return sum(1 << operation for operation in OPERATIONS[resource_type])
    return broker.authorizer.operations(request.peer, resource_type, name)


def cluster_operations(request: Request, broker: Broker) -> int:
    """Return the allowed operations on the cluster; none without DESCRIBE, as Kafka."""
    if not allowed_on_cluster(request, broker, AclOperation.DESCRIBE):
        return 0
    return operations(request, broker, ResourceType.CLUSTER, CLUSTER_NAME)
