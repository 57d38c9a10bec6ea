"""Kafka's text files, byte for byte, and malformed ones."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.disk import checkpoints
from broker.disk.checkpoints import MalformedCheckpoint
from broker.disk.identity import claim, kafka_uuid, parse_kafka_uuid
from broker.disk.log_dirs import LogDirs
from broker.disk.partition_metadata import read_topic_id, write_topic_id
from broker.disk.storage import join, read_whole, write_atomically
from broker.log.epochs import LeaderEpochs
from broker.protocol.errors import ConfigError
from tests.broker.log.witness import NOW_MS, batch, disk, open_log

HOME = "/data"


def put(storage, name, content):
    file = storage.open(join(HOME, name), create=True)
    file.write(0, (content,), len(content))


def test_an_offset_checkpoint_is_kafkas_text():
    storage = disk()
    offsets = {("b", 1): 7, ("a.b-c", 10): 2**40, ("a.b-c", 9): 0}
    checkpoints.write_offsets(storage, HOME, checkpoints.RECOVERY_POINTS, offsets)
    content = read_whole(storage, "/data/recovery-point-offset-checkpoint")
    assert content == b"0\n3\na.b-c 9 0\na.b-c 10 1099511627776\nb 1 7\n"
    read = checkpoints.read_offsets(storage, HOME, checkpoints.RECOVERY_POINTS)
    assert read == offsets


def test_names_are_kafkas():
    assert checkpoints.LOG_START_OFFSETS == "log-start-offset-checkpoint"
    assert checkpoints.HIGH_WATERMARKS == "replication-offset-checkpoint"
    assert checkpoints.CLEANER_OFFSETS == "cleaner-offset-checkpoint"
    assert checkpoints.CLEAN_SHUTDOWN == ".kafka_cleanshutdown"


@pytest.mark.parametrize(
    "content",
    [
        b"1\n",
        b"1\n0\n",
        b"0\nx\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na zero 1\n",
        b"0\n1\na 0 one\n",
        b"0\n1\na 0 1_0\n",
        "0\n1\na 0 \u0661\n".encode(),
        b"0\n1\na 0 9223372036854775808\n",
        b"0\n1\na 0 " + b"9" * 5000 + b"\n",
        b"0\n0\na 0 1\n",
        b"0\n1\na 0 1",
    ],
)
def test_a_malformed_checkpoint_is_reported_with_its_path(content):
    storage = disk()
    put(storage, "some-checkpoint", content)
    with pytest.raises(MalformedCheckpoint, match="/data/some-checkpoint: found"):
        checkpoints.read_offsets(storage, HOME, "some-checkpoint")


def test_no_file_is_an_empty_checkpoint():
    assert checkpoints.read_offsets(disk(), HOME, "none") == {}
    assert checkpoints.read_epochs(disk(), HOME) == []
    assert checkpoints.read_properties(disk(), HOME, "meta.properties") == {}


@pytest.mark.parametrize("content", [b"", b"0", b"0\n"])
def test_an_empty_file_of_kafka_is_an_empty_checkpoint(content):
    storage = disk()
    put(storage, "some-checkpoint", content)
    assert checkpoints.read_offsets(storage, HOME, "some-checkpoint") == {}


def test_properties_are_read_as_kafka_writes_them():
    storage = disk()
    put(
        storage, "meta.properties", b"#\n#Fri\nbroker.id=0\nversion=0\ncluster.id=x=y\n"
    )
    assert checkpoints.read_properties(storage, HOME, "meta.properties") == {
        "broker.id": "0",
        "version": "0",
        "cluster.id": "x=y",
    }
    put(storage, "meta.properties", b"nonsense\n")
    with pytest.raises(MalformedCheckpoint):
        checkpoints.read_properties(storage, HOME, "meta.properties")


def test_a_topic_id_is_read_as_kafka_writes_it_and_a_torn_one_is_unknown():
    storage = disk()
    written = uuid.UUID("12345678-1234-5678-1234-567812345678")
    assert read_topic_id(storage, HOME) is None
    path = write_topic_id(storage, HOME, written)
    content = read_whole(storage, path)
    assert content == b"version: 0\ntopic_id: EjRWeBI0VngSNFZ4EjRWeA\n"
    assert read_topic_id(storage, HOME) == written
    for size in range(len(content) - 1):
        for torn in (content[:size], content[:size] + bytes(len(content) - size)):
            write_atomically(storage, HOME, "partition.metadata", torn)
            assert read_topic_id(storage, HOME) is None
    # Kafka writes no newline at the end of the file.
    write_atomically(storage, HOME, "partition.metadata", content[:-1])
    assert read_topic_id(storage, HOME) == written
    for damaged in (b"topic_id: x\n", b"version: 0\ntopic_id: " + b"?" * 22, b"\xff"):
        write_atomically(storage, HOME, "partition.metadata", damaged)
        with pytest.raises(MalformedCheckpoint, match=r"partition\.metadata"):
            read_topic_id(storage, HOME)


# ---- ownership of a log directory ----


def test_a_fresh_directory_is_claimed_and_known_again():
    storage = disk()
    for directory in ("/data/a", "/data/b"):
        storage.make_directory(directory)
    ids = iter([uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)])
    cluster = claim(storage, LogDirs(["/data/a", "/data/b"]), 4, lambda: next(ids))
    assert cluster == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert read_whole(storage, "/data/a/meta.properties") == (
        b"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=4\n"
        b"directory.id=AAAAAAAAAAAAAAAAAAAAAg\n"
    )
    assert (
        claim(storage, LogDirs(["/data/b", "/data/a"]), 4, lambda: next(ids)) == cluster
    )


def test_a_directory_from_before_clusters_had_ids_is_given_one_for_good():
    """Kafka 0.9 wrote ``meta.properties`` without a cluster id."""
    storage = disk()
    storage.make_directory("/data/a")
    write_atomically(
        storage, "/data/a", "meta.properties", b"#\n#Fri\nversion=0\nbroker.id=4\n"
    )
    known = claim(storage, LogDirs(["/data/a"]), 4, lambda: uuid.UUID(int=1))
    assert claim(storage, LogDirs(["/data/a"]), 4, uuid.uuid4) == known
    with pytest.raises(ConfigError, match=r"node\.id: found 5, expected 4"):
        claim(storage, LogDirs(["/data/a"]), 5, uuid.uuid4)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"version=2\ncluster.id=c\nnode.id=4\n", "found 'version=2'"),
        (b"version=1\ncluster.id=c\n", "found 'no node.id'"),
        (b"version=1\nnode.id=4\n", "found 'no cluster.id'"),
        (b"version=1\ncluster.id=\nnode.id=4\n", "found 'no cluster.id'"),
    ],
)
def test_properties_that_kafka_refuses_are_refused_by_their_path(content, expected):
    storage = disk()
    storage.make_directory("/data/a")
    write_atomically(storage, "/data/a", "meta.properties", content)
    with pytest.raises(ConfigError, match=f"{expected}.*/data/a/meta.properties"):
        claim(storage, LogDirs(["/data/a"]), 4, uuid.uuid4)


@pytest.mark.parametrize("of_cluster", [False, True])
def test_an_id_of_a_cluster_fits_into_an_answer_to_metadata(of_cluster):
    """A string of the protocol has at most 32,767 bytes."""
    storage = disk()
    storage.make_directory("/data/a")
    for size, is_refused in ((32_767, False), (32_768, True), (70_000, True)):
        name = "c" * size
        written = f"version=0\nbroker.id=4\ncluster.id={name}\n".encode()
        content = b"" if of_cluster else written
        write_atomically(storage, "/data/a", "meta.properties", content)
        arguments = (storage, LogDirs(["/data/a"]), 4, uuid.uuid4)
        joined = name if of_cluster else None
        if is_refused:
            key = r"zookeeper\.connect" if of_cluster else r"log\.dirs"
            expected = f"{key}: found 'a cluster id of {size} bytes', expected at most"
            with pytest.raises(ConfigError, match=expected):
                claim(*arguments, of_cluster=joined)
            assert read_whole(storage, "/data/a/meta.properties") == content
        else:
            assert claim(*arguments, of_cluster=joined) == name


def test_empty_properties_are_those_of_a_fresh_directory():
    storage = disk()
    storage.make_directory("/data/a")
    write_atomically(storage, "/data/a", "meta.properties", b"")
    known = claim(storage, LogDirs(["/data/a"]), 4, lambda: uuid.UUID(int=1))
    assert claim(storage, LogDirs(["/data/a"]), 4, uuid.uuid4) == known


def test_a_directory_of_another_broker_or_cluster_is_refused():
    storage = disk()
    for directory in ("/data/a", "/data/b"):
        storage.make_directory(directory)
    for name, number in (("a", 1), ("b", 2)):
        claim(
            storage,
            LogDirs([f"/data/{name}"]),
            0,
            lambda number=number: uuid.UUID(int=number),
        )
    with pytest.raises(ConfigError, match="one cluster"):
        claim(storage, LogDirs(["/data/a", "/data/b"]), 0, uuid.uuid4)
    with pytest.raises(ConfigError, match=r"node\.id: found 1, expected 0"):
        claim(storage, LogDirs(["/data/a"]), 1, uuid.uuid4)


def test_kafkas_uuid_text():
    # From Kafka's own documentation of directory.id and cluster ids.
    text = "4L6g3nShT-eMCtK--X86sw"
    assert kafka_uuid(parse_kafka_uuid(text)) == text
    with pytest.raises(ValueError, match="base64"):
        parse_kafka_uuid("short")


# ---- leader epochs ----


def epochs_of(*entries):
    epochs = LeaderEpochs(disk(), HOME)
    for epoch, offset in entries:
        epochs.assign(epoch, offset)
    return epochs


def test_epochs_end_where_the_next_begins():
    """Cases from Kafka's ``LeaderEpochFileCacheTest``."""
    epochs = epochs_of((2, 5), (3, 11), (6, 20))
    ends = {epoch: epochs.end_offset(epoch, 33) for epoch in range(-1, 8)}
    assert ends == {
        -1: (-1, -1),
        0: (0, 5),
        1: (1, 5),
        2: (2, 11),
        3: (3, 20),
        4: (3, 20),
        5: (3, 20),
        6: (6, 33),
        7: (-1, -1),
    }
    assert LeaderEpochs(disk(), HOME).end_offset(0, 5) == (-1, -1)


