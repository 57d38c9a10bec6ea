"""A broker's registration: an ephemeral znode whose czxid is the broker's epoch.

KIP-380. If the id is registered already, Kafka's broker fails at once, so a killed
broker cannot restart before its old session has expired. Here the broker waits for the
expiration.
"""

from __future__ import annotations

from logging import getLogger

from broker.client.signals import Signal
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.observation.logs import fields
from broker.zookeeper.znodes import NodeExists

logger = getLogger(__name__)


async def register(
    znodes: RetryingZnodes,
    broker_id: int,
    data: bytes,
    *,
    changed: Signal,
) -> int:
    """Register the broker for as long as the session lasts; return its epoch.

    ``changed`` is notified when the watch on its znode is triggered.
    """
    path = paths.broker(broker_id)
    is_logged = False
    while True:
        try:
            await znodes.create(path, data, ephemeral=True)
        except NodeExists:
            if not is_logged:
                is_logged = True
                logger.warning(
                    "the broker id is taken, perhaps by an earlier life of this broker",
                    extra=fields(id=broker_id),
                )
        stat = await znodes.exists(path, watch=True)
        if stat is not None and stat.ephemeral_owner == znodes.session_id:
            return stat.czxid
        if stat is not None:
            await changed.wait()
