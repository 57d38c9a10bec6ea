"""The additions of docs/adding.md: new files in ``new/``, and lines in other files.

Each addition is the smallest useful one of its kind. It is made in a copy of the tree,
where `checks` test its effects.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEW = Path(__file__).parent / "new"
PAGE = ROOT / "docs" / "adding.md"


@dataclass(frozen=True)
class Line:
    """A line to insert into a file, before the only occurrence of ``before``."""

    file: str
    line: str
    before: str


@dataclass(frozen=True)
class Addition:
    """One addition: its title on the page, files of ``new/``, and inserted lines."""

    title: str
    name: str
    files: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()

    @property
    def touched(self) -> set[str]:
        """The source files of the addition, with NAME for its name, as on the page."""
        made = {re.sub(rf"\b{self.name}\b", "NAME", file) for file in self.files}
        return made | {each.file for each in self.lines}

    def make(self, tree: Path) -> None:
        """Make the addition in a copy of the tree."""
        for file in self.files:
            (tree / file).parent.mkdir(exist_ok=True)
            shutil.copyfile(NEW / file, tree / file)
        for each in self.lines:
            path = tree / each.file
            before, found, after = path.read_text().partition(each.before)
            assert found, f"{each.file} has no {each.before!r}"
            assert each.before not in after, (
                f"{each.file}: {each.before!r} is not alone"
            )
            path.write_text(f"{before}{each.line}{found}{after}")


def said(title: str) -> set[str]:
    """Return the files that the page lists under a title."""
    _, found, rest = PAGE.read_text().partition(f"## {title}\n")
    assert found, f"{PAGE.name} has no part {title!r}"
    part = rest.partition("\n## ")[0]
    steps = re.findall(r"^\d\. (.*?):", part, re.MULTILINE)
    return {file for step in steps for file in re.findall(r"`([^`]+\.py)`", step)}


ADDITIONS = (
    Addition(
        title="An API of Kafka",
        name="unregister_broker",
        files=(
            "broker/protocol/messages/unregister_broker.py",
            "broker/apis/unregister_broker.py",
        ),
        lines=(
            Line(
                "experiments/design/request_shapes.py",
                "from broker.protocol.messages.unregister_broker import (\n"
                "    UnregisterBrokerRequest,\n)\n",
                "from broker.protocol.schemas.leader_and_isr_schema import",
            ),
            Line(
                "experiments/design/request_shapes.py",
                "@dataclass(frozen=True, slots=True, kw_only=True)\n"
                "class UnregisterBrokerShape(RequestShape):\n"
                '    """UNREGISTER_BROKER, without any broker."""\n\n'
                "    def body(self, on: Occasion) -> UnregisterBrokerRequest:\n"
                '        """Return a request that changes nothing."""\n'
                "        return UnregisterBrokerRequest(broker_id=-1)\n\n\n",
                "SHAPES: Final",
            ),
            Line(
                "experiments/design/request_shapes.py",
                "ApiKey.UNREGISTER_BROKER: UnregisterBrokerShape,\n        ",
                "ApiKey.PRODUCE: ProduceShape",
            ),
        ),
    ),
    Addition(
        title="A policy",
        name="newest",
        files=("schedulers/policies/newest.py",),
        lines=(
            Line(
                "schedulers/registry.py",
                "from schedulers.policies.newest import Newest\n",
                "from schedulers.policies.np_priority",
            ),
            Line("schedulers/registry.py", '"newest": Newest,\n        ', '"np-prio'),
        ),
    ),
    Addition(
        title="An admission rule",
        name="halved",
        files=("planes/admission/halved.py",),
        lines=(
            Line(
                "broker/config/admission_keys.py",
                '"halved",\n    ',
                '"codel",\n    "dead',
            ),
            Line(
                "broker/requests/admission_rule.py",
                "from planes.admission.halved import Halved\n",
                "from planes.admission.token_bucket",
            ),
            Line(
                "broker/requests/admission_rule.py",
                "def _halved(config: BrokerConfig) -> Admission:\n"
                "    return Halved(capacity=config[QUEUED_MAX_REQUESTS])\n\n\n",
                "def _codel(",
            ),
            Line(
                "broker/requests/admission_rule.py",
                '"halved": _halved,\n',
                '"codel": _',
            ),
        ),
    ),
    Addition(
        title="A column of a recording",
        name="level",
        lines=(
            Line(
                "broker/observation/recording/recording.py",
                "level: int\n    ",
                "error_code: int\n\n\nclass SampleRow",
            ),
            Line("broker/observation/recording/recording.py", '"u4", ', '"u4", "i2"),'),
            Line(
                "broker/observation/recording/recording.py",
                "task.level,\n                ",
                "request.error_code,",
            ),
            Line(
                "experiments/worlds/model/recorder.py",
                "task.level,\n                ",
                "_error_code(task),",
            ),
            Line(
                "spark_analysis/recordings/columns.py",
                '"level": "int",\n    ',
                '"outcome": "string"',
            ),
        ),
    ),
    Addition(
        title="A world",
        name="instant",
        files=(
            "experiments/worlds/instant/__init__.py",
            "experiments/worlds/instant/world.py",
        ),
        lines=(
            Line(
                "experiments/design/world_config.py",
                '"instant": WorldEntry(\n'
                '            module="experiments.worlds.instant.world",\n'
                "            computed=True,\n"
                "        ),\n        ",
                '"kafka": WorldEntry(',
            ),
            Line("spark_analysis/recordings/contract.py", '"instant", ', '"model", "v'),
        ),
    ),
)