def test_the_epoch_of_an_offset():
    epochs = epochs_of((2, 5), (3, 11))
    assert [epochs.epoch_of(offset) for offset in (4, 5, 10, 11, 99)] == [
        -1,
        2,
        2,
        3,
        3,
    ]


def test_an_older_epoch_changes_nothing_and_a_newer_one_wins():
    epochs = epochs_of((2, 5), (1, 9), (2, 7), (-1, 3))
    assert epochs.entries() == [(2, 5)]
    epochs = epochs_of((1, 5), (2, 9), (4, 7))
    assert epochs.entries() == [(1, 5), (4, 7)]
    epochs.check()


def test_epochs_are_cut_with_the_log():
    epochs = epochs_of((1, 0), (2, 9), (4, 20))
    epochs.truncate_from_end(20)
    assert (epochs.entries(), epochs.latest) == ([(1, 0), (2, 9)], 2)
    epochs.truncate_from_start(4)
    assert epochs.entries() == [(1, 4), (2, 9)]
    epochs.truncate_from_start(12)
    assert epochs.entries() == [(2, 12)]
    epochs.truncate_from_end(0)
    assert (epochs.entries(), epochs.latest) == ([], -1)


def test_epochs_are_written_as_kafka_writes_them():
    storage = disk()
    epochs = LeaderEpochs(storage, HOME)
    epochs.assign(0, 0)
    epochs.assign(3, 17)
    assert storage.names(HOME) == []
    epochs.writing()()
    content = read_whole(storage, "/data/leader-epoch-checkpoint")
    assert content == b"0\n2\n0 0\n3 17\n"
    assert LeaderEpochs(storage, HOME).entries() == [(0, 0), (3, 17)]


