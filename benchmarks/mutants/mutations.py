"""Mutations: small changes of one expression or statement, described by function and source text.

A description has no line number, so that it still applies after other changes of its module.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("bot", "channels", "core")

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True)
class Mutation:
    """One change of a function.

    Attributes:
        path: the module, relative to the repository.
        function: the qualified name in the module, such as "TurnStore.claim".
        before: the changed expression or statement, as `ast.unparse` writes it.
        after: its replacement.
        occurrence: the position among equal changes of the function, from 0.
    """

    path: str
    function: str
    before: str
    after: str
    occurrence: int = 0


@dataclass(frozen=True)
class Candidate:
    """A mutation and the node that it replaces."""

    mutation: Mutation
    function: ast.FunctionDef | ast.AsyncFunctionDef
    node: ast.expr | ast.stmt


def list_candidates(root: Path) -> list[Candidate]:
    """Return all possible mutations of the packages, in the order of their source."""
    paths = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return [candidate for path in paths for candidate in _list_candidates(path, str(path.relative_to(root)))]


def apply_mutation(candidate: Candidate, source: str) -> str:
    """Return the module's source with the mutation."""
    node, lines = candidate.node, source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    is_plain = isinstance(node, ast.stmt | ast.Constant)
    after = candidate.mutation.after if is_plain else f"({candidate.mutation.after})"
    data = source.encode()
    return (data[:start] + after.encode() + data[end:]).decode()


def _list_candidates(path: Path, name: str) -> Iterator[Candidate]:
    for function, qualified in _list_functions(ast.parse(path.read_text()), ""):
        counts = Counter[tuple[str, str]]()
        for node in _list_nodes(function):
            for replacement in _mutate(node):
                before, after = ast.unparse(node), ast.unparse(replacement)
                mutation = Mutation(name, qualified, before, after, counts[before, after])
                counts[before, after] += 1
                yield Candidate(mutation, function, node)


def _list_functions(node: ast.AST, prefix: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name != "__repr__":
                yield child, prefix + child.name
        elif isinstance(child, ast.ClassDef):
            yield from _list_functions(child, f"{prefix}{child.name}.")


def _list_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes of a function's body, without annotations, docstrings, log calls and parts of f-strings."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.expr | ast.stmt):
            yield node
        skipped: tuple[object, ...] = ()
        if isinstance(node, ast.AnnAssign):
            skipped = (node.annotation,)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            skipped = (node.args, node.returns)
        elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and _is_log_or_docstring(node.value)):
            continue
        waiting += reversed([child for child in ast.iter_child_nodes(node) if child not in skipped])


def _is_log_or_docstring(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or ast.unparse(node).startswith("log.")


def _mutate(node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [operator, *operators], comparators):
            yield ast.Compare(left, [_COMPARISONS[type(operator)](), *operators], comparators)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, alternative):
            yield ast.IfExp(test, alternative, body)
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            yield ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(str() as value):
            yield ast.Constant("" if value else "mutated")
        case ast.Return(value) if value is not None and not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Await() as value) if not _is_log_or_docstring(value):
            yield ast.Pass()
        case ast.Raise():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
