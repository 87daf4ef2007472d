"""What a message of Slack's says, wherever in it that stands.

Slack: `text` has the words of what people write. Apps may write theirs in `blocks` or `attachments` alone; a message
that is passed on is an attachment, and so is one that a link leads to, as soon as Slack has looked it up.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from channels.slack.text import escaped

#: Where an attachment that is no message has its words.
_PARTS = ("pretext", "title", "text")

#: How a text has what stands for itself in a block.
_TOKENS: Mapping[str, str] = {
    "user": "<@{user_id}>",
    "channel": "<#{channel_id}>",
    "usergroup": "<!subteam^{usergroup_id}>",
    "broadcast": "<!{range}>",
    "emoji": ":{name}:",
}

#: A link to a message, which Slack shows below the one that has it.
PERMALINK = "/archives/"


def said(message: Mapping[str, Any]) -> str:
    """The words of a message, in Slack's notation, and the files that came with it by name."""
    own = str(message.get("text") or "") or "\n".join(_of_blocks(message.get("blocks") or ()))
    apart = [_of_attachment(part) for part in message.get("attachments") or () if not is_message(part)]
    if own and not message.get("bot_id"):  # below what people write, they are previews of links
        apart = []
    files = ", ".join(str(file.get("name") or file.get("id") or "a file") for file in message.get("files") or ())
    return "\n".join(filter(None, [own, *apart, f"[files: {files}]" if files else ""]))


def passed_on(message: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages that a message passes on: whose, as far as Slack tells, what they say, and when they were said."""
    return [
        {
            "author": str(part.get("author_id") or ""),
            "name": str(part.get("author_name") or part.get("author_subname") or ""),
            "text": said(
                {
                    "text": part.get("text"),
                    "blocks": [
                        block
                        for shown in part.get("message_blocks") or ()
                        for block in (shown.get("message") or {}).get("blocks") or ()
                    ],
                    "files": part.get("files"),
                }
            ),
            "ts": str(part.get("ts") or ""),
        }
        for part in message.get("attachments") or ()
        if is_message(part)
    ]


def is_message(attachment: Mapping[str, Any]) -> bool:
    return bool(attachment.get("is_share") or attachment.get("is_msg_unfurl"))


def _of_attachment(attachment: Mapping[str, Any]) -> str:
    words = [str(attachment[part]) for part in _PARTS if attachment.get(part)]
    words += [f"{field.get('title', '')}: {field.get('value', '')}" for field in attachment.get("fields") or ()]
    words += _of_blocks(attachment.get("blocks") or ())
    return "\n".join(words) or str(attachment.get("fallback") or "")


def _of_blocks(blocks: Sequence[Any]) -> Iterator[str]:
    for block in blocks:
        if words := "".join(_of_block(block)).strip():
            yield words


def _of_block(part: Any) -> Iterator[str]:
    """The words of a block, or of something within one."""
    if (token := _token(part)) is not None:
        yield token
        return
    match part:
        case {"type": "mrkdwn", "text": text}:
            yield str(text)
        case {"type": "image"}:
            yield escaped(f"[image: {part.get('alt_text') or part.get('title') or ''}]")
        case {"text": str(text)}:
            yield escaped(text)
        case {"type": kind}:
            for inner in (part.get("text"), *(part.get("fields") or ()), *(part.get("elements") or ())):
                yield from _of_block(inner)
            if kind != "rich_text":
                yield "\n"


def _token(part: Any) -> str | None:
    """What of a rich text stands for something else, as a text has it."""
    match part:
        case {"type": str(kind)} if kind in _TOKENS:
            return _TOKENS[kind].format_map(defaultdict(str, part))
        case {"type": "link", "url": url}:
            return f"<{url}|{escaped(str(part.get('text') or url))}>"
        case {"type": "date"}:
            return escaped(str(part.get("fallback") or ""))
    return None
