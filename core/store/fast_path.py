"""Fast path for single statements: the drivers' own calls, without SQLAlchemy's.

These are `aiosqlite.Connection.execute_fetchall` and `asyncpg.Connection.fetch`. SQLAlchemy's adapter of aiosqlite
goes to the connection's thread five times for one statement, which doubles the time of a short statement.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.compiler import SQLCompiler

BuiltStatement = sa.Select[Any] | sa.CompoundSelect[Any] | sa.UpdateBase


@dataclass(frozen=True, slots=True)
class PreparedStatement:
    """A `Statement` compiled for one driver.

    Attributes:
        writes: whether it changes the database.
        sql: the text for the driver.
    """

    writes: bool
    sql: str
    _defaults: Mapping[str, Any]
    _positions: tuple[str, ...]
    _binders: Mapping[str, Callable[[Any], Any]]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values of the parameters in the order in which `sql` uses them."""
        known = {**self._defaults, **values}
        for name, bind in self._binders.items():
            known[name] = bind(known[name])
        return [known[name] for name in self._positions]

    async def fetch(self, connection: AsyncConnection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run the statement as one transaction, and return its rows.

        Args:
            connection: a connection without a transaction; an error closes it, since its state is unknown then.
            values: the bind parameters by name.
        """
        arguments = self.arguments(values)
        driver: Any = (await connection.get_raw_connection()).driver_connection
        try:
            if connection.dialect.name == "postgresql":
                return list(await driver.fetch(self.sql, *arguments))
            return list(await driver.execute_fetchall(self.sql, arguments))
        except BaseException:
            await connection.invalidate()
            raise


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement that is compiled once per database and run by the driver itself.

    Rows are as the driver returns them: JSON is text.

    Attributes:
        make: builds the statement for a dialect's name.
    """

    make: Callable[[str], BuiltStatement]

    def compile_for(self, dialect: Dialect) -> PreparedStatement:
        """Return the statement compiled for a dialect."""
        built = self.make(dialect.name)
        compiled = built.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        binders = {
            name: parameter.type.dialect_impl(dialect).bind_processor(dialect)
            for name, parameter in compiled.binds.items()
        }
        return PreparedStatement(
            built.is_dml,
            str(compiled),
            compiled.params,
            tuple(compiled.positiontup or ()),
            {name: bind for name, bind in binders.items() if bind is not None},
        )
