"""Commands and buttons: interactions given, acknowledged and answered.

Discord: docs.discord.com/developers/interactions/receiving-and-responding. An interaction is told once, or not at all;
it must be answered within 3 seconds, and then its token is good for a quarter of an hour.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from sandbox.discord.api import Api
from sandbox.discord.chat import SETTABLE_FLAGS, Chat
from sandbox.discord.contents import FILE_SIZE, content_of
from sandbox.discord.guild import (
    CHAT_COMMAND,
    DEFAULT,
    EPHEMERAL,
    LOADING,
    Channel,
    Content,
    Message,
    Origin,
    User,
    new_id,
)
from sandbox.discord.payloads import Json, walked
from sandbox.discord.requests import (
    ALREADY_ACKNOWLEDGED,
    INVALID_WEBHOOK_TOKEN,
    NO_CONTENT,
    UNKNOWN_INTERACTION,
    UNKNOWN_MESSAGE,
    UNKNOWN_WEBHOOK,
    DiscordError,
    Reply,
    Request,
    invalid,
)

ACK_TIMEOUT = 3.0
TOKEN_LIFE = 15 * 60.0
COMMANDS = 100
COMMAND, COMPONENT = 2, 3
SAY, DEFER, DEFER_UPDATE, UPDATE = 4, 5, 6, 7
#: Who tells the person that nobody has answered.
DISCORD = User("0", "discord", "Discord")

_NAME = re.compile(r"[-_'\w]{1,32}")


@dataclass(eq=False, slots=True)
class Interaction:
    """What somebody has asked of the bot; `seen` is what he was shown for it, `original` the first of it."""

    id: str
    type: int
    user: User
    channel: Channel
    seen: list[Message] = field(default_factory=list)
    original: Message | None = None
    pressed: Message | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(64))
    given_at: float = field(default_factory=monotonic)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Interactions:
    """`commands` are those that the app has registered, everywhere (None) or in one server."""

    def __init__(self, api: Api, chat: Chat, tell: Callable[[Json, str | None], bool], speed: float) -> None:
        self._api = api
        self._chat = chat
        self._guild = api.guild
        self._tell = tell
        self._speed = speed
        self._given: dict[str, Interaction] = {}
        self.commands: dict[str | None, list[Json]] = {}
        for place in ("/applications/{application}/commands", "/applications/{application}/guilds/{guild}/commands"):
            api.add(f"PUT {place}", self._register)
            api.add(f"GET {place}", self._registered)
        api.add("POST /interactions/{interaction}/{token}/callback", self._call_back)
        api.add("POST /webhooks/{application}/{token}", self._follow_up)
        answer = "/webhooks/{application}/{token}/messages/{message}"
        api.add(f"GET {answer}", self._read)
        api.add(f"PATCH {answer}", self._edit)
        api.add(f"DELETE {answer}", self._delete)

    # Commands

    def _register(self, request: Request) -> Reply:
        """Replace all commands."""
        self._api.check_guild(request)
        place, given = request.ids.get("guild"), request.body.json
        if not isinstance(given, list) or len(given) > COMMANDS:
            raise invalid("_errors", "BASE_TYPE_MAX_LENGTH", f"Must be {COMMANDS} or fewer in length.")
        known = {(command["type"], command["name"]): command["id"] for command in self.commands.get(place, [])}
        registered: dict[tuple[int, str], Json] = {}
        for number, command in enumerate(given):
            type_, name = command.get("type") or 1, str(command.get("name"))
            _check_command(number, type_, command)
            if (type_, name) in registered:
                raise invalid(f"{number}.name", "APPLICATION_COMMANDS_DUPLICATE_NAME", "Names must be unique.")
            registered[type_, name] = {
                "default_member_permissions": None,
                "description": "",
                "nsfw": False,
                **{field: value for field, value in command.items() if value is not None},
                "id": known.get((type_, name)) or new_id(),
                "application_id": self._guild.bot.id,
                "version": new_id(),
                "type": type_,
            } | ({"guild_id": place} if place else {})
        self.commands[place] = list(registered.values())
        return Reply(self.commands[place])

    def _registered(self, request: Request) -> Reply:
        self._api.check_guild(request)
        return Reply(self.commands.get(request.ids.get("guild"), []))

    async def give(self, user: User, channel: Channel, name: str, options: Mapping[str, Any]) -> list[Message]:
        """Give a slash command, and return what the person sees; the list grows with what comes later.

        Raises:
            ValueError: there is no such command, or it has no such option.
        """
        everywhere, here = self.commands.get(None, []), self.commands.get(self._guild.id, [])
        usable = everywhere if channel.is_dm else [*here, *everywhere]
        command = next((command for command in usable if (command["type"], command["name"]) == (1, name)), None)
        if command is None:
            raise ValueError(f"there is no command /{name}")
        types = {option["name"]: option["type"] for option in command.get("options", ())}
        if unknown := set(options) - set(types):
            raise ValueError(f"/{name} has no option {min(unknown)}")
        data: Json = {"id": command["id"], "name": name, "type": 1}
        if options:
            data["options"] = [{"name": n, "type": types[n], "value": value} for n, value in options.items()]
        return await self._ask(Interaction(new_id(), COMMAND, user, channel), data)

    async def press(self, user: User, message: Message, custom_id: str) -> list[Message]:
        """Press a button of a message, and return what the person sees for it, beside the message itself.

        Raises:
            ValueError: the message has no such button.
        """
        buttons = walked(message.content.components)
        button = next((button for button in buttons if button.get("custom_id") == custom_id), None)
        if button is None or button.get("disabled"):
            raise ValueError(f"there is no button {custom_id} to be pressed")
        interaction = Interaction(new_id(), COMPONENT, user, message.channel, pressed=message)
        return await self._ask(interaction, {"custom_id": custom_id, "component_type": button["type"]})

    async def _ask(self, interaction: Interaction, data: Json) -> list[Message]:
        self._given[interaction.token] = interaction
        if self._tell(self._event(interaction, data), None if interaction.channel.is_dm else self._guild.id):
            try:
                async with asyncio.timeout(ACK_TIMEOUT / self._speed):
                    await interaction.answered.wait()
            except TimeoutError:
                pass
            else:
                return interaction.seen
        text = "The application did not respond"
        flags = EPHEMERAL
        failed = self._guild.post(
            interaction.channel, DISCORD, Content(text), ephemeral_to=interaction.user, flags=flags
        )
        interaction.seen.append(failed)
        return interaction.seen

    def _event(self, interaction: Interaction, data: Json) -> Json:
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
            "app_permissions": payloads.allowed(),
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": payloads.owners(),
            "context": 1 if channel.is_dm else 0,
            "attachment_size_limit": FILE_SIZE,
        }
        if interaction.pressed is not None:
            about["message"] = payloads.message(interaction.pressed)
        if channel.is_dm:
            return about | {"user": payloads.user(user)}
        return about | {
            "guild_id": self._guild.id,
            "guild": {"id": self._guild.id, "locale": "en-US", "features": []},
            "guild_locale": "en-US",
            "member": payloads.member(user) | {"permissions": payloads.allowed()},
        }

    # The first answer

    def _call_back(self, request: Request) -> Reply:
        interaction = self._given.get(request.ids["token"])
        if interaction is None or interaction.id != request.ids["interaction"]:
            raise DiscordError(404, UNKNOWN_INTERACTION, "Unknown interaction")
        if interaction.answered.is_set():
            raise DiscordError(400, ALREADY_ACKNOWLEDGED, "Interaction has already been acknowledged.")
        if monotonic() - interaction.given_at > ACK_TIMEOUT / self._speed:
            raise DiscordError(404, UNKNOWN_INTERACTION, "Unknown interaction")
        type_, form = request.form.get("type"), request.form.get("data") or {}
        if type_ == SAY:
            interaction.original = self._say(interaction, request, form)
        elif type_ == DEFER:
            interaction.original = self._post(interaction, Content(), int(form.get("flags") or 0) & EPHEMERAL | LOADING)
        elif type_ in (DEFER_UPDATE, UPDATE) and interaction.pressed is not None:
            interaction.original = interaction.pressed
            if type_ == UPDATE:
                self._update(interaction.pressed, request, form)
        else:
            raise invalid("type", "BASE_TYPE_CHOICES", "The value of field type is not one that can be answered with.")
        interaction.answered.set()
        if request.query.get("with_response") not in ("1", "true", "True"):
            return NO_CONTENT
        return Reply(self._callback_response(interaction, interaction.original, type_))

    def _callback_response(self, interaction: Interaction, message: Message, type_: int) -> Json:
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

    def _interaction(self, request: Request) -> Interaction:
        interaction = self._given.get(request.ids["token"])
        if interaction is None or monotonic() - interaction.given_at > TOKEN_LIFE / self._speed:
            raise DiscordError(401, INVALID_WEBHOOK_TOKEN, "Invalid Webhook Token")
        if not interaction.answered.is_set():
            raise DiscordError(404, UNKNOWN_WEBHOOK, "Unknown Webhook")
        return interaction

    def _follow_up(self, request: Request) -> Reply:
        """Discord: the first one after a deferral takes its place."""
        interaction = self._interaction(request)
        original = interaction.original
        if original is not None and original.loading:
            self._update(original, request, request.form)
            return Reply(self._shown(original))
        return Reply(self._shown(self._say(interaction, request, request.form)))

    def _edit(self, request: Request) -> Reply:
        message = self._answer(request)
        self._update(message, request, request.form)
        return Reply(self._shown(message))

    def _read(self, request: Request) -> Reply:
        return Reply(self._shown(self._answer(request)))

    def _delete(self, request: Request) -> Reply:
        self._guild.delete(self._answer(request))
        return NO_CONTENT

    def _answer(self, request: Request) -> Message:
        interaction, name = self._interaction(request), request.ids["message"]
        answers = [interaction.original, *interaction.seen]
        for message in answers if name != "@original" else answers[:1]:
            if message is not None and not message.deleted and name in ("@original", message.id):
                return message
        raise DiscordError(404, UNKNOWN_MESSAGE, "Unknown Message")

    def _say(self, interaction: Interaction, request: Request, form: Mapping[str, Any]) -> Message:
        content = self._chat.permitted(content_of(request.body, form), interaction.channel)
        return self._post(interaction, content, int(form.get("flags") or 0) & (SETTABLE_FLAGS | EPHEMERAL))

    def _post(self, interaction: Interaction, content: Content, flags: int) -> Message:
        first = interaction.type == COMMAND and interaction.original is None
        message = self._guild.post(
            interaction.channel,
            self._guild.bot,
            content,
            type=CHAT_COMMAND if first else DEFAULT,
            flags=flags,
            ephemeral_to=interaction.user if flags & EPHEMERAL else None,
            origin=Origin(interaction.id, interaction.type, interaction.user),
            webhook=self._guild.bot.id,
        )
        interaction.seen.append(message)
        return message

    def _update(self, message: Message, request: Request, form: Mapping[str, Any]) -> None:
        content = self._chat.permitted(content_of(request.body, form, message.content), message.channel)
        edited = not message.loading
        message.flags &= ~LOADING
        self._guild.update(message, content, edited=edited)

    def _shown(self, message: Message) -> Json:
        return self._api.payloads.message(message)


def _check_command(number: int, type_: int, command: Mapping[str, Any]) -> None:
    name, description = str(command.get("name")), command.get("description") or ""
    if type_ == 1 and (not _NAME.fullmatch(name) or name != name.lower()):
        message = "Command name is invalid"
        raise invalid(f"{number}.name", "APPLICATION_COMMAND_INVALID_NAME", message)
    if type_ == 1 and not 1 <= len(description) <= 100:
        raise invalid(f"{number}.description", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
