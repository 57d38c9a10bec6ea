"""Sizes, docstrings, imported libraries, banned calls and commit subjects.

The source is parsed by ``ast`` and not imported, so code within functions counts, too.
An exception to a rule is a line in one of the tables below.
"""

import ast
import random
import re
import shutil
import subprocess
import tokenize
import warnings
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.architecture import PACKAGES

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
GENERATED = ("broker", "protocol", "messages")

# Files that may import these libraries.
ALLOWED_IMPORTS = {
    "trio": (
        "planes/dispatcher.py",
        "planes/slices.py",
        "broker/client/*.py",
        "broker/observation/busy_time.py",
        "broker/observation/supervisor.py",
        "broker/observation/metrics/endpoint.py",
        "broker/network/*.py",
        "broker/node/*_shell.py",
        "broker/coordination/*.py",
        "broker/zookeeper/*.py",
        "broker/replication/fetcher_manager.py",
        "broker/replication/isr_changes.py",
        "broker/observation/recording/sampler.py",
        "broker/process.py",
        "broker/server.py",
        "broker/requests/timer.py",
        "doorkeeper/testing/*.py",
        "doorkeeper/web_console/*.py",
        "bench/*.py",
        "experiments/cluster/*.py",
        "experiments/processes/cut_off.py",
        "simulation/*.py",
        "experiments/worlds/*.py",
    ),
    "hypercorn": ("doorkeeper/web_console/*.py",),
    "starlette": ("doorkeeper/web_console/*.py",),
    "kio": ("broker/*.py",),
    "kazoo": (),
    "simpy": ("bench/*.py",),
    "ciw": ("bench/*.py",),
    "pyspark": ("spark_analysis/*.py", "experiments/running/executors/*.py"),
}
# Too slow to import for a broker that must answer within a second.
HEAVY = ("numpy", "scipy", "pandas", "matplotlib", "pyarrow", "pyspark", "typst")

