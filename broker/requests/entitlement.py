"""Roles in the cluster, and the connections that may claim them.

Kafka protects the requests of controllers and brokers by one operation, ClusterAction
on the cluster. With an authorizer, this operation decides about a role. Without an
authorizer, every client of Kafka has it; here a role then follows from the listener of
the connection.

A request of a role that its connection may not claim is denied before it is decoded,
and waits in the least urgent class. See the table in docs/security.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Protocol

from broker.authorization.acls import CLUSTER_NAME, AclOperation, ResourceType
from broker.authorization.authorizer import Authorizer, Client
from broker.config import (
    AUTHORIZER_CLASS_NAME,
    DOORKEEPER_CONTROLLER_LISTENERS,
    ZOOKEEPER_CONNECT,
    BrokerConfig,
)


class Role(enum.Enum):
    """The sender of requests that are not for clients."""

    # LeaderAndIsr, StopReplica, UpdateMetadata.
    CONTROLLER = "controller"
    # Requests of a broker to a leader or to the controller: a follower's Fetch,
    # ListOffsets and OffsetForLeaderEpoch, AlterPartition, ControlledShutdown,
    # WriteTxnMarkers.
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The roles that a connection may claim."""

    roles: frozenset[Role] = frozenset()

    def grants(self, role: Role) -> bool:
        """Return whether ``role`` may be claimed."""
        return role in self.roles


CLIENT: Final = Entitlement()
CONTROLLER: Final = Entitlement(frozenset(Role))
BROKER: Final = Entitlement(frozenset({Role.BROKER}))


def entitlement_of(config: BrokerConfig, listener: str) -> Entitlement:
    """Return the roles that connections of ``listener`` may claim."""
    name = listener.upper()
    if name in _controller_listeners(config):
        return CONTROLLER
    return BROKER if name in _broker_listeners(config) else CLIENT


class Claimant(Client, Protocol):
    """A connection that may claim a role."""

    entitlement: Entitlement


def may_claim_role(
    claimant: Claimant, api_key: int, role: Role, authorizer: Authorizer | None
) -> bool:
    """Return whether a connection may claim a role in a request of an API.

    The decision is by its principal with an authorizer, and by its listener otherwise.
    """
    if authorizer is None:
        return claimant.entitlement.grants(role)
    return authorizer.allows(
        claimant,
        api_key,
        AclOperation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
        CLUSTER_NAME,
    )


def shared_listener(config: BrokerConfig) -> str | None:
    """Return the listener on which clients may claim to be brokers, if there is one.

    This is the inter-broker listener of a member without another listener for clients.
    There is none if ``doorkeeper.controller.listeners`` or an authorizer is set.
    """
    between = config.inter_broker_listener_name
    control = config.control_plane_listener
    names = {each.name for each in config.listeners} - {control and control.name}
    is_decided = bool(
        config[DOORKEEPER_CONTROLLER_LISTENERS] or config[AUTHORIZER_CLASS_NAME]
    )
    if is_decided or not _broker_listeners(config) or names != {between}:
        return None
    return between


def _controller_listeners(config: BrokerConfig) -> frozenset[str]:
    named = config[DOORKEEPER_CONTROLLER_LISTENERS]
    if named:
        return frozenset(name.upper() for name in named)
    control = config.control_plane_listener
    # A controller without a configured control plane uses the inter-broker listener.
    return _broker_listeners(config) | ({control.name} if control else set())


def _broker_listeners(config: BrokerConfig) -> frozenset[str]:
    """Return the inter-broker listener, if there are other brokers."""
    if config[ZOOKEEPER_CONNECT] is None:
        return frozenset()
    return frozenset({config.inter_broker_listener_name})
