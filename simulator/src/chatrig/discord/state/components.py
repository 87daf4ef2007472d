"""JSON of message components, stickers and polls."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any
from zlib import crc32

from chatrig.discord.state.guild import Guild
from chatrig.discord.state.messages import DiscordMessage, iterate_components

Json = dict[str, Any]

FILE = 13
_MEDIA_DEFAULTS: Json = {"description": None, "spoiler": False}
#: Values that Discord adds to selects, thumbnails, files, separators and containers.
_DEFAULTS: Mapping[int, Json] = {
    **{kind: {"min_values": 1, "max_values": 1} for kind in (3, 5, 6, 7, 8)},
    11: _MEDIA_DEFAULTS,
    FILE: {"spoiler": False},
    14: {"spacing": 1, "divider": True},
    17: {"accent_color": None, "spoiler": False},
}


def create_extra_fields(message: DiscordMessage, guild: Guild) -> Json:
    """Return the JSON fields of a message's stickers and poll.

    They are `sticker_items` and `poll`; each is left out if the message has none.
    """
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


def create_components(components: Sequence[Mapping[str, Any]], attachments: Sequence[Json]) -> list[Json]:
    """Return the components of a message as Discord returns them.

    They have ids, default values and resolved media.

    Args:
        components: the components as the bot sent them.
        attachments: the JSON of the message's files.
    """
    shown, files = assign_component_ids(components), {file["filename"]: file for file in attachments}
    for component in iterate_components(shown):
        if component["type"] == FILE:
            file = files[component["file"]["url"].removeprefix("attachment://")]
            component |= {"name": file["filename"], "size": file["size"]}
        for path, holder in list_media(component):
            name = path.split(".")[-2]
            holder[name] = _create_media(holder[name]["url"], files)
    return shown


def assign_component_ids(components: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return copies of components with default values and a numeric id for each.

    Nested components are included. Discord: docs.discord.com/developers/components/reference, "Anatomy of a
    Component". An id of 0 is none, and new ids differ from those that the bot has set.
    """
    given_ids = {component.get("id") for component in iterate_components(components)}
    numbers = (number for number in count(1) if number not in given_ids)

    def complete(component: Mapping[str, Any]) -> Json:
        about: Json = {**component, "id": component.get("id") or next(numbers)}
        if "components" in about:
            about["components"] = [complete(inner) for inner in about["components"]]
        if "items" in about:
            about["items"] = [_MEDIA_DEFAULTS | item for item in about["items"]]
        for name in ("accessory", "component"):
            if name in about:
                about[name] = complete(about[name])
        return about | {name: value for name, value in _DEFAULTS.get(about["type"], {}).items() if name not in about}

    return [complete(component) for component in components]


def list_media(component: Json) -> list[tuple[str, Json]]:
    """Return the pair (path, holder) for each media item of a component itself.

    Nested components are ignored. The path leads to the item's URL in the component, such as `items.0.media.url`. The
    holder is the JSON object with the field `media` or `file`: the component itself or one of its `items`.
    """
    holders = {"": component} | {f"items.{number}.": item for number, item in enumerate(component.get("items", ()))}
    return [(f"{path}{name}.url", item) for path, item in holders.items() for name in ("media", "file") if name in item]


def _create_media(url: str, files: Mapping[str, Json]) -> Json:
    """Return the JSON of a media item: a file of the message, or another URL.

    Args:
        url: `attachment://NAME` for a file of the message, or any other URL.
        files: JSON of the message's files by name.
    """
    about: Json = {"width": None, "height": None, "content_type": None}
    if not url.startswith("attachment://"):
        return about | {"id": str(crc32(url.encode())), "url": url, "proxy_url": url}
    file = files[url.removeprefix("attachment://")]
    about |= {name: file[name] for name in ("id", "url", "proxy_url", "content_type") if name in file}
    return about | {"attachment_id": file["id"]}
