"""The layers of every package, as one table for the rules and for docs/map.md.

``python tests/architecture.py`` rewrites docs/map.md.

An arrow is an import anywhere in a file. Imports under ``TYPE_CHECKING`` count for
cycles of files only, which are forbidden, too. A name imported from a facade (an
``__init__.py`` of imports only) counts as an import of its defining module.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Packages that a package may import besides itself.
PACKAGES = {
    "schedulers": (),
    "planes": ("schedulers",),
    "broker": ("schedulers", "planes"),
    "simulation": ("schedulers", "planes", "broker"),
    "experiments": ("schedulers", "planes", "broker", "simulation"),
    "spark_analysis": (),
    "doorkeeper": (
        *("schedulers", "planes", "broker", "simulation", "experiments"),
        "spark_analysis",
    ),
    "bench": ("schedulers", "planes", "broker", "simulation", "experiments"),
}

# Bottom to top. A row may import the rows below it, but not itself or the rows above. A
# name covers its folder and all inner folders without a row of their own. "." is the
# package's own modules. A single module is a composition root.
LAYERS = {
    "schedulers": (("contract",), ("orders",), ("policies",), ("registry",)),
    "planes": ((".",),),
    "broker": (
        ("protocol", "observation"),
        ("shards", "tls"),
        (
            "disk",
            "config",
            "authentication",
            "authorization",
            "groups.state",
            "client",
            "controller",
        ),
        ("log", "requests", "groups", "transactions", "zookeeper"),
        ("quotas",),
        ("network", "cluster", "application"),
        (
            "observation.recording",
            "observation.metrics",
            "coordination",
            "replication",
        ),
        ("node",),
        ("apis",),
        ("handling",),
        ("server", "assembly"),
        ("process",),
    ),
    "simulation": (
        ("virtual_time",),
        (".",),
        ("clients", "control"),
        ("swarm",),
    ),
    "experiments": (
        ("design", "processes", "traces"),
        ("load",),
        ("records",),
        ("worlds",),
        ("cluster",),
        ("worlds.model", "worlds.virtual", "worlds.live"),
        ("worlds.kafka",),
        ("running.world_registry",),
        ("running", "theory"),
        ("running.executors",),
        ("running.launching",),
        ("running.experiment_command",),
    ),
    "spark_analysis": (
        ("statistics",),
        ("recordings",),
        ("judging",),
        ("incidents",),
        ("report",),
        (".",),
    ),
    "doorkeeper": (("local_cluster", "web_console"), ("testing",), (".",)),
    "bench": ((".",),),
}
# Layers with fewer allowed imports than all layers below.
ONLY = {
    "broker.client": ("broker.client", "broker.protocol", "broker.tls"),
    "broker.controller": ("broker.controller", "broker.protocol"),
    "broker.zookeeper": (
        *("broker.zookeeper", "broker.client", "broker.protocol", "broker.disk"),
    ),
}

MAP = ROOT / "docs/map.md"
_HEAD = """\
# Map of the folders

