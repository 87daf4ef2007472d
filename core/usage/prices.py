"""What models cost: `prices.toml`, and an operator's own file that holds before it.

Money is counted in trillionths of a dollar, as whole numbers: a token of any list price is a whole number of them, and
sums are exact.
"""

import datetime
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from core.errors import SettingsError
from core.usage.meter import ModelCall

#: How many of them are a dollar.
DOLLAR = 10**12

_OURS = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Price:
    """What one token costs, in trillionths of a dollar."""

    input: int
    output: int
    cached: int
    cache_write: int

    def of(self, call: ModelCall) -> int:
        cached = min(call.cached, call.input)
        written = min(call.cache_write, call.input - cached)
        read = (call.input - cached - written) * self.input + cached * self.cached + written * self.cache_write
        return read + (call.output + call.thinking) * self.output


#: Dollars for a million tokens. A higher price than this is a typing error.
_Dollars = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6, allow_inf_nan=False)]


class _PriceRow(BaseModel, extra="forbid"):
    """A row of a price file."""

    input: _Dollars
    output: _Dollars
    cached: _Dollars | None = None
    cache_write: _Dollars | None = None

    @property
    def price(self) -> Price:
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        return Price(*(int(amount * 10**6) for amount in (self.input, self.output, cached, written)))


class Prices:
    """What models cost, by their full names.

    Args:
        file: holds before the list that comes with the package, name by name.

    Raises:
        SettingsError: the file cannot be read, or says something else than prices; names `PRICES_FILE`.

    Attributes:
        written: when the list was written down; of the operator's own file, if that says so.
    """

    def __init__(self, file: Path | None = None) -> None:
        ours, self.written = _read(_OURS)
        theirs, written = _read(file) if file is not None else ({}, None)
        self._prices: Mapping[str, Price] = {**ours, **theirs}
        self.written = written or self.written

    @cached_property
    def _prefixes(self) -> list[str]:
        """The longest first."""
        prefixes = (name.removesuffix("*") for name in self._prices if name.endswith("*"))
        return sorted(prefixes, key=len, reverse=True)

    @property
    def names(self) -> list[str]:
        """The models whose prices stand in the list by their names."""
        return [name for name in self._prices if not name.endswith("*")]

    def price(self, model: str) -> Price | None:
        """What a model costs; None if that is not known."""
        if (exact := self._prices.get(model)) is not None:
            return exact
        prefix = next((prefix for prefix in self._prefixes if model.startswith(prefix)), None)
        return None if prefix is None else self._prices[f"{prefix}*"]

    def cost(self, call: ModelCall) -> int | None:
        """What a call cost; None if that is not known."""
        price = self.price(call.model)
        return None if price is None else price.of(call)

    def bill(self, calls: Iterable[ModelCall]) -> tuple[int, int]:
        """What calls cost together, and how many tokens of theirs have no price that is known, and are not in it."""
        costs = [(call, self.cost(call)) for call in calls]
        return sum(cost or 0 for _, cost in costs), sum(call.tokens for call, cost in costs if cost is None)


def money(dollars: Decimal) -> int:
    """So many dollars."""
    return int(dollars * DOLLAR)


def dollars(amount: int) -> str:
    """As people read it: with cents, or with four digits of less than a dollar."""
    exact = Decimal(amount) / DOLLAR
    return (
        f"${exact:,.2f}" if exact >= 1 or not amount else "<$0.0001" if exact < Decimal("0.0001") else f"${exact:.4f}"
    )


def exact(amount: int) -> str:
    """In dollars, as machines read it: with all digits."""
    return f"{Decimal(amount) / DOLLAR:f}"


def _read(file: Path) -> tuple[dict[str, Price], datetime.date | None]:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise SettingsError(f"PRICES_FILE: {file} is not TOML") from None
    except OSError as error:
        raise SettingsError(f"PRICES_FILE: {file} cannot be read ({error.strerror})") from None
    written = table.pop("written", None)
    if written is not None and not isinstance(written, datetime.date):
        raise SettingsError(f"PRICES_FILE: {file}: `written` is not a date")
    faults, prices = list[str](), dict[str, Price]()
    for name, row in table.items():
        try:
            prices[name] = _PriceRow.model_validate(row).price
        except ValidationError:
            faults.append(
                f'PRICES_FILE: {file}: "{name}" is not {{ input = ..., output = ... }}, perhaps with cached = ... and '
                "cache_write = ..., in dollars for a million tokens, with up to 6 digits behind the point"
            )
    if faults:
        raise SettingsError(*faults)
    return prices, written
