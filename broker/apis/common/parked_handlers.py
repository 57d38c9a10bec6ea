"""Waits of handlers: parked until an event, or until the connection ends.

A wait ends with its connection: the handler is woken, raises `ConnectionEnded`, and
frees its memory. Its earlier effects remain: records stay appended, and a member stays
in its group until its timers expire, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from broker.apis.common.log_steps import preemptibly
from broker.requests.purgatory import Delayed, DelayedOperation, Purgatory
from broker.requests.request import Request
from planes.slices import Register, Wake, in_steps, parked

K = TypeVar("K")


class ConnectionEnded(Exception):
    """The connection of a waiting request has ended."""


class _Once:
    """A ``wake`` with several callers, which runs once."""

    def __init__(self, wake: Wake) -> None:
        self._wake: Wake | None = wake

    def __call__(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()


async def parked_for_client(request: Request, register: Register) -> None:
    """Park as ``planes.slices.parked``, at most until the connection ends.

    :raises ConnectionEnded: if the connection has ended, or ends meanwhile. The
        ``wake`` passed to ``register`` may be called afterwards, without effect.
    """
    if request.is_orphaned or request.peer.has_hung_up:
        raise ConnectionEnded

    def registered(wake: Wake) -> bool:
        once = _Once(wake)
        request.end_wait = once
        return register(once)

    await parked(registered)
    request.end_wait = None
    if request.is_orphaned:
        raise ConnectionEnded


async def wait_in(
    purgatory: Purgatory,
    request: Request,
    delayed: Delayed,
    keys: Collection[K],
    deadline_ns: int,
    retry_keys: Callable[[], Collection[K]] = tuple,
) -> None:
    """Wait in ``purgatory`` until ``delayed`` completes.

    ``retry_keys`` returns keys that are tried again together with any changed key, in
    purgatories whose operations are tried in their own turns.

    :raises ConnectionEnded: if the connection ends.
    """
    operation = purgatory.enter(delayed, deadline_ns)
    try:
        async for key in in_steps(keys):
            operation.watch(key)
        async for key in in_steps(keys):
            if operation.try_key(key):
                break
        await _completed(request, operation, retry_keys)
    except Exception:
        operation.complete()
        await preemptibly(operation.leaving())
        raise
    await preemptibly(operation.leaving())


class _Pause:
    """A wait until a time: `Delayed` without keys."""

    def try_key(self, key: object, /) -> bool:
        """Return False: there are no keys."""
        return False

    def on_expiration(self) -> None:
        """Do nothing: the pause ends at its deadline."""

    def on_failure(self) -> None:
        """Do nothing: there is no try that could fail."""


async def pause(purgatory: Purgatory, request: Request, until_ns: int) -> None:
    """Wait in ``purgatory`` until a time.

    :raises ConnectionEnded: if the connection ends.
    """
    await wait_in(purgatory, request, _Pause(), (), until_ns)


async def _completed(
    request: Request,
    operation: DelayedOperation,
    retry_keys: Callable[[], Collection[K]],
) -> None:
    while not operation.completed:
        changed = operation.changed
        if changed:
            changed.update(dict.fromkeys(retry_keys()))
        async for _ in in_steps(iter(changed.__len__, 0)):
            key, _ = changed.popitem()
            if operation.try_key(key):
                return
        await parked_for_client(request, operation.park)
