"""Recorded rows are read back, also after the writer was killed."""

import struct
from types import SimpleNamespace

from broker.observation.recording.recording import (
    REQUEST_TYPES,
    SampleRow,
    open_recorder,
    read_accounts,
    read_names,
    read_requests,
    read_samples,
)
from broker.observation.recording.sampler import Sampler
from broker.requests.request import Request
from planes import Task
from planes.cpu_ledger import CpuLedger


def request(correlation_id, request_class="produce", **fields):
    stamps = {
        "received_ns": 10,
        "enqueued_ns": 20,
        "dequeued_ns": 35,
        "local_done_ns": 60,
        "remote_done_ns": 1060,
        "response_dequeued_ns": 1100,
        "response_sent_ns": 1 << 60,
    }
    task = Task(
        number=0,
        request_class=request_class,
        flow=request_class + "/client \n\N{SNOWMAN}",
        size_bytes=215,
        attained_ns=33,
        prior_ns=4,
        service_ns=27,
        suspended_ns=5,
        preemptions=2,
        **{**stamps, **fields},
    )
    return Request(
        task,
        api_key=0,
        api_version=8,
        correlation_id=correlation_id,
        client_id="c",
        frame=b"",
        body_offset=0,
        peer=None,
        error_code=-1,
    )


def test_a_request_is_read_back_as_it_was(tmp_path):
    path = tmp_path / "new" / "requests.bin"
    recorder = open_recorder(path)
    recorder.record(request(41, throttled_until_ns=70 + (1 << 60)))
    recorder.record(request(0, "control", enqueued_ns=-1))
    recorder.close()
    first, second = read_requests(path)
    assert first == (
        *(41, "produce", "produce/client \n\N{SNOWMAN}", 0, 215),
        *(10, 20, 35, 60, 1060, 1100, 1 << 60),
        *(27, 4, 5, 70, 2, -1),
    )
    assert (second.correlation_id, second.request_class) == (0, "control")
    assert (second.enqueued_ns, second.throttle_ns) == (-1, 0)


def test_set_up_requests_are_not_recorded(tmp_path):
    path = tmp_path / "requests.bin"
    recorder = open_recorder(path)
    for correlation_id in (-1, 5, -(2**31)):
        recorder.record(request(correlation_id))
    recorder.close()
    assert [row.correlation_id for row in read_requests(path)] == [5]


def test_a_torn_row_is_dropped(tmp_path):
    path = tmp_path / "requests.bin"
    recorder = open_recorder(path)
    for correlation_id in range(3):
        recorder.record(request(correlation_id))
    recorder.close()
    whole = path.read_bytes()
    for cut in (1, len(whole) // 3 - 1):
        path.write_bytes(whole[:-cut])
        assert [row.correlation_id for row in read_requests(path)] == [0, 1]


def test_rows_reach_the_file_while_the_recorder_is_open(tmp_path):
    path = tmp_path / "requests.bin"
    recorder = open_recorder(path)
    for correlation_id in range(5000):
        recorder.record(request(correlation_id))
    assert len(list(read_requests(path))) > 4000
    recorder.flush()
    assert len(list(read_requests(path))) == 5000
    assert read_names(path) == ["produce", "produce/client \n\N{SNOWMAN}"]
    recorder.close()


def test_the_layout_is_little_endian_and_packed_as_its_types_say(tmp_path):
    path = tmp_path / "requests.bin"
    recorder = open_recorder(path)
    recorder.record(request(41))
    recorder.close()
    sizes = {"i2": 2, "u2": 2, "i4": 4, "u4": 4, "i8": 8}
    assert path.stat().st_size == sum(sizes[code] for _, code in REQUEST_TYPES)
    by_hand = struct.pack("<iIIhI", 41, 0, 1, 0, 215)
    assert path.read_bytes().startswith(by_hand)


def test_cpu_accounts_are_read_back_after_the_broker_has_stopped(tmp_path):
    path = tmp_path / "requests.bin"
    recorder = open_recorder(path)
    assert read_accounts(path) == {}
    recorder.accounts({"cpu_ns": 10, "requests_ns": 7, "housekeeping_ns": 2})
    recorder.close()
    assert read_accounts(path) == {"cpu_ns": 10, "requests_ns": 7, "housekeeping_ns": 2}


def test_samples_are_read_back(tmp_path):
    path = tmp_path / "requests.bin"
    recorder = open_recorder(path)
    row = SampleRow(
        t_ns=5,
        plane="data",
        queued=1,
        waiting=2,
        seated=3,
        refused=4,
        handler_idle=0.25,
        processor_idle=0.5,
        housekeeping=0.125,
    )
    recorder.sample(row)
    recorder.sample(row._replace(plane="control"))
    recorder.close()
    assert list(read_samples(path)) == [row, row._replace(plane="control")]


class Stub(SimpleNamespace):
    """A namespace that is hashable by identity."""

    __hash__ = object.__hash__


def test_a_sample_tells_what_share_of_its_period_the_broker_kept_house():
    now_ns = 0
    ledger = CpuLedger(lambda: now_ns)
    plane = Stub(name="data", attained_ns=0, queued=0, scheduler=(), seated=0)
    rows = []
    sampler = Sampler(
        [Stub(plane=plane, refused=0)],
        {plane: [Stub(idle_ns=lambda now_ns: 0)]},
        Stub(sample=rows.append, flush=lambda: None),
        lambda: now_ns,
        ledger,
    )
    for used_ns in (3, 0, 40):
        with ledger.of("upkeep"):
            now_ns += used_ns
        now_ns += 12 - used_ns if used_ns < 12 else 0
        sampler.sample()
    assert [row.housekeeping for row in rows] == [0.25, 0.0, 1.0]
