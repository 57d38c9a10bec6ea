"""Every metric and label in the Grafana dashboard is exported by a broker."""

import json
import re
from pathlib import Path

import pytest

from broker.observation import metrics
from tests.broker.metrics.scraped_broker import labels_served

DASHBOARD = json.loads((Path(metrics.__file__).parent / "dashboard.json").read_text())
# Added by Prometheus, not by the broker.
SCRAPED = {"instance", "job"}
NAME = re.compile(r"\b((?:kafka|doorkeeper)_[a-z_]+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)(?:=~|!=|=)"([^"]*)"')


def panels():
    return [each for each in DASHBOARD["panels"] if each["type"] != "row"]


def queries():
    """Return each query with the format of its legend."""
    return [
        (target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel["targets"]
    ]


@pytest.fixture(scope="module")
def labels():
    return labels_served()


def test_every_metric_that_is_asked_for_is_there(labels):
    asked = {name for query, _ in queries() for name, _ in NAME.findall(query)}
    assert len(asked) > 30
    assert asked - labels.keys() == set()


def test_every_label_that_is_asked_for_is_there(labels):
    for query, legend in queries():
        named = set(re.findall(r"{{(\w+)}}", legend))
        for grouping in re.findall(r"by \(([^)]*)\)", query):
            named |= {label.strip() for label in grouping.split(",")}
        for name, selectors in NAME.findall(query):
            asked = {label for label, _ in LABEL.findall(selectors)} | named
            assert asked - SCRAPED <= labels[name], (query, labels[name])


def test_classes_and_quantiles_that_are_asked_for_are_the_brokers():
    selected = {
        pair
        for query, _ in queries()
        for _, selectors in NAME.findall(query)
        for pair in LABEL.findall(selectors)
    }
    classes = {value for label, value in selected if label == "class"}
    known = {"control", "replication", "group", "metadata", "produce", "fetch", "admin"}
    assert classes <= known
    assert {value for label, value in selected if label == "quantile"} == {"0.99"}


def test_panels_have_numbers_of_their_own_and_do_not_overlap():
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert (x, y) not in taken
                taken.add((x, y))
