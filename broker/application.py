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
    """A broker without its sockets.

    It is opened once the listeners are known, and closed after the last request.
    ``config_listeners`` are called with each changed configuration, after the hosts
    named there have been resolved.
    """

    @property
    def apis(self) -> Mapping[int, DeclaredApi]:
        """The served APIs, by key."""

    # Authorizes requests; None: every request is allowed.
    authorizer: Authorizer | None
    address_rates: AddressRates
    config_listeners: list[Callable[[BrokerConfig], None]]

    def addresses(self, host: str) -> Iterable[str]:
        """Return the numeric addresses that were found for a host."""

    async def prepare(self) -> None:
        """Learn the cluster's state from other members; called before all else.

        :raises ConfigError: if they do not answer, or refuse this broker.
        """

    def authentication(self, listener: str) -> Callable[[], SaslAuthenticator] | None:
        """Return a listener's factory of authenticators; None: no authentication.

        :raises ConfigError: if a file of the listener cannot be read.
        """

    def in_force(self, config: BrokerConfig) -> BrokerConfig:
        """Return ``config`` with the stored alterations applied.

        Called before `open`.

        :raises ConfigError: if the stored alterations cannot be read.
        """

    def open(
        self, listeners: Sequence[Listener], timer_moved: TimerMoved, submit: Submit
    ) -> None:
        """Start, with the listeners that clients receive.

        ``timer_moved`` is called when ``next_expiry_ns`` or ``next_upkeep_ns`` has
        become earlier. ``submit`` runs internal work as tasks of a plane.
        """

    def serve(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """Return the response if it is available at once, or the handler to run."""

    def observe(self, observers: list[Callable[[Request], None]]) -> None:
        """Add observers of finished requests to the list, now and later as needed."""

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Run the work next to requests, until cancelled.

        ``billed`` is entered around all work that takes CPU time.
        """

    async def withdraw(self) -> None:
        """Hand over leadership to other brokers while requests are still served."""

    async def leave(self) -> None:
        """Leave the cluster, after the last request."""

    def next_expiry_ns(self) -> int | None:
        """Return the time of the next deadline, if there is one."""

    def expire(self, now_ns: int) -> None:
        """Complete requests whose deadline has passed.

        Raises `LogDirsLost` when the last log directory has failed.
        """

    def next_upkeep_ns(self) -> int | None:
        """Return the time at which ``upkeep`` is due, if ever."""

    def upkeep(self, now_ns: int) -> None:
        """Run one short step of deferrable work that belongs to no request."""

    def info(self) -> Samples:
        """Return the metric that identifies the broker."""

    def metrics(self) -> Samples:
        """Return metrics beyond those of the request path."""

    def close(self) -> None:
        """Flush and close all files, after the last request."""
