"""Modules imported when a broker starts: each of them delays the start."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterable

import pytest
from kio.schema.index import api_key_map, schema_name_map

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.schemas.later_versions import LATER_VERSIONS
from broker.protocol.wire.codec import encode_request, request_type, response_type
from tests.broker.apis.requests import entity


def in_forks(before: str, scripts: Iterable[str]) -> list[str]:
    """Return the scripts that fail in forks of one process that ran ``before``."""
    program = (
        "import os, sys, traceback\n"
        f"{before}\n"
        f"for script in {list(scripts)!r}:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try: exec(script, {})\n"
        "        except BaseException: traceback.print_exc(); os._exit(1)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(child, 0)[1]: print(script, flush=True)\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def test_a_broker_starts_without_modules_that_it_does_not_need() -> None:
    script = (
        "import sys\n"
        "import doorkeeper.cli, broker.process, broker.protocol.wire.codec\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True
    )
    not_needed = {
        *("hypothesis", "pyspark", "scipy", "pandas", "matplotlib", "pyarrow"),
        *("asyncio", "aiokafka.client", "kio.serial.writers"),
        *("importlib.metadata", "email", "argparse"),
        "broker.zookeeper.zookeeper_connection",
    }
    assert not_needed & set(done.stdout.split()) == set()


def test_packages_whose_init_is_deferred_are_imported_as_usual() -> None:
    scripts = (
        "from aiokafka import AIOKafkaProducer",
        "import aiokafka; aiokafka.AIOKafkaConsumer, aiokafka.errors.KafkaError",
        "from aiokafka import *; AIOKafkaClient; TopicPartition",
        "from aiokafka.record import MemoryRecords",
        "import aiokafka.record.memory_records",
        "from aiokafka.admin import AIOKafkaAdminClient",
        "from kio.serial import entity_reader, entity_writer",
        "import crc32c; crc32c.crc32c(b''); crc32c.CRC32CHash()",
        "from crc32c import crc32c; crc32c(b'')",
        "import kio.serial.writers; kio.serial.writers.write_int8",
        "import hypothesis; hypothesis.given",
    )
    assert in_forks("import broker.process", scripts) == []


def test_threads_wait_for_a_deferred_package_and_what_it_lacks_is_an_error() -> None:
    script = (
        "import broker.process, sys\n"
        "from threading import Thread\n"
        "package = sys.modules['aiokafka']\n"
        "assert 'AIOKafkaClient' not in vars(package)\n"
        "found = []\n"
        "look = lambda: found.append(package.AIOKafkaClient)\n"
        "threads = [Thread(target=look) for _ in range(8)]\n"
        "[it.start() for it in threads]\n"
        "[it.join() for it in threads]\n"
        "assert found == [package.AIOKafkaClient] * 8\n"
        "try: package.nope\n"
        "except AttributeError as error:\n"
        "    assert str(error) == \"module 'aiokafka' has no attribute 'nope'\"\n"
        "else: sys.exit(1)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_broker_may_open_as_many_files_as_its_user_is_allowed() -> None:
    script = (
        "import resource; from broker.process import allow_all_descriptors\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))\n"
        "allow_all_descriptors()\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_start_reads_all_message_schemas_and_runs_none() -> None:
    """Running all schema modules would take two thirds of the time of a start."""
    script = (
        "import sys\n"
        "from broker import process\n"
        "from broker.protocol.schemas import kio_modules\n"
        "process.load_schemas()\n"
        "ran = [name for name in sys.modules if name.startswith('kio.schema.')]\n"
        "assert not [name for name in ran if name.endswith(('request', 'response'))]\n"
        "kio_modules._code_of = None\n"
        "from broker.handling.api_registry import APIS\n"
        "from broker.protocol.wire.codec import request_type, response_type\n"
        "for key, api in APIS.items():\n"
        "    for version in range(api.versions[0], api.versions[1] + 1):\n"
        "        assert request_type(key, version) and response_type(key, version)\n"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_message_classes_are_those_that_an_import_finds() -> None:
    from kio.schema.heartbeat.v3.request import HeartbeatRequest

    assert request_type(ApiKey.HEARTBEAT, 3) is HeartbeatRequest
    loaded = response_type(ApiKey.HEARTBEAT, 3)
    from kio.schema.heartbeat.v3.response import HeartbeatResponse

    assert loaded is HeartbeatResponse


def test_kio_lacks_the_later_versions() -> None:
    for key, version in LATER_VERSIONS:
        assert max(schema_name_map[api_key_map[key]]) == version - 1


# A script that reports each module imported or read after the broker has started.
_LAUNCHER = """
import sys
from broker import process
from doorkeeper.cli import main
log_start = process._log_start

def started(config, server):
    log_start(config, server)
    sys.addaudithook(report)

def report(event, arguments):
    if event == "import" or (
        event == "open" and str(arguments[0]).endswith((".py", ".pyc"))
    ):
        print(event, arguments[0], flush=True)

process._log_start = started
main()
"""


def _versions():
    return [
        (key, version)
        for key, api in sorted(APIS.items())
        for version in range(api.versions[0], api.versions[1] + 1)
    ]


@pytest.mark.live
def test_serving_any_api_and_version_imports_nothing(tmp_path):
    command = [sys.executable, "-c", _LAUNCHER, "serve"]
    for key, value in (
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("log.dirs", tmp_path),
        ("request.timeout.ms", "1000"),
    ):
        command += ["--set", f"{key}={value}"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(broker.stdout.readline().rpartition(":")[2])
        for key, version in _versions():
            body = entity(request_type(key, version), {})
            with socket.create_connection(("127.0.0.1", port), timeout=0.3) as client:
                client.sendall(encode_request(key, version, 1, "test", body))
                # JoinGroup and SyncGroup wait for members; this test needs no answer.
                with contextlib.suppress(TimeoutError):
                    client.recv(4096)
    finally:
        broker.terminate()
        said, _ = broker.communicate(timeout=30)
    assert said == ""


def test_a_broker_keeps_the_memory_of_large_requests() -> None:
    """Without this setting each reused megabyte costs 256 page faults."""
    script = (
        "import resource, sys; from broker.process import keep_freed_memory\n"
        "def faults():\n"
        "    for _ in range(50):\n"
        "        buffers = [bytes(1 << 20) for _ in range(6)]\n"
        "        del buffers\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "keep_freed_memory()\n"
        "before = faults()\n"
        "sys.exit(faults() - before > 1000)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
