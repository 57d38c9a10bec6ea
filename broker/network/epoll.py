"""Real sockets: one epoll object per processor, on which Trio waits.

An epoll descriptor is itself readable when one of its members is ready. One call of
Trio (``wait_readable``) therefore covers all the connections of a processor. A single
wake-up serves every connection that has become ready in the meantime. Each request
needs one ``recv`` and one ``send``. With a task per connection, Trio would schedule a
task for every request.

``wakeup`` writes to an eventfd that is registered edge-triggered. The eventfd is never
read, because each write is a separate event. (Kafka's selector writes to a pipe.)
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import trio

from broker.network.transport import READY_MAX, Bytes, Connection
from broker.protocol.buffer import FileRegion

_EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
# See send(2); missing in Python's socket module.
_MSG_MORE = 0x8000
# Errors of accept(2) about a failed connection; the next accept may succeed.
_LOST = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENONET,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EPROTO,
        errno.ETIMEDOUT,
    }
)
# Errors of the listening socket itself, which cannot accept any more.
_OURS = frozenset({errno.EBADF, errno.EFAULT, errno.EINVAL, errno.ENOTSOCK})
# Pause after other errors (lack of descriptors or memory); the backlog holds
# connections.
_PAUSE_S = 0.1


class EpollSelector:
    """The sockets of one processor."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN | select.EPOLLET)
        self._waiting = False
        self._woken = False

    def register(self, connection: Connection) -> None:
        """Report on the socket from now on, beginning with its present state."""
        self._epoll.register(connection.fileno(), _EVENTS)

    def unregister(self, connection: Connection) -> None:
        """Report no more on the socket."""
        self._epoll.unregister(connection.fileno())

    def poll(self) -> Sequence[tuple[int, int]]:
        """Return ready sockets, and possibly the eventfd; others stay ready."""
        ready = self._epoll.poll(0, READY_MAX)
        if self._woken and self._waiting:
            # The caller is not the waiting task, which must still wake up.
            os.eventfd_write(self._wake_fd, 1)
        return ready

    async def wait(self) -> None:
        """Wait until a socket is ready or ``wakeup`` is called."""
        if self._woken:
            self._woken = False
            await trio.lowlevel.checkpoint()
            return
        self._waiting = True
        try:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
        finally:
            self._waiting = self._woken = False

    def wakeup(self) -> None:
        """End the present ``wait``, or the next one if there is none."""
        if self._waiting and not self._woken:
            os.eventfd_write(self._wake_fd, 1)
        self._woken = True

    def send_many(
        self, connection: Connection, pieces: Sequence[Bytes], more: bool
    ) -> int:
        """Send some of several pieces with one system call."""
        tcp = cast(socket.socket, connection)
        return tcp.sendmsg(pieces, (), _MSG_MORE if more else 0)

    def send_file(
        self, connection: Connection, region: FileRegion, skip: int, size: int
    ) -> int:
        """Send some of a file without copying it through this process."""
        return os.sendfile(
            connection.fileno(), region.fileno(), region.position + skip, size
        )

    def close(self) -> None:
        """Close the epoll object and the eventfd."""
        self._epoll.close()
        os.close(self._wake_fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """Settings of listening and accepted sockets, under Kafka's names.

    A buffer size of -1 keeps the system's default.
    """

    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = 102_400
    backlog: int = 50


class TcpListener:
    """A listening TCP socket (Kafka: the acceptor's ``ServerSocketChannel``)."""

    def __init__(self, listening: socket.socket, options: SocketOptions) -> None:
        self._socket = listening
        self._options = options
        self.host, self.port = listening.getsockname()[:2]

    async def accept(self) -> tuple[Connection, str]:
        """Wait for a connection; return it and the peer's address."""
        while True:
            await trio.lowlevel.checkpoint()
            try:
                accepted, address = self._socket.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except OSError as error:
                if error.errno in _OURS:
                    raise self._broken(error) from error
                if error.errno not in _LOST:
                    await trio.sleep(_PAUSE_S)
            else:
                if self._configure(accepted):
                    return accepted, address[0].removeprefix("::ffff:")

    def close(self) -> None:
        """Take no more connections."""
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()

    def _broken(self, error: OSError) -> OSError:
        """Return the error with the address of the listener."""
        where = f"the listener at {self.host}:{self.port}"
        return OSError(error.errno, f"{where} cannot accept: {error.strerror}")

    def _configure(self, accepted: socket.socket) -> bool:
        """Configure a connection; close it and return False if it is broken already."""
        send_buffer_bytes = self._options.send_buffer_bytes
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if send_buffer_bytes >= 0:
                accepted.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes
                )
        except OSError:
            accepted.close()
            return False
        return True


class TcpNetwork:
    """Factory of TCP listeners and epoll selectors."""

    def __init__(self, options: SocketOptions | None = None) -> None:
        self._options = options or SocketOptions()

    def listen(self, host: str, port: int) -> TcpListener:
        """Bind an address; an empty host means every interface, IPv4 and IPv6."""
        options = self._options
        family, address = _resolve(host, port)
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                only_six = int(bool(host))
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_six)
            if options.receive_buffer_bytes >= 0:
                # Set before listen(2), so that accepted sockets inherit the window.
                listening.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes
                )
            listening.bind(address)
            listening.listen(options.backlog)
        except OSError:
            listening.close()
            raise
        return TcpListener(listening, options)

    def selector(self) -> EpollSelector:
        """Return a new epoll object."""
        return EpollSelector()


def _resolve(host: str, port: int) -> tuple[int, tuple[str, int]]:
    """Return the family and the address to bind."""
    if not host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", port)
        return socket.AF_INET, ("", port)
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return family, (str(address[0]), port)
