"""TCP proxies on the loopback interface, for isolating and reconnecting a broker.

They run on Trio in a separate thread; other threads call their methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import trio

from experiments.processes.loopback import HOST

_BYTES = 65_536


class Proxies:
    """Proxies by their listening ports."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._cut: set[int] = set()
        self._open: dict[int, set[trio.SocketStream]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call(self._nursery.cancel_scope.cancel)
        self._thread.join()

    def listen(self, target: int) -> int:
        """Start a proxy to a port; return the proxy's port."""
        found: int = trio.from_thread.run(
            self._nursery.start, self._serve, target, trio_token=self._token
        )
        return found

    def cut(self, *ports: int) -> None:
        """Close all connections of proxies, and accept no more."""
        self._call(lambda: self._break_off(ports))

    def heal(self, *ports: int) -> None:
        """Accept connections again."""
        self._call(lambda: self._cut.difference_update(ports))

    def _call(self, function: Callable[[], None]) -> None:
        trio.from_thread.run_sync(function, trio_token=self._token)

    # ---- on Trio --------------------------------------------------------------------

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._ready.set()
            await trio.sleep_forever()

    async def _serve(self, target: int, task_status: trio.TaskStatus[int]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host=HOST)
        port = listener.socket.getsockname()[1]
        self._open[port] = set()

        async def carry(near: trio.SocketStream) -> None:
            try:
                far = await trio.open_tcp_stream(HOST, target)
            except OSError:
                # The target does not listen: close, as the kernel would.
                await near.aclose()
                return
            both = {near, far}
            self._open[port] |= both
            if port in self._cut:
                self._break_off((port,))
            async with near, far, trio.open_nursery() as nursery:
                nursery.start_soon(_pump, near, far, nursery.cancel_scope)
                nursery.start_soon(_pump, far, near, nursery.cancel_scope)
            self._open[port] -= both

        task_status.started(port)
        await trio.serve_listeners(carry, [listener])

    def _break_off(self, ports: tuple[int, ...]) -> None:
        self._cut.update(ports)
        for port in ports:
            for stream in self._open[port]:
                stream.socket.close()


async def _pump(
    one: trio.SocketStream, other: trio.SocketStream, both: trio.CancelScope
) -> None:
    try:
        async for chunk in one:
            await other.send_all(chunk)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        # Cut, or one side has closed: close the other side, too.
        both.cancel()
        return
    both.cancel()
