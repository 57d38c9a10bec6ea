"""Connections with TLS: Trio's ``SSLStream`` over plain connections."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final, cast

import trio

from broker.client.client_config import SECURITY_PROTOCOL, ClientConfig
from broker.client.connection import Stream
from broker.client.network_client import Connect
from broker.protocol.errors import ConfigError
from broker.tls.contexts import client_context, tls_settings

_TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")


def secured(
    config: ClientConfig, connect: Connect, context: ssl.SSLContext | None = None
) -> Connect:
    """Wrap ``connect`` with TLS if ``security.protocol`` requires TLS.

    ``context`` replaces the one from the ``ssl.*`` keys. Raises `ConfigError`.
    """
    protocol = config[SECURITY_PROTOCOL]
    if protocol not in _TLS_PROTOCOLS:
        if context is not None:
            raise ConfigError(SECURITY_PROTOCOL.name, protocol, "SSL with ssl_context")
        return connect
    chosen = client_context(tls_settings(config)) if context is None else context
    return over_tls(connect, lambda: chosen)


def over_tls(connect: Connect, context: Callable[[], ssl.SSLContext]) -> Connect:
    """Wrap ``connect`` with TLS and its handshake."""

    async def open_stream(host: str, port: int) -> Stream:
        beneath = await connect(host, port)
        # SSLStream uses only the methods of `Stream`.
        stream: trio.SSLStream[trio.abc.Stream] = trio.SSLStream(
            cast(trio.abc.Stream, beneath),
            context(),
            server_hostname=host,
            # Brokers may omit close_notify: frames have sizes, so truncation is seen.
            https_compatible=True,
        )
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(stream)
            raise OSError(f"TLS: {_reason(error.__cause__)}") from error
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return cast(Stream, stream)

    return open_stream


def _reason(fault: BaseException | None) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return fault.verify_message
    if isinstance(fault, ssl.SSLError):
        return fault.reason or "the broker does not speak it"
    return "the broker has closed the connection"
