"""Interactions of users: delivery to the bot, acknowledgement and responses.

Discord: docs.discord.com/developers/interactions/receiving-and-responding. An interaction is delivered at most
once; the bot must acknowledge it within 3 seconds, and its token then works for 15 minutes.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.message_content import MAX_FILE_BYTES, parse_content
from chatrig.discord.api.messages import SETTABLE_FLAGS, MessageRoutes
from chatrig.discord.api.requests import (
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
    create_form_error,
    parse_bool,
)
from chatrig.discord.interactions.commands import MESSAGE, SLASH, CommandRegistry, create_command_data
from chatrig.discord.interactions.interaction import DiscordInteraction, DiscordModal
from chatrig.discord.interactions.modals import (
    ModalValue,
    create_modal,
    create_selection,
    create_submission,
)
from chatrig.discord.state.components import assign_component_ids
from chatrig.discord.state.messages import (
    CHAT_COMMAND,
    DEFAULT,
    EPHEMERAL,
    LOADING,
    MENU_COMMAND,
    DiscordContent,
    DiscordMessage,
    DiscordUser,
    GuildChannel,
    InteractionMetadata,
    iterate_components,
)
from chatrig.discord.state.payloads import Json
from chatrig.discord.state.snowflakes import create_id

ACK_TIMEOUT_SECONDS = 3.0
TOKEN_LIFETIME_SECONDS = 15 * 60.0
COMMAND, COMPONENT, AUTOCOMPLETE, MODAL_SUBMIT = 2, 3, 4, 5
MESSAGE_RESPONSE, DEFERRED_MESSAGE, DEFERRED_UPDATE, MESSAGE_UPDATE, AUTOCOMPLETE_RESULT = 4, 5, 6, 7, 8
MODAL = 9
BUTTON = 2
#: Discord: limit where only the user has installed the app.
MAX_USER_INSTALL_FOLLOW_UPS = 5
MAX_CHOICES = 25
#: Author of the message about a missing acknowledgement.
DISCORD_USER = DiscordUser("0", "discord", "Discord")


class DiscordInteractions:
    """Sender of interactions, and the REST route and handlers for the bot's responses.

    Args:
        dispatch: sends an interaction to the sessions of a server's shard (None: a DM); returns whether there were
            any.
        speed: divides the timeouts.

    Attributes:
        modals: open modals, one for each user at most.
    """

    def __init__(
        self,
        api: DiscordRestApi,
        messages: MessageRoutes,
        commands: CommandRegistry,
        dispatch: Callable[[Json, str | None], bool],
        speed: float,
    ) -> None:
        self._api = api
        self._messages = messages
        self._commands = commands
        self._guild = api.guild
        self._dispatch = dispatch
        self._speed = speed
        self._by_token: dict[str, DiscordInteraction] = {}
        self.modals: list[DiscordModal] = []
        api.add_route("POST /interactions/{interaction}/{token}/callback", self._handle_callback)

    # Actions of users

    async def run_command(
        self, user: DiscordUser, channel: GuildChannel, name: str, options: Mapping[str, Any]
    ) -> list[DiscordMessage]:
        """Run a slash command as a user, and wait for its acknowledgement.

        Args:
            options: option values by name.

        Returns:
            The responses so far, or Discord's error message without an acknowledgement in time. Later responses are
            appended to the same list.

        Raises:
            ValueError: the command is not available, or its options are invalid.
        """
        data = create_command_data(self._commands.find_command(SLASH, name, channel), options)
        return await self._deliver(DiscordInteraction(create_id(), COMMAND, user, channel), data)

    async def autocomplete(
        self, user: DiscordUser, channel: GuildChannel, name: str, option: str, text: str
    ) -> list[str]:
        """Return the names of the bot's choices for an option of a slash command.

        There are none if the bot does not answer in time.

        Args:
            name: the name of the command.
            text: the part of the value that the user has typed.

        Raises:
            ValueError: the command or option does not exist, or has no autocompletion.
        """
        command = self._commands.find_command(SLASH, name, channel)
        if not any(
            option_data["name"] == option and option_data.get("autocomplete")
            for option_data in command.get("options", ())
        ):
            raise ValueError(f"/{name} has no autocompletion for {option}")
        interaction = DiscordInteraction(create_id(), AUTOCOMPLETE, user, channel)
        await self._wait_for_acknowledgement(interaction, create_command_data(command, {option: text}, focused=option))
        return [choice["name"] for choice in interaction.choices]

    async def run_message_command(self, user: DiscordUser, message: DiscordMessage, name: str) -> list[DiscordMessage]:
        """Run a command in a message's context menu, and wait for its acknowledgement.

        Returns:
            The responses so far, or Discord's error message without an acknowledgement in time. Later responses are
            appended to the same list.

        Raises:
            ValueError: the command is not available.
        """
        command = self._commands.find_command(MESSAGE, name, message.channel)
        payload = self._api.payloads.message(message)
        data = {"id": command["id"], "name": name, "type": MESSAGE, "target_id": message.id}
        interaction = DiscordInteraction(create_id(), COMMAND, user, message.channel, target_message=message)
        return await self._deliver(interaction, data | {"resolved": {"messages": {message.id: payload}}})

    async def click_button(self, user: DiscordUser, message: DiscordMessage, custom_id: str) -> list[DiscordMessage]:
        """Click a button of a message, and wait for the acknowledgement.

        Returns:
            The messages that the bot has posted in response, or Discord's error message without an acknowledgement in
            time. Later ones are appended to the same list. An update of `message` is not in it.

        Raises:
            ValueError: the message has no such button, or it is disabled.
        """
        buttons = iterate_components(assign_component_ids(message.content.components))
        button = next((button for button in buttons if button.get("custom_id") == custom_id), None)
        if button is None or button["type"] != BUTTON or button.get("disabled"):
            raise ValueError(f"there is no button {custom_id} or it is disabled")
        interaction = DiscordInteraction(create_id(), COMPONENT, user, message.channel, component_message=message)
        return await self._deliver(
            interaction, {"custom_id": custom_id, "component_type": button["type"], "id": button["id"]}
        )

    async def select_values(
        self, user: DiscordUser, message: DiscordMessage, custom_id: str, values: Sequence[str]
    ) -> list[DiscordMessage]:
        """Select values in a menu of a message, and wait for the acknowledgement.

        Returns:
            The messages that the bot has posted in response, or Discord's error message without an acknowledgement in
            time. Later ones are appended to the same list. An update of `message` is not in it.

        Raises:
            ValueError: the message has no such menu, or the menu does not accept the values.
        """
        data = create_selection(message.content.components, custom_id, values, self._guild, self._api.payloads)
        interaction = DiscordInteraction(create_id(), COMPONENT, user, message.channel, component_message=message)
        return await self._deliver(interaction, data)

    async def submit_modal(self, modal: DiscordModal, values: Mapping[str, ModalValue]) -> list[DiscordMessage]:
        """Submit a modal, and close it once the bot acknowledges the submission.

        Without an acknowledgement in time, the modal stays open.

        Args:
            values: values by custom id; an omitted one is the preset value.

        Returns:
            The responses so far, or Discord's error message without an acknowledgement in time. Later responses are
            appended to the same list.

        Raises:
            ValueError: the modal is not open, or does not accept a value.
        """
        if modal not in self.modals:
            raise ValueError("the modal is not open")
        data = create_submission(modal, values, self._guild, self._api.payloads)
        interaction = DiscordInteraction(
            create_id(),
            MODAL_SUBMIT,
            modal.user,
            modal.interaction.channel,
            component_message=modal.interaction.component_message,
            modal=modal,
        )
        responses = await self._deliver(interaction, data)
        if interaction.acknowledged.is_set():
            self.close_modal(modal)
        return responses

    def close_modal(self, modal: DiscordModal) -> None:
        """Close a modal, if it is open, without submitting it.

        Discord sends nothing to the bot.
        """
        if modal in self.modals:
            self.modals.remove(modal)

    async def _deliver(self, interaction: DiscordInteraction, data: Json) -> list[DiscordMessage]:
        """Send an interaction to the bot, and wait for its acknowledgement.

        Without one in time, or at once if the bot has no session for the interaction, Discord's ephemeral error message
        is posted.

        Args:
            data: the field `data` of the interaction.

        Returns:
            The responses so far, or Discord's error message without an acknowledgement in time. Later responses are
            appended to the same list.
        """
        if not await self._wait_for_acknowledgement(interaction, data):
            content, user = DiscordContent("The application did not respond"), interaction.user
            failed = self._guild.post_message(
                interaction.channel, DISCORD_USER, content, ephemeral_to=user, flags=EPHEMERAL
            )
            interaction.responses.append(failed)
        return interaction.responses

    async def _wait_for_acknowledgement(self, interaction: DiscordInteraction, data: Json) -> bool:
        """Send an interaction to the bot; return whether the bot acknowledges it in time.

        False at once if the bot has no session for the interaction.

        Args:
            data: the field `data` of the interaction.
        """
        self._by_token[interaction.token] = interaction
        if self._dispatch(
            self._create_payload(interaction, data), self._guild.id if interaction.channel.is_in_guild else None
        ):
            try:
                async with asyncio.timeout(ACK_TIMEOUT_SECONDS / self._speed):
                    return await interaction.acknowledged.wait()
            except TimeoutError:
                pass
        return False

    def _create_payload(self, interaction: DiscordInteraction, data: Json) -> Json:
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
            "app_permissions": payloads.bot_permissions() if channel.can_have_bot else "0",
            "locale": self._guild.locales.get(user.id, "en-US"),
            "entitlements": [],
            "authorizing_integration_owners": payloads.integration_owners(user, channel),
            "context": channel.interaction_context,
            "attachment_size_limit": MAX_FILE_BYTES,
        }
        if interaction.component_message is not None:
            about["message"] = payloads.message(interaction.component_message)
        if channel.interaction_context:
            return about | {"user": payloads.user(user)}
        guild_id = channel.foreign_guild_id or self._guild.id
        return about | {
            "guild_id": guild_id,
            "guild": {"id": guild_id, "locale": self._guild.locale, "features": []},
            "guild_locale": self._guild.locale,
            "member": payloads.member(user) | {"permissions": payloads.user_permissions(user)},
        }

    # Acknowledgement

    def _handle_callback(self, request: ApiRequest) -> ApiResponse:
        interaction = self._by_token.get(request.path_ids["token"])
        if interaction is None or interaction.id != request.path_ids["interaction"]:
            raise DiscordError(404, UNKNOWN_INTERACTION, "Unknown interaction")
        if interaction.acknowledged.is_set():
            raise DiscordError(400, ALREADY_ACKNOWLEDGED, "Interaction has already been acknowledged.")
        if monotonic() - interaction.created_at > ACK_TIMEOUT_SECONDS / self._speed:
            raise DiscordError(404, UNKNOWN_INTERACTION, "Unknown interaction")
        type_, form = request.form.get("type"), request.form.get("data") or {}
        if (type_ == AUTOCOMPLETE_RESULT) != (interaction.type == AUTOCOMPLETE):
            raise create_form_error(
                "type", "BASE_TYPE_CHOICES", "The value of field type is not one that can be answered with."
            )
        if type_ == AUTOCOMPLETE_RESULT:
            self._save_choices(interaction, form)
        elif type_ == MODAL and interaction.type != MODAL_SUBMIT:
            self._open_modal(interaction, form)
        elif type_ == MESSAGE_RESPONSE:
            interaction.original_response = self._respond(interaction, request, form)
        elif type_ == DEFERRED_MESSAGE:
            interaction.original_response = self._post_response(
                interaction, DiscordContent(), int(form.get("flags") or 0) & EPHEMERAL | LOADING
            )
        elif type_ in (DEFERRED_UPDATE, MESSAGE_UPDATE) and interaction.component_message is not None:
            interaction.original_response = interaction.component_message
            if type_ == MESSAGE_UPDATE:
                self._update_message(interaction.component_message, request, form)
        else:
            raise create_form_error(
                "type", "BASE_TYPE_CHOICES", "The value of field type is not one that can be answered with."
            )
        interaction.acknowledged.set()
        if not parse_bool(request.query, "with_response"):
            return NO_CONTENT
        return ApiResponse(self._callback_response(interaction, type_))

    def _open_modal(self, interaction: DiscordInteraction, form: Mapping[str, Any]) -> None:
        """Open the modal of the bot's response, in place of an open one of the same user.

        Args:
            form: the field `data` of the response.
        """
        modal = create_modal(interaction, form)
        self.modals = [other for other in self.modals if other.user != interaction.user]
        self.modals.append(modal)

    def _save_choices(self, interaction: DiscordInteraction, form: Mapping[str, Any]) -> None:
        choices = form.get("choices") or []
        if len(choices) > MAX_CHOICES or not all(1 <= len(str(choice.get("name"))) <= 100 for choice in choices):
            raise create_form_error(
                "data.choices", "BASE_TYPE_BAD_LENGTH", f"{MAX_CHOICES} at most, of 1 to 100 characters each."
            )
        interaction.choices = choices

    def _callback_response(self, interaction: DiscordInteraction, type_: int) -> Json:
        about: Json = {"id": interaction.id, "type": interaction.type}
        message = interaction.original_response
        if message is None:
            return {"interaction": about}
        if type_ in (MESSAGE_RESPONSE, DEFERRED_MESSAGE):
            about |= {
                "response_message_id": message.id,
                "response_message_loading": message.loading,
                "response_message_ephemeral": message.ephemeral_to is not None,
            }
        if type_ in (DEFERRED_MESSAGE, DEFERRED_UPDATE):
            return {"interaction": about}
        return {"interaction": about, "resource": {"type": type_, "message": self._message_payload(message)}}

    # Responses

    def _get_interaction(self, request: ApiRequest) -> DiscordInteraction:
        """Return the interaction to which the token in a request's path belongs.

        Raises:
            DiscordError: 50027 for an expired token, 10015 before the acknowledgement.
        """
        interaction = self._by_token.get(request.path_ids["token"])
        if interaction is None or monotonic() - interaction.created_at > TOKEN_LIFETIME_SECONDS / self._speed:
            raise DiscordError(401, INVALID_WEBHOOK_TOKEN, "Invalid Webhook Token")
        if not interaction.acknowledged.is_set():
            raise DiscordError(404, UNKNOWN_WEBHOOK, "Unknown Webhook")
        return interaction

    def create_follow_up(self, request: ApiRequest) -> ApiResponse:
        """Post a follow-up message to an interaction, as the bot's request asks.

        The first one after a deferral replaces the deferred response. As in Discord, only
        `MAX_USER_INSTALL_FOLLOW_UPS` are accepted where only the user has installed the app.

        Returns:
            The message's JSON.

        Raises:
            DiscordError: the token or the content is invalid, the interaction is not acknowledged yet, or there are too
                many follow-up messages.
        """
        interaction = self._get_interaction(request)
        original = interaction.original_response
        interaction.follow_up_request_count += 1
        if not interaction.channel.can_have_bot and interaction.follow_up_request_count > MAX_USER_INSTALL_FOLLOW_UPS:
            message = "This interaction has reached the maximum number of follow up messages."
            raise DiscordError(400, TOO_MANY_FOLLOW_UPS, message)
        if original is not None and original.loading:
            self._update_message(original, request, request.form)
            return ApiResponse(self._message_payload(original))
        return ApiResponse(self._message_payload(self._respond(interaction, request, request.form)))

    def edit_response(self, request: ApiRequest) -> ApiResponse:
        message = self._find_response(request)
        self._update_message(message, request, request.form)
        return ApiResponse(self._message_payload(message))

    def get_response(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._message_payload(self._find_response(request)))

    def delete_response(self, request: ApiRequest) -> ApiResponse:
        self._guild.delete_message(self._find_response(request))
        return NO_CONTENT

    def _find_response(self, request: ApiRequest) -> DiscordMessage:
        """Return the response message with the id in a request's path, or `@original`.

        `@original` is the first response.

        Raises:
            DiscordError: 10008, the message is unknown or deleted.
        """
        interaction, name = self._get_interaction(request), request.path_ids["message"]
        answers = [interaction.original_response, *interaction.responses]
        for message in answers if name != "@original" else answers[:1]:
            if message is not None and not message.deleted and name in ("@original", message.id):
                return message
        raise DiscordError(404, UNKNOWN_MESSAGE, "Unknown Message")

    def _respond(self, interaction: DiscordInteraction, request: ApiRequest, form: Mapping[str, Any]) -> DiscordMessage:
        content = self._messages.apply_permissions(parse_content(request.body, form), interaction.channel)
        return self._post_response(interaction, content, int(form.get("flags") or 0) & (SETTABLE_FLAGS | EPHEMERAL))

    def _post_response(self, interaction: DiscordInteraction, content: DiscordContent, flags: int) -> DiscordMessage:
        first = interaction.type == COMMAND and interaction.original_response is None
        command = MENU_COMMAND if interaction.target_message else CHAT_COMMAND
        message = self._guild.post_message(
            interaction.channel,
            self._guild.bot,
            content,
            type=command if first else DEFAULT,
            flags=flags,
            ephemeral_to=interaction.user if flags & EPHEMERAL else None,
            interaction_metadata=_create_metadata(interaction),
            webhook_id=self._guild.bot.id,
        )
        interaction.responses.append(message)
        return message

    def _update_message(self, message: DiscordMessage, request: ApiRequest, form: Mapping[str, Any]) -> None:
        content = self._messages.apply_permissions(
            parse_content(request.body, form, message.content, flags=message.flags), message.channel
        )
        edited = not message.loading
        message.flags &= ~LOADING
        self._guild.update_message(message, content, edited=edited)

    def _message_payload(self, message: DiscordMessage) -> Json:
        return self._api.payloads.message(message)


def _create_metadata(interaction: DiscordInteraction) -> InteractionMetadata:
    opener = interaction.modal.interaction if interaction.modal else None
    return InteractionMetadata(
        interaction.id,
        interaction.type,
        interaction.user,
        interaction.target_message,
        interaction.component_message,
        _create_metadata(opener) if opener else None,
    )
