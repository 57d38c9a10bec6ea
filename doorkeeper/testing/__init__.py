"""A Kafka broker in one line, for tests; docs/testing.md has recipes.

``with broker() as kafka:`` runs a whole broker, in memory, on a free port.
"""

from broker.client.consumer.consumer_record import ConsumerRecord
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError
from doorkeeper.local_cluster.cluster_settings import ClusterError
from doorkeeper.testing.brokers import Broker, Cluster, Fault, broker, cluster
from doorkeeper.testing.received import ReceivedRequest

__all__ = [
    "ApiKey",
    "Broker",
    "Cluster",
    "ClusterError",
    "ConfigError",
    "ConsumerRecord",
    "ErrorCode",
    "Fault",
    "KafkaError",
    "ReceivedRequest",
    "broker",
    "cluster",
]
