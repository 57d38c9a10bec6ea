"""Lines of the log in text and in JSON."""

import io
import json
import logging
import re

import pytest

from broker.observation.logs import configure_logs, fields

logger = logging.getLogger("broker.groups.example")


@pytest.fixture
def write():
    """Return a function that logs one event and returns the output."""
    root = logging.getLogger("broker")
    before = root.handlers[:], root.propagate, root.level

    def write(form="text", level="info", emit=logging.INFO, **named):
        stream = io.StringIO()
        configure_logs(stream, level=level, form=form)
        logger.log(emit, "group is stable", extra=fields(**named))
        return stream.getvalue()

    yield write
    root.handlers[:], root.propagate, root.level = before
    logging.Logger.manager._clear_cache()


def test_text_is_one_line_of_time_level_event_and_fields(write):
    line = write(group="g", generation=3)
    time, rest = line.split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert rest == "INFO group is stable group=g generation=3\n"


def test_json_is_one_object_with_fields_of_their_own_types(write):
    event = json.loads(write("json", group="g", generation=3, fault=OSError("disk")))
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "INFO",
        "logger": "broker.groups.example",
        "event": "group is stable",
        "group": "g",
        "generation": 3,
        "fault": "disk",
    }


@pytest.mark.parametrize("hostile", ["two words", "a\nforged line", 'a"b', "a=b", ""])
def test_a_name_that_a_client_chose_cannot_forge_a_line_or_a_field(write, hostile):
    line = write(group=hostile)
    assert line.count("\n") == 1
    assert json.loads(line.split("group=")[1]) == hostile
    event = json.loads(write("json", group=hostile, level="info"))
    assert event["group"] == hostile


def test_a_field_cannot_take_the_place_of_the_event(write):
    assert json.loads(write("json", event="forged"))["event"] == "group is stable"


@pytest.mark.parametrize(
    ("level", "seen"), [("debug", True), ("info", True), ("warn", False)]
)
def test_entries_below_the_level_are_not_written(write, level, seen):
    assert bool(write(level=level, group="g")) is seen


def test_a_traceback_follows_its_event(write):
    stream = io.StringIO()
    write()
    configure_logs(stream, level="error", form="text")
    try:
        raise OSError("no space")
    except OSError:
        logger.exception("a flush failed", extra=fields(topic="t"))
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("ERROR a flush failed topic=t")
    assert rest[-1] == "OSError: no space"


def test_events_go_nowhere_else(write, caplog):
    write(group="g")
    assert caplog.records == []
