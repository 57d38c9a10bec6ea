"""A transactional producer of librdkafka: refused for good, and at once."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.live.broker_process import BrokerProcess
from tests.live.verifying import PATIENT

pytestmark = pytest.mark.live

# librdkafka repeats what is not fatal until this is over, and then calls it retriable.
WITHIN_S = 30


def test_init_transactions_ends_instead_of_going_on_for_ever(
    broker: BrokerProcess,
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "orders-1",
            **PATIENT,
        }
    )
    for _ in range(2):
        # Asked again, it tells the same: the producer itself has come to its end.
        with pytest.raises(KafkaException) as refused:
            producer.init_transactions(WITHIN_S)
        error = refused.value.args[0]
        assert error.fatal()
        assert not error.retriable()
        assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException):
        producer.begin_transaction()


def test_a_producer_without_transactions_is_served_beside_it(
    broker: BrokerProcess, topic: str
) -> None:
    servers = {"bootstrap.servers": broker.bootstrap, **PATIENT}
    with pytest.raises(KafkaException):
        Producer({**servers, "transactional.id": "tx"}).init_transactions(WITHIN_S)
    producer = Producer({**servers, "enable.idempotence": True})
    producer.produce(topic, b"plain")
    assert producer.flush(20) == 0
