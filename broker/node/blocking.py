"""How a handler waits for a device: here, or in a thread (call_shell.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from broker.log.steps import BlockingCall

# Makes a call that touches no log; raises what it raises.
Blocking: TypeAlias = Callable[[BlockingCall], Awaitable[None]]


async def call_here(call: BlockingCall) -> None:
    """Make a call on this thread: for storage in memory, which never waits."""
    call()
