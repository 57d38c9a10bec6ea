"""The process ``doorkeeper console``: output, pages, signals, refusals."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
import pytest
import trio
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.network_client import connect_tcp
from doorkeeper import cli, extras
from tests.live.broker_process import BrokerProcess
from tests.web_console.asgi_client import ParsedPage, get
from tests.web_console.consoles import console_of as in_process

pytestmark = pytest.mark.live
DOORKEEPER = str(Path(sys.executable).parent / "doorkeeper")


def test_a_console_serves_two_clusters_until_sigterm(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    command = [DOORKEEPER, "console", "--port", "0"]
    command += ["--bootstrap", broker.bootstrap, "--bootstrap", "127.0.0.1:1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as console:
        try:
            assert console.stdout is not None
            assert console.stderr is not None
            line = console.stdout.readline()
            assert line.startswith("console on http://127.0.0.1:"), (
                console.stderr.read()
            )
            address = line.split()[-1]
            with urllib.request.urlopen(address, timeout=20) as answer:
                assert b"/clusters/1/cluster" in answer.read()
            page = f"{address}clusters/0/cluster"
            with urllib.request.urlopen(page, timeout=20) as answer:
                assert b"1 of 1" in answer.read()
                assert "server" not in answer.headers
            with pytest.raises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(f"{address}clusters/1/cluster", timeout=20)
            assert raised.value.code == 502
            raised.value.close()
            console.send_signal(signal.SIGTERM)
            assert console.wait(20) == 0
            assert console.stderr.read() == ""
        finally:
            console.kill()
            broker.close()


def test_requests_of_a_running_broker_are_shown(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker = BrokerProcess(
        tmp_path, doorkeeper_metrics_port=str(port), doorkeeper_scheduler="wfq"
    )
    command = [DOORKEEPER, "console", "--port", "0", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        try:
            assert console.stdout is not None
            address = console.stdout.readline().split()[-1]
            pages = []
            for _ in range(2):
                with urlopen(f"{address}clusters/0/requests", timeout=20) as answer:
                    pages.append(ParsedPage.of(answer.read().decode()))
                time.sleep(2.1)
            console.send_signal(signal.SIGTERM)
            assert console.wait(20) == 0
        finally:
            console.kill()
            broker.close()
    first, second = pages
    assert ["0", "wfq", "0", "read"] in second.rows
    assert any("since the broker's start" in it for it in first.words)
    assert any("Rates and means over the last" in it for it in second.words)
    # The console's own requests, DescribeConfigs, are of the class admin.
    (before,) = (it for it in first.rows if it[:2] == ["admin", "data"])
    (after,) = (it for it in second.rows if it[:2] == ["admin", "data"])
    assert int(before[-1]) < int(after[-1])
    assert before[2] == "none"
    assert float(after[2]) > 0
    assert float(after[4]) > 0


def check_member_of_kip_848(bootstrap: str) -> None:
    """Check that a page shows a librdkafka member and its two partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("read", 2)])["read"].result(30)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "new",
        "group.protocol": "consumer",
        "group.instance.id": "instance",
        "client.id": "client",
    }
    consumer = Consumer(settings)
    consumer.subscribe(["read"])
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)

    async def main() -> ParsedPage:
        async with in_process(bootstrap, connect_tcp) as app:
            return (await get(app, "/clusters/0/group?name=new")).page

    found = trio.run(main)
    consumer.close()
    assert (found.facts["State"], found.facts["Members"]) == ("Stable", "1")
    (member,) = (it for it in found.rows if it[1] == "client")
    assert member[3:] == ["instance", "2"]
    owners = {it[1]: it[5] for it in found.rows if it[0] == "read"}
    assert owners == dict.fromkeys("01", member[0])


def test_a_member_of_kip_848_is_shown(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    try:
        check_member_of_kip_848(broker.bootstrap)
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--host", "0.0.0.0"), "others need a login"),
        (("--host", "::"), "others need a login"),
        (("--host", "example.org"), "an IP address, or localhost"),
        (("--password-file", "/dev/null"), "at least 8 characters"),
    ],
)
def test_impossible_pages_are_refused(words: tuple[str, ...], reason: str) -> None:
    found = CliRunner().invoke(cli.main, ["console", "--port", "0", *words])
    assert found.exit_code == 2, found.output
    assert reason in " ".join(found.output.split())


