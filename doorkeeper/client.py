"""The public names of the Trio client; docs/trio-client.md explains them."""

from broker.client.admin import KafkaAdmin, open_admin
from broker.client.consumer.consumer import KafkaConsumer, open_consumer
from broker.client.consumer.consumer_commits import GroupMetadata
from broker.client.consumer.consumer_record import ConsumerRecord
from broker.client.consumer.rebalance_listener import RebalanceListener
from broker.client.producer.producer import KafkaProducer, open_producer
from broker.client.producer.producer_batch import Receipt
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

__all__ = [
    "ConsumerRecord",
    "ErrorCode",
    "GroupMetadata",
    "KafkaAdmin",
    "KafkaConsumer",
    "KafkaError",
    "KafkaProducer",
    "RebalanceListener",
    "Receipt",
    "TopicPartition",
    "open_admin",
    "open_consumer",
    "open_producer",
]