def test_a_truncation_of_epochs_is_written_by_the_next_flush():
    storage = disk()
    epochs = LeaderEpochs(storage, HOME)
    epochs.assign(0, 0)
    epochs.assign(3, 17)
    epochs.writing()()
    calls = storage.faults.calls
    assert epochs.truncate_from_end(10)
    assert not epochs.truncate_from_end(10)
    assert storage.faults.calls == calls
    epochs.writing()()
    assert LeaderEpochs(storage, HOME).entries() == [(0, 0)]
    assert epochs.writing() is None


def test_epochs_that_a_truncation_removed_do_not_come_back_with_a_slow_thread():
    storage = disk()
    epochs = LeaderEpochs(storage, HOME)
    epochs.assign(0, 0)
    epochs.assign(3, 17)
    slow = epochs.writing()
    epochs.truncate_from_end(10)
    epochs.assign(1, 10)
    epochs.writing()()
    slow()
    assert LeaderEpochs(storage, HOME).entries() == [(0, 0), (1, 10)]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=12),
    st.integers(-1, 10),
)
def test_end_offset_is_that_of_a_naive_history(changes, asked):
    """Compare with a plain list of (epoch, start offset) pairs."""
    epochs, history, end, current = epochs_of(), [], 0, -1
    for epoch, length in changes:
        epochs.assign(epoch, end)
        current = max(epoch, current)
        history += [(current, end + number) for number in range(length)]
        end += length
    starts = {}
    for epoch, offset in history:
        starts.setdefault(epoch, offset)
    if not history or epochs.latest not in starts:
        # The newest epoch has no batch yet.
        starts[epochs.latest] = end
    found = epochs.end_offset(asked, end)
    if asked == -1 or asked > epochs.latest:
        assert found == (-1, -1)
    else:
        above = sorted(starts[epoch] for epoch in starts if epoch > asked)
        assert found[1] == (above[0] if above else end)


def test_the_log_answers_for_its_epochs():
    log = open_log()
    for epoch in (0, 0, 2, 5):
        log.append(batch([b"v"] * 3), epoch, NOW_MS)
    assert log.epoch_end_offset(0) == (0, 6)
    assert log.epoch_end_offset(4) == (2, 9)
    assert log.epoch_end_offset(5) == (5, 12)
    assert log.epoch_end_offset(6) == (-1, -1)
