"""Configurations from keyword arguments: keys with ``_`` instead of dots."""

import pytest

from broker.config import BrokerConfig
from broker.protocol.errors import ConfigError


def given(**settings: str) -> BrokerConfig:
    written = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.load(None, written)


def refused(key: str, expected: str, **settings: str) -> None:
    with pytest.raises(ConfigError) as caught:
        given(**settings)
    assert caught.value.key == key
    assert expected in caught.value.expected
