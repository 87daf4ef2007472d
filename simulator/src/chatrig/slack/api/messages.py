"""Web API methods `chat.*`, without streams and scheduled messages."""

from dataclasses import replace
from typing import Any

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.content import (
    parse_author,
    parse_content,
    parse_metadata,
    parse_post_fields,
    parse_thread_ts,
    truncate,
)
from chatrig.slack.api.limits import MAX_POST_CHARS, MAX_UPDATE_CHARS
from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.state.markup import SlackContent
from chatrig.slack.state.messages import BROADCAST_SUBTYPE, ME_SUBTYPE, SlackMessage


class MessageMethods:
    """Web API methods that post, update and delete messages of the bot."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._workspace = api.workspace
        self._payloads = api.payloads
        for name, handler in {
            "chat.postMessage": self.post_message,
            "chat.update": self.update_message,
            "chat.delete": self.delete_message,
            "chat.postEphemeral": self.post_ephemeral,
            "chat.meMessage": self.post_me_message,
        }.items():
            api.register(name, handler, scope="chat:write")
        api.register("chat.getPermalink", self.get_permalink)

    def post_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_destination(arguments)
        content, warning = truncate(parse_content(arguments))
        fields = parse_post_fields(self._api, channel, arguments)
        message = self._workspace.post_message(channel, content, **fields)
        posted = self._payloads.post_response(message)
        return {"channel": channel.id, "ts": message.ts, "message": posted} | warning

    def update_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        message = self._api.find_message(channel, arguments.get_required("ts"))
        self._check_owner(message, "cant_update_message")
        self._api.require_writable(channel)
        if message.stream is not None and message.stream.is_live:
            raise SlackError("streaming_state_conflict")
        content = self._parse_update(message, arguments)
        if not content.is_markdown and len(content.text) > MAX_UPDATE_CHARS:
            raise SlackError("msg_too_long")
        if "metadata" in arguments:
            message.metadata = parse_metadata(arguments)
        if arguments.flag("reply_broadcast"):
            if not message.is_thread_reply:
                raise SlackError("cant_broadcast_message")
            message.subtype = BROADCAST_SUBTYPE
        self._workspace.update_message(message, content, edited=content.blocks is None)
        updated = self._payloads.update_response(message)
        return {"channel": channel.id, "ts": message.ts, "text": content.text, "message": updated}

    def delete_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        message = self._api.find_message(channel, arguments.get_required("ts"))
        self._check_owner(message, "cant_delete_message")
        if message.stream is not None and message.stream.is_live:
            raise SlackError("cant_delete_message")
        self._workspace.delete_message(message)
        return {"channel": channel.id, "ts": message.ts}

    def post_ephemeral(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.require_writable(self._api.find_channel(arguments))
        user = arguments.get_required("user")
        if user not in channel.members:
            raise SlackError("user_not_in_channel")
        content, warning = truncate(parse_content(arguments))
        message = self._workspace.post_message(
            channel,
            content,
            ephemeral_to=user,
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            thread_ts=parse_thread_ts(self._workspace, channel, arguments),
            **parse_author(self._api, arguments),
        )
        return {"message_ts": message.ts} | warning

    def post_me_message(self, arguments: Arguments) -> dict[str, Any]:
        """Run `chat.meMessage`: post a message as the command `/me` does.

        The message has no blocks and no thread.

        Returns:
            The response's fields: `channel` (its id) and `ts`.

        Raises:
            SlackError: `no_text`, `msg_too_long`, or as for `WebApi.find_destination`.
        """
        channel = self._api.find_destination(arguments)
        text = arguments.text("text")
        if not text.strip():
            raise SlackError("no_text")
        if len(text) > MAX_POST_CHARS:
            raise SlackError("msg_too_long")
        bot, bot_id = self._workspace.bot.id, self._workspace.bot_id
        content = SlackContent(text)
        message = self._workspace.post_message(channel, content, user=bot, bot_id=bot_id, subtype=ME_SUBTYPE)
        return {"channel": channel.id, "ts": message.ts}

    def get_permalink(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        message = self._api.find_message(channel, arguments.get_required("message_ts"))
        return {"channel": channel.id, "permalink": self._payloads.permalink(message)}

    @staticmethod
    def _parse_update(message: SlackMessage, arguments: Arguments) -> SlackContent:
        """Return the new content of a message from the arguments of `chat.update`.

        Slack: without `attachments`, the former ones stay. With nothing but `attachments`, the former text and blocks
        stay. A text without blocks removes the former blocks. Blocks without a text remove the former text.

        Raises:
            SlackError: as for `parse_content`.
        """
        content = parse_content(arguments)
        if "attachments" not in arguments:
            content = replace(content, attachments=message.content.attachments)
        elif not content.text and not content.blocks:
            content = replace(message.content, attachments=content.attachments)
        return content

    def _check_owner(self, message: SlackMessage, error: str) -> None:
        if message.bot_id != self._workspace.bot_id:
            raise SlackError(error)
