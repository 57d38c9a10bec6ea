"""The interface of a ZooKeeper session: calls, events, and errors.

Names and semantics are ZooKeeper's (``KeeperException.Code``, ``Stat``, ``Op``,
``Watcher.Event``). Paths are absolute, within the chroot of the connect string. A
version of -1 matches any version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import trio


class ZooKeeperError(Exception):
    """A failed call; ``op`` is the index of the failed operation of a `multi`."""

    code: int

    def __init__(self, path: str, *, op: int | None = None) -> None:
        self.path = path
        self.op = op
        at = "" if op is None else f", operation {op}"
        super().__init__(f"{path}{at}")


class ConnectionLoss(ZooKeeperError):
    """The connection ended before the response; the outcome is unknown."""

    code = -4


class NoNode(ZooKeeperError):
    """The znode, or the parent of one to be created, does not exist."""

    code = -101


class BadVersion(ZooKeeperError):
    """The version of the znode differs from that of the call."""

    code = -103


class NoChildrenForEphemerals(ZooKeeperError):
    """The parent is ephemeral."""

    code = -108


class NodeExists(ZooKeeperError):
    """The znode to be created exists."""

    code = -110


class NotEmpty(ZooKeeperError):
    """The znode to be deleted has children."""

    code = -111


class SessionExpired(ZooKeeperError):
    """The session has ended, and its ephemeral znodes are deleted."""

    code = -112


class OtherError(ZooKeeperError):
    """Any other code of ``KeeperException``."""

    def __init__(self, path: str, code: int, *, op: int | None = None) -> None:
        super().__init__(path, op=op)
        self.code = code
        self.args = (f"{path}: error {code} of ZooKeeper",)


class Stat(NamedTuple):
    """Metadata of a znode; zxids number transactions, times are ms since the epoch."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Znode(NamedTuple):
    """The content of a znode."""

    data: bytes
    stat: Stat


class EventKind(IntEnum):
    """The kinds of watch events, with ZooKeeper's numbers."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    """The event that triggered and removed a watch."""

    kind: EventKind
    path: str


class SessionEvent(Enum):
    """Events of the session's connection; `EXPIRED` is the last one."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"


Event: TypeAlias = "WatchEvent | SessionEvent"


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode; a sequential znode's path gets a suffix of ten digits."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a znode's data."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Make the `multi` fail unless the znode has this version."""

    path: str
    version: int


Op: TypeAlias = "Create | SetData | Delete | Check"
# Create: the path. Set: the new stat. Others: None.
OpResult: TypeAlias = "str | Stat | None"


class Znodes(Protocol):
    """A session with ZooKeeper.

    Calls wait while no connection exists. They raise `ConnectionLoss` if the connection
    ends before the response, `SessionExpired` after the end of the session, and the
    errors in their docstrings. Concurrent calls are pipelined, and executed in the
    order of the calls.
    """

    # 0 until the first connection.
    session_id: int
    events: trio.MemoryReceiveChannel[Event]

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> str:
        """Create a znode; return its path.

        :raises NodeExists: NoNode for the parent, NoChildrenForEphemerals.
        """

    async def get(self, path: str, *, watch: bool = False) -> Znode:
        """Return a znode's data; the watch triggers on its change or deletion.

        :raises NoNode: without setting a watch.
        """

    async def set(self, path: str, data: bytes, *, version: int = -1) -> Stat:
        """Replace a znode's data.

        :raises NoNode: or BadVersion.
        """

    async def delete(self, path: str, *, version: int = -1) -> None:
        """Delete a znode.

        :raises NoNode: BadVersion or NotEmpty.
        """

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return a znode's stat; the watch triggers on creation, change or deletion."""

    async def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        """Return the names of a znode's children, sorted.

        The watch triggers when a child is created or deleted, or the znode is deleted.

        :raises NoNode: without setting a watch.
        """

    async def multi(self, ops: Sequence[Op]) -> tuple[OpResult, ...]:
        """Execute all operations, or none.

        :raises ZooKeeperError: for the first failure; ``op`` is its index.
        """

    async def close(self) -> None:
        """End the session and delete its ephemeral znodes; `run` returns."""

    async def run(self, *, task_status: trio.TaskStatus[None] = ...) -> None:
        """Maintain the session until it is closed or has expired.

        Started when the session is established. Cancellation leaves the session to
        expire, like a killed process.
        """
