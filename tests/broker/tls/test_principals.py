"""From certificate to principal, as in Java and Kafka."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from broker.tls.distinguished_name import distinguished_name, subject_name
from broker.tls.principal_mapping import PrincipalMapping
from tests.certificates import leaf

# DER-encoded names, and the result of Java 17's X500Principal.getName() for each.
OF_JAVA = [
    (
        (
            "302e310b3009060355040613024445310f300d060355040a0c06412c2042"
            "2b43310e300c06035504030c052378207920"
        ),
        "CN=\\#x y\\ ,O=A\\, B\\+C,C=DE",
    ),
    (
        (
            "30573116301406035504030c0d206c6561643d65713c3e3b225c31143012"
            "06092a864886f70d01090116056140622e6331133011060a0992268993f2"
            "2c6401191603636f6d31123010060a0992268993f22c6401010c027531"
        ),
        (
            "UID=u1,DC=com,1.2.840.113549.1.9.1=#16056140622e63,CN=\\ lead"
            '\\=eq\\<\\>\\;\\"\\\\'
        ),
    ),
    (
        (
            "30423114300806035504030c01613008060355040b0c0162310a30080603"
            "5504090c0173310b300906035504080c0273743111300f06035504070c08"
            "c3bc2d4bc3b66c6e"
        ),
        "L=ü-Köln,ST=st,STREET=s,CN=a+OU=b",
    ),
    (
        (
            "3057310b3009060355040513023132310a3008060355042a0c0167310a30"
            "08060355040c0c0174310a300806035504040c0173310a3008060355042e"
            "130171310a300806035504410c0170310c300a060355042c0c03494949"
        ),
        (
            "2.5.4.44=#0c03494949,2.5.4.65=#0c0170,2.5.4.46=#130171,2.5.4"
            ".4=#0c0173,2.5.4.12=#0c0174,2.5.4.42=#0c0167,2.5.4.5=#130231"
            "32"
        ),
    ),
    (
        ("301d310c300a06035504031403743631310d300b06035504031c0400000075"),
        "CN=#1c0400000075,CN=t61",
    ),
]


@pytest.mark.parametrize(("encoded", "written"), OF_JAVA)
def test_a_name_is_written_as_java_writes_it(encoded: str, written: str) -> None:
    assert distinguished_name(bytes.fromhex(encoded)) == written


@given(st.text(min_size=1, max_size=40).filter(lambda it: "\0" not in it))
def test_a_name_can_be_read_back(value: str) -> None:
    """Compare with another reader of RFC 2253, except for spaces at the ends."""
    try:
        encoded = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value)])
        name = distinguished_name(encoded.public_bytes())
        read = x509.Name.from_rfc4514_string(name)
    except ValueError:
        # The encoding is too long for that reader, or no text.
        return
    assert read == encoded


def test_the_subject_is_found_in_a_certificate() -> None:
    certificate = x509.load_pem_x509_certificate(leaf().cert_chain_pems[0].bytes())
    encoded = certificate.public_bytes(Encoding.DER)
    assert subject_name(encoded) == "CN=broker,OU=Unit,O=Tests"


@given(st.binary(max_size=80))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ends too early"):
        subject_name(data)


# Cases from KafkaPrincipal's documentation and Kafka's SslPrincipalMapperTest.
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("", "CN=a", None),
        (RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (RULES, "O=x,CN=jd.7,C=y", "JD.7"),
        (RULES, "O=x", "O=x"),
        ("RULE:^CN=(.*)$/$1@$4/", "CN=x", "x@$4"),
        ("RULE:^CN=(.*)$/$12/", "CN=x", "x2"),
        (r"RULE:^CN=(.*)$/\$1\/$1/", "CN=x", "$1/x"),
        ("RULE:CN=x/no group/", "CN=x", "no group"),
        ("RULE:CN=(.*)/$1/,", "XCN=a", None),
    ],
)
def test_the_first_rule_that_matches_names_the_principal(
    rules: str, name: str, expected: str | None
) -> None:
    assert PrincipalMapping(rules).name_of(name) == expected


@pytest.mark.parametrize(
    "rules", ["DEFAULT,nonsense", "RULE:a/b", "RULE:(/b/", "default", "RULE:a/b/X"]
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"RULE:pattern|can be compiled"):
        PrincipalMapping(rules)