# Lines of code: a file above the first warns, a function above the second fails.
FILE_LINES, FUNCTION_LINES = 600, 80
# First words of docstrings that begin a clause or are no ordinary verb.
VAGUE_WORDS = frozenset(
    ("What", "Who", "Where", "How", "Which", "Let", "Say", "Tell", "Have", "That")
)
SENTENCE_WORDS = 40
# Commands, and child processes whose output the parent reads.
MAY_PRINT = (
    "bench/*.py",
    "experiments/load/episodes.py",
    "experiments/processes/idle_probe.py",
    "experiments/processes/neighbours.py",
    "broker/process.py",
    "spark_analysis/false_verdicts.py",
    "spark_analysis/claims.py",
    "spark_analysis/dose_response.py",
    "spark_analysis/out_of_sample.py",
)
# Modules that must be deterministic: no clock, randomness or input/output.
PURE = (
    "schedulers/*.py",
    "planes/plane.py",
    "planes/cpu.py",
    "planes/admission/*.py",
    "planes/laws.py",
    "planes/lending.py",
    "broker/log/*.py",
    "broker/groups/*.py",
    "broker/requests/purgatory.py",
    "broker/cluster/delayed/*.py",
    "broker/cluster/fetch_sessions.py",
    "broker/cluster/metadata_cache.py",
    "broker/cluster/partition.py",
    "broker/cluster/topic_configs.py",
    "broker/cluster/cluster_topics.py",
    "broker/controller/*.py",
    "broker/coordination/adoption.py",
    "broker/coordination/commands.py",
    "broker/disk/log_dirs.py",
    "broker/node/background.py",
    "broker/observation/histogram.py",
    "broker/protocol/schemas/composing.py",
    "broker/zookeeper/connect_string.py",
    "broker/zookeeper/jute.py",
    "broker/zookeeper/zookeeper_messages.py",
    "broker/zookeeper/watches.py",
    "broker/zookeeper/in_memory/zookeeper_journal.py",
    "broker/zookeeper/in_memory/service.py",
    "broker/zookeeper/in_memory/zookeeper_sessions.py",
    "broker/zookeeper/in_memory/zookeeper_transactions.py",
    "broker/zookeeper/in_memory/tree.py",
    "spark_analysis/statistics/*.py",
)
IMPURE_MODULES = (
    *("time", "os", "socket", "asyncio", "threading", "datetime", "trio", "select"),
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Each rule, and the files that must keep it.
RULES = {}


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def is_listed(path, patterns):
    return any(fnmatch(name_of(path), pattern) for pattern in patterns)


def tree_of(path):
    return ast.parse(path.read_text(), filename=str(path))


def imports_of(nodes):
    """Yield the top-level name and the line of each import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module.partition(".")[0], node.lineno


def run_at_import(tree):
    """Walk the code that runs at import, without the bodies of functions."""
    pending = list(ast.iter_child_nodes(tree))
    while pending:
        node = pending.pop()
        yield node
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not is_function and not is_for_type_checkers(node):
            pending += ast.iter_child_nodes(node)


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


class Source:
    """A file, parsed and walked once for all rules."""

    def __init__(self, path, tree):
        self.path = path
        self.tree = tree
        self._nodes = defaultdict(list)
        for node in ast.walk(self.tree):
            self._nodes[type(node)].append(node)
        self.calls = [(dotted(it.func), it) for it in self.of(ast.Call)]
        self.docstrings = [
            (it.body[0].lineno, docstring)
            for it in self.of(ast.Module, ast.ClassDef, *FUNCTIONS)
            if (docstring := ast.get_docstring(it))
        ]

    def of(self, *kinds):
        """Return the nodes of these kinds."""
        return [node for kind in kinds for node in self._nodes.get(kind, ())]


def dotted(node):
    """Return a dotted name; of another expression the attributes at its end."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))


def rule(paths):
    """Register a rule for files: it yields the line and the name of each breach."""

    def registered(judge):
        RULES[judge] = frozenset(paths)
        return judge

    return registered


@pytest.fixture(scope="module")
def breaches():
    """Breaches of every rule, from one walk over all files."""
    found = {judge: [] for judge in RULES}
    for path in [*SOURCES, *TESTS]:
        source = Source(path, tree_of(path))
        for judge, paths in RULES.items():
            if path in paths:
                found[judge] += [
                    f"{name_of(path)}:{line}: {what}" for line, what in judge(source)
                ]
    return found


# ---- imports ------------------------------------------------------------------------


@rule(SOURCES)
def imports_of_libraries(source):
    for name, line in imports_of(source.of(ast.Import, ast.ImportFrom)):
        allowed = ALLOWED_IMPORTS.get(name)
        if allowed is not None and not is_listed(source.path, allowed):
            yield line, f"imports {name}"


def test_only_listed_files_import_the_libraries_that_shape_a_program(breaches):
    assert breaches[imports_of_libraries] == []


LIGHT = ("schedulers/*", "planes/*", "broker/*", "doorkeeper/*")


@rule(path for path in SOURCES if is_listed(path, LIGHT))
def heavy_imports(source):
    for name, line in imports_of(run_at_import(source.tree)):
        if name in HEAVY:
            yield line, f"imports {name} at import time"


def test_a_broker_starts_without_the_heavy_libraries(breaches):
    assert breaches[heavy_imports] == []


@rule(path for path in SOURCES if is_listed(path, PURE))
def impurities(source):
    for name, line in imports_of(source.of(ast.Import, ast.ImportFrom)):
        if name in IMPURE_MODULES:
            yield line, f"imports {name}"
    for node in source.of(ast.AsyncFunctionDef, ast.Await):
        yield node.lineno, "is async"


def test_the_pure_core_brings_no_clock_and_no_device(breaches):
    assert breaches[impurities] == []


# ---- shape --------------------------------------------------------------------------


@rule([*SOURCES, *TESTS])
def files_without_docstrings(source):
    if ast.get_docstring(source.tree) is None:
        yield 1, "no docstring"


def test_every_file_opens_with_a_docstring(breaches):
    assert breaches[files_without_docstrings] == []


def first_word_of(docstring):
    found = re.match(r"\W*(\w+)", docstring)
    return "" if found is None else found.group(1)


def sentences_of(docstring):
    """Yield the sentences of the prose, without examples, diagrams and lists."""
    for paragraph in re.split(r"\n\s*\n", docstring):
        if not re.search(r"^\s*(>>>|[-*:|=]|\d+\.)|^ {4}|::$", paragraph, re.MULTILINE):
            yield from re.split(r"(?<=[.!?:;])\s+", paragraph)


@rule([*SOURCES, *TESTS])
def vague_docstrings(source):
    for line, docstring in source.docstrings:
        if first_word_of(docstring) in VAGUE_WORDS:
            yield line, docstring.splitlines()[0]


def test_docstrings_begin_with_a_thing_or_an_imperative(breaches):
    assert breaches[vague_docstrings] == []


@rule([*SOURCES, *TESTS])
def long_sentences(source):
    for line, docstring in source.docstrings:
        for sentence in sentences_of(docstring):
            if len(sentence.split()) > SENTENCE_WORDS:
                yield line, sentence


def test_sentences_of_docstrings_are_short(breaches):
    assert breaches[long_sentences] == []


def lines_of_code(path):
    """Return the number of lines without blank lines, comments and docstrings."""
    ignored = (
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
        *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING),
    )
    with path.open("rb") as file:
        lines = {
            line
            for it in tokenize.tokenize(file.readline)
            if it.type not in ignored
            for line in range(it.start[0], it.end[0] + 1)
        }
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


