"""Statements that are run so often that they are compiled once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler


@dataclass(frozen=True, slots=True)
class Step:
    """What a driver is asked at once."""

    sql: str
    _defaults: Mapping[str, Any]
    _places: tuple[str, ...]
    _binders: Mapping[str, Callable[[Any], Any]]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values of the parameters in the order of their places in `sql`."""
        known = {**self._defaults, **values}
        for name, bind in self._binders.items():
            known[name] = bind(known[name])
        return [known[name] for name in self._places]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement in the words of one driver.

    Attributes:
        writes: whether it changes the database.
        steps: usually one.
    """

    writes: bool
    steps: Sequence[Step]


Made = sa.Select[Any] | sa.CompoundSelect[Any] | sa.UpdateBase


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement of one or several databases' dialects.

    What it reads comes as the driver has it: JSON is text.

    Attributes:
        make: makes it, for the dialect of that name. For SQLite it may be several that write.
    """

    make: Callable[[str], Made | tuple[Made, ...]]

    def prepared(self, dialect: Dialect) -> Prepared:
        made = self.make(dialect.name)
        steps = made if isinstance(made, tuple) else (made,)
        return Prepared(any(step.is_dml for step in steps), [_step(step, dialect) for step in steps])


def _step(made: Made, dialect: Dialect) -> Step:
    compiled = made.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    binders = {name: _binder(parameter.type, dialect) for name, parameter in compiled.binds.items()}
    return Step(
        str(compiled),
        compiled.params,
        tuple(compiled.positiontup or ()),
        {name: bind for name, bind in binders.items() if bind is not None},
    )


def _binder(kind: sa.types.TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)
