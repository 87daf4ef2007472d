"""Interactions of users with the bot, and the modals that it opens for them."""

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from sandbox.discord.state.guild import DiscordMessage, DiscordUser, GuildChannel
from sandbox.discord.state.payloads import Json

ACTION_ROW, LABEL = 1, 18


@dataclass(eq=False, slots=True)
class DiscordInteraction:
    """A user's interaction with the bot.

    Attributes:
        responses: the messages that the user sees for it.
        original_response: the first response.
        component_message: the message whose button was clicked.
        target_message: the message whose menu the command was chosen from.
        choices: the choices for autocompletion.
        modal: the submitted modal.
    """

    id: str
    type: int
    user: DiscordUser
    channel: GuildChannel
    responses: list[DiscordMessage] = field(default_factory=list)
    original_response: DiscordMessage | None = None
    component_message: DiscordMessage | None = None
    target_message: DiscordMessage | None = None
    follow_up_count: int = 0
    choices: Sequence[Json] = ()
    modal: "DiscordModal | None" = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(64))
    created_at: float = field(default_factory=monotonic)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class DiscordModal:
    """Modal that one user sees.

    Attributes:
        components: as sent, with an id each.
        interaction: the command or click that the bot opened it for.
    """

    user: DiscordUser
    custom_id: str
    title: str
    components: Sequence[Json]
    interaction: "DiscordInteraction"

    @property
    def inputs(self) -> dict[str, Json]:
        """Inputs by custom id; each has the `label`, and perhaps the `description`, of its label component."""
        return {part["custom_id"]: part for part in iterate_inputs(self.components)}


def iterate_inputs(components: Sequence[Mapping[str, Any]]) -> Iterator[Json]:
    for component in components:
        if component["type"] == ACTION_ROW:
            yield from (dict(part) for part in component["components"])
        elif component["type"] == LABEL:
            about = {name: component[name] for name in ("label", "description") if component.get(name)}
            yield {**component["component"], **about}
