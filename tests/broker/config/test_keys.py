"""Single keys: types, ranges, defaults, and the error message for an invalid value."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from broker.config import (
    DOORKEEPER_ADMISSION_FAVOURED,
    DOORKEEPER_CLASS_LEVELS,
    DOORKEEPER_WFQ_WEIGHTS,
    KEYS,
    LOG_CLEANER_MIN_CLEANABLE_RATIO,
    LOG_CLEANUP_POLICY,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    NUM_IO_THREADS,
    BrokerConfig,
    ConfigType,
)
from broker.protocol.errors import ConfigError

# Type, default and validator of every broker key, printed by Kafka 3.9.1 itself
# (KafkaKeys.java).
HERE = Path(__file__).parent
KAFKA = json.loads((HERE / "kafka-keys.json").read_text())
# Defaults of Kafka 4.4.0, printed from AbstractKafkaConfig.CONFIG_DEF in the same way.
KAFKA_4_DEFAULTS = json.loads((HERE / "kafka-4.4-defaults.json").read_text())
# Names of Kafka 4.1.1, printed from AbstractKafkaConfig.CONFIG_DEF in the same way.
KAFKA_4 = set((HERE / "kafka-4.1-names.txt").read_text().split())


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num.io.threads", "0", "a whole number from 1 to 2147483647"),
        ("num.io.threads", "2147483648", "a whole number from 1 to 2147483647"),
        ("num.io.threads", "eight", "a whole number"),
        ("num.io.threads", "1_000", "a whole number"),
        ("num.io.threads", "٣", "a whole number"),
        ("num.io.threads", "", "a whole number"),
        ("num.io.threads", "8.0", "a whole number"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "a number from 0.0 to 1.0"),
        ("log.cleaner.min.cleanable.ratio", "nan", "a number from 0.0 to 1.0"),
        ("log.cleaner.min.cleanable.ratio", "0_1", "a number from 0.0 to 1.0"),
        # Kafka accepts 0, and its cleaner then sleeps for ever.
        ("log.cleaner.io.max.bytes.per.second", "0", "a number from 1.0"),
        ("log.cleanup.policy", "remove", "a list of compact, delete"),
        ("compression.type", "lzma", "one of uncompressed, zstd"),
        ("compression.gzip.level", "0", "a whole number from -1 to 9, and not 0"),
        ("compression.gzip.level", "10", "a whole number"),
        ("compression.lz4.level", "18", "a whole number"),
        ("compression.zstd.level", "23", "a whole number"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "a list of word:number"),
        ("max.connections.per.ip.overrides", "a:1,a:2", "each word once"),
        ("log.flush.interval.ms", "-1", "a whole number from 0"),
        ("doorkeeper.admission", "refuse", "one of block, reserve, exempt, token"),
        ("doorkeeper.admission.rates.per.s", "kontrol:1", "request classes"),
        ("doorkeeper.admission.rates.per.s", "produce:0", "a whole number from 1"),
        ("doorkeeper.reader", "blind ish", "one of blind, class-aware"),
        ("doorkeeper.scheduler", " ", "the name of a scheduler"),
        ("doorkeeper.class.levels", "kontrol:1", "request classes"),
        ("doorkeeper.wfq.weights", "control:0", "a whole number from 1"),
        ("broker.id", "9" * 5000, "a whole number from"),
        ("log.dirs", "/a\0b", "without NUL"),
        ("ssl.keystore.location", "/a\0b", "without NUL"),
        ("doorkeeper.record.file", "/a\0b", "without NUL"),
        ("log.dirs", "/a\udcff", "text in UTF-8"),
    ],
)
def test_bad_value_is_refused_with_its_key_and_what_was_expected(
    name: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, {name: value})
    assert caught.value.key == name
    assert caught.value.found == value
    assert expected in caught.value.expected
    assert str(caught.value).startswith(f"{name}: found {value!r}, expected ")


def test_unknown_key_is_refused_and_the_nearest_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, {"num.io.thread": "8"})
    assert caught.value.key == "num.io.thread"
    assert "the nearest is num.io.threads" in str(caught.value)


def test_values_are_trimmed_and_typed() -> None:
    config = BrokerConfig.load(
        None,
        {
            "num.io.threads": " +7 ",
            "log.cleaner.min.cleanable.ratio": "0.25",
            "log.cleanup.policy": "compact, delete",
            "max.connections.per.ip.overrides": "10.0.0.1:3, fe80::1:4",
            "doorkeeper.class.levels": "admin:1",
            "doorkeeper.wfq.weights": "tenant-a:3",
            "doorkeeper.admission.favoured": "control,replication",
        },
    )
    assert config[NUM_IO_THREADS] == 7
    assert config[LOG_CLEANER_MIN_CLEANABLE_RATIO] == 0.25
    assert config[LOG_CLEANUP_POLICY] == ("compact", "delete")
    assert config[MAX_CONNECTIONS_PER_IP_OVERRIDES] == {"10.0.0.1": 3, "fe80::1": 4}
    assert config[DOORKEEPER_WFQ_WEIGHTS] == {"tenant-a": 3}
    assert config[DOORKEEPER_ADMISSION_FAVOURED] == ("control", "replication")
    levels = config[DOORKEEPER_CLASS_LEVELS]
    assert (levels["admin"], levels["control"], levels["produce"]) == (1, 0, 4)


def default_as_kafka_writes_it(default: Any) -> str | None:
    match default:
        case None:
            return None
        case bool():
            return str(default).lower()
        case tuple():
            return ",".join(default)
        case dict():
            return ",".join(f"{word}:{number}" for word, number in default.items())
        case float():
            return repr(default).upper().replace("E+", "E")
    return str(default)


OURS = sorted(name for name, key in KEYS.items() if not key.inert and name in KAFKA)


def test_types_and_defaults_are_kafkas() -> None:
    config = BrokerConfig.from_written({"doorkeeper.kafka.defaults": "3.9"})
    for name in OURS:
        key = KEYS[name]
        kafka_type, kafka_default, _ = KAFKA[name]
        default = config.default(key)
        assert default == config[key], name
        # An empty default list equals a null default.
        found = default_as_kafka_writes_it(default) or ""
        assert found == (kafka_default or ""), name
        # Kafka declares some lists and pairs as STRING.
        if key.type is not ConfigType.LIST:
            assert key.type.name == kafka_type, name


@pytest.mark.parametrize("written", [{}, {"doorkeeper.kafka.defaults": "4.4"}])
def test_defaults_are_those_of_kafka_4(written: dict[str, str]) -> None:
    config = BrokerConfig.from_written(written)
    # Kafka 4 requires node.id. In Doorkeeper it defaults to broker.id, or to 0.
    for name in KAFKA_4_DEFAULTS.keys() & set(OURS) - {"node.id"}:
        default = config.default(KEYS[name])
        assert default == config[KEYS[name]], name
        found = default_as_kafka_writes_it(default) or ""
        assert found == (KAFKA_4_DEFAULTS[name] or ""), name


def bounds(name: str) -> tuple[int | None, int | None]:
    """Return Kafka's range of a key, written "[1,...]" or "[0,...,1]"."""
    match = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\]", KAFKA[name][2] or "")
    if match is None:
        return None, None
    return int(match[1]), None if match[2] is None else int(match[2])


