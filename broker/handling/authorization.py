"""From which listeners a controller's commands are obeyed.

Kafka asks its authorizer for ClusterAction before it obeys LeaderAndIsr and the like;
without an authorizer it obeys anybody on any listener, and so does this broker. Where
that is too much, ``doorkeeper.controller.listeners`` names the listeners for them, to
which an operator can keep clients from connecting. Elsewhere they are answered with
CLUSTER_AUTHORIZATION_FAILED, Kafka's code for who lacks ClusterAction.
"""

from __future__ import annotations

from broker.apis.common.api import Api
from broker.config import DOORKEEPER_CONTROLLER_LISTENERS, BrokerConfig
from broker.protocol.errors import ErrorCode
from broker.requests.request import Request


class Authorization:
    """Asked before each handler."""

    def __init__(self, config: BrokerConfig) -> None:
        names = config[DOORKEEPER_CONTROLLER_LISTENERS]
        self._controller_listeners = frozenset(name.upper() for name in names)

    def denial(self, api: Api, request: Request) -> ErrorCode | None:
        """Return why ``request`` is not obeyed, None if it is."""
        listeners = self._controller_listeners
        if api.cluster_action and listeners and request.peer.listener not in listeners:
            return ErrorCode.cluster_authorization_failed
        return None
