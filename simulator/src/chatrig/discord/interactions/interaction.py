"""Interactions of users with the bot, and the modals that the bot opens for them."""

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from chatrig.discord.state.messages import DiscordMessage, DiscordUser, GuildChannel
from chatrig.discord.state.payloads import Json

ACTION_ROW, LABEL = 1, 18


@dataclass(eq=False, slots=True)
class DiscordInteraction:
    """Interaction of a user with the bot.

    Attributes:
        type: the type of the interaction, such as `COMMAND`.
        responses: the messages that the bot posted in response.
        original_response: the first response; for an update, the message with the component. None before one.
        component_message: the message whose button or menu was used; None without one.
        target_message: the message in whose context menu the command was run; None without one.
        follow_up_request_count: the number of requests for follow-up messages, also of refused ones.
        choices: the bot's choices for autocompletion.
        modal: the submitted modal; None without one.
        token: token with which the bot responds.
        created_at: monotonic time in seconds.
        acknowledged: event that is set once the bot has acknowledged the interaction.
    """

    id: str
    type: int
    user: DiscordUser
    channel: GuildChannel
    responses: list[DiscordMessage] = field(default_factory=list)
    original_response: DiscordMessage | None = None
    component_message: DiscordMessage | None = None
    target_message: DiscordMessage | None = None
    follow_up_request_count: int = 0
    choices: Sequence[Json] = ()
    modal: "DiscordModal | None" = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(64))
    created_at: float = field(default_factory=monotonic)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class DiscordModal:
    """Open modal of one user.

    Attributes:
        custom_id: the id that the bot has chosen.
        components: the JSON that the bot sent; each component has an id.
        interaction: the interaction for which the bot opened the modal.
    """

    user: DiscordUser
    custom_id: str
    title: str
    components: Sequence[Json]
    interaction: "DiscordInteraction"

    @property
    def inputs(self) -> dict[str, Json]:
        """JSON of the modal's input components by custom id.

        An input in a label component also has the `label` and `description` of that component.
        """
        return {part["custom_id"]: part for part in iterate_inputs(self.components)}


def iterate_inputs(components: Sequence[Mapping[str, Any]]) -> Iterator[Json]:
    """Yield a copy of each input component in a modal's action rows and labels.

    An input in a label component also has the `label` and `description` of that component.
    """
    for component in components:
        if component["type"] == ACTION_ROW:
            yield from (dict(part) for part in component["components"])
        elif component["type"] == LABEL:
            about = {name: component[name] for name in ("label", "description") if component.get(name)}
            yield {**component["component"], **about}
