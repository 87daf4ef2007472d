"""Parsers of messages in API calls: text, blocks, attachments, metadata, author.

Slack: docs.slack.dev/reference/methods/chat.postMessage and docs.slack.dev/messaging/message-metadata.
"""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.block_kit.blocks import check_blocks
from chatrig.slack.api.limits import MAX_ATTACHMENTS, MAX_MARKDOWN_CHARS, MAX_POST_CHARS
from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.state.inputs import assign_block_ids
from chatrig.slack.state.markup import SlackContent
from chatrig.slack.state.messages import BROADCAST_SUBTYPE, SlackConversation
from chatrig.slack.state.workspace import Workspace

#: The scope for another name and picture.
AUTHOR_SCOPE = "chat:write.customize"

_TRUNCATED_WARNING = "[WARN] A message of more than 40000 characters was truncated [json-pointer:/text]"
#: An attachment without any of these is empty.
_ATTACHMENT_CONTENT = frozenset(
    {"author_name", "blocks", "fallback", "fields", "footer", "image_url", "pretext", "text", "thumb_url", "title"}
)
#: Fields that Slack refuses beside `blocks`, as measured: slackapi/node-slack-sdk #832, slackapi/java-slack-sdk #184,
#: #187 and #416.
_INVALID_BESIDE_BLOCKS = frozenset(
    {
        *("actions", "fields", "indent", "mrkdwn_in"),
        *("is_app_unfurl", "is_msg_unfurl", "is_reply_unfurl", "is_thread_root_unfurl"),
    }
)


def parse_content(arguments: Arguments) -> SlackContent:
    """Parse the content of a message in the arguments of a call.

    The arguments are `text`, `markdown_text`, `blocks`, `attachments`, `link_names` and `parse`.

    Raises:
        SlackError: `no_text` without any content, `markdown_text_conflict`, `msg_too_long`, or as for `check_blocks`
            and `parse_attachments`.
    """
    text, markdown = arguments.text("text"), arguments.text("markdown_text")
    blocks = arguments.json("blocks", error="invalid_blocks_format")
    attachments = parse_attachments(arguments)
    if markdown and (text or blocks):
        raise SlackError("markdown_text_conflict")
    if not (text.strip() or markdown.strip() or blocks or attachments):
        raise SlackError("no_text")
    if len(markdown) > MAX_MARKDOWN_CHARS:
        raise SlackError("msg_too_long")
    return SlackContent(
        text=text or markdown,
        blocks=assign_block_ids(check_blocks(blocks), secrets.token_hex(4)) if blocks else None,
        is_markdown=bool(markdown),
        link_names=arguments.flag("link_names") or arguments.text("parse") == "full",
        attachments=attachments,
    )


def parse_attachments(arguments: Arguments) -> tuple[Mapping[str, Any], ...]:
    """Parse the argument `attachments`, and add ids, fallback texts and block ids.

    Returns:
        The JSON of each attachment, without its empty fields; () if the argument is missing or empty.

    Raises:
        SlackError: `too_many_attachments`, `invalid_attachments`, `no_text` for an attachment without content, or as
            for `check_blocks`.
    """
    attachments = arguments.json("attachments", error="invalid_attachments")
    if not attachments:
        return ()
    if not isinstance(attachments, list) or not all(isinstance(attachment, dict) for attachment in attachments):
        raise SlackError("invalid_attachments")
    if len(attachments) > MAX_ATTACHMENTS:
        raise SlackError("too_many_attachments")
    return tuple(_complete_attachment(index, attachment) for index, attachment in enumerate(attachments))


def _complete_attachment(index: int, attachment: Mapping[str, Any]) -> Mapping[str, Any]:
    filled = {name: value for name, value in attachment.items() if value not in (None, "", [])}
    if not filled.keys() & _ATTACHMENT_CONTENT:
        raise SlackError("no_text")
    if blocks := filled.get("blocks"):
        if attachment.keys() & _INVALID_BESIDE_BLOCKS:
            raise SlackError("invalid_attachments", messages=["[ERROR] invalid_keys"])
        checked = check_blocks(blocks, path=f"/attachments/{index}/blocks", error="invalid_attachments")
        filled["blocks"] = assign_block_ids(checked, secrets.token_hex(4))
    if color := filled.get("color"):
        filled["color"] = str(color).removeprefix("#")
    fallback = filled.get("fallback") or filled.get("text") or "[no preview available]"
    return {"id": index + 1, **filled, "fallback": fallback}


def truncate(content: SlackContent) -> tuple[SlackContent, dict[str, Any]]:
    """Cut the text of a message at `MAX_POST_CHARS`.

    Returns:
        The content, and the response's fields with Slack's warning; no fields if nothing was cut.
    """
    if len(content.text) <= MAX_POST_CHARS:
        return content, {}
    warning = {"warning": "message_truncated", "response_metadata": {"messages": [_TRUNCATED_WARNING]}}
    return replace(content, text=content.text[:MAX_POST_CHARS]), warning


def parse_post_fields(api: WebApi, channel: SlackConversation, arguments: Arguments) -> dict[str, Any]:
    """Return the fields of a new message of the bot, without its content.

    Args:
        channel: the conversation of the message.
        arguments: the arguments of the call that posts the message.

    Returns:
        Keyword arguments of `SlackMessage`: author, thread, metadata, unfurling and subtype.

    Raises:
        SlackError: as for `parse_thread_ts` and `parse_metadata`.
    """
    thread_ts = parse_thread_ts(api.workspace, channel, arguments)
    is_broadcast = thread_ts is not None and arguments.flag("reply_broadcast")
    return {
        "user": api.workspace.bot.id,
        "bot_id": api.workspace.bot_id,
        "thread_ts": thread_ts,
        "metadata": parse_metadata(arguments),
        "unfurl_links": arguments.optional_flag("unfurl_links"),
        "unfurl_media": arguments.optional_flag("unfurl_media"),
        **parse_author(api, arguments),
        **({"subtype": BROADCAST_SUBTYPE} if is_broadcast else {}),
    }


def parse_author(api: WebApi, arguments: Arguments) -> dict[str, Any]:
    """Return the author fields of a message for the arguments of a call.

    The arguments are `username`, `icon_emoji` and `icon_url`. Without the scope `chat:write.customize`, Slack ignores
    them, as measured (papercups-io/papercups #522, linyows/dewy #362).

    Returns:
        Keyword arguments of `SlackMessage`: `username`, `icons` and `subtype`. Empty without these arguments or the
        scope, so that the bot posts under its own name.
    """
    names = ("username", "icon_emoji", "icon_url")
    if not any(arguments.text(name) for name in names) or not api.has_scope(AUTHOR_SCOPE):
        return {}
    username, emoji, url = (arguments.text(name) for name in names)
    icons = {"emoji": f":{emoji.strip(':')}:"} if emoji else {"image_48": url} if url else {}
    return {"username": username or api.workspace.bot.real_name, "icons": icons, "subtype": "bot_message"}


def parse_thread_ts(workspace: Workspace, channel: SlackConversation, arguments: Arguments) -> str | None:
    """Return the argument `thread_ts`; None without it.

    Raises:
        SlackError: `thread_not_found` if the channel has no message with this timestamp; `cannot_reply_to_message` if
            that message is itself a reply.
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


def parse_metadata(arguments: Arguments) -> dict[str, Any] | None:
    """Return the argument `metadata` as a JSON object; None if it is missing or empty.

    The object has `event_type` and `event_payload`.

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
