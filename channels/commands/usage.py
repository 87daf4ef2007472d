"""Usage command: a user's spending, and for admins the spending of all."""

from datetime import UTC, datetime

from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from core.usage.prices import format_dollars
from core.usage.spending_ledger import SpendingStore, SpendingSum

#: The most users in a report for admins.
MAX_USERS = 20


async def render_usage(
    spending: SpendingStore, *, platform: str, author: str, place: str, is_admin: bool, say: MessageCatalog
) -> str:
    """Return a report of the spending of a user and of a place, today and this month (UTC).

    An admin also gets the total of all platforms, and the `MAX_USERS` users with the highest spending this month.
    """
    now = datetime.now(UTC)
    today = f"{now:%Y-%m-%d}"
    month = f"{now:%Y-%m}-01"
    lines = list[str]()
    sums = list[SpendingSum]()
    scopes: list[tuple[str, str | None, str | None]] = [
        (words.USAGE_YOURS, f"{platform}:{author}", None),
        (words.USAGE_HERE, None, place),
        *([(words.USAGE_ALL, None, None)] if is_admin else []),
    ]
    for sentence, scope_author, scope_place in scopes:
        (day_sum,), (month_sum,) = [
            await spending.sum_spending(since=since, author=scope_author, place=scope_place) for since in (today, month)
        ]
        lines.append(_line(sentence, day_sum, month_sum, say))
        sums.append(month_sum)
    if is_admin:
        by_day = {spent.key: spent for spent in await spending.sum_spending("user", since=today)}
        people = await spending.sum_spending("user", since=month)
        for spent in people[:MAX_USERS]:
            name = _code(spent.name or spent.key or say(words.UNKNOWN_USER))
            lines.append(f"  {_line('', by_day.get(spent.key, SpendingSum()), spent, say, name=name)}")
        if len(people) > MAX_USERS:
            lines.append(f"  - {say(words.USAGE_MORE, count=len(people) - MAX_USERS)}")
    if unpriced := max(spent.unpriced for spent in sums):
        lines.append(f"- {say(words.USAGE_UNPRICED, tokens=f'{unpriced:,}')}")
    return "\n".join([say(words.USAGE_TITLE), "", *lines])


def _line(sentence: str, day: SpendingSum, month: SpendingSum, say: MessageCatalog, *, name: str = "") -> str:
    amounts = {
        "day": format_dollars(day.cost),
        "day_tokens": f"{day.input + day.output:,}",
        "month": format_dollars(month.cost),
        "month_tokens": f"{month.input + month.output:,}",
    }
    line = f"- {name or say(sentence)}: {say(words.USAGE_SPENT, **amounts)}"
    if month.cached or month.cache_write:
        line += f"; {say(words.USAGE_CACHE, read=f'{month.cached:,}', written=f'{month.cache_write:,}')}"
    return line


def _code(name: str) -> str:
    return f"`{' '.join(name.replace('`', '').split())[:80]}`"
