"""``doorkeeper console`` as an operator sees it: one line, pages, signals, refusals."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.live.broker_process import BrokerProcess
from tests.web_console.asgi_client import ParsedPage

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
    # The console's own requests: DescribeConfigs is of the class admin.
    (before,) = (it for it in first.rows if it[:2] == ["admin", "data"])
    (after,) = (it for it in second.rows if it[:2] == ["admin", "data"])
    assert int(before[-1]) < int(after[-1])
    assert before[2] == "none"
    assert float(after[2]) > 0
    assert float(after[4]) > 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--host", "0.0.0.0"), "others need a login"),
        (("--host", "::"), "others need a login"),
        (("--host", "example.org"), "an IP address, or localhost"),
        (("--password-file", "/dev/null"), "at least 8 characters"),
        (("--bootstrap", "nonsense"), "bootstrap.servers"),
    ],
)
def test_impossible_pages_are_refused(words: tuple[str, ...], reason: str) -> None:
    command = [DOORKEEPER, "console", "--port", "0", *words]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert reason in " ".join(found.stderr.split())


def test_settings_of_clients_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=NOPE\n")
    command = [DOORKEEPER, "console", "--port", "0", "--command-config", str(file)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert "security.protocol" in found.stderr
