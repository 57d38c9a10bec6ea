"""In-memory network whose listeners use TLS, and clients that speak TLS."""

import tempfile
from pathlib import Path

import trio

from broker.config import BrokerConfig
from broker.network.handshakes import HandshakeLimits, compute_here
from broker.network.tls_listener import TlsListener
from tests.certificates import client_context, leaf, server_keys
from tests.virtual.hosting import MemoryWire


def tls_config(directory=None, certificate=None, **keys):
    """Return the configuration of a broker with one listener, SSL."""
    with tempfile.TemporaryDirectory() as temporary:
        stores = server_keys(Path(directory or temporary), certificate)
        written = {name.replace("_", "."): value for name, value in keys.items()}
        config = BrokerConfig.load(
            None,
            {
                "listeners": "SSL://127.0.0.1:0",
                "security.inter.broker.protocol": "SSL",
                **stores,
                **written,
            },
        )
        return config, TlsListener(config.listeners[0], config)


def limits(half_open_max=50, timeout_s=10.0, threads=1, compute=compute_here):
    return HandshakeLimits(
        half_open_max=half_open_max,
        timeout_s=timeout_s,
        turns=trio.CapacityLimiter(threads),
        compute=compute,
    )


class TlsStream:
    """A TLS stream that can end the transport without a ``close_notify``."""

    def __init__(self, beneath, context):
        self.beneath = beneath
        self.tls = trio.SSLStream(
            beneath, context, server_hostname="127.0.0.1", https_compatible=True
        )
        self.send_all = self.tls.send_all
        self.receive_some = self.tls.receive_some
        self.aclose = self.tls.aclose

    async def send_eof(self):
        await self.beneath.send_eof()


class TlsWire(MemoryWire):
    """In-memory TLS connections; ``harness.Harness`` takes the server settings here."""

    def __init__(self, *, keys=None, handshakes=None, **settings):
        super().__init__(**settings)
        _, self.network.tls = tls_config(**(keys or {}))
        self.network.handshakes = handshakes or limits()
        self.context = client_context(leaf("client@tests", common_name="Alice"))

    async def dial(self, port, address="127.0.0.1", context=None):
        return TlsStream(self.open(port, address), context or self.context)

    async def reset(self, stream):
        self.network.cut(stream.beneath.connection)
