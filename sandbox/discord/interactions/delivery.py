"""Commands and buttons: interactions given, acknowledged and answered.

Discord: docs.discord.com/developers/interactions/receiving-and-responding. An interaction is told once, or not at all;
it must be answered within 3 seconds, and then its token is good for a quarter of an hour.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.message_content import FILE_SIZE, content_of
from sandbox.discord.api.messages import SETTABLE_FLAGS, MessageRoutes
from sandbox.discord.api.requests import (
    ALREADY_ACKNOWLEDGED,
    INVALID_WEBHOOK_TOKEN,
    NO_CONTENT,
    TOO_MANY_FOLLOW_UPS,
    UNKNOWN_INTERACTION,
    UNKNOWN_MESSAGE,
    UNKNOWN_WEBHOOK,
    ApiRequest,
    ApiResponse,
    DiscordError,
    invalid,
)
from sandbox.discord.interactions.commands import MESSAGE, SLASH, CommandRegistry, given
from sandbox.discord.state.components import walked
from sandbox.discord.state.guild import (
    CHAT_COMMAND,
    DEFAULT,
    EPHEMERAL,
    LOADING,
    MENU_COMMAND,
    DiscordContent,
    DiscordMessage,
    DiscordUser,
    GuildChannel,
    MessageOrigin,
)
from sandbox.discord.state.payloads import Json
from sandbox.discord.state.snowflakes import new_id

ACK_TIMEOUT_SECONDS = 3.0
TOKEN_LIFE = 15 * 60.0
COMMAND, COMPONENT, COMPLETION = 2, 3, 4
SAY, DEFER, DEFER_UPDATE, UPDATE, COMPLETE = 4, 5, 6, 7, 8
#: Where somebody uses the app that only he has installed.
FOLLOW_UPS = 5
CHOICES = 25
#: Who tells the person that nobody has answered.
DISCORD = DiscordUser("0", "discord", "Discord")


@dataclass(eq=False, slots=True)
class DiscordInteraction:
    """What somebody has asked of the bot.

    Attributes:
        seen: what he was shown for it; `original` is the first of it.
        pressed: the message with the button.
        target: the message in whose menu a command was chosen.
        follow_ups: how many came.
        choices: what he may choose from, when he asked how to complete what he types.
    """

    id: str
    type: int
    user: DiscordUser
    channel: GuildChannel
    seen: list[DiscordMessage] = field(default_factory=list)
    original: DiscordMessage | None = None
    pressed: DiscordMessage | None = None
    target: DiscordMessage | None = None
    follow_ups: int = 0
    choices: Sequence[Json] = ()
    token: str = field(default_factory=lambda: secrets.token_urlsafe(64))
    given_at: float = field(default_factory=monotonic)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class DiscordInteractions:
    def __init__(
        self,
        api: DiscordRestApi,
        chat: MessageRoutes,
        commands: CommandRegistry,
        tell: Callable[[Json, str | None], bool],
        speed: float,
    ) -> None:
        self._api = api
        self._chat = chat
        self._commands = commands
        self._guild = api.guild
        self._tell = tell
        self._speed = speed
        self._given: dict[str, DiscordInteraction] = {}
        api.add("POST /interactions/{interaction}/{token}/callback", self._call_back)
        api.add("POST /webhooks/{application}/{token}", self._follow_up)
        answer = "/webhooks/{application}/{token}/messages/{message}"
        api.add(f"GET {answer}", self._read)
        api.add(f"PATCH {answer}", self._edit)
        api.add(f"DELETE {answer}", self._delete)

    # What people do

    async def give(
        self, user: DiscordUser, channel: GuildChannel, name: str, options: Mapping[str, Any]
    ) -> list[DiscordMessage]:
        """Give a slash command, and return what the person sees; the list grows with what comes later.

        Raises:
            ValueError: there is no such command, or it cannot be given like this.
        """
        data = given(self._commands.find(SLASH, name, channel), options)
        return await self._ask(DiscordInteraction(new_id(), COMMAND, user, channel), data)

    async def complete(self, user: DiscordUser, channel: GuildChannel, name: str, option: str, typed: str) -> list[str]:
        """Begin to type an option, and return what there is to choose from; nothing, if nobody says in time.

        Raises:
            ValueError: there is no such command or option, or it is not to be completed.
        """
        command = self._commands.find(SLASH, name, channel)
        if not any(one["name"] == option and one.get("autocomplete") for one in command.get("options", ())):
            raise ValueError(f"/{name} does not complete {option}")
        interaction = DiscordInteraction(new_id(), COMPLETION, user, channel)
        await self._is_answered(interaction, given(command, {option: typed}, focused=option))
        return [choice["name"] for choice in interaction.choices]

    async def choose(self, user: DiscordUser, message: DiscordMessage, name: str) -> list[DiscordMessage]:
        """Choose a command in the menu of a message, and return what the person sees; the list grows.

        Raises:
            ValueError: there is no such command.
        """
        command = self._commands.find(MESSAGE, name, message.channel)
        told = self._api.payloads.message(message)
        data = {"id": command["id"], "name": name, "type": MESSAGE, "target_id": message.id}
        interaction = DiscordInteraction(new_id(), COMMAND, user, message.channel, target=message)
        return await self._ask(interaction, data | {"resolved": {"messages": {message.id: told}}})

    async def press(self, user: DiscordUser, message: DiscordMessage, custom_id: str) -> list[DiscordMessage]:
        """Press a button of a message, and return what the person sees for it, beside the message itself.

        Raises:
            ValueError: the message has no such button.
        """
        buttons = walked(message.content.components)
        button = next((button for button in buttons if button.get("custom_id") == custom_id), None)
        if button is None or button.get("disabled"):
            raise ValueError(f"there is no button {custom_id} to be pressed")
        interaction = DiscordInteraction(new_id(), COMPONENT, user, message.channel, pressed=message)
        return await self._ask(interaction, {"custom_id": custom_id, "component_type": button["type"]})

    async def _ask(self, interaction: DiscordInteraction, data: Json) -> list[DiscordMessage]:
        if not await self._is_answered(interaction, data):
            content, user = DiscordContent("The application did not respond"), interaction.user
            failed = self._guild.post(interaction.channel, DISCORD, content, ephemeral_to=user, flags=EPHEMERAL)
            interaction.seen.append(failed)
        return interaction.seen

    async def _is_answered(self, interaction: DiscordInteraction, data: Json) -> bool:
        """Tell the bot, and wait for its first answer, as long as Discord does."""
        self._given[interaction.token] = interaction
        if self._tell(self._event(interaction, data), self._guild.id if interaction.channel.is_here else None):
            try:
                async with asyncio.timeout(ACK_TIMEOUT_SECONDS / self._speed):
                    return await interaction.answered.wait()
            except TimeoutError:
                pass
        return False

    def _event(self, interaction: DiscordInteraction, data: Json) -> Json:
        payloads, user, channel = self._api.payloads, interaction.user, interaction.channel
        about: Json = {
            "id": interaction.id,
            "application_id": self._guild.bot.id,
            "type": interaction.type,
            "data": data,
            "channel_id": channel.id,
            "channel": payloads.channel(channel),
            "token": interaction.token,
            "version": 1,
            "app_permissions": payloads.allowed() if channel.is_reached else "0",
            "locale": self._guild.locales.get(user.id, "en-US"),
            "entitlements": [],
            "authorizing_integration_owners": payloads.owners(user, channel),
            "context": channel.context,
            "attachment_size_limit": FILE_SIZE,
        }
        if interaction.pressed is not None:
            about["message"] = payloads.message(interaction.pressed)
        if channel.context:
            return about | {"user": payloads.user(user)}
        guild_id = channel.abroad or self._guild.id
        return about | {
            "guild_id": guild_id,
            "guild": {"id": guild_id, "locale": self._guild.locale, "features": []},
            "guild_locale": self._guild.locale,
            "member": payloads.member(user) | {"permissions": payloads.may(user)},
        }

    # The first answer

    def _call_back(self, request: ApiRequest) -> ApiResponse:
        interaction = self._given.get(request.ids["token"])
        if interaction is None or interaction.id != request.ids["interaction"]:
            raise DiscordError(404, UNKNOWN_INTERACTION, "Unknown interaction")
        if interaction.answered.is_set():
            raise DiscordError(400, ALREADY_ACKNOWLEDGED, "Interaction has already been acknowledged.")
        if monotonic() - interaction.given_at > ACK_TIMEOUT_SECONDS / self._speed:
            raise DiscordError(404, UNKNOWN_INTERACTION, "Unknown interaction")
        type_, form = request.form.get("type"), request.form.get("data") or {}
        if (type_ == COMPLETE) != (interaction.type == COMPLETION):
            raise invalid("type", "BASE_TYPE_CHOICES", "The value of field type is not one that can be answered with.")
        if type_ == COMPLETE:
            return self._complete(interaction, form)
        if type_ == SAY:
            interaction.original = self._say(interaction, request, form)
        elif type_ == DEFER:
            interaction.original = self._post(
                interaction, DiscordContent(), int(form.get("flags") or 0) & EPHEMERAL | LOADING
            )
        elif type_ in (DEFER_UPDATE, UPDATE) and interaction.pressed is not None:
            interaction.original = interaction.pressed
            if type_ == UPDATE:
                self._update(interaction.pressed, request, form)
        else:
            raise invalid("type", "BASE_TYPE_CHOICES", "The value of field type is not one that can be answered with.")
        interaction.answered.set()
        if request.query.get("with_response") not in ("1", "true", "True"):
            return NO_CONTENT
        return ApiResponse(self._callback_response(interaction, interaction.original, type_))

    def _complete(self, interaction: DiscordInteraction, form: Mapping[str, Any]) -> ApiResponse:
        choices = form.get("choices") or []
        if len(choices) > CHOICES or not all(1 <= len(str(choice.get("name"))) <= 100 for choice in choices):
            raise invalid("data.choices", "BASE_TYPE_BAD_LENGTH", f"{CHOICES} at most, of 1 to 100 characters each.")
        interaction.choices = choices
        interaction.answered.set()
        return NO_CONTENT

    def _callback_response(self, interaction: DiscordInteraction, message: DiscordMessage, type_: int) -> Json:
        about: Json = {"id": interaction.id, "type": interaction.type}
        if type_ in (SAY, DEFER):
            about |= {
                "response_message_id": message.id,
                "response_message_loading": message.loading,
                "response_message_ephemeral": message.ephemeral_to is not None,
            }
        if type_ in (DEFER, DEFER_UPDATE):
            return {"interaction": about}
        return {"interaction": about, "resource": {"type": type_, "message": self._shown(message)}}

    # What follows

    def _interaction(self, request: ApiRequest) -> DiscordInteraction:
        interaction = self._given.get(request.ids["token"])
        if interaction is None or monotonic() - interaction.given_at > TOKEN_LIFE / self._speed:
            raise DiscordError(401, INVALID_WEBHOOK_TOKEN, "Invalid Webhook Token")
        if not interaction.answered.is_set():
            raise DiscordError(404, UNKNOWN_WEBHOOK, "Unknown Webhook")
        return interaction

    def _follow_up(self, request: ApiRequest) -> ApiResponse:
        """Discord: the first one after a deferral takes its place; where the app is only there because a person has
        installed it for himself, there are at most five.
        """
        interaction = self._interaction(request)
        original = interaction.original
        interaction.follow_ups += 1
        if not interaction.channel.is_reached and interaction.follow_ups > FOLLOW_UPS:
            message = "This interaction has reached the maximum number of follow up messages."
            raise DiscordError(400, TOO_MANY_FOLLOW_UPS, message)
        if original is not None and original.loading:
            self._update(original, request, request.form)
            return ApiResponse(self._shown(original))
        return ApiResponse(self._shown(self._say(interaction, request, request.form)))

    def _edit(self, request: ApiRequest) -> ApiResponse:
        message = self._answer(request)
        self._update(message, request, request.form)
        return ApiResponse(self._shown(message))

    def _read(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._shown(self._answer(request)))

    def _delete(self, request: ApiRequest) -> ApiResponse:
        self._guild.delete(self._answer(request))
        return NO_CONTENT

    def _answer(self, request: ApiRequest) -> DiscordMessage:
        interaction, name = self._interaction(request), request.ids["message"]
        answers = [interaction.original, *interaction.seen]
        for message in answers if name != "@original" else answers[:1]:
            if message is not None and not message.deleted and name in ("@original", message.id):
                return message
        raise DiscordError(404, UNKNOWN_MESSAGE, "Unknown Message")

    def _say(self, interaction: DiscordInteraction, request: ApiRequest, form: Mapping[str, Any]) -> DiscordMessage:
        content = self._chat.permitted(content_of(request.body, form), interaction.channel)
        return self._post(interaction, content, int(form.get("flags") or 0) & (SETTABLE_FLAGS | EPHEMERAL))

    def _post(self, interaction: DiscordInteraction, content: DiscordContent, flags: int) -> DiscordMessage:
        first = interaction.type == COMMAND and interaction.original is None
        command = MENU_COMMAND if interaction.target else CHAT_COMMAND
        message = self._guild.post(
            interaction.channel,
            self._guild.bot,
            content,
            type=command if first else DEFAULT,
            flags=flags,
            ephemeral_to=interaction.user if flags & EPHEMERAL else None,
            origin=MessageOrigin(interaction.id, interaction.type, interaction.user, interaction.target),
            webhook=self._guild.bot.id,
        )
        interaction.seen.append(message)
        return message

    def _update(self, message: DiscordMessage, request: ApiRequest, form: Mapping[str, Any]) -> None:
        content = self._chat.permitted(content_of(request.body, form, message.content), message.channel)
        edited = not message.loading
        message.flags &= ~LOADING
        self._guild.update(message, content, edited=edited)

    def _shown(self, message: DiscordMessage) -> Json:
        return self._api.payloads.message(message)
