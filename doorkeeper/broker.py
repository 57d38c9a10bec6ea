"""A broker as a process: its settings, and the function that runs it.

``serve(BrokerConfig.load(Path("server.properties"), {"num.io.threads": "2"}))`` serves
until SIGTERM. An invalid setting raises `ConfigError`, which names its key.
"""

from broker.config import BrokerConfig
from broker.process import main as serve
from broker.protocol.errors import ConfigError

__all__ = ["BrokerConfig", "ConfigError", "serve"]
