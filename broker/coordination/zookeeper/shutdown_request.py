"""A stopping broker's request to the controller to move its leaderships.

``controlled.shutdown.enable``: the request is tried ``controlled.shutdown.max.retries``
times. After that the broker stops anyway, and the others notice the end of its session.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from logging import getLogger

import trio

from broker.client.client_config import COMMON, read_settings
from broker.client.network_client import Address, Connect, NetworkClient
from broker.config import (
    CONTROLLED_SHUTDOWN_MAX_RETRIES,
    CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS,
    CONTROLLER_SOCKET_TIMEOUT_MS,
    BrokerConfig,
)
from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.controlled_shutdown_schema import ControlledShutdownRequest

logger = getLogger(__name__)


async def request_shutdown(
    config: BrokerConfig,
    broker_epoch: Callable[[], int],
    find_controller: Callable[[], tuple[str, int] | None],
    *,
    connect: Connect,
    rng: random.Random,
) -> bool:
    """Request the move until no partition is led here; return whether it succeeded."""
    broker_id = config.node_id
    settings = {
        "client_id": str(broker_id),
        "request_timeout_ms": config[CONTROLLER_SOCKET_TIMEOUT_MS],
    }
    client = NetworkClient(read_settings(COMMON, settings), connect, rng)
    why = "no controller is known"
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        for attempt in range(config[CONTROLLED_SHUTDOWN_MAX_RETRIES]):
            if attempt:
                pause_ms = max(config[CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS], 0)
                await trio.sleep(pause_ms / 1000)
            address = find_controller()
            if address is None:
                continue
            request = ControlledShutdownRequest(
                broker_id=broker_id, broker_epoch=broker_epoch()
            )
            where = Address(*address, purpose="controlled shutdown")
            try:
                answer = await client.call(where, request)
            except KafkaError as fault:
                why = str(fault)
                continue
            remaining = len(answer.remaining_partitions)
            if answer.error_code is ErrorCode.none and not remaining:
                nursery.cancel_scope.cancel()
                return True
            why = f"{answer.error_code.name}, {remaining} partitions remain"
        nursery.cancel_scope.cancel()
    logger.warning("stopping without having handed over", extra=fields(reason=why))
    return False
