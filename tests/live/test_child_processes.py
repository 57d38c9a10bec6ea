"""Child processes of a live run: CPU affinity, output, and end."""

from __future__ import annotations

import errno
import gc
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from experiments.processes import child as child_module
from experiments.processes.child import Binding, favour
from experiments.processes.children import Child, RunFailed
from experiments.processes.loopback import free_ports, wait_for_answer
from experiments.processes.pinning import Pinning

pytestmark = pytest.mark.live

BIND = """
import json, os, sys
from experiments.processes.child import Binding, bind
bind(Binding(**json.loads(sys.argv[1])))
print(json.dumps([sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)]))
"""


def child(code: str, directory: Path, *arguments: str) -> Child:
    command = [sys.executable, "-c", code, *arguments]
    return Child("child", command, directory / "child.err", tick=lambda: None)


def test_a_child_stays_on_its_cpu_at_its_priority(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    pinning = Pinning.here()
    binding = pinning.binding(cpu).text()
    with child(BIND, tmp_path, binding) as bound:
        assert bound.line(20) == f"[[{cpu}], {pinning.nice}]"


def test_endless_work_gives_way_to_the_generator(tmp_path: Path) -> None:
    pinning = Pinning.here()
    before = (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))
    with pinning.as_generator(), child(BIND, tmp_path, behind(pinning)) as bound:
        cpus, nice = json.loads(bound.line(20))
        assert set(cpus) == os.sched_getaffinity(0)
        assert nice > os.getpriority(os.PRIO_PROCESS, 0)
    assert (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_a_child_without_a_cpu_of_its_own_may_use_all(tmp_path: Path) -> None:
    """Eight brokers that inherited the launcher's CPU affinity once shared its CPU."""
    pinning = Pinning.here()
    allowed = sorted(os.sched_getaffinity(0))
    with (
        pinning.off_broker_cpu(),
        child(BIND, tmp_path, pinning.binding(None).text()) as bound,
    ):
        assert bound.line(20) == f"[{allowed}, {pinning.nice}]"


def test_the_launcher_keeps_off_the_brokers_cpu_with_all_its_threads() -> None:
    pinning = Pinning.here()
    allowed = os.sched_getaffinity(0)
    ready, over = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        over.wait()

    other = threading.Thread(target=wait)
    other.start()
    ready.wait()
    try:
        with pinning.off_broker_cpu():
            for thread in (0, other.native_id):
                assert thread is not None
                cpus = os.sched_getaffinity(thread)
                assert cpus == {pinning.generator or min(allowed)}
        assert os.sched_getaffinity(other.native_id or 0) == allowed
    finally:
        over.set()
        other.join()
    assert os.sched_getaffinity(0) == allowed


def test_a_generator_collects_no_garbage(tmp_path: Path) -> None:
    """A collection over all rows of an experiment takes long and delays requests."""
    with Pinning.here().as_generator():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


class Autogroup:
    """A substitute for the kernel's file; it raises the given errors, then accepts."""

    def __init__(self, *refusals: int) -> None:
        self.refusals = list(refusals)
        self.taken: list[str] = []

    def exists(self) -> bool:
        return True

    def write_text(self, text: str, encoding: str) -> None:
        if self.refusals:
            refusal = self.refusals.pop(0)
            raise OSError(refusal, os.strerror(refusal))
        self.taken.append(text)


@pytest.mark.parametrize(
    ("refusals", "taken"),
    [
        ([errno.EINVAL], []),  # no autogroup: the session began without autogroups
        ([errno.EAGAIN, errno.EAGAIN], ["0"]),  # another process changed it just before
        ([], ["0"]),
    ],
)
def test_a_session_is_favoured_where_it_is_a_group(
    refusals: list[int], taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Autogroup(*refusals)
    monkeypatch.setattr(child_module, "_AUTOGROUP", group)
    monkeypatch.setattr(child_module.time, "sleep", lambda seconds: None)
    favour(os.getpriority(os.PRIO_PROCESS, 0))
    assert group.taken == taken
    assert not group.refusals


def test_a_refusal_that_is_not_about_groups_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_module, "_AUTOGROUP", Autogroup(errno.EACCES))
    with pytest.raises(PermissionError):
        favour(os.getpriority(os.PRIO_PROCESS, 0))


def behind(pinning: Pinning) -> str:
    return pinning.behind_generator().text()


def test_a_child_whose_parent_is_gone_ends_at_once(tmp_path: Path) -> None:
    # Process 1 is alive but is not the parent, as after the parent's death.
    binding = Binding(parent=1, cpus=None, nice=os.getpriority(os.PRIO_PROCESS, 0))
    with (
        child(BIND, tmp_path, binding.text()) as orphan,
        pytest.raises(RunFailed, match="child ended with status 1: the parent died"),
    ):
        orphan.line(20)


def test_a_child_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with (
        child("import time; time.sleep(60)", tmp_path) as silent,
        pytest.raises(RunFailed, match="child was silent for 0 s"),
    ):
        silent.line(0.2)


def test_the_last_complaint_is_the_reason(tmp_path: Path) -> None:
    with (
        child("raise ValueError('no luck')", tmp_path) as failing,
        pytest.raises(RunFailed, match=r"ended with status 1: ValueError: no luck$"),
    ):
        failing.line(20)


def test_the_death_of_another_child_ends_the_wait(tmp_path: Path) -> None:
    with (
        child("import time; time.sleep(60)", tmp_path) as silent,
        child("raise SystemExit(3)", tmp_path) as dead,
        pytest.raises(RunFailed, match="child ended with status 3"),
    ):
        silent.line(20, dead)


def test_a_child_that_ignores_sigterm_is_reported_and_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('deaf', flush=True); time.sleep(60)"
    )
    with child(code, tmp_path) as deaf:
        assert deaf.line(20) == "deaf"
        assert deaf.stop(0.2) == "child did not stop within 0 s of SIGTERM"
        pid = deaf.pid
    assert not Path(f"/proc/{pid}").exists()


def test_several_lines_at_once_are_read_one_by_one(tmp_path: Path) -> None:
    with child("print('one\\ntwo'); print('three', end='\\n')", tmp_path) as talking:
        assert [talking.line(20) for _ in range(3)] == ["one", "two", "three"]


def test_a_port_that_answers_is_waited_for(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    code = (
        "import socket, sys, time; time.sleep(0.2); "
        "at = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
        "near, _ = at.accept(); near.sendall(near.recv(4)); time.sleep(60)"
    )
    with child(code, tmp_path, str(port)) as answering:
        wait_for_answer(answering, port, b"hello", 20)


def test_a_port_where_nobody_answers_is_given_up(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with (
        child("import time; time.sleep(60)", tmp_path) as silent,
        pytest.raises(RunFailed, match="child did not answer within 0 s"),
    ):
        wait_for_answer(silent, port, b"hello", 0.3)
