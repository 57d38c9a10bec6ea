"""The settings of a client: Kafka's keys, typed and checked; unknown keys are refused.

Settings are written as keyword arguments, with underscores where Kafka has points:
``linger_ms=5`` is ``linger.ms=5``. Names, defaults and ranges are those of Kafka 4.1's
``CommonClientConfigs``, ``ProducerConfig`` and ``ConsumerConfig``; values are parsed by
the same classes as the broker's own (`broker.protocol.config_key`). Kafka's keys that
have no effect in this client are refused as unknown.

>>> read_settings(COMMON, {"client_id": "me"})[CLIENT_ID]
'me'
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from broker.protocol.config_key import ConfigType, Key, integer, long, text
from broker.protocol.errors import ConfigError
from broker.protocol.host_names import can_be_encoded
from broker.protocol.sasl.sasl_keys import file_url, jaas_line
from broker.tls import keys as tls_keys

T = TypeVar("T")

_PORT: Final = re.compile("[0-9]{1,5}")

CLIENT_ID: Final = text("client.id", "", "Name of this client in the broker's logs.")
METADATA_MAX_AGE_MS: Final = long(
    "metadata.max.age.ms",
    300_000,
    "Metadata is refreshed at least this often.",
    low=0,
)
RECONNECT_BACKOFF_MS: Final = long(
    "reconnect.backoff.ms",
    50,
    "Wait after the first failed connection; doubles with each further one.",
    low=0,
)
RECONNECT_BACKOFF_MAX_MS: Final = long(
    "reconnect.backoff.max.ms",
    1_000,
    "The longest wait between connections to one broker.",
    low=0,
)
RETRY_BACKOFF_MS: Final = long(
    "retry.backoff.ms",
    100,
    "Wait before the first repetition of a request; doubles with each further one.",
    low=0,
)
RETRY_BACKOFF_MAX_MS: Final = long(
    "retry.backoff.max.ms",
    1_000,
    "The longest wait between repetitions.",
    low=0,
)
REQUEST_TIMEOUT_MS: Final = integer(
    "request.timeout.ms",
    30_000,
    "A request that is not answered in this time takes its connection with it.",
    low=0,
)
CONNECTION_SETUP_TIMEOUT_MS: Final = long(
    "socket.connection.setup.timeout.ms",
    10_000,
    "The time a connection may take to come about.",
    low=0,
)

SECURITY_PROTOCOL: Final = text(
    "security.protocol",
    "PLAINTEXT",
    "Protocol of connections to brokers.",
    choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
)
SASL_MECHANISM: Final = text(
    "sasl.mechanism",
    "GSSAPI",
    "The mechanism of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
)
SASL_JAAS_CONFIG: Final = jaas_line(
    "sasl.jaas.config",
    "Credentials: a login module with username and password, or with "
    "unsecuredLoginStringClaim_sub.",
)
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL: Final = file_url(
    "sasl.oauthbearer.token.endpoint.url",
    "A file with a bearer token, read for each connection.",
)

COMMON: Final[tuple[Key[Any], ...]] = (
    SASL_MECHANISM,
    SASL_JAAS_CONFIG,
    SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL,
    CLIENT_ID,
    METADATA_MAX_AGE_MS,
    RECONNECT_BACKOFF_MS,
    RECONNECT_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MAX_MS,
    REQUEST_TIMEOUT_MS,
    CONNECTION_SETUP_TIMEOUT_MS,
    SECURITY_PROTOCOL,
    *tls_keys.CLIENT_KEYS,
)


class ClientConfig:
    """Values by key, defaults included; ``written`` are the names of set keys."""

    def __init__(self, values: Mapping[str, Any], written: frozenset[str]) -> None:
        self._values = values
        self.written = written

    def __getitem__(self, key: Key[T]) -> T:
        return cast(T, self._values[key.name])

    def seconds(self, key: Key[int]) -> float:
        """Return the value of a key in milliseconds as seconds, for Trio."""
        return self[key] / 1000


def read_settings(
    keys: tuple[Key[Any], ...], settings: Mapping[str, Any]
) -> ClientConfig:
    """Check ``settings`` against ``keys``; raises `ConfigError`, naming the key."""
    by_name = {key.name: key for key in keys}
    values = {name: key.default for name, key in by_name.items()}
    written = set()
    for given, value in settings.items():
        name = given.replace("_", ".")
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=1)
            hint = f"; the nearest is {near[0]}" if near else ""
            # The value is not shown: a misspelt key may hold a password.
            is_secret = near and by_name[near[0]].type is ConfigType.PASSWORD
            found = "[hidden]" if is_secret else value
            raise ConfigError(name, found, f"a key of this client{hint}")
        values[name] = by_name[name].read(_written(value))
        written.add(name)
    return ClientConfig(values, frozenset(written))


def parse_bootstrap(servers: str) -> tuple[tuple[str, int], ...]:
    """Return (host, port) of each of ``bootstrap.servers``; raises `ConfigError`.

    >>> parse_bootstrap("a:9092, [::1]:9093")
    (('a', 9092), ('::1', 9093))
    """
    found = []
    for item in servers.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not (colon and host and _PORT.fullmatch(port) and int(port) < 1 << 16):
            expected = "a list of host:port, separated by commas"
            raise ConfigError("bootstrap.servers", servers, expected)
        host = host.removeprefix("[").removesuffix("]")
        if not can_be_encoded(host):
            expected = "host names with labels of 1 to 63 characters"
            raise ConfigError("bootstrap.servers", servers, expected)
        found.append((host, int(port)))
    return tuple(found)


def _written(value: Any) -> str:
    """Return a Python value in the format of a properties file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
