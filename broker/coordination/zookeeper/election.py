"""Election of the controller, whose session owns /controller, and its epoch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import (
    read_controller,
    write_controller,
)
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.zookeeper.znodes import BadVersion, Create, NodeExists, SetData

# Content of /controller_epoch before the first election.
_NO_CONTROLLER_YET: Final = b"0"


@dataclass(frozen=True, slots=True)
class Term:
    """A controller's epoch, and the version of the znode that stores it."""

    epoch: int
    version: int


async def elect(znodes: RetryingZnodes, broker_id: int, now_ms: int) -> Term | None:
    """Become controller unless there is one; watch /controller.

    Returns None if another broker is controller.
    """
    while True:
        found = await _holder(znodes)
        if found is not None and found != znodes.session_id:
            return None
        if found is not None:
            term = await _term(znodes)
            # If deposed meanwhile, it would use the epoch of its successor.
            if await is_controller(znodes):
                return term
            continue
        await znodes.ensure(paths.CONTROLLER_EPOCH, _NO_CONTROLLER_YET)
        term = await _term(znodes)
        mine = write_controller(broker_id, now_ms)
        # Another broker was elected, or the response to this one was lost: read again.
        with suppress(NodeExists, BadVersion):
            await znodes.multi(
                [
                    Create(paths.CONTROLLER, mine, ephemeral=True),
                    SetData(
                        paths.CONTROLLER_EPOCH,
                        str(term.epoch + 1).encode(),
                        term.version,
                    ),
                ]
            )


async def is_controller(znodes: RetryingZnodes) -> bool:
    """Return whether this session's broker is controller; watch for a change."""
    return await _holder(znodes) == znodes.session_id


async def controller_id(znodes: RetryingZnodes) -> int | None:
    """Return the controller's id; None if there is no controller."""
    found = await znodes.find(paths.CONTROLLER)
    return None if found is None else read_controller(found.data)


async def latest_epoch(znodes: RetryingZnodes) -> int:
    """Return the epoch of the last elected controller; 0 if there was none."""
    found = await znodes.find(paths.CONTROLLER_EPOCH)
    return 0 if found is None else int(found.data)


async def _holder(znodes: RetryingZnodes) -> int | None:
    """Return the session that owns /controller, and set a watch."""
    stat = await znodes.exists(paths.CONTROLLER, watch=True)
    return None if stat is None else stat.ephemeral_owner


async def _term(znodes: RetryingZnodes) -> Term:
    data, stat = await znodes.get(paths.CONTROLLER_EPOCH)
    return Term(int(data), stat.version)