def test_ranges_are_kafkas() -> None:
    ranges = {name: bounds(name) for name in OURS}
    assert sum(low is not None for low, _ in ranges.values()) > 50
    for name, (low, high) in ranges.items():
        for edge, beyond in ((low, -1), (high, 1)):
            if edge is not None:
                assert KEYS[name].read(str(edge)) == edge, name
                with pytest.raises(ConfigError):
                    KEYS[name].read(str(edge + beyond))


def test_every_key_of_kafka_is_known() -> None:
    assert (set(KAFKA) | KAFKA_4) - set(KEYS) == set()


def test_keys_that_are_not_kafkas_of_today_are_ours_or_of_other_releases() -> None:
    # Kafka accepts these only from its tools (``DynamicConfig.Broker``).
    by_tools = {f"{it}.replication.throttled.rate" for it in ("leader", "follower")}
    by_tools.add("replica.alter.log.dirs.io.max.bytes.per.second")
    # Kafka's authorizers read these themselves.
    by_tools |= {"super.users", "allow.everyone.if.no.acl.found"}
    # Kafka 4.3 added these (KIP-1263).
    by_tools |= {
        f"group.consumer.{bound}assignment.interval.ms"
        for bound in ("", "min.", "max.")
    }
    older_or_newer = {
        name
        for name in KEYS.keys() - by_tools
        if name not in KAFKA and name not in KAFKA_4 and not KEYS[name].inert
    }
    assert all(name.startswith("doorkeeper.") for name in older_or_newer)
