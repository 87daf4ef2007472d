"""Slash commands and response URLs.

Slack: docs.slack.dev/interactivity/implementing-slash-commands.
"""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from chatrig.slack.api.content import parse_content
from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.api.views import ViewMethods
from chatrig.slack.events.http_mode import EnvelopeSender
from chatrig.slack.events.socket_mode import ACK_TIMEOUT_SECONDS
from chatrig.slack.state.markup import SlackContent
from chatrig.slack.state.messages import SlackConversation, SlackMessage
from chatrig.slack.state.payloads import TEAM_DOMAIN
from chatrig.slack.state.workspace import SLACKBOT, Workspace, WorkspaceUser

#: A `response_url` accepts this many posts within half an hour.
MAX_RESPONSES = 5
RESPONSE_URL_LIFETIME_SECONDS = 30 * 60.0


@dataclass(eq=False, slots=True)
class ResponseUrl:
    """Response URL of a slash command, a message shortcut, or a click on a button.

    Attributes:
        user: the user of the interaction.
        channel: the channel of the interaction.
        expires_at: the end of the URL's life, in seconds on the monotonic clock.
        shown_messages: the responses that the user sees.
        message: the message with the clicked button; None for a command or a message shortcut.
        response_count: the number of accepted posts to the URL so far.
    """

    user: WorkspaceUser
    channel: SlackConversation
    expires_at: float
    shown_messages: list[SlackMessage]
    message: SlackMessage | None = None
    response_count: int = 0


class SlashCommands:
    """Sender of slash commands to the app, and receiver of posts to response URLs."""

    def __init__(
        self, workspace: Workspace, sender: EnvelopeSender, views: ViewMethods, *, token: str, speed: float
    ) -> None:
        self._workspace = workspace
        self._sender = sender
        self._views = views
        self._token = token
        self._speed = speed
        self._response_urls: dict[str, ResponseUrl] = {}

    async def run_command(
        self, user: WorkspaceUser, channel: SlackConversation, command: str, text: str, response_base_url: str
    ) -> list[SlackMessage]:
        """Send a slash command to the app, and wait for its acknowledgement.

        Slackbot posts an error if the app has no connection, sends a wrong response, or does not acknowledge within
        `ACK_TIMEOUT_SECONDS` (divided by the speed).

        Args:
            command: the command with its slash (`/ask`); the manifest is not checked.
            text: the text after the command.
            response_base_url: the URL that response URLs begin with; it ends in a slash.

        Returns:
            The responses so far, or Slackbot's error; later responses are appended to the same list.
        """
        key, response_url = self._create_response_url(user, channel)
        if not self._sender.connection_count:
            return self._post_error(response_url, command, "dispatch_failed")
        delivery = self._sender.deliver(
            "slash_commands",
            {
                "token": self._token,
                "team_id": self._workspace.team_id,
                "team_domain": TEAM_DOMAIN,
                "channel_id": channel.id,
                "channel_name": "directmessage" if channel.is_dm else channel.name,
                "user_id": user.id,
                "user_name": user.name,
                "command": command,
                "text": text,
                "api_app_id": self._workspace.app_id,
                "is_enterprise_install": False,
                "response_url": response_base_url + key,
                "trigger_id": self._views.create_trigger_id(user),
            },
        )
        try:
            async with asyncio.timeout(ACK_TIMEOUT_SECONDS / self._speed):
                await delivery.acknowledged.wait()
        except TimeoutError:
            return self._post_error(response_url, command, "operation_timeout")
        if delivery.response:
            try:
                self._apply_response(response_url, delivery.response)
            except SlackError:
                return self._post_error(response_url, command, "dispatch_failed")
        return response_url.shown_messages

    def create_response_url(
        self, user: WorkspaceUser, channel: SlackConversation, response_base_url: str, message: SlackMessage | None
    ) -> str:
        """Create the response URL of an interaction that is not a slash command.

        It accepts `MAX_RESPONSES` posts within `RESPONSE_URL_LIFETIME_SECONDS` (divided by the speed).

        Args:
            user: the user of the interaction.
            channel: the channel of the interaction.
            response_base_url: the URL that response URLs begin with; it ends in a slash.
            message: the message of the clicked button, which a response may replace; None for a message shortcut.
        """
        key, response_url = self._create_response_url(user, channel)
        response_url.message = message
        return response_base_url + key

    def _create_response_url(self, user: WorkspaceUser, channel: SlackConversation) -> tuple[str, ResponseUrl]:
        """Store a new interaction, without a message, under its response URL's path.

        Returns:
            The last part of the URL, and the stored response URL.
        """
        key = f"{self._workspace.team_id}/{secrets.randbelow(10**13)}/{secrets.token_urlsafe(18)}"
        response_url = ResponseUrl(user, channel, monotonic() + RESPONSE_URL_LIFETIME_SECONDS / self._speed, [])
        self._response_urls[key] = response_url
        return key, response_url

    def handle_response(self, key: str, values: Mapping[str, Any]) -> None:
        """Post, replace or delete a message, as a post to a response URL requests.

        Args:
            key: the response URL without the URL it begins with (`response_base_url`).
            values: the JSON of the post.

        Raises:
            SlackError: `expired_url`, also for an unknown key; `used_url` after `MAX_RESPONSES` posts; or as for
                `parse_content`: `no_text` for `markdown_text` alone, which response URLs ignore.
        """
        response_url = self._response_urls.get(key)
        if response_url is None or response_url.expires_at < monotonic():
            raise SlackError("expired_url")
        if response_url.response_count >= MAX_RESPONSES:
            raise SlackError("used_url")
        self._apply_response(response_url, {name: v for name, v in values.items() if name != "markdown_text"})
        response_url.response_count += 1

    def _apply_response(self, response_url: ResponseUrl, values: Mapping[str, Any]) -> None:
        arguments, original = Arguments(values), response_url.message
        if original is not None and arguments.flag("delete_original"):
            return self._workspace.delete_message(original)
        if original is not None and arguments.flag("replace_original"):
            return self._workspace.update_message(original, parse_content(arguments), edited=False)
        public = arguments.text("response_type") == "in_channel"
        message = self._workspace.post_message(
            response_url.channel,
            parse_content(arguments),
            ephemeral_to=None if public else response_url.user.id,
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            thread_ts=arguments.text("thread_ts") or None,
        )
        return response_url.shown_messages.append(message)

    def _post_error(self, response_url: ResponseUrl, command: str, error: str) -> list[SlackMessage]:
        """Post Slackbot's ephemeral error message about a command.

        Args:
            error: the code in the message, such as `operation_timeout`.

        Returns:
            The responses to the command so far, with the error message.
        """
        text = f'{command} failed with the error "{error}"'
        message = self._workspace.post_message(
            response_url.channel, SlackContent(text), ephemeral_to=response_url.user.id, user=SLACKBOT
        )
        response_url.shown_messages.append(message)
        return response_url.shown_messages