def complaint(*words: str) -> str:
    """Return what a console that must not start writes to standard error."""
    command = [DOORKEEPER, "console", "--port", "0", *words]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    return found.stderr


def test_an_impossible_address_is_refused() -> None:
    assert "bootstrap.servers" in complaint("--bootstrap", "nonsense")


def test_settings_of_clients_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=NOPE\n")
    assert "security.protocol" in complaint("--command-config", str(file))


# ---- beside a broker ----------------------------------------------------------------


def serve(tmp_path: Path, **settings: str) -> subprocess.Popen[str]:
    """Start a broker with a console."""
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "d"),
        "doorkeeper.console.port": "0",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    return subprocess.Popen(
        BrokerProcess.command(keys),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="p" user_u="p";'
)


def console_of(broker: subprocess.Popen[str], listeners: int = 1) -> str:
    """Wait for the output lines of listeners and console; return its address."""
    assert broker.stdout is not None
    lines = [broker.stdout.readline() for _ in range(listeners + 1)]
    assert all(it.startswith("listening on ") for it in lines[:-1]), lines
    assert lines[-1].startswith("console on http://127.0.0.1:"), lines
    return lines[-1].split()[-1]


def is_gone(address: str, within_s: float) -> bool:
    """Return whether no process listens at an address any more."""
    parts = urlsplit(address)
    ends_s = time.monotonic() + within_s
    while time.monotonic() < ends_s:
        try:
            socket.create_connection((parts.hostname, parts.port), 5).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_console_beside_a_broker_ends_with_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serve(tmp_path, doorkeeper_scheduler="planes") as broker:
        address = console_of(broker, listeners=2)
        with urlopen(f"{address}clusters/0/requests", timeout=20) as answer:
            rows = ParsedPage.of(answer.read().decode()).rows
        assert ["0", "planes", "0", "read"] in rows
        with pytest.raises(urllib.error.HTTPError, match="403") as raised:
            urlopen(f"{address}clusters/0/change/create-topic", timeout=20)
        raised.value.close()
        broker.send_signal(number)
        assert broker.communicate(timeout=20) == ("", "")
        assert broker.returncode == 0
    assert is_gone(address, 0.1)


def test_a_console_dies_with_a_killed_broker(tmp_path: Path) -> None:
    with serve(tmp_path) as broker:
        address = console_of(broker)
        broker.kill()
    assert is_gone(address, 20)


def test_a_broker_outlives_its_console(tmp_path: Path) -> None:
    with serve(tmp_path) as broker:
        address = console_of(broker)
        (console,) = psutil.Process(broker.pid).children()
        console.kill()
        assert is_gone(address, 20)
        assert broker.poll() is None
        broker.terminate()
        assert broker.communicate(timeout=20) == ("", "")
        assert broker.returncode == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"doorkeeper_console_port": "TAKEN"}, "a port that can be bound"),
        ({"doorkeeper_console_port": "-1"}, "doorkeeper.console.port: found '-1'"),
        (
            {
                "listeners": "A://127.0.0.1:0",
                "listener_security_protocol_map": "A:SASL_PLAINTEXT",
                "inter_broker_listener_name": "A",
                "sasl_mechanism_inter_broker_protocol": "PLAIN",
                "sasl_enabled_mechanisms": "PLAIN",
                "listener_name_a_plain_sasl_jaas_config": PLAIN,
            },
            "doorkeeper console --command-config",
        ),
    ],
)
def test_a_console_that_cannot_be_stops_the_start(
    tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        settings = {key: it.replace("TAKEN", port) for key, it in settings.items()}
        with serve(tmp_path, **settings) as broker:
            out, complaints = broker.communicate(timeout=20)
    assert (broker.returncode, out) == (2, "")
    assert reason in " ".join(complaints.split())


@pytest.mark.parametrize("command", [["serve"], ["cluster", "up"]])
def test_the_missing_extra_is_named_in_a_sentence(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    words = [*command, "--set", "doorkeeper.console.port=0"]
    found = CliRunner().invoke(cli.main, words)
    needs = "doorkeeper.console.port needs hypercorn"
    assert found.output == f"Error: {needs}: pip install 'doorkeeper[console]'\n"
    assert found.exit_code == 1
