"""``doorkeeper serve`` for operators: ready lines, signals and invalid settings."""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.observation.recording.recording import read_requests, read_samples
from tests.broker.log.witness import batch

pytestmark = pytest.mark.live

DOORKEEPER = str(Path(sys.executable).parent / "doorkeeper")
API_VERSIONS = struct.pack(">ihhih4s", 14, 18, 0, 7, 4, b"test")


def serve(tmp_path, *arguments, program=(DOORKEEPER,), before=None, **settings):
    command = [*program, "serve", *arguments, "--set", f"log.dirs={tmp_path / 'd'}"]
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **settings}
    for key, value in settings.items():
        command += ["--set", f"{key.replace('_', '.')}={value}"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


def ready(process, listeners=1):
    """Return the port of each listener, from its ready line."""
    ports = {}
    for _ in range(listeners):
        words = process.stdout.readline().split()
        assert words[:2] == ["listening", "on"], words
        name, _, address = words[2].partition("://")
        host, _, port = address.rpartition(":")
        assert host == "127.0.0.1"
        ports[name] = int(port)
    return ports


def api_versions(client):
    client.sendall(API_VERSIONS)
    received = b""
    while len(received) < 4 or len(received) < 4 + struct.unpack(">i", received[:4])[0]:
        chunk = client.recv(65_536)
        assert chunk, "the broker closed the connection"
        received += chunk
    assert struct.unpack_from(">ih", received, 4) == (7, 0)


def ends(process, within_s=2.0):
    """Wait for a quick end without output; return the exit status."""
    began_s = time.monotonic()
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - began_s < within_s
    assert (out, err) == ("", "")
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly_though_clients_are_connected(tmp_path, number):
    process = serve(tmp_path)
    port = ready(process)["PLAINTEXT"]
    with socket.create_connection(("127.0.0.1", port)) as client:
        api_versions(client)
        half = socket.create_connection(("127.0.0.1", port))
        half.sendall(API_VERSIONS[:9])
        process.send_signal(number)
        assert ends(process) == 0
        assert client.recv(10) == b""
        half.close()
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_nohup_keeps_it_from_the_end_of_its_terminal(tmp_path):
    process = serve(
        tmp_path, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    port = ready(process)["PLAINTEXT"]
    process.send_signal(signal.SIGHUP)
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(20):
            api_versions(client)
    process.terminate()
    assert ends(process) == 0


def test_a_broker_without_log_directories_ends_by_itself(tmp_path):
    program = (sys.executable, "-m", "tests.live.bad_end", "expire")
    process = serve(tmp_path, program=program)
    ready(process)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "all log directories have failed; the broker stops" in err


@pytest.mark.parametrize(
    ("how", "second"),
    [
        ("leave", signal.SIGTERM),
        ("close", signal.SIGINT),
        ("prepare", signal.SIGHUP),
    ],
)
def test_a_second_signal_stops_it_at_once(tmp_path, how, second):
    process = serve(
        tmp_path,
        *("--set", "doorkeeper.log.level=info"),
        program=(sys.executable, "-m", "tests.live.bad_end", how),
    )
    if how == "prepare":
        assert process.stdout.readline() == "hangs\n"
    else:
        ready(process)
    process.terminate()
    while "stopping" not in process.stderr.readline():
        assert process.poll() is None
    if how != "prepare":
        assert process.stdout.readline() == "hangs\n"
    process.send_signal(second)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    line = f"ERROR stopped at once; the logs need recovery signal={int(second)}"
    assert err.splitlines()[-1].endswith(line)
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()


# Program that sends SIGINT to itself when it imports a given module.
_INTERRUPTED = """
import os, signal, sys

module = sys.argv[1]

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

# The tests may run where the signal is ignored, as in a shell's background.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interruption())
from doorkeeper.__main__ import run
sys.argv[1:] = ["serve"]
run()
"""


@pytest.mark.parametrize(
    ("module", "status", "words"),
    [("doorkeeper.cli", -signal.SIGINT, ""), ("broker.process", 1, "\nAborted!\n")],
)
def test_ctrl_c_during_the_imports_leaves_no_traceback(tmp_path, module, status, words):
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, module],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, "", words)


@pytest.mark.parametrize("most", [12, 16])
def test_a_start_without_descriptors_names_their_limit(tmp_path, most):
    limited = ("sh", "-c", f'ulimit -n {most} && exec "$@"', "sh", DOORKEEPER)
    process = serve(tmp_path, program=limited)
    out, err = process.communicate(timeout=20)
    assert process.returncode in (1, 2)
    assert out == ""
    assert f"; this process may open {most} files and sockets (ulimit -n)" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("scheduler", ["priority", "planes"])
