"""The methods that write: `chat.*` and `reactions.*`, and posts to a `response_url`."""

from dataclasses import replace
from typing import Any

from sandbox.slack.api.base import WebApi
from sandbox.slack.api.limits import MARKDOWN_TEXT, POSTED_TEXT, UPDATED_TEXT, check_blocks
from sandbox.slack.api.requests import Arguments, SlackError
from sandbox.slack.state.markup import SlackContent
from sandbox.slack.state.payloads import TEAM_DOMAIN
from sandbox.slack.state.workspace import SlackConversation, SlackMessage, Workspace

_TRUNCATED = "[WARN] A message of more than 40000 characters was truncated [json-pointer:/text]"


class MessageMethods:
    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._workspace = api.workspace
        self._payloads = api.payloads
        for name, handler in {
            "chat.postMessage": self.post_message,
            "chat.update": self.update,
            "chat.delete": self.delete,
            "chat.postEphemeral": self.post_ephemeral,
        }.items():
            api.add(name, handler, scope="chat:write")
        api.add("chat.getPermalink", self.get_permalink)
        api.add("reactions.add", self.add_reaction, scope="reactions:write")
        api.add("reactions.remove", self.remove_reaction, scope="reactions:write")

    def post_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._destination(arguments)
        content, warning = _posted(content_of(arguments))
        message = self._workspace.post_message(
            channel,
            content,
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            thread_ts=thread_of(self._workspace, channel, arguments),
            metadata=metadata_of(arguments),
            unfurl_links=arguments.optional_flag("unfurl_links"),
            unfurl_media=arguments.optional_flag("unfurl_media"),
        )
        posted = self._payloads.post_response(message)
        return {"channel": channel.id, "ts": message.ts, "message": posted} | warning

    def update(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.channel(arguments)
        message = self._api.message(channel, arguments.required("ts"))
        self._own(message, "cant_update_message")
        self._api.writable(channel)
        if message.stream is not None and message.stream.is_live:
            raise SlackError("streaming_state_conflict")
        content = content_of(arguments)
        if not content.markdown and len(content.text) > UPDATED_TEXT:
            raise SlackError("msg_too_long")
        if "metadata" in arguments:
            message.metadata = metadata_of(arguments)
        self._workspace.update_message(message, content, edited=content.blocks is None)
        updated = self._payloads.update_response(message)
        return {"channel": channel.id, "ts": message.ts, "text": content.text, "message": updated}

    def delete(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.channel(arguments)
        message = self._api.message(channel, arguments.required("ts"))
        self._own(message, "cant_delete_message")
        if message.stream is not None and message.stream.is_live:
            raise SlackError("cant_delete_message")
        self._workspace.delete_message(message)
        return {"channel": channel.id, "ts": message.ts}

    def post_ephemeral(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.writable(self._api.channel(arguments))
        user = arguments.required("user")
        if user not in channel.members:
            raise SlackError("user_not_in_channel")
        content, warning = _posted(content_of(arguments))
        message = self._workspace.post_message(
            channel,
            content,
            ephemeral_to=user,
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            thread_ts=thread_of(self._workspace, channel, arguments),
        )
        return {"message_ts": message.ts} | warning

    def get_permalink(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.channel(arguments)
        message = self._api.message(channel, arguments.required("message_ts"))
        link = f"https://{TEAM_DOMAIN}.slack.com/archives/{channel.id}/p{message.ts.replace('.', '')}"
        if message.is_reply:
            link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
        return {"channel": channel.id, "permalink": link}

    def add_reaction(self, arguments: Arguments) -> dict[str, Any]:
        message, name = self._reaction(arguments)
        if not self._workspace.add_reaction(message, self._workspace.bot.id, name):
            raise SlackError("already_reacted")
        return {}

    def remove_reaction(self, arguments: Arguments) -> dict[str, Any]:
        message, name = self._reaction(arguments)
        if not self._workspace.remove_reaction(message, self._workspace.bot.id, name):
            raise SlackError("no_reaction")
        return {}

    def _reaction(self, arguments: Arguments) -> tuple[SlackMessage, str]:
        name = arguments.required("name").strip(":")
        channel = self._api.writable(self._api.channel(arguments))
        return self._api.message(channel, arguments.required("timestamp")), name

    def _destination(self, arguments: Arguments) -> SlackConversation:
        """Where to post: a channel's id or its name, or a user's id for the messages with him."""
        target = arguments.required("channel")
        if user := self._workspace.users.get(target):
            return self._workspace.open_dm(user)
        if named := self._workspace.find_channel_by_name(target.removeprefix("#")):
            arguments = Arguments({"channel": named.id})
        return self._api.writable(self._api.channel(arguments))

    def _own(self, message: SlackMessage, refusal: str) -> None:
        if message.bot_id != self._workspace.bot_id:
            raise SlackError(refusal)


def thread_of(workspace: Workspace, channel: SlackConversation, arguments: Arguments) -> str | None:
    """The thread that a call names, if it names one.

    Raises:
        SlackError: `thread_not_found` or `cannot_reply_to_message`.
    """
    thread_ts = arguments.text("thread_ts")
    if not thread_ts:
        return None
    root = workspace.find_message(channel, thread_ts)
    if root is None:
        raise SlackError("thread_not_found")
    if root.is_reply:
        raise SlackError("cannot_reply_to_message")
    return thread_ts


def content_of(arguments: Arguments) -> SlackContent:
    """What a call wants to say.

    Raises:
        SlackError: `no_text`, `markdown_text_conflict`, `msg_too_long` or what is wrong with the blocks.
    """
    text, markdown = arguments.text("text"), arguments.text("markdown_text")
    blocks = arguments.json("blocks", error="invalid_blocks_format")
    if markdown and (text or blocks):
        raise SlackError("markdown_text_conflict")
    if not (text.strip() or markdown.strip() or blocks):
        raise SlackError("no_text")
    if len(markdown) > MARKDOWN_TEXT:
        raise SlackError("msg_too_long")
    return SlackContent(
        text=text or markdown,
        blocks=check_blocks(blocks) if blocks else None,
        markdown=bool(markdown),
        link_names=arguments.flag("link_names") or arguments.text("parse") == "full",
    )


def _posted(content: SlackContent) -> tuple[SlackContent, dict[str, Any]]:
    """The content as far as a post keeps it, and the warning if that is not all."""
    if len(content.text) <= POSTED_TEXT:
        return content, {}
    warning = {"warning": "message_truncated", "response_metadata": {"messages": [_TRUNCATED]}}
    return replace(content, text=content.text[:POSTED_TEXT]), warning


def metadata_of(arguments: Arguments) -> dict[str, Any] | None:
    """The metadata that a call brings.

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
