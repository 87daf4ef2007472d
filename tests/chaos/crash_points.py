"""Crash points before and after every `await` of the program's code.

An import hook compiles the program's modules with a call before and after each awaited expression. `set_callback` sets
the called function.
"""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]

#: Packages of the program.
PACKAGES = ("bot", "channels", "core")

#: Global names of the functions that an instrumented module calls.
_BEFORE_AWAIT, _AFTER_AWAIT, _ITERATE, _ENTER = (
    "__chaos_before_await__",
    "__chaos_after_await__",
    "__chaos_iterate__",
    "__chaos_enter__",
)

_report_point: Callable[[str], None] = lambda _point: None  # noqa: E731 - the default before `set_callback`


def set_callback(on_point: Callable[[str], None]) -> None:
    """Set the function that is called at each crash point that this process passes.

    Args:
        on_point: receives the point as `path:line:column moment`.
    """
    global _report_point  # noqa: PLW0603 - one callback for all modules of the process
    _report_point = on_point


def list_points(source: str, path: str) -> list[str]:
    """Return the crash points of a module's source, in no order.

    Args:
        path: the module's path in the points.
    """
    collector = _Instrumenter(path)
    collector.visit(ast.parse(source))
    return collector.points


def list_all_points() -> list[str]:
    """Return the crash points of all modules of the program."""
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [point for file in files for point in list_points(file.read_text(), file.relative_to(ROOT).as_posix())]


def module_of(point: str) -> str:
    """Return the path of the module that contains a crash point."""
    return point.partition(":")[0]


class _Instrumenter(ast.NodeTransformer):
    """AST transformer that adds a call at each crash point of a module.

    Attributes:
        points: the crash points of the transformed source.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.points: list[str] = []

    def visit_Await(self, node: ast.Await) -> ast.AST:
        location = self._add_points(node, "before", "after")
        self.generic_visit(node)
        node.value = _call(_BEFORE_AWAIT, location, node.value)
        return _call(_AFTER_AWAIT, location, node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        location = self._add_points(node, "before", "after")
        self.generic_visit(node)
        node.iter = _call(_ITERATE, location, node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        location = self._add_points(node.target, "before", "after") if node.is_async else None
        self.generic_visit(node)
        if location is not None:
            node.iter = _call(_ITERATE, location, node.iter)
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        locations = [
            self._add_points(item.context_expr, "before entering", "after entering", "before leaving", "after leaving")
            for item in node.items
        ]
        self.generic_visit(node)
        for item, location in zip(node.items, locations, strict=True):
            item.context_expr = _call(_ENTER, location, item.context_expr)
        return node

    def _add_points(self, node: ast.expr | ast.stmt, *moments: str) -> str:
        location = f"{self._path}:{node.lineno}:{node.col_offset + 1}"
        self.points += [f"{location} {moment}" for moment in moments]
        return location


def _call(name: str, location: str, value: ast.expr) -> ast.Call:
    call = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(location), value], [])
    return ast.fix_missing_locations(ast.copy_location(call, value))


def _before_await(location: str, awaitable: Any) -> Any:
    _report_point(f"{location} before")
    return awaitable


def _after_await(location: str, value: Any) -> Any:
    _report_point(f"{location} after")
    return value


class _InstrumentedIterable:
    """Async iterable that reports a crash point before and after each item."""

    def __init__(self, location: str, iterable: Any) -> None:
        self._location = location
        self._iterable = iterable

    def __aiter__(self) -> "_InstrumentedIterable":
        self._iterator = aiter(self._iterable)
        return self

    async def __anext__(self) -> Any:
        _report_point(f"{self._location} before")
        try:
            return await anext(self._iterator)
        finally:
            _report_point(f"{self._location} after")


class _InstrumentedContext:
    """Async context manager that reports crash points at its entry and exit."""

    def __init__(self, location: str, context: Any) -> None:
        self._location = location
        self._context = context

    async def __aenter__(self) -> Any:
        _report_point(f"{self._location} before entering")
        value = await self._context.__aenter__()
        _report_point(f"{self._location} after entering")
        return value

    async def __aexit__(self, *error: Any) -> Any:
        _report_point(f"{self._location} before leaving")
        try:
            return await self._context.__aexit__(*error)
        finally:
            _report_point(f"{self._location} after leaving")


#: Functions that an instrumented module calls, by their global names.
NAMES: Mapping[str, Any] = {
    _BEFORE_AWAIT: _before_await,
    _AFTER_AWAIT: _after_await,
    _ITERATE: _InstrumentedIterable,
    _ENTER: _InstrumentedContext,
}


class _Loader(SourceFileLoader):
    """Module loader that instruments a module's source and writes no bytecode file."""

    def get_code(self, fullname: str) -> CodeType:
        path = Path(self.get_filename(fullname))
        return compile_instrumented(path.read_text(), path.relative_to(ROOT).as_posix(), str(path))

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(NAMES)
        super().exec_module(module)


def compile_instrumented(source: str, path: str, filename: str) -> CodeType:
    """Return a module's code with calls at its crash points.

    The globals to run it with must contain `NAMES`.

    Args:
        path: the module's path in the points.
        filename: the name of the file in tracebacks.
    """
    tree = _Instrumenter(path).visit(ast.parse(source, filename))
    return compile(tree, filename, "exec")


class _Finder(MetaPathFinder):
    """Import hook that instruments the program's modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


def install() -> None:
    """Install the import hook, which instruments later imports of program modules.

    Raises:
        RuntimeError: a module of the program is already imported.
    """
    if any(name.partition(".")[0] in PACKAGES for name in sys.modules):
        raise RuntimeError("modules of the program were imported before the hook that instruments them")
    sys.meta_path.insert(0, _Finder())
