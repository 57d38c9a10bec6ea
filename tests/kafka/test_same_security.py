"""ACLs without an authorizer, SASL on PLAINTEXT: Apache Kafka's answers and ours."""

from __future__ import annotations

import pytest

from broker.protocol.api_keys import ApiKey
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import versions

pytestmark = pytest.mark.kafka

ANY, ALLOW, TOPIC, LITERAL, READ = 1, 3, 2, 3, 3
FILTER = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
ACL = {
    "resource_type": TOPIC,
    "resource_name": "guarded",
    "resource_pattern_type": LITERAL,
    "principal": "User:somebody",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}


@same_answers
def test_acls_without_an_authorizer(peer: Peer) -> None:
    for version in versions(ApiKey.DESCRIBE_ACLS):
        peer.send(ApiKey.DESCRIBE_ACLS, version, **FILTER)
        peer.send(ApiKey.CREATE_ACLS, version, creations=[ACL, ACL])
        peer.send(ApiKey.DELETE_ACLS, version, filters=[FILTER, FILTER])


@same_answers
def test_sasl_on_a_plaintext_listener(peer: Peer) -> None:
    for version in versions(ApiKey.SASL_HANDSHAKE):
        peer.send(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN")
    for version in versions(ApiKey.SASL_AUTHENTICATE):
        peer.send(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=b"nobody")