@pytest.mark.filterwarnings("always:more than:UserWarning")
def test_long_files_are_reported():
    """A long file gives a warning, not a failure."""
    for path in [*SOURCES, *TESTS]:
        lines = path.read_bytes().count(b"\n")
        if lines > FILE_LINES and lines_of_code(path) > FILE_LINES:
            warnings.warn(
                f"more than {FILE_LINES} lines of code: {name_of(path)}", stacklevel=1
            )


@rule([*SOURCES, *TESTS])
def long_functions(source):
    for node in source.of(*FUNCTIONS):
        lines = node.end_lineno - node.lineno + 1
        if lines > FUNCTION_LINES:
            yield node.lineno, f"{node.name} has {lines} lines"


def test_no_function_is_too_long(breaches):
    assert breaches[long_functions] == []


def test_test_files_have_different_names():
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


# Speeds are rows of `make bench`; a comment would go out of date unnoticed.
SPEED = re.compile(
    r"\b\d[\d.]* ?(?:us|microseconds?)\b|\b(?:twice|times|half) (?:faster|slower)\b"
)
MAY_TELL_SPEEDS = (
    "bench/*.py",
    # Linux's timer slack.
    "experiments/load/openloop.py",
)


def test_modules_of_a_package_have_different_names():
    """Generated messages have the names of their APIs' handlers."""
    seen: dict[tuple[str, str], Path] = {}
    again = []
    for path in (it.relative_to(ROOT) for it in SOURCES):
        if path.stem.startswith("__") or path.parts[:3] == GENERATED:
            continue
        other = seen.setdefault((path.parts[0], path.name), path)
        if other is not path:
            again.append(f"{other} and {path}")
    assert not again


def test_no_comment_claims_a_speed():
    told = {
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in SOURCES
        if not is_listed(path, MAY_TELL_SPEEDS)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SPEED.search(line)
    }
    assert told == set()


# ---- calls --------------------------------------------------------------------------


@rule([*SOURCES, *TESTS])
def sleeps_in_async_code(source):
    waiting = source.of(ast.AsyncFunctionDef)
    for name, call in source.calls:
        if name == "time.sleep" and any(
            it.lineno <= call.lineno <= it.end_lineno for it in waiting
        ):
            yield call.lineno, "time.sleep in async code"


def test_no_function_sleeps_the_whole_process_in_async_code(breaches):
    assert breaches[sleeps_in_async_code] == []


def is_shared_coin(name):
    """Return whether a call draws from a global random generator."""
    module, _, function = name.rpartition(".")
    if module == "random":
        return hasattr(random, function) and function not in ("Random", "SystemRandom")
    if module in ("np.random", "numpy.random"):
        return function.islower() and function != "default_rng"
    return False


@rule([*SOURCES, *TESTS])
def random_numbers_without_a_seed(source):
    for name, call in source.calls:
        unseeded = name.endswith("default_rng") and not call.args
        if is_shared_coin(name) or unseeded:
            yield call.lineno, name
    for node in source.of(ast.ImportFrom):
        for alias in node.names:
            if node.module == "random" and is_shared_coin(f"random.{alias.name}"):
                yield node.lineno, f"from random import {alias.name}"


def test_every_random_number_comes_from_a_seed(breaches):
    assert breaches[random_numbers_without_a_seed] == []


