"""Outcomes of accept(2), and the listener's reactions; accept(2) played."""

import errno
import socket
from types import SimpleNamespace

import pytest

from broker.network.epoll import SocketOptions, TcpListener

# "Error handling" in Linux' accept(2): errors of the new connection, to be taken as
# "try again"; and those of POSIX and of protocols that it names further down.
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
    """A listening socket whose ``accept`` meets these errors, and then somebody."""

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
    # Without a pause the acceptor would take the CPU from what frees descriptors.
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
