"""Methods `chat.*` and `reactions.*`."""

import secrets
from dataclasses import replace
from typing import Any

from sandbox.slack.api.base import WebApi
from sandbox.slack.api.block_kit import check_blocks
from sandbox.slack.api.limits import MAX_MARKDOWN_CHARS, MAX_POST_CHARS, MAX_UPDATE_CHARS
from sandbox.slack.api.requests import Arguments, SlackError
from sandbox.slack.state.inputs import with_ids
from sandbox.slack.state.markup import SlackContent
from sandbox.slack.state.payloads import TEAM_DOMAIN
from sandbox.slack.state.workspace import SlackConversation, SlackMessage, Workspace

_TRUNCATED_WARNING = "[WARN] A message of more than 40000 characters was truncated [json-pointer:/text]"


class MessageMethods:
    """Methods that write messages and reactions."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._workspace = api.workspace
        self._payloads = api.payloads
        for name, handler in {
            "chat.postMessage": self.post_message,
            "chat.update": self.update_message,
            "chat.delete": self.delete_message,
            "chat.postEphemeral": self.post_ephemeral,
        }.items():
            api.register(name, handler, scope="chat:write")
        api.register("chat.getPermalink", self.get_permalink)
        api.register("reactions.add", self.add_reaction, scope="reactions:write")
        api.register("reactions.remove", self.remove_reaction, scope="reactions:write")

    def post_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._find_destination(arguments)
        content, warning = _truncate(parse_content(arguments))
        message = self._workspace.post_message(
            channel,
            content,
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            thread_ts=parse_thread_ts(self._workspace, channel, arguments),
            metadata=parse_metadata(arguments),
            unfurl_links=arguments.optional_flag("unfurl_links"),
            unfurl_media=arguments.optional_flag("unfurl_media"),
        )
        posted = self._payloads.post_response(message)
        return {"channel": channel.id, "ts": message.ts, "message": posted} | warning

    def update_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        message = self._api.find_message(channel, arguments.required("ts"))
        self._check_owner(message, "cant_update_message")
        self._api.require_writable(channel)
        if message.stream is not None and message.stream.is_live:
            raise SlackError("streaming_state_conflict")
        content = parse_content(arguments)
        if not content.markdown and len(content.text) > MAX_UPDATE_CHARS:
            raise SlackError("msg_too_long")
        if "metadata" in arguments:
            message.metadata = parse_metadata(arguments)
        self._workspace.update_message(message, content, edited=content.blocks is None)
        updated = self._payloads.update_response(message)
        return {"channel": channel.id, "ts": message.ts, "text": content.text, "message": updated}

    def delete_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        message = self._api.find_message(channel, arguments.required("ts"))
        self._check_owner(message, "cant_delete_message")
        if message.stream is not None and message.stream.is_live:
            raise SlackError("cant_delete_message")
        self._workspace.delete_message(message)
        return {"channel": channel.id, "ts": message.ts}

    def post_ephemeral(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.require_writable(self._api.find_channel(arguments))
        user = arguments.required("user")
        if user not in channel.members:
            raise SlackError("user_not_in_channel")
        content, warning = _truncate(parse_content(arguments))
        message = self._workspace.post_message(
            channel,
            content,
            ephemeral_to=user,
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            thread_ts=parse_thread_ts(self._workspace, channel, arguments),
        )
        return {"message_ts": message.ts} | warning

    def get_permalink(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        message = self._api.find_message(channel, arguments.required("message_ts"))
        link = f"https://{TEAM_DOMAIN}.slack.com/archives/{channel.id}/p{message.ts.replace('.', '')}"
        if message.is_thread_reply:
            link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
        return {"channel": channel.id, "permalink": link}

    def add_reaction(self, arguments: Arguments) -> dict[str, Any]:
        message, name = self._parse_reaction(arguments)
        if not self._workspace.add_reaction(message, self._workspace.bot.id, name):
            raise SlackError("already_reacted")
        return {}

    def remove_reaction(self, arguments: Arguments) -> dict[str, Any]:
        message, name = self._parse_reaction(arguments)
        if not self._workspace.remove_reaction(message, self._workspace.bot.id, name):
            raise SlackError("no_reaction")
        return {}

    def _parse_reaction(self, arguments: Arguments) -> tuple[SlackMessage, str]:
        name = arguments.required("name").strip(":")
        channel = self._api.require_writable(self._api.find_channel(arguments))
        return self._api.find_message(channel, arguments.required("timestamp")), name

    def _find_destination(self, arguments: Arguments) -> SlackConversation:
        """Return the conversation for a channel's id or name, or for a user id (the DM).

        Raises:
            SlackError: the bot cannot post there.
        """
        target = arguments.required("channel")
        if user := self._workspace.users.get(target):
            return self._workspace.open_dm(user)
        if named := self._workspace.find_channel_by_name(target.removeprefix("#")):
            arguments = Arguments({"channel": named.id})
        return self._api.require_writable(self._api.find_channel(arguments))

    def _check_owner(self, message: SlackMessage, error: str) -> None:
        if message.bot_id != self._workspace.bot_id:
            raise SlackError(error)


def parse_thread_ts(workspace: Workspace, channel: SlackConversation, arguments: Arguments) -> str | None:
    """Return the argument `thread_ts` if it is the root of a thread; None without it.

    Raises:
        SlackError: `thread_not_found` or `cannot_reply_to_message`.
    """
    thread_ts = arguments.text("thread_ts")
    if not thread_ts:
        return None
    root = workspace.find_message(channel, thread_ts)
    if root is None:
        raise SlackError("thread_not_found")
    if root.is_thread_reply:
        raise SlackError("cannot_reply_to_message")
    return thread_ts


def parse_content(arguments: Arguments) -> SlackContent:
    """Return the content in the arguments `text`, `markdown_text`, `blocks`, `link_names` and `parse`.

    Raises:
        SlackError: `no_text`, `markdown_text_conflict`, `msg_too_long` or an error of the blocks.
    """
    text, markdown = arguments.text("text"), arguments.text("markdown_text")
    blocks = arguments.json("blocks", error="invalid_blocks_format")
    if markdown and (text or blocks):
        raise SlackError("markdown_text_conflict")
    if not (text.strip() or markdown.strip() or blocks):
        raise SlackError("no_text")
    if len(markdown) > MAX_MARKDOWN_CHARS:
        raise SlackError("msg_too_long")
    return SlackContent(
        text=text or markdown,
        blocks=with_ids(check_blocks(blocks), secrets.token_hex(4)) if blocks else None,
        markdown=bool(markdown),
        link_names=arguments.flag("link_names") or arguments.text("parse") == "full",
    )


def _truncate(content: SlackContent) -> tuple[SlackContent, dict[str, Any]]:
    """Cut the text at `MAX_POST_CHARS`.

    Returns:
        The content, and the response's fields with Slack's warning; no fields if nothing was cut.
    """
    if len(content.text) <= MAX_POST_CHARS:
        return content, {}
    warning = {"warning": "message_truncated", "response_metadata": {"messages": [_TRUNCATED_WARNING]}}
    return replace(content, text=content.text[:MAX_POST_CHARS]), warning


def parse_metadata(arguments: Arguments) -> dict[str, Any] | None:
    """Return the argument `metadata`; None without it.

    Raises:
        SlackError: `invalid_metadata_format`.
    """
    metadata = arguments.json("metadata", error="invalid_metadata_format")
    if metadata is None or metadata == {}:
        return None
    match metadata:
        case {"event_type": str(), "event_payload": dict()}:
            return dict(metadata)
    raise SlackError("invalid_metadata_format")
