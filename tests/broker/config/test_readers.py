"""Every key is read by somebody, or is inert and says so; nobody reads an inert one.

Read from the source, so that a key loses its reader, or a new one comes without, only
together with this test. A topic's config counts where the log's settings have a field
of its name that is used, or where it is asked for by name.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from broker import config as names_of_keys
from broker.cluster.topic_configs import TOPIC_KEYS
from broker.config import KEYS, BrokerConfig, Key
from broker.config.key_bounds import CONSUMER_BOUNDS
from broker.log.segments.log_config import LogConfig
from broker.protocol.errors import ConfigError
from tests.architecture import PACKAGES

ROOT = Path(__file__).parents[3]
BROKER = ROOT / "broker"
# Where keys are declared, paired with topics' or passed on, which is not reading.
TABLES = {
    *(BROKER / "config" / f"{name}.py" for name in ("__init__", "alterable")),
    *(
        BROKER / "config" / f"{name}_keys.py"
        for name in ("admission", "cluster", "doorkeeper", "network", "storage")
    ),
    BROKER / "tls" / "keys.py",
    # To check a value is not to read it.
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
TREES = {
    path: ast.parse(path.read_text())
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
}


def mentioned(tree: ast.AST) -> set[str]:
    """The names that code (and no import) mentions, by themselves or behind a dot."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


ELSEWHERE = set().union(
    *(mentioned(tree) for path, tree in TREES.items() if path not in {*TABLES, CONFIG})
)


OF_TOPICS = mentioned(TREES[BROKER / "cluster" / "topic_configs.py"])


def of_the_configuration() -> set[str]:
    """Values that the configuration itself reads on request."""
    found = set()
    for node in ast.walk(TREES[CONFIG]):
        if isinstance(node, ast.FunctionDef) and (
            node.name.startswith("_") or node.name in ELSEWHERE | OF_TOPICS
        ):
            found |= mentioned(node)
    return found


def of_topics() -> set[str]:
    """Broker keys whose values reach topics' settings that are used."""
    asked = {
        node.args[0].value
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "topic_value"
        and isinstance(node.args[0], ast.Constant)
    }
    own = mentioned(TREES[BROKER / "log" / "segments" / "log_config.py"])
    fields = LogConfig.__dataclass_fields__.keys() & (ELSEWHERE | own)
    return {
        CONSTANTS[broker_key.name]
        for name, topic_key in TOPIC_KEYS.items()
        if name in asked or name.replace(".", "_") in fields
        for broker_key in topic_key.broker_keys
    }


READ = ELSEWHERE | of_the_configuration() | of_topics()
if "CONSUMER_BOUNDS" in ELSEWHERE:
    # Bounds of values that groups set for themselves.
    READ |= {CONSTANTS[it.name] for row in CONSUMER_BOUNDS.values() for it in row}
if "producer_id_expiration_ms" in ELSEWHERE:
    # The one setting of a log that no topic can override.
    READ.add("PRODUCER_ID_EXPIRATION_MS")


@pytest.mark.parametrize("name", sorted(KEYS))
def test_a_key_is_read_or_it_is_inert(name: str) -> None:
    if name not in CONSTANTS:
        assert KEYS[name].inert, "a key without a name in code cannot be read"
    else:
        assert (CONSTANTS[name] in READ) is not KEYS[name].inert


def some_value_of(key: Key[Any]) -> str:
    """A value that the key allows."""
    for written in ("", "1", "true", "broker"):
        try:
            key.read(written)
        except ConfigError:
            continue
        return written
    raise AssertionError(key)


@pytest.mark.parametrize("name", sorted(name for name in KEYS if KEYS[name].inert))
def test_an_inert_key_is_told_of_when_it_is_set(name: str) -> None:
    key = KEYS[name]
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
