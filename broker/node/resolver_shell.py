"""Name resolution in a thread, so that a slow name server does not block requests."""

from __future__ import annotations

import trio

from broker.node.hosts import addresses_of


async def look_up_in_thread(host: str) -> frozenset[str]:
    """Return the numeric addresses of a host; raise OSError if it has none."""
    try:
        return await trio.to_thread.run_sync(addresses_of, host)
    except RuntimeError as error:  # no thread can be started
        raise OSError(f"{host} cannot be looked up: {error}") from error
