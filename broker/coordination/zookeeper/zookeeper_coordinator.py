"""The coordinator of a broker that is a member of a cluster under ZooKeeper.

The broker that receives a request about topics and configs writes Kafka's znodes, which
the controller watches. Requests to the controller go to the core of this broker's term;
without a term, they fail with NOT_CONTROLLER. A member leads and deletes nothing until
a controller commands it.
"""

from __future__ import annotations

import random
from collections.abc import (
    Callable,
)
from uuid import UUID

from broker.client.network_client import Connect
from broker.config import BrokerConfig
from broker.coordination.coordinator_roles import (
    Coordinator,
)
from broker.coordination.zookeeper.cluster_discovery import join
from broker.coordination.zookeeper.controller_api import ZooKeeperController
from broker.coordination.zookeeper.handler_tasks import HandlerTasks
from broker.coordination.zookeeper.handler_waits import HandlerWaits
from broker.coordination.zookeeper.member import Member
from broker.coordination.zookeeper.session_loop import SessionLoop
from broker.coordination.zookeeper.zookeeper_admin import ZooKeeperAdmin
from broker.coordination.zookeeper.zookeeper_membership import ZooKeeperMembership
from broker.observation.supervisor import Supervisor
from broker.zookeeper.zookeeper_session import ZooKeeperSession


def zookeeper_coordinator(
    config: BrokerConfig,
    *,
    open_session: Callable[[], ZooKeeperSession],
    connect: Connect,
    connect_controlled: Connect | None = None,
    new_id: Callable[[], UUID],
    now_ns: Callable[[], int],
    now_ms: Callable[[], int],
    rng: random.Random,
) -> Coordinator:
    """Return the coordinator of one member, ``config.node_id``.

    ``open_session`` begins a session with ZooKeeper. ``connect`` connects to other
    brokers, ``connect_controlled`` to brokers that this broker controls. ``new_id``
    draws ids of topics. ``now_ms`` is the wall clock, ``now_ns`` the clock of
    durations.
    """
    member = Member(
        config,
        connect=connect_controlled or connect,
        new_id=new_id,
        now_ns=now_ns,
        now_ms=now_ms,
        rng=rng,
        supervisor=Supervisor(),
    )
    sessions = SessionLoop(member, open_session)
    waits = HandlerWaits(HandlerTasks(member.supervisor), sessions.present)
    membership = ZooKeeperMembership(
        config,
        member,
        sessions,
        waits,
        join=lambda: join(open_session, member.configs, member.acls, config, new_id),
        connect=connect,
        rng=rng,
    )
    return Coordinator(
        admin=ZooKeeperAdmin(member, waits, new_id),
        membership=membership,
        controller=ZooKeeperController(member, waits),
    )
