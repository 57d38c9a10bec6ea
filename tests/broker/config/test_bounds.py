"""Bounds that relate several keys: an error names the key to change."""

import pytest

from tests.broker.config.told import given, refused


@pytest.mark.parametrize(
    ("threads", "buffer_size"), [(0, 1), (1, 1048577), (127, 134217728), (2, 2097154)]
)
def test_cleaner_threads_that_have_their_memory(threads: int, buffer_size: int) -> None:
    given(
        log_cleaner_threads=str(threads),
        log_cleaner_dedupe_buffer_size=str(buffer_size),
    )


@pytest.mark.parametrize(
    ("threads", "buffer_size"),
    [(1, 1048576), (128, 134217728), (2, 2097153), (2147483647, 134217728)],
)
def test_cleaner_threads_without_their_memory_are_refused(
    threads: int, buffer_size: int
) -> None:
    """Kafka divides whole numbers and requires more than 1048576 per thread."""
    refused(
        "log.cleaner.dedupe.buffer.size",
        f"more than 1048576 for each of log.cleaner.threads, {threads}",
        log_cleaner_threads=str(threads),
        log_cleaner_dedupe_buffer_size=str(buffer_size),
    )


def test_bounded_memory_holds_the_largest_request() -> None:
    """As in Kafka's ``validateValues``: otherwise the largest request is never read."""
    refused(
        "queued.max.request.bytes",
        "at least socket.request.max.bytes, 104857600",
        queued_max_request_bytes="104857599",
    )
    given(queued_max_request_bytes="104857600")
    given(queued_max_request_bytes="1000", socket_request_max_bytes="1000")
    for no_bound in ("0", "-1"):
        given(queued_max_request_bytes=no_bound)


def test_reserved_slots_leave_some_to_others() -> None:
    bounds = {"queued_max_requests": "20", "doorkeeper_admission_reserved": "20"}
    refused(
        "doorkeeper.admission.reserved",
        "fewer than queued.max.requests, 20",
        doorkeeper_admission="reserve",
        **bounds,
    )
    given(doorkeeper_admission="exempt", **bounds)


def test_a_token_bucket_needs_rates_and_bursts_only_of_what_has_one() -> None:
    refused(
        "doorkeeper.admission.rates.per.s",
        "a rate of some class",
        doorkeeper_admission="token-bucket",
    )
    refused(
        "doorkeeper.admission.burst.requests",
        "classes of doorkeeper.admission.rates.per.s",
        doorkeeper_admission="token-bucket",
        doorkeeper_admission_rates_per_s="produce:10",
        doorkeeper_admission_burst_requests="fetch:2",
    )


@pytest.mark.parametrize(
    ("key", "expected", "settings"),
    [
        (
            "group.consumer.session.timeout.ms",
            "from group.consumer.min.session.timeout.ms, 45000, "
            "to group.consumer.max.session.timeout.ms, 60000",
            {"group_consumer_session_timeout_ms": "44999"},
        ),
        (
            "group.consumer.heartbeat.interval.ms",
            "from group.consumer.min.heartbeat.interval.ms, 5000, "
            "to group.consumer.max.heartbeat.interval.ms, 15000",
            {"group_consumer_heartbeat_interval_ms": "15001"},
        ),
        (
            "group.consumer.max.session.timeout.ms",
            "at least group.consumer.min.session.timeout.ms, 45000",
            {"group_consumer_max_session_timeout_ms": "44999"},
        ),
        (
            "group.consumer.heartbeat.interval.ms",
            "less than group.consumer.session.timeout.ms, 7000",
            {
                "group_consumer_min_session_timeout_ms": "1",
                "group_consumer_session_timeout_ms": "7000",
                "group_consumer_heartbeat_interval_ms": "7000",
            },
        ),
    ],
)
def test_settings_of_consumer_groups_keep_to_their_bounds(
    key: str, expected: str, settings: dict[str, str]
) -> None:
    """As in Kafka's ``GroupCoordinatorConfig``."""
    refused(key, expected, **settings)


def test_settings_of_consumer_groups_may_be_their_bounds() -> None:
    given(
        group_consumer_session_timeout_ms="60000",
        group_consumer_heartbeat_interval_ms="15000",
    )
