"""What was spent, for operators: as a table, or as JSON."""

import json
from datetime import UTC, date, datetime

from rich.console import Console
from rich.table import Table

from bot.cli.database import opened
from bot.settings import Settings
from core.errors import SettingsError
from core.usage import By
from core.usage.prices import Prices, dollars, exact
from core.usage.spending import LAST, Spending, Spent


async def usage(settings: Settings, by: By, *, since: str, until: str, as_json: bool) -> str:
    """What was spent by each, from a day to another, both counted in (`2026-01-31`, UTC).

    Args:
        since: by default, the first of this month.
        until: by default, today.

    Raises:
        SettingsError: one of the two is no day, or the prices cannot be read.
        StoreError: the database cannot be used.
    """
    begin, end = _day(since or f"{datetime.now(UTC):%Y-%m}-01"), _day(until) if until else LAST
    async with opened(settings) as database:
        spending = Spending(database, Prices(settings.prices_file))
        rows = await spending.spent(by, since=begin, until=end)
        (total,) = await spending.spent(since=begin, until=end)
    return json.dumps([_as_json(row, by) for row in rows], indent=2) if as_json else _table(rows, total, by, begin)


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise SettingsError(f"{text}: this is no day; write 2026-01-31") from None


def _as_json(spent: Spent, by: By) -> dict[str, str | int]:
    """With the dollars to the last digit, as text."""
    name = {"name": spent.name} if by == "person" else {}
    tokens = {name: getattr(spent, name) for name in ("input", "cached", "cache_write", "output", "unpriced")}
    return {by: spent.key, **name, "calls": spent.calls, **tokens, "dollars": exact(spent.cost)}


def _table(rows: list[Spent], total: Spent, by: By, since: str) -> str:
    table = Table(by, "calls", "read", "cached", "cache write", "written", "cost", title=f"since {since} (UTC)")
    for column in table.columns[1:]:
        column.justify = "right"
    for spent in (*rows, total):
        counts = (f"{count:,}" for count in (spent.calls, spent.input, spent.cached, spent.cache_write, spent.output))
        label = "in all" if spent is total else f"{spent.name} ({spent.key})" if spent.name else spent.key or "nobody"
        table.add_row(label, *counts, dollars(spent.cost), end_section=bool(rows) and spent is rows[-1])
    console = Console(width=120, highlight=False, markup=False)
    with console.capture() as said:
        console.print(table)
        if total.unpriced:
            console.print(f"No price is known for {total.unpriced:,} of these tokens; they are not in the cost.")
    return said.get().rstrip()
