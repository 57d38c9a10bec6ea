"""What a reader knows after the first screen of a report over two worlds.

Which arm is best for the p99 of control, by how much, how sure that is, what each other
class pays, what part the reader had, and whether the live machine says the same. The
experiment is shaped as the quickstart is; what its worlds found is made up.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from rich.console import Console
from scipy.special import ndtr
from scipy.stats import chi2
from scipy.stats import t as student

from spark_analysis.judging.ranking import rank
from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import hold_together
from spark_analysis.telling.sentences.answer import answer
from spark_analysis.telling.sentences.answer_of_worlds import worlds_lead
from spark_analysis.telling.sentences.lead import lead
from spark_analysis.telling.sentences.numbers import ratio
from spark_analysis.telling.tables.agreement_table import ratios_table
from spark_analysis.telling.terminal import show_worlds
from tests.spark_analysis.studies import comparison_of, manifest_of, study_of

# One line of a screen of 24 is the one that names the report.
LINES = 23
BLOCKS = 12
ARMS = {
    "fifo": {"policy": "fifo", "reading": "blind"},
    "fifo-aware": {"policy": "fifo", "reading": "class-aware"},
    "planes": dict[str, str](),
    "priority-blind": {"policy": "priority", "reading": "blind"},
    "priority": {"policy": "priority", "reading": "class-aware"},
    "wfq-blind": {"policy": "wfq", "reading": "blind"},
    "wfq": {"policy": "wfq", "reading": "class-aware"},
}
CONTROL = {
    "fifo": 11.0,
    "fifo-aware": 6.6,
    "planes": 1.2,
    "priority-blind": 6.2,
    "priority": 0.55,
    "wfq-blind": 6.5,
    "wfq": 1.4,
}
PRODUCE = {arm: 13.0 if arm == "fifo" else 14.3 for arm in ARMS}
RIVALS = [arm for arm in ARMS if arm != "fifo"]


def study_in(
    world: str,
    *,
    control_ms: Mapping[str, float] = CONTROL,
    spread: float = 0.02,
    blocks: int = BLOCKS,
    short: Sequence[str] = (),
) -> Study:
    """Make a study; the runs of arms in ``short`` are too short for a p99 of control.

    Of fetch nothing is ever known: it differs more between runs than between arms.
    """
    rng = np.random.default_rng(sum(map(ord, world)))
    values = {
        (name, arm): [
            mean_ms[arm] * noise
            for noise in np.exp(rng.normal(0, wide, BLOCKS))[:blocks]
        ]
        for name, mean_ms, wide in (
            ("control", control_ms, spread),
            ("produce", PRODUCE, 0.01),
            ("fetch", dict.fromkeys(ARMS, 3.0), 0.8),
        )
        for arm in ARMS
    }
    classes = ["control", "produce", "fetch"]
    manifest = manifest_of(ARMS, classes, blocks, world=world)
    return study_of(
        [comparison_of(manifest, values, short=[("control", arm) for arm in short])]
    )


VIRTUAL = study_in("virtual")
# Beyond the margin of a quarter, and still below fifo's.
APART = {arm: p99 if arm == "fifo" else p99 * 1.5 for arm, p99 in CONTROL.items()}
LIVE = {
    "agrees": study_in("live"),
    "mute": study_in("live", short=list(ARMS)),
    "apart": study_in("live", control_ms=APART),
    "one block": study_in("live", blocks=1),
    "unsteady": study_in("live", spread=3.0),
}


def screen(live: Study, width: int = 120) -> list[str]:
    """Return the lines of what is printed over two worlds."""
    out = io.StringIO()
    show_worlds(hold_together([live, VIRTUAL], {}), Console(file=out, width=width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("case", LIVE)
def test_all_is_said_on_one_screen_and_the_answer_first(case: str) -> None:
    lines = screen(LIVE[case])
    assert len(lines) <= LINES
    assert lines[0] == "Made of values"
    assert lines[1].startswith(
        "In the virtual world: Best for the p99 latency of control is priority: 20 "
        "times lower than under fifo"
    )
    text = " ".join(" ".join(lines).split())
    places = [
        text.index(words)
        for words in (
            "ms in a typical run; ratio 0.0",
            "interval for all 6 arms at once 0.0",
            "all others are shown to be worse than some arm",
            "Under priority, produce pays (p99 ",
            "whether fetch pays is undecided (p99 ",
            "Of what priority does for the p99 of control",
            "the reading has ",
            "the live world",
            "arm virtual live virtual live virtual live",
        )
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("case", LIVE)
def test_on_a_narrow_screen_the_answer_of_both_worlds_is_there(case: str) -> None:
    shown = " ".join(" ".join(screen(LIVE[case], width=80)[:24]).split())
    for text in worlds_lead(hold_together([LIVE[case], VIRTUAL], {})):
        assert " ".join(text.replace("\u202f%", "%").split()) in shown


@pytest.mark.parametrize(
    ("others", "width"), [(["kafka"], 80), (["model", "kafka", "kraft"], 120)]
)
def test_beside_kafka_every_number_of_the_table_is_whole(
    others: list[str], width: int
) -> None:
    """Words take more lines where there is little room; a number loses no digit."""
    studies = [VIRTUAL, LIVE["agrees"], *map(study_in, others)]
    worlds = hold_together(studies, {})
    out = io.StringIO()
    show_worlds(worlds, Console(file=out, width=width))
    rows = [line.split() for line in out.getvalue().splitlines()]
    for name, arm, *cells in ratios_table(worlds).written():
        for numbers in ([name, arm, *cells[:-1:2]], cells[1:-1:2]):
            assert any(row[: len(numbers)] == numbers for row in rows)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("agrees", "with 12 complete blocks, agrees to within 25% under every arm."),
        (
            "mute",
            "with 12 complete blocks, says nothing under any arm (too few requests "
            "beyond it): there the answer stands on the virtual world.",
        ),
        (
            "apart",
            "with 12 complete blocks, agrees in direction, and not in size, under "
            "every arm.",
        ),
        (
            "one block",
            "has 1 complete block, too few to decide anything: there the answer "
            "stands on the virtual world.",
        ),
        (
            "unsteady",
            "could not decide under any arm: there the answer stands on the virtual "
            "world.",
        ),
    ],
)
def test_the_live_world_has_a_sentence(case: str, said: str) -> None:
    worlds = hold_together([LIVE[case], VIRTUAL], {})
    of_live = [text for text in worlds_lead(worlds) if "live world" in text]
    assert len(of_live) == 1
    assert said in of_live[0].replace("\u202f%", "%")


def test_what_is_to_beware_of_is_told_before_the_answer_if_it_is_about_it() -> None:
    """One block in both worlds: the witness's cautions first, the others' counted."""
    few = study_in("virtual", blocks=1)
    out = io.StringIO()
    worlds = hold_together([few, LIVE["one block"]], {})
    show_worlds(worlds, Console(file=out, width=120))
    title, first, *_, last = out.getvalue().splitlines()
    assert title == "Made of values"
    assert first.startswith("virtual: With 1 complete block nothing can be tested")
    assert last == "To beware of in the report: 1 thing in the live world."
    assert "Best for" not in out.getvalue()


def test_marks_of_the_table_are_verdicts() -> None:
    rows = {line.split()[0]: line.split()[1:] for line in screen(LIVE["mute"])}
    words = {"better": ["▼"], "worse": ["▲"], "equivalent": ["="], "inconclusive": []}
    (virtual,), (live,) = VIRTUAL.comparisons, LIVE["mute"].comparisons
    for arm in RIVALS:
        expected = []
        for name in ("control", "produce", "fetch"):
            for of in (virtual, live):
                cell = of.cell(name, arm, "p99_ms")
                if cell.shown_contrast is None:
                    expected += ["–"]
                    continue
                value = ratio(cell.shown_contrast.ratio.value)
                expected += [value, *words[cell.verdict.word]]
        assert rows[arm] == expected
    assert rows["priority"][1:3] == ["▼", "–"]
    assert rows["fifo"][:2] == ["11.0", "ms"]


# ---- what was picked for its size ----


def test_the_best_arm_is_told_with_an_interval_for_one_that_was_picked() -> None:
    """By hand: Student's t at 5 % over six arms."""
    (comparison,) = VIRTUAL.comparisons
    runs = comparison.run_values
    logs = [
        np.log([r.values["p99_ms"] for r in runs if (r.class_name, r.arm) == key])
        for key in (("control", "priority"), ("control", "fifo"))
    ]
    difference = logs[0] - logs[1]
    error = difference.std(ddof=1) / np.sqrt(BLOCKS)
    half = student.ppf(1 - 0.05 / 6 / 2, BLOCKS - 1) * error
    ends = [ratio(float(np.exp(difference.mean() + it))) for it in (-half, half)]
    said = f"interval for all 6 arms at once {'–'.join(ends)}, p ="
    ranking = rank(comparison, "control", comparison.headline)
    assert said in answer(comparison, ranking)[0]
    assert said in " ".join(lead(comparison))


