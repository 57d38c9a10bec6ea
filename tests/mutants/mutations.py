"""Single changes to a source file: one comparison, operator, constant or call.

They are found by ``ast`` and made in the text, so a survivor is shown as a diff of one
line. Code without a testable effect is excluded: assertions (including ``strict`` of
``zip``), logging, ``__repr__``, annotations, class decorators (mypy checks ``frozen``
and ``slots``), and ``check`` methods, which only assert.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_COMPARISONS: Final = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OPERATORS: Final = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.Pow: ("**", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
_LEFT_ALONE: Final = ("__repr__", "check", "__str__")
_QUIET: Final = ("logger", "warnings", "logging")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A range of a file's characters, and its replacement."""

    start: int
    end: int
    new: str
    kind: str
    line: int

    def of(self, source: str) -> str:
        """Return the changed file."""
        return source[: self.start] + self.new + source[self.end :]


def mutations(source: str) -> list[Mutation]:
    """Return all single changes of a file, in order.

    >>> [each.of("a = b < 1") for each in mutations("a = b < 1")]
    ['a = b <= 1', 'a = b < 2']
    """
    text = _Text(source)
    found = [each for node in _walk(ast.parse(source)) for each in _of(text, node)]
    return sorted(set(found), key=lambda each: (each.start, each.new))


class _Text:
    """A source text, with conversion of a node's line and byte column."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column]
        return self._starts[line - 1] + len(before.decode())

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.end_lineno, node.end_col_offset)


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that can be mutated."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name in _LEFT_ALONE:
                continue
            # Skip the signature: annotations and default values.
            yield from _walk(ast.Module(node.body, []))
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from _walk(ast.Expression(node.value))
                yield node.value
        elif isinstance(node, ast.ClassDef):
            yield from _walk(ast.Module(node.body, []))
        elif not _is_quiet(node):
            yield node
            yield from _walk(node)


def _is_quiet(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    if isinstance(node, ast.Raise):
        # The type of an error matters, its message does not.
        return True
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and ast.unparse(call.func).startswith(_QUIET)


def _of(text: _Text, node: ast.AST) -> Iterator[Mutation]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(
            operands, node.ops, operands[1:], strict=False
        ):
            yield from _between(text, left, right, _COMPARISONS[type(operator)])
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        if not _is_text(node.left) and not _is_text(node.right):
            yield from _between(text, node.left, node.right, _OPERATORS[type(node.op)])
    elif isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from _between(text, left, right, _OPERATORS[type(node.op)])
    elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
        old, new = _OPERATORS[type(node.op)]
        yield from _between(text, node.target, node.value, (f"{old}=", f"{new}="))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        start = text.start(node)
        size = 3 if isinstance(node.op, ast.Not) else 1
        yield Mutation(start, start + size, "", "operator", node.lineno)
    else:
        yield from _constant_or_call(text, node)


def _constant_or_call(text: _Text, node: ast.AST) -> Iterator[Mutation]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        new = str(not node.value if isinstance(node.value, bool) else node.value + 1)
        yield Mutation(text.start(node), text.end(node), new, "constant", node.lineno)
    elif isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            yield Mutation(
                text.start(node), text.end(node), "pass", "call", node.lineno
            )


def _between(
    text: _Text, left: ast.expr, right: ast.expr, words: tuple[str, str]
) -> Iterator[Mutation]:
    """Yield the change of the operator between two operands."""
    old, new = words
    start, end = text.end(left), text.start(right)
    at = text.source.find(old, start, end)
    if at >= 0:
        kind = "comparison" if words in _COMPARISONS.values() else "operator"
        yield Mutation(at, at + len(old), new, kind, left.lineno)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
