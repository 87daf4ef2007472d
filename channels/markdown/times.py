"""Times in the bot's Markdown: each reader sees them in their own time zone.

Markdown has Discord's token. Slack's dialect replaces it by Slack's.
"""

from datetime import UTC, datetime


def format_time(at: float) -> str:
    """Return the token for a time; readers see the date and the minute."""
    return f"<t:{int(at)}:f>"


def format_utc(at: float) -> str:
    """Return a time as `YYYY-MM-DD HH:MM (UTC)`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} (UTC)"
