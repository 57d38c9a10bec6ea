"""Layers and cycles of imports, and the map in docs/map.md.

The table is ``tests/architecture.py``. The source is parsed by ``ast`` and not
imported, so imports within functions count, too.
"""

import ast
from collections import defaultdict

import pytest

from tests.architecture import (
    LAYERS,
    MAP,
    ONLY,
    PACKAGES,
    SourceTree,
    circles,
    layer_of,
    the_map,
    walk,
)


@pytest.fixture(scope="module")
def source() -> SourceTree:
    return SourceTree.read()


def package_of(module: str) -> str:
    return module.partition(".")[0]


def test_packages_import_one_way_only(source: SourceTree) -> None:
    assert [
        f"{a} imports {b}"
        for a, b in source.arrows()
        if package_of(b) not in (package_of(a), *PACKAGES[package_of(a)])
    ] == []


def test_layers_inside_a_package_import_one_way_only(source: SourceTree) -> None:
    upward = []
    for a, b in source.arrows():
        if package_of(a) == package_of(b):
            from_layer, from_height = layer_of(a, source.folder(a))
            to_layer, to_height = layer_of(b, source.folder(b))
            if from_layer != to_layer and from_height <= to_height:
                upward.append(f"{a} imports {b}")
    assert upward == []


def test_some_layers_import_less_than_they_might(source: SourceTree) -> None:
    assert [
        f"{a} imports {b}"
        for a, b in source.arrows()
        for layer, allowed in ONLY.items()
        if f"{a}.".startswith(f"{layer}.")
        and not any(f"{b}.".startswith(f"{it}.") for it in allowed)
    ] == []


def test_no_files_import_each_other_in_a_circle(source: SourceTree) -> None:
    arrows = defaultdict(set)
    for a, b in source.arrows():
        arrows[a].add(b)
    assert circles(arrows) == []


def test_no_files_refer_to_each_other_in_a_circle_for_types(source: SourceTree) -> None:
    arrows = defaultdict(set)
    for a, b in source.arrows(for_types=True):
        arrows[a].add(b)
    assert circles(arrows) == []


def test_no_folders_import_each_other_in_a_circle(source: SourceTree) -> None:
    """A composition root with a row of its own in the table counts as a folder."""
    roots = {
        f"{package}.{name}"
        for package, rows in LAYERS.items()
        for row in rows
        for name in row
        if f"{package}.{name}" in source.trees
    }

    def place(module: str) -> str:
        return module if module in roots else source.folder(module)

    arrows = defaultdict(set)
    for a, b in source.arrows():
        if place(a) != place(b):
            arrows[place(a)].add(place(b))
    assert circles(arrows) == []


def test_every_row_of_the_table_is_there(source: SourceTree) -> None:
    assert set(LAYERS) == set(PACKAGES)
    rows = {
        package if name == "." else f"{package}.{name}"
        for package, rows in LAYERS.items()
        for row in rows
        for name in row
    }
    assert rows - set(source.trees) == set()


def test_the_map_is_current(source: SourceTree) -> None:
    message = "python tests/architecture.py writes it anew"
    assert MAP.read_text() == the_map(source), message


# ---- the rules themselves -----------------------------------------------------------


def test_a_circle_is_found_and_nothing_else() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert circles(arrows) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_imports_for_type_checkers_are_no_arrows() -> None:
    source = "import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    import c"
    found = [it.names[0].name for it in walk(ast.parse(source)) if hasattr(it, "names")]
    assert sorted(found) == ["a", "c"]


def test_a_name_from_a_face_is_an_arrow_to_its_definer(source: SourceTree) -> None:
    assert "schedulers" in source.faces
    arrows = set(source.arrows())
    assert ("broker.server", "schedulers") not in arrows
    assert not any(a == "schedulers" for a, _ in arrows)


def test_there_is_something_to_check(source: SourceTree) -> None:
    assert len(source.trees) > 300
    assert len(source.arrows()) > 1000
