"""What a message is made of besides its text and its files, as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from sandbox.discord.state.guild import DiscordContent

Json = dict[str, Any]


def create_extra_fields(content: DiscordContent) -> Json:
    """What a message has that is neither text nor a file."""
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
    """Components with an id each, as Discord gives them where the app gave none."""
    numbers = count(1)

    def one(component: Mapping[str, Any]) -> Json:
        about: Json = {"id": next(numbers), **component}
        if "components" in about:
            about["components"] = [one(inner) for inner in about["components"]]
        return about

    return [one(component) for component in components]


def iterate_components(components: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The components, and all within them."""
    for component in components:
        yield component
        yield from iterate_components(component.get("components", ()))
