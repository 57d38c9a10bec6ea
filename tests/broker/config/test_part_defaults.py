"""Defaults of the broker's parts are Kafka's defaults.

The keys' own defaults are compared with Apache Kafka's in ``test_keys``.
"""

from __future__ import annotations

import pytest

from broker.cluster.topic_configs import log_config
from broker.config import BrokerConfig
from broker.groups.state.group_settings import GroupConfig
from broker.log.segments.log_config import LogConfig
from broker.network.epoll import SocketOptions
from broker.network.settings import socket_options
from broker.node.group_coordination import group_config
from broker.quotas.client_quotas import client_windows
from broker.requests.windowed_rate import Windows


@pytest.mark.parametrize(
    ("part", "configured"),
    [
        (GroupConfig(), lambda config: group_config(config, partitions=50)),
        (LogConfig(), lambda config: log_config({}, config)),
        (Windows(), client_windows),
        (SocketOptions(), socket_options),
    ],
    ids=lambda it: type(it).__name__,
)
def test_the_defaults_of_a_part_are_those_of_its_keys(part, configured) -> None:
    assert configured(BrokerConfig.from_written({})) == part