def test_each_scheduler_is_a_flag_away(tmp_path, scheduler):
    process = serve(tmp_path, "--scheduler", scheduler)
    ports = ready(process, listeners=2 if scheduler == "planes" else 1)
    for port in ports.values():
        with socket.create_connection(("127.0.0.1", port)) as client:
            api_versions(client)
    assert ("CONTROLLER" in ports) == (scheduler == "planes")
    process.terminate()
    assert ends(process) == 0


def cpu_s(process):
    """Return the CPU time of a process, which other load does not affect."""
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def test_nothing_polls_while_nobody_asks(tmp_path):
    process = serve(tmp_path)
    port = ready(process)["PLAINTEXT"]
    with socket.create_connection(("127.0.0.1", port)) as client:
        api_versions(client)
        at_rest_s = cpu_s(process)
        time.sleep(0.3)
        assert cpu_s(process) - at_rest_s <= 0.05
    process.terminate()
    assert ends(process) == 0


def test_a_stop_leaves_a_whole_recording(tmp_path):
    record = tmp_path / "rows" / "r.bin"
    process = serve(
        tmp_path,
        **{"doorkeeper.record.file": record, "doorkeeper.record.samples.ms": 5},
    )
    port = ready(process)["PLAINTEXT"]
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(25):
            api_versions(client)
    process.terminate()
    assert ends(process) == 0
    rows = list(read_requests(record))
    assert [row.api_key for row in rows] == [18] * 25
    assert {row.request_class for row in rows} == {"metadata"}
    for row in rows:
        stamps = row[5:12]
        assert list(stamps) == sorted(stamps)
    assert {row.plane for row in read_samples(record)} == {"data"}


def test_a_bad_setting_stops_the_start_and_is_named(tmp_path):
    process = serve(tmp_path, **{"num.io.threads": "0"})
    out, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert out == ""
    assert "num.io.threads" in err
    assert "Traceback" not in err


def test_a_port_that_is_taken_stops_the_start_and_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}")
        _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "listeners" in err
    assert str(port) in err
    assert "Traceback" not in err


def test_a_taken_port_for_metrics_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve(tmp_path, **{"doorkeeper.metrics.port": port})
        _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "doorkeeper.metrics.port" in err
    assert str(port) in err
    assert "Traceback" not in err


def test_a_second_broker_on_its_directory_is_refused_and_disturbs_none(tmp_path):
    first = serve(tmp_path)
    port = ready(first)["PLAINTEXT"]
    second = serve(tmp_path)
    out, err = second.communicate(timeout=20)
    assert (second.returncode, out) == (2, "")
    assert "log.dirs" in err
    assert str(tmp_path / "d") in "".join(err.split("\n"))
    assert "Traceback" not in err
    with socket.create_connection(("127.0.0.1", port)) as client:
        api_versions(client)
    # A kill releases the lock on the directory.
    first.kill()
    first.communicate(timeout=20)
    third = serve(tmp_path)
    ready(third)
    third.terminate()
    assert ends(third) == 0


def test_metrics_are_scraped_from_the_process(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = serve(tmp_path, **{"doorkeeper.metrics.port": port})
    broker = ready(process)["PLAINTEXT"]
    with socket.create_connection(("127.0.0.1", broker)) as client:
        api_versions(client)
    with socket.create_connection(("127.0.0.1", port)) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while chunk := scraper.recv(65_536):
            answer += chunk
    wanted = 'kafka_network_requestmetrics_totaltimems_count{request="ApiVersions"} 1'
    assert wanted in answer.decode()
    process.terminate()
    assert ends(process) == 0


def test_no_descriptor_is_left_of_connections_that_are_gone(tmp_path):
    process = serve(tmp_path)
    port = ready(process)["PLAINTEXT"]
    with socket.create_connection(("127.0.0.1", port)) as client:
        api_versions(client)
        before = len(os.listdir(f"/proc/{process.pid}/fd"))
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", port)) as other:
                api_versions(other)
        deadline_s = time.monotonic() + 5
        while len(os.listdir(f"/proc/{process.pid}/fd")) > before:
            api_versions(client)
            assert time.monotonic() < deadline_s
    process.terminate()
    assert ends(process) == 0


def test_a_signal_during_recovery_ends_the_start_and_changes_nothing(tmp_path):
    """Recovery of half a million batches takes a while; a stop does not wait for it."""
    log = tmp_path / "d" / "t-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    sent = batch([b"x"])[8:]
    content = b"".join(struct.pack(">q", offset) + sent for offset in range(500_000))
    log.write_bytes(content)
    process = serve(tmp_path)
    while not (tmp_path / "d" / ".lock").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    process.terminate()
    out, err = process.communicate(timeout=20)
    # A signal handled only after the recovery would have left a ready line.
    assert (process.returncode, out, err) == (0, "", "")
    assert log.read_bytes() == content
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()
