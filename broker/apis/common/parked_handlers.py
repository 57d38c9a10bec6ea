"""Waits of handlers: parked until an event, or until the client is gone.

A wait ends with its connection: the handler is woken, raises `ConnectionGone`, and its
memory is let go. Effects that it had before stay: records stay appended, a member stays
in its group until the group's own timers end it, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from broker.apis.common.log_steps import preemptibly
from broker.requests.purgatory import Delayed, DelayedOperation, Purgatory
from broker.requests.request import Request
from planes.slices import Register, Wake, in_steps, parked

K = TypeVar("K")


class ConnectionGone(Exception):
    """There is nobody to answer any more."""


class _Once:
    """A ``wake`` that may be called by several, and is called once."""

    def __init__(self, wake: Wake) -> None:
        self._wake: Wake | None = wake

    def __call__(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()


async def parked_for_client(request: Request, register: Register) -> None:
    """Park as ``planes.slices.parked`` does, no longer than there is a connection.

    :raises ConnectionGone: if it has ended, or ends meanwhile. ``register``'s wake may
        be called afterwards, and then does nothing.
    """
    if request.is_orphaned or request.peer.has_hung_up:
        raise ConnectionGone

    def registered(wake: Wake) -> bool:
        once = _Once(wake)
        request.end_wait = once
        return register(once)

    await parked(registered)
    request.end_wait = None
    if request.is_orphaned:
        raise ConnectionGone


async def wait_in(
    purgatory: Purgatory,
    request: Request,
    delayed: Delayed,
    keys: Collection[K],
    deadline_ns: int,
    look_again: Callable[[], Collection[K]] = tuple,
) -> None:
    """Wait in ``purgatory`` until ``delayed`` has nothing to wait for under its keys.

    ``look_again`` names keys to be tried whenever another one is, where operations are
    tried in their own turns.

    :raises ConnectionGone: if the connection ends.
    """
    operation = purgatory.enter(delayed, deadline_ns)
    try:
        async for key in in_steps(keys):
            operation.watch(key)
        async for key in in_steps(keys):
            if operation.try_key(key):
                break
        await _completed(request, operation, look_again)
    except Exception:
        operation.complete()
        await preemptibly(operation.leaving())
        raise
    await preemptibly(operation.leaving())


class _Pause:
    """A wait for a time only: `Delayed` without keys."""

    def try_key(self, key: object, /) -> bool:
        """Return False: there are no keys."""
        return False

    def on_expiration(self) -> None:
        """Do nothing: this is how it ends."""

    def on_failure(self) -> None:
        """Do nothing: nothing is tried."""


async def pause(purgatory: Purgatory, request: Request, until_ns: int) -> None:
    """Wait in ``purgatory`` until a time.

    :raises ConnectionGone: if the connection ends.
    """
    await wait_in(purgatory, request, _Pause(), (), until_ns)


async def _completed(
    request: Request,
    operation: DelayedOperation,
    look_again: Callable[[], Collection[K]],
) -> None:
    while not operation.completed:
        changed = operation.changed
        if changed:
            changed.update(dict.fromkeys(look_again()))
        async for _ in in_steps(iter(changed.__len__, 0)):
            key, _ = changed.popitem()
            if operation.try_key(key):
                return
        await parked_for_client(request, operation.park)
