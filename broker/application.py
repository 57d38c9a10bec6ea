"""The interface between a server and the broker behind its sockets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from broker.authentication.authenticator import SaslAuthenticator
from broker.authorization.authorizer import Authorizer
from broker.config import BrokerConfig, Listener
from broker.observation.metric import Samples
from broker.quotas.address_rates import AddressRates
from broker.requests.internal_tasks import Submit
from broker.requests.request import DeclaredApi, Request, Response

TimerMoved: TypeAlias = Callable[[], None]


class Application(Protocol):
    """Opened once the listeners are known, and closed when nothing is served any more.

    ``apis`` are those that it serves. ``config_listeners`` are to be called with the
    configuration when it has changed; ``addresses`` are then known of the hosts that it
    names.
    """

    @property
    def apis(self) -> Mapping[int, DeclaredApi]:
        """The declared APIs, by key."""

    # Decides about requests; None: everything is allowed.
    authorizer: Authorizer | None
    address_rates: AddressRates
    config_listeners: list[Callable[[BrokerConfig], None]]

    def addresses(self, host: str) -> Iterable[str]:
        """Return the numeric addresses that were found for a host."""

    async def prepare(self) -> None:
        """Learn what others know of the cluster; asked first of all.

        :raises ConfigError: if they do not answer, or do not take this broker.
        """

    def authentication(self, listener: str) -> Callable[[], SaslAuthenticator] | None:
        """Return the maker of a listener's authenticators; None: it needs none.

        :raises ConfigError: if a file that it needs cannot be read.
        """

    def in_force(self, config: BrokerConfig) -> BrokerConfig:
        """Return ``config`` with the alterations since it was written.

        Called before `open`.

        :raises ConfigError: if the stored alterations cannot be read.
        """

    def open(
        self, listeners: Sequence[Listener], timer_moved: TimerMoved, submit: Submit
    ) -> None:
        """Start, with the addresses that clients receive.

        ``timer_moved`` is called when ``next_expiry_ns`` or ``next_upkeep_ns`` has come
        nearer. ``submit`` runs internal work as tasks of a plane.
        """

    def serve(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """Return the response, if it can be had at once, or the handler to run."""

    def observe(self, observers: list[Callable[[Request], None]]) -> None:
        """Add observers of finished requests, and remove them, as they are needed."""

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Run the work next to requests, until cancelled.

        ``billed`` is entered for all work that takes CPU.
        """

    async def withdraw(self) -> None:
        """Hand over to others what can be, while requests are still served."""

    async def leave(self) -> None:
        """Take leave of others, when nothing is served any more."""

    def next_expiry_ns(self) -> int | None:
        """Return when ``expire`` has something to do, if ever."""

    def expire(self, now_ns: int) -> None:
        """Complete whatever has waited long enough.

        Raises `LogDirsLost` when there is nothing left to serve from.
        """

    def next_upkeep_ns(self) -> int | None:
        """Return when ``upkeep`` has something to do, if ever."""

    def upkeep(self, now_ns: int) -> None:
        """Do a small step of deferrable work that belongs to no request."""

    def info(self) -> Samples:
        """Return the metric that names the broker."""

    def metrics(self) -> Samples:
        """Return metrics beyond those of the request path."""

    def close(self) -> None:
        """Flush and close all files; nothing is served any more."""
