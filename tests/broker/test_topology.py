"""Planes, policies and routes, from the configuration alone."""

import random

import pytest

from broker.config import BrokerConfig
from broker.protocol.errors import ConfigError
from broker.requests.topology import build
from planes.admission import Block, CoDel, Deadline, Exempt, Reserve, TokenBucket
from schedulers import Fifo, Priority, Wfq


def topology(**settings):
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    return build(BrokerConfig.load(None, dotted), random.Random(0))


@pytest.mark.parametrize(
    ("name", "policy"), [("fifo", Fifo), ("priority", Priority), ("wfq", Wfq)]
)
def test_a_policy_is_one_shared_plane(name, policy):
    (plane,) = topology(doorkeeper_scheduler=name).planes
    assert type(plane.scheduler) is policy
    assert (plane.seats, plane.admission.capacity) == (8, 500)
    assert type(plane.admission) is Block


def test_planes_adds_kafkas_control_plane_on_loopback():
    found = topology(doorkeeper_scheduler="planes")
    data, control = found.planes
    assert (control.seats, control.admission.capacity) == (1, 20)
    assert type(control.scheduler) is type(data.scheduler) is Fifo
    routes = {route.listener.name: route for route in found.routes}
    assert routes["CONTROLLER"].plane is control
    assert routes["CONTROLLER"].processors == 1
    assert str(routes["CONTROLLER"].listener) == "CONTROLLER://127.0.0.1:0"
    assert routes["PLAINTEXT"].plane is data
    assert routes["PLAINTEXT"].processors == 3


def test_the_control_plane_takes_the_listener_that_is_named_for_it():
    found = topology(
        doorkeeper_scheduler="planes",
        listeners="PLAINTEXT://127.0.0.1:1,CTL://127.0.0.1:2,OTHER://127.0.0.1:3",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CTL:PLAINTEXT,OTHER:PLAINTEXT",
        control_plane_listener_name="CTL",
    )
    assert {route.listener.name: route.plane.name for route in found.routes} == {
        "PLAINTEXT": "data",
        "OTHER": "data",
        "CTL": "control",
    }


@pytest.mark.parametrize("scheduler", ["planes", "planes-lending"])
def test_in_a_cluster_controllers_find_the_control_plane_by_its_listener(scheduler):
    """The default control listener would not be registered, so one must be named."""
    keys = {
        "doorkeeper_scheduler": scheduler,
        "zookeeper_connect": "127.0.0.1:2181",
        "broker_id": "1",
    }
    with pytest.raises(ConfigError, match=r"control\.plane\.listener\.name"):
        topology(**keys)
    found = topology(
        **keys,
        listeners="PLAINTEXT://127.0.0.1:1,CTL://127.0.0.1:2",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CTL:PLAINTEXT",
        control_plane_listener_name="CTL",
    )
    assert [plane.name for plane in found.planes] == ["data", "control"]


def test_topology_and_discipline_are_independent():
    found = topology(doorkeeper_scheduler="planes", doorkeeper_data_scheduler="wfq")
    assert [type(plane.scheduler) for plane in found.planes] == [Wfq, Fifo]
    found = topology(
        doorkeeper_scheduler="priority",
        listeners="PLAINTEXT://127.0.0.1:1,CTL://127.0.0.1:2",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CTL:PLAINTEXT",
        control_plane_listener_name="CTL",
    )
    assert [type(plane.scheduler) for plane in found.planes] == [Priority, Fifo]


@pytest.mark.parametrize(
    ("direction", "borrowers"),
    [("both", ["data", "control"]), ("to-control", ["control"]), ("to-data", ["data"])],
)
def test_planes_may_lend_their_idle_handlers(direction, borrowers):
    found = topology(
        doorkeeper_scheduler="planes-lending",
        doorkeeper_planes_lending=direction,
        doorkeeper_data_scheduler="wfq",
    )
    data, control = found.planes
    assert (data.seats, control.seats) == (8, 1)
    assert type(data.scheduler) is Wfq
    assert data.pool is control.pool is found.lending
    for plane in found.planes:
        plane.seated = plane.seats
        assert plane.has_seat() == (plane.name in borrowers)
        plane.seated = 0


def test_a_researchers_own_policy_is_found_by_module_and_factory():
    found = topology(doorkeeper_scheduler="schedulers.policies.fifo:Fifo")
    (plane,) = found.planes
    # The guard of custom policies wraps the policy.
    assert type(plane.scheduler.policy) is Fifo


def test_seats_queue_and_admission_follow_the_configuration():
    (plane,) = topology(
        num_io_threads="3",
        queued_max_requests="50",
        doorkeeper_admission="reserve",
        doorkeeper_admission_reserved="7",
        doorkeeper_admission_favoured="control,replication",
    ).planes
    assert plane.seats == 3
    favoured = frozenset({"control", "replication"})
    assert plane.admission == Reserve(capacity=50, reserved=7, favoured=favoured)


CONTROL = frozenset({"control"})
MS = 1_000_000


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"": "exempt"}, Exempt(capacity=500, favoured=CONTROL)),
        (
            {"": "codel"},
            CoDel(
                capacity=500, target_ns=5 * MS, interval_ns=100 * MS, favoured=CONTROL
            ),
        ),
        (
            {"": "codel", "target_ms": "7", "interval_ms": "70", "favoured": ""},
            CoDel(
                capacity=500,
                target_ns=7 * MS,
                interval_ns=70 * MS,
                favoured=frozenset(),
            ),
        ),
        (
            {"": "deadline", "deadline_ms": "produce:20,fetch:30"},
            Deadline(
                capacity=500,
                limits_ns={"produce": 20 * MS, "fetch": 30 * MS},
                favoured=CONTROL,
            ),
        ),
        (
            {
                "": "token-bucket",
                "rates_per_s": "produce:100,admin:3",
                "burst_requests": "produce:8",
            },
            TokenBucket(capacity=500, rates={"produce": (100, 8), "admin": (3, 3)}),
        ),
    ],
)
def test_each_admission_rule_is_made_from_its_own_keys(settings, expected):
    keys = {
        f"doorkeeper_admission_{name}".rstrip("_"): value
        for name, value in settings.items()
    }
    (plane,) = topology(**keys).planes
    assert plane.admission == expected


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"doorkeeper_scheduler": "lifo"}, "doorkeeper.scheduler"),
        ({"doorkeeper_scheduler": "nowhere:Nothing"}, "doorkeeper.scheduler"),
        (
            {"doorkeeper_scheduler": "planes", "doorkeeper_data_scheduler": "lifo"},
            "doorkeeper.data.scheduler",
        ),
        (
            {
                "doorkeeper_scheduler": "planes",
                "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
                "listener_security_protocol_map": (
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
                ),
            },
            "control.plane.listener.name",
        ),
    ],
)
def test_an_impossible_topology_names_its_key(settings, key):
    with pytest.raises(ConfigError) as error:
        topology(**settings)
    assert error.value.key == key


def test_a_policys_own_options_reach_it_and_bad_ones_name_their_key():
    keys = {
        "doorkeeper.scheduler": "reserved",
        "doorkeeper.scheduler.options": "seats.control:2",
    }
    build(BrokerConfig.load(None, keys), random.Random(0))
    keys["doorkeeper.scheduler.options"] = "seats:2"
    with pytest.raises(ConfigError, match=r"doorkeeper\.scheduler\.options"):
        build(BrokerConfig.load(None, keys), random.Random(0))
