"""JSON of components, stickers and polls."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from sandbox.discord.state.guild import DiscordContent

Json = dict[str, Any]

#: Values that Discord adds to selects, separators and containers.
_DEFAULTS: Mapping[int, Json] = {
    **{kind: {"min_values": 1, "max_values": 1} for kind in (3, 5, 6, 7, 8)},
    14: {"spacing": 1, "divider": True},
    17: {"accent_color": None, "spoiler": False},
}


def create_extra_fields(content: DiscordContent) -> Json:
    """Return the JSON fields of a message's stickers and poll."""
    about: Json = {}
    if content.stickers:
        names = enumerate(content.stickers, 1)
        about["sticker_items"] = [{"id": str(number), "name": name, "format_type": 1} for number, name in names]
    if content.poll:
        question, *answers = content.poll
        about["poll"] = {
            "question": {"text": question},
            "answers": [
                {"answer_id": number, "poll_media": {"text": answer}} for number, answer in enumerate(answers, 1)
            ],
            "expiry": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
            "allow_multiselect": False,
            "layout_type": 1,
            "results": {"answer_counts": [], "is_finalized": False},
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


def iterate_components(components: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield components and their nested components, also accessories."""
    for component in components:
        yield component
        yield from iterate_components(component.get("components", ()))
        yield from iterate_components([component["accessory"]] if component.get("accessory") else ())
