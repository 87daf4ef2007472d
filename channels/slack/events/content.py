"""Text of Slack messages from their `text`, blocks, attachments and files.

Slack: people's messages have their text in `text`. Apps may use `blocks` or `attachments` alone. A forwarded message
is an attachment, and so is a linked message once Slack has unfurled the link.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from channels.slack.text import escape
from core.inbox_message import format_file_name

#: The fields with the text of an attachment that is no message.
_TEXT_FIELDS = ("pretext", "title", "text")

#: Slack's tokens in text for the elements of a rich text block.
_TOKENS: Mapping[str, str] = {
    "user": "<@{user_id}>",
    "channel": "<#{channel_id}>",
    "usergroup": "<!subteam^{usergroup_id}>",
    "broadcast": "<!{range}>",
    "emoji": ":{name}:",
}

#: Part of the URL of each Slack message, by which links to messages are found.
PERMALINK = "/archives/"


def get_message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message in Slack's markup, followed by its file names.

    If the text is empty, it is that of the blocks. The texts of attachments follow, but not in a person's message that
    has a text, and not those of forwarded messages. Each part is on a line of its own, the last as `[files: A, B]`.

    Args:
        message: a message object of Slack.
    """
    text = str(message.get("text") or "") or "\n".join(_block_texts(message.get("blocks") or ()))
    attached = [_attachment_text(part) for part in message.get("attachments") or () if not is_forwarded(part)]
    if text and not message.get("bot_id"):  # in people's messages, they are previews of links
        attached = []
    files = ", ".join(
        format_file_name(str(file.get("name") or file.get("id") or "")) for file in message.get("files") or ()
    )
    return "\n".join(filter(None, [text, *attached, f"[files: {files}]" if files else ""]))


def get_forwarded_messages(message: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the messages that a message forwards or links to.

    Args:
        message: a message object of Slack.

    Returns:
        The `author` (id), `name`, `text` and `ts` of each message, each empty if Slack did not send it.
    """
    return [
        {
            "author": str(part.get("author_id") or ""),
            "name": str(part.get("author_name") or part.get("author_subname") or ""),
            "text": get_message_text(
                {
                    "text": part.get("text"),
                    "blocks": [
                        block
                        for message_block in part.get("message_blocks") or ()
                        for block in (message_block.get("message") or {}).get("blocks") or ()
                    ],
                    "files": part.get("files"),
                }
            ),
            "ts": str(part.get("ts") or ""),
        }
        for part in message.get("attachments") or ()
        if is_forwarded(part)
    ]


def is_forwarded(attachment: Mapping[str, Any]) -> bool:
    """Return whether a message's attachment is a forwarded or linked message."""
    return bool(attachment.get("is_share") or attachment.get("is_msg_unfurl"))


def _attachment_text(attachment: Mapping[str, Any]) -> str:
    texts = [str(attachment[part]) for part in _TEXT_FIELDS if attachment.get(part)]
    texts += [f"{field.get('title', '')}: {field.get('value', '')}" for field in attachment.get("fields") or ()]
    texts += _block_texts(attachment.get("blocks") or ())
    return "\n".join(texts) or str(attachment.get("fallback") or "")


def _block_texts(blocks: Sequence[Any]) -> Iterator[str]:
    for block in blocks:
        if text := "".join(_block_parts(block)).strip():
            yield text


def _block_parts(part: Any) -> Iterator[str]:
    """Yield the texts in a Block Kit block, or in an element of a block, in order."""
    if (token := _rich_text_token(part)) is not None:
        yield token
        return
    match part:
        case {"type": "mrkdwn", "text": text}:
            yield str(text)
        case {"type": "image"}:
            yield escape(f"[image: {part.get('alt_text') or part.get('title') or ''}]")
        case {"text": str(text)}:
            yield escape(text)
        case {"type": kind}:
            for inner in (part.get("text"), *(part.get("fields") or ()), *(part.get("elements") or ())):
                yield from _block_parts(inner)
            if kind != "rich_text":
                yield "\n"


def _rich_text_token(part: Any) -> str | None:
    """Return the token in text (such as `<@U1>`) for an element of a rich text block.

    None if the element is no mention, emoji, link or date.
    """
    match part:
        case {"type": str(kind)} if kind in _TOKENS:
            return _TOKENS[kind].format_map(defaultdict(str, part))
        case {"type": "link", "url": url}:
            return f"<{url}|{escape(str(part.get('text') or url))}>"
        case {"type": "date"}:
            return escape(str(part.get("fallback") or ""))
    return None
