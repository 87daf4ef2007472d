"""Statements that are run so often that they are compiled once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement in the words of one driver.

    Attributes:
        writes: whether it changes the database.
    """

    sql: str
    writes: bool
    _defaults: Mapping[str, Any]
    _places: tuple[str, ...]
    _binders: Mapping[str, Callable[[Any], Any]]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values of the parameters in the order of their places in `sql`."""
        known = {**self._defaults, **values}
        for name, bind in self._binders.items():
            known[name] = bind(known[name])
        return [known[name] for name in self._places]


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement of one or several databases' dialects.

    What it reads comes as the driver has it: JSON is text.

    Attributes:
        make: makes it, for the dialect of that name.
    """

    make: Callable[[str], sa.Select[Any] | sa.CompoundSelect[Any] | sa.UpdateBase]

    def prepared(self, dialect: Dialect) -> Prepared:
        made = self.make(dialect.name)
        compiled = made.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        binders = {name: _binder(parameter.type, dialect) for name, parameter in compiled.binds.items()}
        return Prepared(
            str(compiled),
            made.is_dml,
            compiled.params,
            tuple(compiled.positiontup or ()),
            {name: bind for name, bind in binders.items() if bind is not None},
        )


def _binder(kind: sa.types.TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)