@rule(path for path in SOURCES if not is_listed(path, MAY_PRINT))
def prints(source):
    for name, call in source.calls:
        if name == "print":
            yield call.lineno, "prints"


def test_nothing_prints_but_commands(breaches):
    assert breaches[prints] == []


@rule(SOURCES)
def swallowed_exceptions(source):
    for node in source.of(ast.ExceptHandler):
        catches_all = node.type is None or "BaseException" in ast.dump(node.type)
        uses_it = node.name is not None and any(
            isinstance(it, ast.Name) and it.id == node.name for it in ast.walk(node)
        )
        raises = any(isinstance(it, ast.Raise) for it in ast.walk(node))
        if catches_all and not (raises or uses_it):
            yield node.lineno, "swallows every exception"


def test_nothing_swallows_every_exception(breaches):
    """A bare ``except`` or ``except BaseException`` must re-raise or pass it on."""
    assert breaches[swallowed_exceptions] == []


# ---- commits ------------------------------------------------------------------------

# Earlier commits have another form of subject.
SUBJECTS_SINCE = "2026-11-26T19:40:00Z"
# One published subject that is a character too long.
TOO_LONG = "broker/node: write transaction markers, ask whether a partition was added"
SUBJECT = re.compile(r"(?=.{1,72}$)[a-z][\w./,+ -]*: [a-z`].*[^.]")


def test_subjects_of_commits_name_an_area_and_fit_a_line():
    """The form is ``area: imperative``, at most 72 characters, without a full stop."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no history here: these sources are no clone, or git is missing")
    # The owner of a checkout in a container may be another user.
    git = ["git", "-c", f"safe.directory={ROOT}"]
    command = [*git, "log", "--no-merges", f"--since={SUBJECTS_SINCE}", "--format=%s"]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    subjects = log.stdout.splitlines()
    bad = [it for it in subjects if not SUBJECT.fullmatch(it)]
    assert [it for it in bad if it != TOO_LONG] == []


# ---- the rules themselves -----------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [
        ("broker/log: validate records before append", True),
        ("planes, schedulers: name the thing first", True),
        ("Validate records before append", False),
        ("broker/log: validate records before append.", False),
        ("broker/log: Validate records before append", False),
        ("broker/log: " + "validate " * 8, False),
    ],
)
def test_a_subject_of_another_form_is_noticed(subject, is_good):
    assert bool(SUBJECT.fullmatch(subject)) == is_good


@pytest.mark.parametrize(
    ("judge", "text"),
    [
        (imports_of_libraries, "import kazoo"),
        (heavy_imports, "import numpy"),
        (impurities, "import time"),
        (impurities, "async def f():\n    pass"),
        (files_without_docstrings, "x = 1"),
        (vague_docstrings, 'def f():\n    """What it is."""'),
        (long_sentences, f'"""Words{" word" * SENTENCE_WORDS}."""'),
        (long_functions, "def f():\n" + "    x = 1\n" * FUNCTION_LINES),
        (sleeps_in_async_code, "async def f():\n    time.sleep(1)"),
        (random_numbers_without_a_seed, "random.random()"),
        (random_numbers_without_a_seed, "np.random.default_rng()"),
        (random_numbers_without_a_seed, "from random import shuffle"),
        (prints, "print(1)"),
        (swallowed_exceptions, "try:\n    f()\nexcept BaseException:\n    pass"),
    ],
)
def test_a_breach_of_each_rule_is_found(judge, text):
    assert judge in RULES
    assert [*judge(Source(ROOT / "sample.py", ast.parse(text)))] != []


def test_lines_of_code_are_counted_without_comments_and_docstrings(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text('"""One.\n\nTwo."""\n\n# three\nx = [\n    1,\n]\n')
    assert lines_of_code(path) == 3


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import trio.testing", {"trio"}),
        ("from planes.plane import x", {"planes"}),
        ("def f():\n    import numpy", set()),
        ("if TYPE_CHECKING:\n    import numpy", set()),
        ("class A:\n    import numpy", {"numpy"}),
        ("try:\n    import numpy\nexcept E:\n    pass", {"numpy"}),
    ],
)
def test_an_import_is_found_wherever_it_runs(source, names):
    found = {name for name, _ in imports_of(run_at_import(ast.parse(source)))}
    assert found == names


def test_there_is_something_to_check():
    assert len(SOURCES) > 30
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)
