"""JSON of components, stickers and polls."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from sandbox.discord.state.guild import Guild
from sandbox.discord.state.messages import DiscordMessage

Json = dict[str, Any]

#: Values that Discord adds to selects, separators and containers.
_DEFAULTS: Mapping[int, Json] = {
    **{kind: {"min_values": 1, "max_values": 1} for kind in (3, 5, 6, 7, 8)},
    14: {"spacing": 1, "divider": True},
    17: {"accent_color": None, "spoiler": False},
}


def create_extra_fields(message: DiscordMessage, guild: Guild) -> Json:
    """Return the JSON fields of a message's stickers and poll."""
    about: Json = {}
    if message.content.stickers:
        names = guild.integrations.stickers
        about["sticker_items"] = [{"id": key, "name": names[key], "format_type": 1} for key in message.content.stickers]
    if (poll := message.content.poll) is not None:
        is_over = message.is_poll_over or poll.expires_at <= datetime.now(UTC)
        votes = [(number, users) for number, users in sorted(message.poll_votes.items()) if users]
        about["poll"] = {
            "question": {"text": poll.question},
            "answers": [{"answer_id": number, "poll_media": media} for number, media in enumerate(poll.answers, 1)],
            "expiry": poll.expires_at.isoformat(),
            "allow_multiselect": poll.allows_multiple,
            "layout_type": 1,
            "results": {
                "answer_counts": [
                    {"id": number, "count": len(users), "me_voted": guild.bot.id in users} for number, users in votes
                ],
                "is_finalized": is_over,
            },
        }
    return about


def assign_component_ids(components: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return components as Discord returns them: with a numeric id each, and with default values."""
    numbers = count(1)

    def one(component: Mapping[str, Any]) -> Json:
        about: Json = {"id": next(numbers), **component}
        if "components" in about:
            about["components"] = [one(inner) for inner in about["components"]]
        for name in ("accessory", "component"):
            if name in about:
                about[name] = one(about[name])
        return about | {name: value for name, value in _DEFAULTS.get(about["type"], {}).items() if name not in about}

    return [one(component) for component in components]
