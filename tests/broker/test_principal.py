"""Principals and their written form."""

import pytest

from broker.protocol.principal import ANONYMOUS, KafkaPrincipal, parse_principal


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("User:alice", KafkaPrincipal("User", "alice")),
        ("User:ANONYMOUS", ANONYMOUS),
        ("User:CN=a:b,O=c", KafkaPrincipal("User", "CN=a:b,O=c")),
        ("Group:", KafkaPrincipal("Group", "")),
    ],
)
def test_principals_are_read_as_they_are_written(
    written: str, expected: KafkaPrincipal
) -> None:
    assert parse_principal(written) == expected
    assert str(expected) == written


@pytest.mark.parametrize("written", ["", "alice", ":alice"])
def test_a_principal_has_a_type(written: str) -> None:
    with pytest.raises(ValueError, match="type:name"):
        parse_principal(written)
