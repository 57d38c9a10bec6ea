"""TLS of connections to other brokers, by the keys of the inter-broker listener."""

from __future__ import annotations

import ssl
from logging import getLogger

from broker.client.client_tls import over_tls
from broker.client.network_client import Connect
from broker.config import BrokerConfig, Listener
from broker.config.tls_keys import listener_tls
from broker.observation.logs import fields
from broker.protocol.errors import ConfigError
from broker.tls.contexts import client_context

logger = getLogger(__name__)


class OutgoingTls:
    """The TLS context of new connections; the constructor raises `ConfigError`.

    As at a listener, altered configs and rewritten files create a new context.
    """

    def __init__(self, listener: Listener, config: BrokerConfig) -> None:
        self._listener = listener.name
        self._settings = listener_tls(config, listener.name)
        self._stamps = self._settings.stamps
        self._context = client_context(self._settings)

    def over(self, connect: Connect) -> Connect:
        """Return a function that opens connections with TLS."""
        return over_tls(connect, self.context)

    def context(self) -> ssl.SSLContext:
        """Return the context in use."""
        return self._context

    def reconfigure(self, config: BrokerConfig) -> None:
        """Load stores whose configs or files have changed."""
        settings = listener_tls(config, self._listener)
        stamps = settings.stamps
        if settings == self._settings and stamps == self._stamps:
            return
        try:
            self._context = client_context(settings)
        except ConfigError as fault:
            logger.error(
                "a store of TLS cannot be loaded; the last one stays in force",
                extra=fields(listener=self._listener, fault=fault),
            )
            return
        self._settings, self._stamps = settings, stamps
