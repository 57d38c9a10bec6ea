"""The configuration of one broker: every key's value, checked before anything starts.

Follows Kafka's ``KafkaConfig``: a file in Java's properties format, Kafka's keys with
Kafka's meanings, and ``key=value`` overrides that replace values of the file. An
unknown key makes the start fail, because a misspelt key would silently keep its
default; ``doorkeeper.unknown.configs=warn`` ignores unknown keys with a warning, as
Kafka does.

Without a file the defaults are for a laptop: the broker listens on 127.0.0.1:9092 only,
keeps its logs in ``./data``, and has one replica of each offsets partition.

>>> config = BrokerConfig.load(None, {"num.io.threads": "4"})
>>> config[NUM_IO_THREADS], config[NUM_NETWORK_THREADS]
(4, 3)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from posixpath import normpath
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from broker.config import (
    admission_keys,
    authorization_keys,
    cluster_keys,
    doorkeeper_keys,
    network_keys,
    sasl_listener_keys,
    security_keys,
    storage_keys,
)
from broker.config.cluster_keys import BROKER_ID, NODE_ID
from broker.config.doorkeeper_keys import (
    DOORKEEPER_CONTROLLER_LISTENERS,
    DOORKEEPER_KAFKA_DEFAULTS,
    DOORKEEPER_UNKNOWN_CONFIGS,
)
from broker.config.former_defaults import FORMER_DEFAULTS
from broker.config.key_bounds import check_bounds
from broker.config.keys_without_effect import INERT
from broker.config.listeners import (
    Listener,
    check_host,
    parse_listeners,
    parse_protocol_map,
)
from broker.config.network_keys import (
    ADVERTISED_LISTENERS,
    CONTROL_PLANE_LISTENER_NAME,
    CONTROLLER_LISTENER_NAMES,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    NUM_IO_THREADS,
    NUM_NETWORK_THREADS,
    SECURITY_INTER_BROKER_PROTOCOL,
)
from broker.config.properties import read_properties
from broker.config.sasl_checks import check_sasl
from broker.config.sasl_listener_keys import OF_A_MECHANISM, SASL_OF_A_LISTENER
from broker.config.storage_keys import (
    LOG_DIR,
    LOG_DIRS,
    LOG_RETENTION_HOURS,
    LOG_RETENTION_MINUTES,
    LOG_RETENTION_MS,
    LOG_ROLL_HOURS,
    LOG_ROLL_JITTER_HOURS,
    LOG_ROLL_JITTER_MS,
    LOG_ROLL_MS,
)
from broker.config.unknown_keys import UnknownKeys
from broker.protocol.config_key import Key, split
from broker.protocol.errors import ConfigError
from broker.tls import keys as tls_keys

__all__ = ["KEYS", "NUM_IO_THREADS", "NUM_NETWORK_THREADS", "BrokerConfig"]

T = TypeVar("T")

# Keys that may be set per listener, with the prefix ``listener.name.NAME.``.
OF_A_LISTENER: Final = frozenset(
    {
        MAX_CONNECTION_CREATION_RATE,
        MAX_CONNECTIONS,
        NUM_NETWORK_THREADS,
        *SASL_OF_A_LISTENER,
        *tls_keys.LISTENER_KEYS,
    }
)

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_LISTENER_PREFIX = "listener.name."
_WITHOUT_FILE: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "./data",
    "offsets.topic.replication.factor": "1",
}
# Keys of the same setting, in order of precedence. An override of one key removes the
# whole row of the file; otherwise a key with precedence would hide the override.
SAME_SETTING: Final[tuple[tuple[Key[Any], ...], ...]] = (
    (LOG_DIRS, LOG_DIR),
    (LOG_RETENTION_MS, LOG_RETENTION_MINUTES, LOG_RETENTION_HOURS),
    (LOG_ROLL_MS, LOG_ROLL_HOURS),
    (LOG_ROLL_JITTER_MS, LOG_ROLL_JITTER_HOURS),
    (NODE_ID, BROKER_ID),
    (INTER_BROKER_LISTENER_NAME, SECURITY_INTER_BROKER_PROTOCOL),
)


def _keys() -> Iterator[Key[Any]]:
    for module in (
        network_keys,
        storage_keys,
        cluster_keys,
        doorkeeper_keys,
        admission_keys,
        authorization_keys,
        sasl_listener_keys,
        tls_keys,
    ):
        yield from (item for item in vars(module).values() if isinstance(item, Key))
    yield from (*INERT, *security_keys.KEYS)


KEYS: Final[Mapping[str, Key[Any]]] = MappingProxyType(
    {key.name: key for key in _keys()}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Values by key: ``config[NUM_IO_THREADS]``, defaults included.

    ``written`` holds the known keys that the file and the overrides set, as text;
    ``unknown`` has the names of the other keys. ``listener_values`` holds the values
    with the prefix ``listener.name.NAME.``, with or without a mechanism.
    """

    written: Mapping[str, str]
    unknown: tuple[str, ...]
    values: Mapping[str, Any]
    listener_values: Mapping[tuple[str, str], Any]
    listeners: tuple[Listener, ...]
    advertised: tuple[Listener, ...]

    @classmethod
    def load(
        cls, path: str | Path | None, overrides: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """Read ``path``, apply ``overrides``, check everything.

        Raises `ConfigError`, which names the key, and `OSError` for the file.
        """
        if path is None:
            base: dict[str, str] = dict(_WITHOUT_FILE)
        else:
            base = read_properties(path)
        return cls.from_written(_overridden(base, overrides or {}))

    @classmethod
    def from_written(cls, written: Mapping[str, str]) -> BrokerConfig:
        """Return the checked ``written``, with Kafka's defaults for all other keys."""
        values = {name: key.default for name, key in KEYS.items()}
        values.update(_former_defaults(written))
        listener_values: dict[tuple[str, str], Any] = {}
        unknown = _unknown(written)
        known = {name: text for name, text in written.items() if name not in unknown}
        for name, text in known.items():
            key = find_key(name)
            assert key is not None, name
            if key.name == name:
                values[name] = key.read(text)
            else:
                behind = name.removeprefix(_LISTENER_PREFIX)
                listener, _, own_name = behind.partition(".")
                listener_values[listener.upper(), own_name.lower()] = key.read(text)
        listeners, advertised = _listeners(values)
        config = cls(
            written=MappingProxyType(known),
            unknown=unknown,
            values=MappingProxyType(values),
            listener_values=MappingProxyType(listener_values),
            listeners=listeners,
            advertised=advertised,
        )
        _check(config)
        return config

    def __getitem__(self, key: Key[T]) -> T:
        return cast(T, self.values[key.name])

    def default(self, key: Key[T]) -> T:
        """Return the default of ``key`` by ``doorkeeper.kafka.defaults``."""
        former = FORMER_DEFAULTS[self[DOORKEEPER_KAFKA_DEFAULTS]]
        return cast(T, former.get(key.name, key.default))

    def on_listener(self, name: str, key: Key[T]) -> T:
        """Return the value of ``key`` for one listener, or the broker's own."""
        default = self.values[key.name]
        return cast(T, self.listener_values.get((name.upper(), key.name), default))

    def of_mechanism(self, listener: str, mechanism: str, key: Key[T]) -> T:
        """Return the value of ``key`` for a mechanism, the listener, or the broker."""
        own_name = f"{mechanism.lower()}.{key.name}"
        default = self.on_listener(listener, key)
        return cast(T, self.listener_values.get((listener.upper(), own_name), default))

    def updated(self, changes: Mapping[str, str | None]) -> BrokerConfig:
        """Return this configuration with ``changes``; ``None`` unsets a key."""
        written = {**self.written, **changes}
        config = self.from_written({k: v for k, v in written.items() if v is not None})
        return replace(config, unknown=(*self.unknown, *config.unknown))

    # ---- values derived from several keys ----

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The keys that are set and have no effect, in the order written.

        Of the keys set for a listener, only `OF_A_LISTENER` and, with a mechanism,
        `OF_A_MECHANISM` have an effect.
        """
        return tuple(name for name in self.written if _is_without_effect(name))

    @property
    def node_id(self) -> int:
        """``node.id`` or ``broker.id``; 0 where neither is set."""
        return max(self[NODE_ID], self[BROKER_ID], 0)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """``log.dirs``, or else ``log.dir``; empty items are ignored."""
        written = split(self[LOG_DIRS] or self[LOG_DIR])
        return tuple(each.rstrip("/") or "/" for each in written if each)

    @property
    def retention_ms(self) -> int:
        """The first set of the keys ``log.retention.*``; -1: unlimited."""
        milliseconds = self[LOG_RETENTION_MS]
        if milliseconds is None:
            minutes = self[LOG_RETENTION_MINUTES]
            if minutes is None:
                milliseconds = self[LOG_RETENTION_HOURS] * _HOUR_MS
            else:
                milliseconds = minutes * _MINUTE_MS
        return max(milliseconds, -1)

    @property
    def roll_ms(self) -> int:
        """``log.roll.ms``, or else ``log.roll.hours``."""
        milliseconds = self[LOG_ROLL_MS]
        if milliseconds is None:
            return self[LOG_ROLL_HOURS] * _HOUR_MS
        return milliseconds

    @property
    def roll_jitter_ms(self) -> int:
        """``log.roll.jitter.ms``, or else ``log.roll.jitter.hours``."""
        milliseconds = self[LOG_ROLL_JITTER_MS]
        if milliseconds is None:
            return self[LOG_ROLL_JITTER_HOURS] * _HOUR_MS
        return milliseconds

    @property
    def control_plane_listener(self) -> Listener | None:
        """The listener of the control plane, where there is one (KIP-291)."""
        name = self[CONTROL_PLANE_LISTENER_NAME]
        if name is None:
            return None
        return next(each for each in self.listeners if each.name == name.upper())

    @property
    def inter_broker_listener(self) -> Listener:
        """The listener that other brokers use."""
        name = self.inter_broker_listener_name
        return next(each for each in self.advertised if each.name == name)

    @property
    def inter_broker_listener_name(self) -> str:
        """The name of the listener that other brokers use."""
        name = self[INTER_BROKER_LISTENER_NAME]
        return (name or self[SECURITY_INTER_BROKER_PROTOCOL]).upper()

    @property
    def inter_broker_protocol(self) -> str:
        """The security protocol of that listener."""
        return self.inter_broker_listener.security_protocol


def _is_without_effect(name: str) -> bool:
    key = find_key(name)
    assert key is not None, name
    return key.inert or (
        key.name != name and key not in OF_A_LISTENER and key not in OF_A_MECHANISM
    )


def find_key(name: str) -> Key[Any] | None:
    """Return the key of a name, with or without ``listener.name.NAME.``."""
    if name.startswith(_LISTENER_PREFIX):
        _, _, suffix = name.removeprefix(_LISTENER_PREFIX).partition(".")
        # sasl.jaas.config and others follow a mechanism: NAME.MECHANISM.KEY.
        name = suffix if suffix in KEYS else suffix.partition(".")[2]
    return KEYS.get(name)


def _overridden(
    base: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return ``base`` with ``overrides`` applied per row of `SAME_SETTING`."""
    replaced = {
        key.name
        for row in SAME_SETTING
        for key in row
        if any(other.name in overrides for other in row)
    }
    kept = {name: value for name, value in base.items() if name not in replaced}
    return {**kept, **overrides}


def _former_defaults(written: Mapping[str, str]) -> Mapping[str, Any]:
    key = DOORKEEPER_KAFKA_DEFAULTS
    return FORMER_DEFAULTS[key.read(written.get(key.name, key.default))]


def _unknown(written: Mapping[str, str]) -> tuple[str, ...]:
    """Return the unknown names if the configuration ignores them.

    Otherwise raises `UnknownKeys` with all of them.
    """
    unknown = tuple(name for name in written if find_key(name) is None)
    if not unknown:
        return ()
    key = DOORKEEPER_UNKNOWN_CONFIGS
    if key.read(written.get(key.name, key.default)) == "refuse":
        raise UnknownKeys(unknown, KEYS)
    return unknown


def _listeners(
    values: Mapping[str, Any],
) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """Return the listeners to open and those to advertise."""
    map_key, key, advertised_key = (
        LISTENER_SECURITY_PROTOCOL_MAP.name,
        LISTENERS.name,
        ADVERTISED_LISTENERS.name,
    )
    controllers = {name.upper() for name in values[CONTROLLER_LISTENER_NAMES.name]}
    protocols = parse_protocol_map(map_key, values[map_key])
    for name in controllers:
        protocols.setdefault(name, "PLAINTEXT")
    bound = parse_listeners(key, values[key], protocols, distinct_ports=True)
    opened = tuple(each for each in bound if each.name not in controllers)
    if not opened:
        raise ConfigError(key, values[key], "at least one listener for clients")
    for listener in opened:
        check_host(key, listener)
    if values[advertised_key] is None:
        return opened, opened
    advertised = tuple(
        each
        for each in parse_listeners(
            advertised_key, values[advertised_key], protocols, distinct_ports=False
        )
        if each.name not in controllers
    )
    for listener in advertised:
        check_host(advertised_key, listener)
    return opened, advertised


def _check(config: BrokerConfig) -> None:
    """Check constraints between keys, as ``KafkaConfig.validateValues``."""
    opened = {listener.name for listener in config.listeners}
    advertised = {listener.name for listener in config.advertised}
    for listener in config.advertised:
        if listener.host in ("0.0.0.0", "::"):
            key = ADVERTISED_LISTENERS.name
            raise ConfigError(key, str(listener), "an address that clients can reach")
        if listener.name not in opened:
            key = ADVERTISED_LISTENERS.name
            raise ConfigError(key, str(listener), "a listener named in listeners")
    control = config[CONTROL_PLANE_LISTENER_NAME]
    if control is not None:
        key = CONTROL_PLANE_LISTENER_NAME.name
        if control.upper() not in advertised:
            raise ConfigError(key, control, "a listener named in advertised.listeners")
        if control.upper() == config.inter_broker_listener_name:
            raise ConfigError(key, control, "another one than between brokers")
    if config.inter_broker_listener_name not in advertised:
        named = INTER_BROKER_LISTENER_NAME
        by: Key[Any] = named if config[named] else SECURITY_INTER_BROKER_PROTOCOL
        expected = "a listener named in advertised.listeners"
        raise ConfigError(by.name, config[by], expected)
    # Preset planes opens a listener of this name where none is configured.
    names = {*opened, "CONTROLLER"}
    for name in config[DOORKEEPER_CONTROLLER_LISTENERS]:
        if name.upper() not in names:
            key = DOORKEEPER_CONTROLLER_LISTENERS.name
            raise ConfigError(key, name, "listeners named in listeners, or CONTROLLER")
    check_sasl(config)
    _check_numbers(config)


def _check_numbers(config: BrokerConfig) -> None:
    node, broker = config[NODE_ID], config[BROKER_ID]
    if node >= 0 and broker >= 0 and node != broker:
        raise ConfigError(NODE_ID.name, node, f"the same as broker.id, {broker}")
    if config.retention_ms == 0:
        names = (LOG_RETENTION_MS.name, LOG_RETENTION_MINUTES.name)
        name = next((n for n in names if n in config.written), LOG_RETENTION_HOURS.name)
        raise ConfigError(name, config.written[name], "a positive number, or -1")
    _check_log_dirs(config)
    check_bounds(config.values, config.listener_values)


def _check_log_dirs(config: BrokerConfig) -> None:
    """Refuse a missing data directory, and the same directory twice."""
    key = LOG_DIRS.name if LOG_DIRS.name in config.written else LOG_DIR.name
    found = config.written.get(key, config[LOG_DIR])
    if not split(found) or not config.log_dirs:
        raise ConfigError(key, found, "at least one directory")
    if len(set(map(normpath, config.log_dirs))) < len(config.log_dirs):
        raise ConfigError(key, found, "each directory once")
