"""`parley usage`: spending by user, channel, model or day."""

from datetime import UTC, date, datetime

from bot import output as tables
from bot.cli.database import open_database
from bot.settings import Settings
from core.errors import SettingsError
from core.usage import SpendingDimension
from core.usage.prices import Prices, format_dollars, format_exact_dollars
from core.usage.spending import LAST_DAY, SpendingStore, SpendingSum

_COLUMNS = ("calls", "input", "cached", "cache write", "output", "cost")


async def print_usage(settings: Settings, by: SpendingDimension, *, since: str, until: str, as_json: bool) -> None:
    """Print the spending between two days, both included (`2026-01-31`, UTC).

    Args:
        since: first day; the first of this month if empty.
        until: last day; today if empty.

    Raises:
        SettingsError: a day is malformed, or the prices cannot be read.
        StoreError: the database cannot be used.
    """
    begin, end = _parse_day(since or f"{datetime.now(UTC):%Y-%m}-01"), _parse_day(until) if until else LAST_DAY
    async with open_database(settings) as database:
        spending = SpendingStore(database, Prices(settings.prices_file))
        rows = await spending.sum_spending(by, since=begin, until=end)
        (total,) = await spending.sum_spending(since=begin, until=end)
    if as_json:
        tables.print_json([_to_json(row, by) for row in rows])
        return
    lines = [_row(tables.format_user(row.name, row.key) or "nobody", row) for row in rows]
    title = f"Usage since {begin} (UTC)"
    tables.print_table(title, [by, *_COLUMNS], lines, right_aligned=_COLUMNS, total=_row("total", total))
    if total.unpriced:
        tables.print_lines(f"{total.unpriced:,} of these tokens have no price and are not in the cost.")


def _parse_day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise SettingsError(f"{text} is not a day: write 2026-01-31") from None


def _to_json(spent: SpendingSum, by: SpendingDimension) -> dict[str, str | int]:
    """Return the sums as JSON, with the exact dollars as text."""
    name = {"name": spent.name} if by == "person" else {}
    tokens = {name: getattr(spent, name) for name in ("input", "cached", "cache_write", "output", "unpriced")}
    return {by: spent.key, **name, "calls": spent.calls, **tokens, "dollars": format_exact_dollars(spent.cost)}


def _row(label: str, spent: SpendingSum) -> list[object]:
    return [label, spent.calls, spent.input, spent.cached, spent.cache_write, spent.output, format_dollars(spent.cost)]
