"""The client and a broker with SASL: accepted logins, and errors of refused ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.client.client_sasl import ScramLogin, authenticated
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError
from broker.protocol.sasl.bearer import unsecured_token
from broker.protocol.sasl.scram import SCRAM_MECHANISMS
from simulation.virtual_time.apis import START_MS
from tests.client.cluster import Cluster, in_cluster
from tests.virtual.test_sasl import PASSWORDS
from tests.virtual.test_sasl import SETTINGS as SASL

SETTINGS = {key.replace(".", "_"): value for key, value in SASL.items()}
PLAIN, SCRAM = "PlainLoginModule", "ScramLoginModule"


def login(mechanism: str, module: str, name: str, password: str) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": f'{module} required username="{name}" '
        f'password="{password}";',
    }


LOGINS = {
    "PLAIN": login("PLAIN", PLAIN, "alice", PASSWORDS[0]),
    "SCRAM-SHA-256": login("SCRAM-SHA-256", SCRAM, "bob", PASSWORDS[1]),
}


@pytest.fixture(autouse=True)
def computed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute salted passwords on this thread: virtual time ignores other threads."""

    async def run_here(compute: Callable[..., bytes], *arguments: object) -> bytes:
        await trio.lowlevel.checkpoint()
        return compute(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_here)


async def round_trip(cluster: Cluster, settings: dict[str, Any]) -> None:
    async with cluster.producer(**settings) as producer:
        receipt = await producer.send("t", b"value")
        await receipt.wait()
    async with cluster.consumer(group_id="g", **settings) as consumer:
        consumer.subscribe(["t"])
        (record,) = await consumer.poll(timeout_s=60)
        assert record.value == b"value"


@pytest.mark.parametrize("mechanism", LOGINS)
def test_records_go_round(mechanism: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await round_trip(cluster, LOGINS[mechanism])

    in_cluster(scenario, **SETTINGS)


def test_a_token_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token file"
    now_s = START_MS // 1000
    file.write_text(
        unsecured_token({"sub": "carol", "iat": now_s - 1, "exp": now_s + 3600}) + "\n"
    )

    async def scenario(cluster: Cluster) -> None:
        await round_trip(
            cluster,
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": file.as_uri(),
            },
        )

    in_cluster(scenario, **SETTINGS)


@pytest.mark.parametrize(
    ("settings", "code", "sentence"),
    [
        (
            login("PLAIN", PLAIN, "alice", "wrong"),
            ErrorCode.sasl_authentication_failed,
            "Invalid username or password",
        ),
        (
            login("SCRAM-SHA-256", SCRAM, "bob", "wrong"),
            ErrorCode.sasl_authentication_failed,
            "invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                # Issued by the machine's clock, years after the broker's virtual time.
                "sasl_jaas_config": "OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="carol";',
            },
            ErrorCode.sasl_authentication_failed,
            "invalid_token",
        ),
    ],
)
def test_a_client_is_told_that_its_credentials_are_wrong(
    settings: dict[str, str], code: ErrorCode, sentence: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.producer(**settings) as producer:
            with pytest.raises(KafkaError) as caught:
                await producer.send("t", b"value")
        assert caught.value.code is code
        assert sentence in str(caught.value)
        async with cluster.consumer(group_id="g", **settings) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(KafkaError) as caught:
                await consumer.poll(timeout_s=60)
        assert caught.value.code is code

    in_cluster(scenario, **SETTINGS)


def test_a_mechanism_that_the_broker_lacks() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.producer(**LOGINS["SCRAM-SHA-256"]) as producer:
            with pytest.raises(KafkaError, match="but PLAIN") as caught:
                await producer.send("t", b"value")
        assert caught.value.code is ErrorCode.unsupported_sasl_mechanism

    in_cluster(scenario, **{**SETTINGS, "sasl_enabled_mechanisms": "PLAIN"})


def test_sessions_that_end_cost_no_record() -> None:
    """The broker closes connections after two seconds; the client reconnects."""

    async def scenario(cluster: Cluster) -> None:
        count = 40
        async with cluster.producer(**LOGINS["PLAIN"]) as producer:
            for number in range(count):
                receipt = await producer.send("t", b"%d" % number, partition=0)
                await receipt.wait()
                await trio.sleep(0.3)
        assert len(cluster.connections) > 4
        async with cluster.consumer(**LOGINS["PLAIN"]) as consumer:
            consumer.assign(await consumer.partitions_for("t"))
            found: list[Any] = []
            while len(found) < count:
                found += [record.value for record in await consumer.poll()]
        assert found == [b"%d" % number for number in range(count)]

    in_cluster(scenario, **{**SETTINGS, "connections_max_reauth_ms": "2000"})


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"sasl_mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl_mechanism": "PLAIN"}, "sasl.jaas.config"),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": 'PlainLoginModule required password="hunter2";',
            },
            "sasl.jaas.config",
        ),
        ({"sasl_jaas_config": "password=hunter2"}, "sasl.jaas.config"),
        ({"sasl_jaas_conf": "password=hunter2"}, "sasl.jaas.conf"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "sasl.jaas.config"),
        (
            {"sasl_oauthbearer_token_endpoint_url": "https://h/token"},
            "sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_settings_that_authenticate_nobody(settings: dict[str, str], key: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ConfigError) as caught:
            async with cluster.producer(
                **{"security_protocol": "SASL_PLAINTEXT", **settings}
            ):
                raise AssertionError("opened")
        assert caught.value.key == key
        assert "hunter2" not in str(caught.value)

    in_cluster(scenario, **SETTINGS)


class FalseBroker:
    """A stream to a broker with a table of answers, which lacks the password."""

    def __init__(self, *tokens: bytes) -> None:
        self._answers = [b"\0\0\0\0\0\x01\0\rSCRAM-SHA-256"]
        for token in tokens:
            body = b"\0\0\xff\xff" + len(token).to_bytes(4) + token + bytes(8)
            self._answers.append(body)
        self._number = 0

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._number += 1

    async def receive_some(self) -> bytes:
        await trio.lowlevel.checkpoint()
        body = self._number.to_bytes(4) + self._answers[self._number - 1]
        return len(body).to_bytes(4) + body

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ((b"r=other,s=c2FsdA==,i=4096",), "nonce"),
        ((b"r=nonce,s=c2FsdA==,i=4096",), "nonce"),
        ((b"r=nonce+,s=c2FsdA==,i=1",), "1 iterations"),
        ((b"r=nonce+,s=c2FsdA==,i=999999999",), "999999999 iterations"),
        ((b"r=nonce+,s=c2FsdA==,i=4096", b"v=c2FsdA=="), "does not know the password"),
        ((b"r=nonce+,s=c2FsdA==,i=4096", b""), "no SCRAM message"),
        ((b"nonsense",), "no SCRAM message"),
    ],
)
async def test_a_broker_that_does_not_know_the_password_is_left(
    tokens: tuple[bytes, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "nonce")

    async def connect(host: str, port: int) -> Any:
        await trio.lowlevel.checkpoint()
        return FalseBroker(*tokens)

    scram = ScramLogin(
        scram_mechanism=SCRAM_MECHANISMS["SCRAM-SHA-256"],
        name="bob",
        password=PASSWORDS[1],
    )
    assert PASSWORDS[1] not in repr(scram)
    with pytest.raises(KafkaError, match=why):
        await authenticated(connect, scram, "test")("h", 1)
