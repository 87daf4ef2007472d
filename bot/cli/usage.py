"""`parley usage`: spending by person, place, model or day."""

from datetime import UTC, date, datetime

from bot import output as tables
from bot.cli.database import opened
from bot.settings import Settings
from core.errors import SettingsError
from core.usage import SpendingDimension
from core.usage.prices import Prices, format_dollars, format_exact_dollars
from core.usage.spending import LAST_DAY, SpendingStore, SpendingSum

_COLUMNS = ("calls", "read", "cached", "cache write", "written", "cost")


async def usage(settings: Settings, by: SpendingDimension, *, since: str, until: str, as_json: bool) -> None:
    """Print the spending between two days, both included (`2026-01-31`, UTC).

    Args:
        since: by default, the first of this month.
        until: by default, today.

    Raises:
        SettingsError: one of the two is no day, or the prices cannot be read.
        StoreError: the database cannot be used.
    """
    begin, end = _day(since or f"{datetime.now(UTC):%Y-%m}-01"), _day(until) if until else LAST_DAY
    async with opened(settings) as database:
        spending = SpendingStore(database, Prices(settings.prices_file))
        rows = await spending.sum_spending(by, since=begin, until=end)
        (total,) = await spending.sum_spending(since=begin, until=end)
    if as_json:
        tables.dump([_as_json(row, by) for row in rows])
        return
    lines = [_line(tables.person(row.name, row.key) or "nobody", row) for row in rows]
    title = f"Usage since {begin} (UTC)"
    tables.show(title, [by, *_COLUMNS], lines, numbers=_COLUMNS, total=_line("in all", total))
    if total.unpriced:
        tables.say(f"No price is known for {total.unpriced:,} of these tokens; they are not in the cost.")


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise SettingsError(f"{text}: this is no day; write 2026-01-31") from None


def _as_json(spent: SpendingSum, by: SpendingDimension) -> dict[str, str | int]:
    """Return the sums with all digits of the dollars, as text."""
    name = {"name": spent.name} if by == "person" else {}
    tokens = {name: getattr(spent, name) for name in ("input", "cached", "cache_write", "output", "unpriced")}
    return {by: spent.key, **name, "calls": spent.calls, **tokens, "dollars": format_exact_dollars(spent.cost)}


def _line(label: str, spent: SpendingSum) -> list[object]:
    return [label, spent.calls, spent.input, spent.cached, spent.cache_write, spent.output, format_dollars(spent.cost)]
