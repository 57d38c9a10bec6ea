"""Outcomes of a simulated accept(2), and the listener's reaction to each."""

import errno
import socket
from types import SimpleNamespace

import pytest

from broker.network.epoll import SocketOptions, TcpListener

# Errors of the new connection, to be treated as "try again", according to "Error
# handling" in Linux' accept(2); and errors of POSIX and protocols in its list.
OF_THE_CONNECTION = [
    "ENETDOWN",
    "EPROTO",
    "ENOPROTOOPT",
    "EHOSTDOWN",
    "ENONET",
    "EHOSTUNREACH",
    "EOPNOTSUPP",
    "ENETUNREACH",
    "ECONNABORTED",
    "EPERM",
    "ETIMEDOUT",
    "ECONNRESET",
]
OF_THE_MACHINE = ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EIO", "ESOCKTNOSUPPORT"]
OF_THE_LISTENER = ["EBADF", "EFAULT", "EINVAL", "ENOTSOCK"]


class Played:
    """A listening socket whose ``accept`` raises the given errors and then succeeds."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def getsockname(self):
        return "10.0.0.9", 9092

    def accept(self):
        if self.errors:
            raise OSError(self.errors.pop(0), "played")
        return Accepted(), ("10.0.0.1", 5)


class Accepted(SimpleNamespace):
    def setblocking(self, flag):
        assert not flag

    def setsockopt(self, level, option, value):
        pass


def listener(*names):
    played = Played(*(getattr(errno, name) for name in names))
    return TcpListener(played, SocketOptions())


@pytest.mark.parametrize("name", OF_THE_CONNECTION)
async def test_a_connection_that_came_to_nothing_is_passed_over(autojump_clock, name):
    _, host = await listener(name, name).accept()
    assert host == "10.0.0.1"
    assert autojump_clock.current_time() == 0


@pytest.mark.parametrize("name", OF_THE_MACHINE)
async def test_accept_waits_for_missing_resources_of_the_machine(autojump_clock, name):
    await listener(name, name, name).accept()
    # Without a pause the acceptor would starve the tasks that free descriptors.
    assert autojump_clock.current_time() == pytest.approx(0.3)


@pytest.mark.parametrize("name", OF_THE_LISTENER)
async def test_a_broken_listener_is_named(autojump_clock, name):
    with pytest.raises(
        OSError, match=r"the listener at 10\.0\.0\.9:9092 cannot"
    ) as caught:
        await listener(name).accept()
    assert caught.value.errno == getattr(errno, name)


async def test_a_connection_lost_before_it_is_set_up_is_closed(autojump_clock):
    closed = []

    class Lost(Accepted):
        def setsockopt(self, level, option, value):
            if option == socket.SO_KEEPALIVE:
                raise OSError(errno.EINVAL, "lost")

        def close(self):
            closed.append(self)

    class LostFirst(Played):
        def accept(self):
            return (Accepted() if closed else Lost()), ("10.0.0.1", 5)

    accepted, _ = await TcpListener(LostFirst(), SocketOptions()).accept()
    assert len(closed) == 1
    assert accepted is not closed[0]