Written by `python tests/architecture.py` from the layers in `tests/architecture.py`
and the first line of each folder's `__init__.py`. A folder may import those in the
layers below its own. [ARCHITECTURE.md](../ARCHITECTURE.md) is the tour.
"""


@dataclass(frozen=True)
class SourceTree:
    """All modules of the project, and the imports between them."""

    trees: dict[str, ast.Module]
    paths: dict[str, Path]
    faces: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    _arrows: dict[bool, list[tuple[str, str]]] = field(default_factory=dict)

    @classmethod
    def read(cls) -> "SourceTree":
        """Read the packages below the root."""
        trees, paths = {}, {}
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                parts = path.relative_to(ROOT).with_suffix("").parts
                name = ".".join(parts).removesuffix(".__init__")
                trees[name] = ast.parse(path.read_text(), filename=str(path))
                paths[name] = path
        source = cls(trees, paths)
        for name, path in paths.items():
            if path.name == "__init__.py" and _is_face(trees[name]):
                source.faces[name] = dict(_handed_on(trees[name]))
        return source

    def folder(self, module: str) -> str:
        """Return the folder of ``module``, as a dotted name."""
        return ".".join(self.paths[module].relative_to(ROOT).parent.parts)

    def arrows(self, *, for_types: bool = False) -> list[tuple[str, str]]:
        """Return each (importer, imported) once, without the imports by facades.

        With ``for_types``, imports under ``TYPE_CHECKING`` count as well.
        """
        if for_types not in self._arrows:
            self._arrows[for_types] = [*self._walked(for_types=for_types)]
        return self._arrows[for_types]

    def _walked(self, *, for_types: bool) -> Iterator[tuple[str, str]]:
        for name, tree in self.trees.items():
            if name not in self.faces:
                nodes = ast.walk(tree) if for_types else walk(tree)
                yield from ((name, it) for it in sorted(self._imported(name, nodes)))

    def _imported(self, module: str, nodes: Iterable[ast.AST]) -> set[str]:
        found = set()
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                assert node.module is not None, f"{module}: relative import"
                found |= {self._definer(node.module, it.name) for it in node.names}
            elif isinstance(node, ast.Import):
                found |= {it.name for it in node.names}
        return {it for it in found if it in self.trees} - {module}

    def _definer(self, module: str, name: str) -> str:
        """Return the module that defines the name in ``from module import name``."""
        if f"{module}.{name}" in self.trees:
            return f"{module}.{name}"
        if name in self.faces.get(module, {}):
            return self._definer(*self.faces[module][name])
        return module


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without its ``TYPE_CHECKING`` blocks."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        pending += ast.iter_child_nodes(node)


def _is_face(tree: ast.Module) -> bool:
    return all(
        isinstance(it, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr)
        for it in tree.body
    )


def _handed_on(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            assert node.module
            for it in node.names:
                yield it.asname or it.name, (node.module, it.name)


def layer_of(module: str, folder: str) -> tuple[str, int]:
    """Return a module's layer, and the layer's height in its package.

    A module with a row of its own is a root. Otherwise the longest row that covers its
    folder applies.
    """
    package = module.partition(".")[0]
    heights = {
        package if name == "." else f"{package}.{name}": height
        for height, row in enumerate(LAYERS[package])
        for name in row
    }
    if module in heights:
        return module, heights[module]
    covering = [it for it in heights if f"{folder}.".startswith(f"{it}.")]
    assert covering, f"{module}: tests/architecture.py has no row for {folder}"
    layer = max(covering, key=len)
    return layer, heights[layer]


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def the_map(source: SourceTree) -> str:
    """Return the text of docs/map.md: layers top to bottom, folders, modules."""
    lines = [_HEAD]
    for package, rows in LAYERS.items():
        lines += [f"## `{package}/`", "", _first_line(source, package), ""]
        if len(rows) > 1:
            drawn = (" · ".join(f"`{name}`" for name in row) for row in reversed(rows))
            lines += ["Layers, top to bottom: " + " / ".join(drawn), ""]
        folders = sorted({source.folder(it) for it in source.trees if _in(it, package)})
        for folder in folders:
            modules = [
                it.rpartition(".")[2]
                for it in sorted(source.trees)
                if source.folder(it) == folder and it != folder
            ]
            said = "" if folder == package else f" {_first_line(source, folder)}"
            names = ", ".join(f"`{it}`" for it in modules)
            path = folder.replace(".", "/")
            lines.append(f"- **`{path}/`**{said} {names}".rstrip())
        lines.append("")
    return "\n".join(lines)


def _in(module: str, package: str) -> bool:
    return module.partition(".")[0] == package


def _first_line(source: SourceTree, package: str) -> str:
    return (ast.get_docstring(source.trees[package]) or "").partition("\n")[0]


if __name__ == "__main__":
    MAP.write_text(the_map(SourceTree.read()))
