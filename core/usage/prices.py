"""Prices of models: `prices.toml`, and an operator's own file that overrides it.

Amounts of money are whole trillionths of a dollar: every list price of one token is a whole number of them, and sums
are exact.
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

UNITS_PER_DOLLAR = 10**12

_DEFAULT_FILE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of one token of a model, in trillionths of a dollar.

    Attributes:
        output: of an output or thinking token.
        cached: of an input token read from the vendor's prompt cache.
        cache_write: of an input token written to the vendor's prompt cache.
    """

    input: int
    output: int
    cached: int
    cache_write: int

    def cost_of(self, call: ModelCall) -> int:
        cached = min(call.cached, call.input)
        cache_write = min(call.cache_write, call.input - cached)
        read = (call.input - cached - cache_write) * self.input + cached * self.cached + cache_write * self.cache_write
        return read + (call.output + call.thinking) * self.output


#: Dollars for a million tokens. A higher price than this is a typing error.
_Dollars = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6, allow_inf_nan=False)]


class _PriceRow(BaseModel, extra="forbid"):
    """Row of a price file: the prices of one model, in dollars for a million tokens.

    `cached` and `cache_write` are None if they cost as much as `input`.
    """

    input: _Dollars
    output: _Dollars
    cached: _Dollars | None = None
    cache_write: _Dollars | None = None

    @property
    def price(self) -> Price:
        cached = self.input if self.cached is None else self.cached
        cache_write = self.input if self.cache_write is None else self.cache_write
        return Price(*(int(amount * 10**6) for amount in (self.input, self.output, cached, cache_write)))


class Prices:
    """Prices of models by their full names.

    Args:
        file: an operator's price file, whose rows override the default ones.

    Raises:
        SettingsError: the file cannot be read or is not a price file.

    Attributes:
        as_of: date `written` in the operator's file, or else in the default file.
    """

    def __init__(self, file: Path | None = None) -> None:
        prices, self.as_of = _read_file(_DEFAULT_FILE)
        own_prices, own_date = _read_file(file) if file is not None else ({}, None)
        self._prices: Mapping[str, Price] = {**prices, **own_prices}
        self.as_of = own_date or self.as_of

    @cached_property
    def _prefixes(self) -> list[str]:
        prefixes = (name.removesuffix("*") for name in self._prices if name.endswith("*"))
        return sorted(prefixes, key=len, reverse=True)

    @property
    def names(self) -> list[str]:
        """Full names of models that have a price, without patterns such as `gemini-*`."""
        return [name for name in self._prices if not name.endswith("*")]

    def get_price(self, model: str) -> Price | None:
        """Return the price of a model, or else of the longest matching pattern, such as `gemini-*`."""
        if model in self._prices:
            return self._prices[model]
        prefix = next((prefix for prefix in self._prefixes if model.startswith(prefix)), None)
        return None if prefix is None else self._prices[f"{prefix}*"]

    def get_cost(self, call: ModelCall) -> int | None:
        """Return the cost of a model call in trillionths of a dollar; None without a known price."""
        price = self.get_price(call.model)
        return None if price is None else price.cost_of(call)

    def total_cost(self, calls: Iterable[ModelCall]) -> tuple[int, int]:
        """Return the cost in trillionths of a dollar, and the number of tokens without a known price."""
        costs = [(call, self.get_cost(call)) for call in calls]
        return sum(cost or 0 for _, cost in costs), sum(call.tokens for call, cost in costs if cost is None)


def to_amount(dollars: Decimal) -> int:
    """Return an amount in dollars as trillionths of a dollar, rounded toward zero."""
    return int(dollars * UNITS_PER_DOLLAR)


def format_dollars(amount: int) -> str:
    """Return trillionths of a dollar as text for people, such as `$1.23`, `$0.0123` or `<$0.0001`."""
    dollars = Decimal(amount) / UNITS_PER_DOLLAR
    if dollars >= 1 or not amount:
        return f"${dollars:,.2f}"
    return "<$0.0001" if dollars < Decimal("0.0001") else f"${dollars:.4f}"


def format_exact_dollars(amount: int) -> str:
    """Return trillionths of a dollar as an exact decimal of dollars, such as `0.0012`."""
    return f"{Decimal(amount) / UNITS_PER_DOLLAR:f}"


def _read_file(file: Path) -> tuple[dict[str, Price], datetime.date | None]:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise SettingsError(f"PRICES_FILE: {file} is not TOML") from None
    except OSError as error:
        raise SettingsError(f"PRICES_FILE: {file} cannot be read ({error.strerror})") from None
    as_of = table.pop("written", None)
    if as_of is not None and not isinstance(as_of, datetime.date):
        raise SettingsError(f"PRICES_FILE: {file}: `written` is not a date")
    faults = list[str]()
    prices = dict[str, Price]()
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
    return prices, as_of
