"""What a broker imports before it can serve: it shows in every start."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["hypothesis", "pyspark", "scipy", "pandas", "matplotlib", "pyarrow"]
)
def test_broker_starts_without_what_only_tests_or_analysis_need(module: str) -> None:
    script = (
        "import sys\n"
        "import broker.process, broker.protocol.wire.codec\n"
        f"sys.exit({module!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_hypothesis_can_be_imported_after_the_broker() -> None:
    script = "import broker.protocol.errors, hypothesis; hypothesis.given"
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
