"""Decisions of the authorizer, compared with a naive model and Kafka's examples."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.authorization import audit
from broker.authorization.acl_text import (
    read_entries,
    read_pattern,
    write_entries,
    write_pattern,
)
from broker.authorization.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from broker.authorization.authorizer import DECISIONS_MAX, Authorizer
from broker.protocol.api_keys import ApiKey
from broker.protocol.principal import ANONYMOUS, KafkaPrincipal, parse_principal

NAMES = ["a", "ab", "abc", "b", "*"]
PREFIXES = ["a", "ab", "b", "*"]
PRINCIPALS = ["User:alice", "User:bob", "Robot:alice"]
HOSTS = ["10.0.0.1", "10.0.0.2"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
Acls = dict[ResourcePattern, frozenset[AclEntry]]


@dataclass
class Client:
    principal: KafkaPrincipal
    host: str = HOSTS[0]


def authorizer(
    acls: Acls, *, allows_unlisted: bool = False, super_users: tuple[str, ...] = ()
) -> Authorizer:
    made = Authorizer(
        super_users=[parse_principal(each) for each in super_users],
        allows_unlisted=allows_unlisted,
        now_ns=lambda: 0,
    )
    made.replace_all(acls)
    return made


# ---- the model ----


def covers(pattern: ResourcePattern, kind: ResourceType, name: str) -> bool:
    if pattern.resource_type is not kind:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in ("*", name)


def implied(by: AclOperation) -> set[AclOperation]:
    """Return the operations that a permission of ``by`` allows."""
    found = {by}
    if by is AclOperation.ALL:
        found |= set(OPERATIONS)
    if by.name in ("READ", "WRITE", "DELETE", "ALTER"):
        found.add(AclOperation.DESCRIBE)
    if by is AclOperation.ALTER_CONFIGS:
        found.add(AclOperation.DESCRIBE_CONFIGS)
    return found


def concerns(entry: AclEntry, principal: str, host: str) -> bool:
    return entry.principal in ("User:*", principal) and entry.host in ("*", host)


def modelled(
    acls: Acls,
    principal: str,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    *,
    unlisted: bool,
) -> bool:
    """Decide by reading all entries: first those that deny, then those that allow."""
    there = [
        entry
        for pattern, entries in acls.items()
        if covers(pattern, kind, name)
        for entry in entries
    ]
    ours = [entry for entry in there if concerns(entry, principal, host)]
    for entry in ours:
        if entry.permission is PermissionType.DENY and entry.operation in (
            operation,
            AclOperation.ALL,
        ):
            return False
    for entry in ours:
        if entry.permission is PermissionType.ALLOW and operation in implied(
            entry.operation
        ):
            return True
    return unlisted and not there


def modelled_any(
    acls: Acls, principal: str, operation: AclOperation, *, unlisted: bool
) -> bool:
    """Decide whether some topic is allowed, by the patterns alone.

    An allowing pattern counts unless a denied prefix covers it. A literal pattern does
    not count if the same pattern is denied.
    """

    def patterns(permission: PermissionType) -> list[ResourcePattern]:
        return [
            pattern
            for pattern, entries in acls.items()
            if pattern.resource_type is ResourceType.TOPIC
            for entry in entries
            if concerns(entry, principal, HOSTS[0])
            and entry.permission is permission
            and entry.operation in (operation, AclOperation.ALL)
        ]

    denied = patterns(PermissionType.DENY)
    if ResourcePattern(ResourceType.TOPIC, "*") in denied:
        return False
    if unlisted:
        return True
    for pattern in patterns(PermissionType.ALLOW):
        literal = pattern.pattern_type is PatternType.LITERAL
        if literal and pattern.name == "*":
            return True
        if literal and pattern in denied:
            continue
        if not any(
            each.pattern_type is PatternType.PREFIXED
            and pattern.name.startswith(each.name)
            for each in denied
        ):
            return True
    return False


patterns = st.builds(
    ResourcePattern,
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.just(PatternType.LITERAL),
) | st.builds(
    ResourcePattern,
    st.sampled_from(TYPES),
    st.sampled_from(PREFIXES),
    st.just(PatternType.PREFIXED),
)
entries = st.builds(
    AclEntry,
    st.sampled_from([*PRINCIPALS, "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from([AclOperation.ALL, *OPERATIONS]),
    st.sampled_from([PermissionType.ALLOW, PermissionType.DENY]),
)
several = st.dictionaries(
    patterns, st.frozensets(entries, min_size=1, max_size=3), max_size=5
)


@given(several, several, st.booleans())
def test_decisions_are_those_of_a_model_that_reads_all_entries(
    before: Acls, after: Acls, unlisted: bool
) -> None:
    """The model is checked again after the entries of each pattern have changed."""
    tested = authorizer(before, allows_unlisted=unlisted)
    acls = dict(before)
    for changed in [None, *before, *after]:
        if changed is not None:
            acls.pop(changed, None)
            if changed in after:
                acls[changed] = after[changed]
            tested.put(changed, acls.get(changed, ()))
        for principal in PRINCIPALS:
            client = Client(parse_principal(principal))
            for name in NAMES:
                for operation in (
                    AclOperation.READ,
                    AclOperation.DESCRIBE,
                    AclOperation.DESCRIBE_CONFIGS,
                ):
                    asked = operation, ResourceType.TOPIC, name
                    found = tested.allows(client, ApiKey.METADATA, *asked)
                    assert found == modelled(
                        acls, principal, HOSTS[0], *asked, unlisted=unlisted
                    )
            found = tested.allows(
                client, ApiKey.METADATA, AclOperation.READ, ResourceType.TOPIC, None
            )
            assert found == modelled_any(
                acls, principal, AclOperation.READ, unlisted=unlisted
            )


@given(several)
def test_entries_outlast_being_written_and_read(acls: Acls) -> None:
    for pattern, found in acls.items():
        assert read_pattern(write_pattern(pattern)) == pattern
        assert read_entries(write_entries(found)) == found


@given(patterns, entries, st.sampled_from([None, *NAMES]), st.sampled_from(PatternType))
def test_a_filter_finds_what_the_model_finds(
    pattern: ResourcePattern, entry: AclEntry, name: str | None, kind: PatternType
) -> None:
    wanted = AclFilter(
        ResourceType.TOPIC,
        name,
        kind,
        "User:alice",
        None,
        AclOperation.ANY,
        PermissionType.ANY,
    )
    is_of_type = pattern.resource_type is ResourceType.TOPIC
    if kind is PatternType.MATCH:
        expected = name is None or covers(pattern, ResourceType.TOPIC, name)
    else:
        expected = kind in (PatternType.ANY, pattern.pattern_type)
        expected = expected and name in (None, pattern.name)
    assert wanted.passes_pattern(pattern) == (is_of_type and expected)
    assert wanted.passes_entry(entry) == (entry.principal == "User:alice")


# ---- single rules ----

ALLOWS_ALICE = AclEntry("User:alice", "*", AclOperation.WRITE, PermissionType.ALLOW)
ON_A = ResourcePattern(ResourceType.TOPIC, "a")


def writes(tested: Authorizer, who: KafkaPrincipal, name: str = "a") -> bool:
    return tested.allows(
        Client(who), ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TOPIC, name
    )


def test_a_super_user_may_do_what_is_denied_to_everybody() -> None:
    denies = AclEntry("User:*", "*", AclOperation.ALL, PermissionType.DENY)
    tested = authorizer({ON_A: frozenset({denies})}, super_users=("User:root",))
    assert writes(tested, parse_principal("User:root"))
    assert not writes(tested, parse_principal("User:alice"))
    # A super user is matched by name and type.
    assert not writes(tested, parse_principal("Robot:root"))


def test_operations_are_reported_as_bits() -> None:
    tested = authorizer({ON_A: frozenset({ALLOWS_ALICE})})
    found = tested.operations(
        Client(parse_principal("User:alice")), ResourceType.TOPIC, "a"
    )
    assert found == 1 << AclOperation.WRITE | 1 << AclOperation.DESCRIBE


def test_decisions_are_bounded_in_number_and_by_the_length_of_names() -> None:
    tested = authorizer({ON_A: frozenset({ALLOWS_ALICE})})
    for number in range(DECISIONS_MAX + 10):
        assert not writes(tested, ANONYMOUS, f"topic-{number}")
    assert len(tested._decisions) <= DECISIONS_MAX
    before = len(tested._decisions)
    assert not writes(tested, ANONYMOUS, "x" * 30_000)
    assert len(tested._decisions) == before


# ---- the audit ----


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger=audit.logger.name)
    logging.getLogger("broker").propagate = True
    return caplog


def test_denials_are_logged_at_info_and_permissions_at_debug(
    lines: pytest.LogCaptureFixture,
) -> None:
    tested = authorizer({ON_A: frozenset({ALLOWS_ALICE})})
    assert writes(tested, parse_principal("User:alice"))
    assert not writes(tested, parse_principal("User:bob"))
    found = [(record.levelname, record.msg, record.fields) for record in lines.records]  # type: ignore[attr-defined]
    named = {
        "operation": "Write",
        "resource": "Topic:LITERAL:a",
        "host": HOSTS[0],
        "request": "PRODUCE",
    }
    assert found == [
        ("DEBUG", "allowed", {"principal": "User:alice", **named}),
        ("INFO", "denied", {"principal": "User:bob", **named}),
    ]


def test_a_flood_of_denials_is_counted_and_not_logged(
    lines: pytest.LogCaptureFixture,
) -> None:
    now_ns = 0
    tested = Authorizer(super_users=(), allows_unlisted=False, now_ns=lambda: now_ns)
    for _ in range(1000):
        assert not writes(tested, ANONYMOUS)
    assert len(lines.records) == audit.LINES_PER_S
    now_ns += 1_000_000_000
    assert not writes(tested, ANONYMOUS)
    assert len(lines.records) == audit.LINES_PER_S + 1
    assert lines.records[-1].fields["suppressed"] == "900"  # type: ignore[attr-defined]