def test_an_interval_by_itself_misses_the_truth_of_the_best_of_equals_too_often() -> (
    None
):
    """Six arms without a difference, 4000 times: the lowest is picked.

    An interval misses the lowest one at its upper end. In units of the true error its
    half is the t of 12 blocks times s, the root of a chi square of 11 over 11, and six
    normal means all lie above -t s with the sixth power of one's probability. Four
    standard errors are 0.02.
    """
    logs = np.random.default_rng(6).normal(0.0, 1.0, (4000, BLOCKS, 6))
    means = logs.mean(axis=1)
    errors = logs.std(axis=1, ddof=1) / np.sqrt(BLOCKS)
    lowest = means.argmin(axis=1)[:, None]
    mean, error = (np.take_along_axis(of, lowest, 1)[:, 0] for of in (means, errors))

    def covered(level: float) -> float:
        half = student.ppf(0.5 + level / 2, BLOCKS - 1) * error
        return float(np.mean((mean - half <= 0) & (mean + half >= 0)))

    grid = (np.arange(2000) + 0.5) / 2000
    s = np.sqrt(chi2.ppf(grid, BLOCKS - 1) / (BLOCKS - 1))
    expected = float(np.mean(ndtr(student.ppf(0.975, BLOCKS - 1) * s) ** 6))
    assert expected < 0.91
    assert covered(0.95) == pytest.approx(expected, abs=0.02)
    assert covered(1 - 0.05 / 6) > 0.95
