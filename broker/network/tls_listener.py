"""TLS of one listener: the context of new connections, and principals by certificate.

Altered configs or rewritten files create a new context; existing connections keep
theirs. If a store cannot be loaded any more, the last context stays in use.
"""

from __future__ import annotations

from logging import getLogger

from broker.config import BrokerConfig, Listener
from broker.config.tls_keys import client_auth, listener_tls
from broker.network.tls_connection import TlsConnection
from broker.network.transport import Connection
from broker.observation.logs import fields
from broker.protocol.errors import ConfigError
from broker.protocol.principal import ANONYMOUS, USER, KafkaPrincipal
from broker.tls.contexts import server_context
from broker.tls.distinguished_name import subject_name
from broker.tls.keys import SSL_PRINCIPAL_MAPPING_RULES
from broker.tls.principal_mapping import PrincipalMapping

logger = getLogger(__name__)


class NoPrincipal(Exception):
    """Raised if no mapping rule applies to the name of a verified certificate."""


class TlsListener:
    """The TLS settings in use; the constructor raises `ConfigError`."""

    def __init__(self, listener: Listener, config: BrokerConfig) -> None:
        self._listener = listener
        # Otherwise SASL determines the principal.
        self._names_clients = listener.security_protocol == "SSL"
        self._settings = listener_tls(config, listener.name)
        self._stamps = self._settings.stamps
        self._context = server_context(self._settings, client_auth(config, listener))
        rules = config.on_listener(listener.name, SSL_PRINCIPAL_MAPPING_RULES)
        self._mapping = PrincipalMapping(rules)

    def begin(self, raw: Connection) -> TlsConnection:
        """Return a connection over ``raw``, before its handshake."""
        return TlsConnection(raw, self._context)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Load stores whose configs or files have changed."""
        settings = listener_tls(config, self._listener.name)
        stamps = settings.stamps
        if settings == self._settings and stamps == self._stamps:
            return
        try:
            auth = client_auth(config, self._listener)
            self._context = server_context(settings, auth)
        except ConfigError as fault:
            logger.error(
                "a store of TLS cannot be loaded; the last one stays in force",
                extra=fields(listener=self._listener.name, fault=fault),
            )
            return
        self._settings, self._stamps = settings, stamps
        logger.info(
            "stores of TLS are loaded anew", extra=fields(listener=self._listener.name)
        )

    def principal(self, connection: TlsConnection) -> KafkaPrincipal:
        """Return the principal of a peer; raise `NoPrincipal`."""
        certificate = connection.certificate() if self._names_clients else None
        if certificate is None:
            return ANONYMOUS
        name = subject_name(certificate)
        mapped = self._mapping.name_of(name)
        if mapped is None:
            raise NoPrincipal(f"no rule of ssl.principal.mapping.rules for {name}")
        return KafkaPrincipal(USER, mapped)
