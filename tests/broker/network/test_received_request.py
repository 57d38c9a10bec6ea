"""The quick maker of requests sets every field as the constructor does."""

from dataclasses import fields

from broker.requests.request import Request, received_request


def test_every_field_is_as_the_constructor_sets_it():
    given = {
        "number": 1,
        "request_class": "produce",
        "level": 4,
        "flow": "a flow",
        "size_bytes": 100,
        "cost_ns": 50_000,
        "received_ns": 7,
        "done": print,
        "api": None,
        "api_key": 0,
        "api_version": 8,
        "correlation_id": 9,
        "client_id": "client",
        "frame": b"frame",
        "body_offset": 15,
        "peer": "a peer",
        "is_denied": True,
    }
    quick = received_request(*given.values())
    slow = Request(arrived_ns=7, **given)
    for field in fields(Request):
        # A plane sets what no initialiser does: both are without it.
        found = [getattr(each, field.name, "unset") for each in (quick, slow)]
        assert found[0] == found[1], field.name
