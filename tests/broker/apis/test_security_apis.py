"""Security APIs of a broker without security answer with Apache Kafka's errors."""

from __future__ import annotations

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import ACL_KINDS

DISABLED = ErrorCode.security_disabled


@pytest.mark.parametrize("version", [1, 2, 3])
def test_without_an_authorizer_acls_are_disabled(version: int) -> None:
    """MirrorMaker 2 recognizes a cluster without ACLs by this error code only."""
    world = World()
    described = world.send(ApiKey.DESCRIBE_ACLS, version, **ACL_KINDS)
    assert (described.error_code, described.resources) == (DISABLED, ())
    assert described.error_message == "No Authorizer is configured on the broker."
    created = world.send(ApiKey.CREATE_ACLS, version, creations=[ACL_KINDS] * 2)
    assert [row.error_code for row in created.results] == [DISABLED] * 2
    deleted = world.send(ApiKey.DELETE_ACLS, version, filters=[ACL_KINDS] * 3)
    assert [row.error_code for row in deleted.filter_results] == [DISABLED] * 3
    assert all(row.matching_acls == () for row in deleted.filter_results)


def test_sasl_on_a_plaintext_listener_is_out_of_place() -> None:
    world = World()
    for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        for version in APIS[key].served:
            call = world.start(key, version, mechanism="PLAIN", auth_bytes=b"x")
            assert call.answer.error_code is ErrorCode.illegal_sasl_state
