"""Code reads each key, unless the key is inert; no code reads an inert key.

The test reads the source, so it fails when a key loses its last reader or a new key
has none. A topic's config counts as read if the log's settings have a used field of
its name, or if code reads it by name.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

from broker import config as names_of_keys
from broker.cluster.topic_configs import TOPIC_KEYS
from broker.config import KEYS, BrokerConfig, Key
from broker.config.key_bounds import CONSUMER_BOUNDS
from broker.log.segments.log_config import LogConfig
from broker.protocol.errors import ConfigError
from tests.architecture import PACKAGES

ROOT = Path(__file__).parents[3]
BROKER = ROOT / "broker"
# Modules that declare keys, pair them with topic configs or pass them on.
TABLES = {
    *(BROKER / "config" / f"{name}.py" for name in ("__init__", "alterable")),
    *(
        BROKER / "config" / f"{name}_keys.py"
        for name in ("admission", "cluster", "doorkeeper", "network", "storage")
    ),
    BROKER / "tls" / "keys.py",
    # The check of a value is not a read.
    BROKER / "config" / "key_bounds.py",
    BROKER / "cluster" / "topic_configs.py",
    BROKER / "log" / "segments" / "log_config.py",
}
CONFIG = BROKER / "config" / "broker_config.py"
CONSTANTS = {
    key.name: constant
    for constant, key in vars(names_of_keys).items()
    if isinstance(key, Key)
}


@cache
def trees() -> dict[Path, ast.Module]:
    return {
        path: ast.parse(path.read_text())
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }


def mentioned(tree: ast.AST) -> set[str]:
    """Return the names and attributes that code mentions, without imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def of_the_configuration(elsewhere: set[str]) -> set[str]:
    """Return names in the methods of the configuration that other modules use."""
    found = set()
    of_topics = mentioned(trees()[BROKER / "cluster" / "topic_configs.py"])
    for node in ast.walk(trees()[CONFIG]):
        if isinstance(node, ast.FunctionDef) and (
            node.name.startswith("_") or node.name in elsewhere | of_topics
        ):
            found |= mentioned(node)
    return found


def of_topics(elsewhere: set[str]) -> set[str]:
    """Return broker keys whose values reach settings of topics that are used."""
    asked = {
        node.args[0].value
        for path, tree in trees().items()
        if "topic_value(" in path.read_text()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "topic_value"
        and isinstance(node.args[0], ast.Constant)
    }
    own = mentioned(trees()[BROKER / "log" / "segments" / "log_config.py"])
    fields = LogConfig.__dataclass_fields__.keys() & (elsewhere | own)
    return {
        CONSTANTS[broker_key.name]
        for name, topic_key in TOPIC_KEYS.items()
        if name in asked or name.replace(".", "_") in fields
        for broker_key in topic_key.broker_keys
    }


def constants_that_are_read() -> set[str]:
    elsewhere: set[str] = set()
    for path, tree in trees().items():
        if path not in {*TABLES, CONFIG}:
            elsewhere |= mentioned(tree)
    found = elsewhere | of_the_configuration(elsewhere) | of_topics(elsewhere)
    if "CONSUMER_BOUNDS" in elsewhere:
        # The bounds of configs that groups can set.
        found |= {CONSTANTS[it.name] for row in CONSUMER_BOUNDS.values() for it in row}
    if "producer_id_expiration_ms" in elsewhere:
        # The only setting of a log that no topic config overrides.
        found.add("PRODUCER_ID_EXPIRATION_MS")
    return found


def test_a_key_is_read_or_it_is_inert() -> None:
    read = constants_that_are_read()
    # Code can only read a key through its constant.
    assert {name for name in KEYS if CONSTANTS.get(name) not in read} == {
        name for name, key in KEYS.items() if key.inert
    }


def some_value_of(key: Key[Any]) -> str:
    """Return a value that the key allows."""
    for written in ("", "1", "true", "broker"):
        try:
            key.read(written)
        except ConfigError:
            continue
        return written
    raise AssertionError(key)


def test_an_inert_key_is_told_of_when_it_is_set() -> None:
    for name, key in KEYS.items():
        if key.inert:
            config = BrokerConfig.load(None, {name: some_value_of(key)})
            assert config.without_effect == (name,)


def test_of_a_listeners_own_keys_only_those_that_are_read_have_an_effect() -> None:
    prefix = "listener.name.plaintext."
    config = BrokerConfig.load(
        None,
        {
            prefix + "max.connections": "5",
            prefix + "num.network.threads": "2",
            prefix + "num.io.threads": "2",
        },
    )
    assert config.without_effect == (prefix + "num.io.threads",)
