"""Prometheus alert rules: their form, and their metrics as a broker exports them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from broker.observation import metrics
from tests.broker.metrics.scraped_broker import labels_served
from tests.broker.metrics.test_dashboard import LABEL, NAME, SCRAPED

RULES = Path(metrics.__file__).parent / "alerts.rules.yml"
# The subset of YAML in the rules file: one key per line, at a fixed depth.
FORM = re.compile(
    r"""(?x)
    (?P<group>  \ \ -\ name:\ [a-z]+)
  | (?P<rules>  \ {4}rules:)
  | (?P<alert>  \ {6}-\ alert:\ (?P<name>[A-Z]\w+))
  | (?P<expr>   \ {8}expr:\ (?P<query>[a-z][^\#]*\d))
  | (?P<wait>   \ {8}for:\ \d+m)
  | (?P<labels> \ {8}labels:)
  | (?P<level>  \ {10}severity:\ (?:critical|warning))
  | (?P<notes>  \ {8}annotations:)
  | (?P<text>   \ {10}summary:\ "(?P<summary>[^"\\]+)")
    """
)
ORDER = ["alert", "expr", "wait", "labels", "level", "notes", "text"]


def alerts() -> dict[str, tuple[str, str]]:
    """Return the query and the summary of each alert, by its name."""
    head, *lines = [
        line for line in RULES.read_text().splitlines() if not line.startswith("#")
    ]
    assert head == "groups:"
    found: dict[str, tuple[str, str]] = {}
    keys: list[str] = []
    name = query = ""
    for line in lines:
        match = FORM.fullmatch(line)
        assert match is not None, line
        (key,) = [each for each in (*ORDER, "group", "rules") if match[each]]
        if key == "alert":
            keys, name = [], match["name"]
            assert name not in found, name
        keys.append(key)
        query = match["query"] or query
        if key == "text":
            without_wait = [each for each in ORDER if each != "wait"]
            assert keys in (ORDER, without_wait), (name, keys)
            found[name] = query, match["summary"]
    return found


def test_every_alert_has_a_query_a_severity_and_a_summary() -> None:
    found = alerts()
    assert len(found) >= 10
    for name, (query, _) in found.items():
        assert query.count("(") == query.count(")"), name
        assert NAME.search(query), name


def test_every_metric_and_label_that_an_alert_asks_for_is_served() -> None:
    served = labels_served()
    for name, (query, summary) in alerts().items():
        said = set(re.findall(r"\$labels\.(\w+)", summary))
        groupings = re.findall(r"by \(([^)]*)\)", query)
        grouped = {label.strip() for each in groupings for label in each.split(",")}
        # A sum keeps only the labels that it is grouped by.
        assert not grouped or said <= grouped, name
        for metric, selectors in NAME.findall(query):
            asked = {label for label, _ in LABEL.findall(selectors)} | grouped | said
            assert metric in served, (name, metric)
            assert asked - SCRAPED <= served[metric], (name, metric)


def test_promtool_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    subprocess.run([promtool, "check", "rules", str(RULES)], check=True)
