"""Block Kit blocks of messages and their buttons.

Slack: docs.slack.dev/reference/block-kit. An update with blocks shows no "(edited)" beside the message.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from channels.base import Button
from channels.markdown.blocks import BlockContext
from channels.markdown.chunk_reader import ChunkReader
from channels.markdown.dialect import MessageLimits
from channels.slack.text import DATE_TOKEN, escape, unescape

#: Characters of a message that its notification has. Slack: `chat.update` refuses more than 4,000 bytes.
NOTIFICATION_SIZE = 300

#: Characters of a message that are parsed for it: marks and the targets of links are left out.
_PARSED_SIZE = 2 * NOTIFICATION_SIZE
_NO_LIMITS = MessageLimits(chunk_size=100 * _PARSED_SIZE, measure=len)

#: Parser of the message; entities are decoded afterwards, as Slack decodes them in code, too.
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["entity", "code"])

#: Slack: most characters of a button's label.
LABEL_SIZE = 75

#: Slack: most options of a menu.
MAX_MENU_OPTIONS = 100

#: Prefixes of the ids of two buttons that become one `feedback_buttons` element. Its value is the pressed button's id.
_GOOD, _BAD = "good:", "bad:"
_FEEDBACK = "feedback:"


def message_content(text: str, controls: Sequence[Button] = ()) -> dict[str, Any]:
    """Return the `blocks` of a message, and its plain `text` for notifications.

    The message is in Slack's Markdown (see `SlackMarkdown`). The notification is its start without Markdown, at most
    `NOTIFICATION_SIZE` characters, in which `&`, `<` and `>` are escaped.
    """
    is_whole = len(text) <= _PARSED_SIZE
    notice = _render_notification(text[:_PARSED_SIZE], is_whole=is_whole)
    if not is_whole or len(notice) > NOTIFICATION_SIZE:
        notice = f"{notice[: NOTIFICATION_SIZE - 1].rstrip()}…"
    return {
        "blocks": [{"type": "markdown", "text": text}, *button_blocks(controls)],
        "text": escape(notice),
    }


@lru_cache(maxsize=128)  # the start of a growing message rarely changes
def _render_notification(start: str, *, is_whole: bool) -> str:
    """Return the plain text of a message's start, on several lines."""
    if not is_whole:
        reader = ChunkReader(_NO_LIMITS, BlockContext(), start)
        reader.find_break()
        start = reader.render().text  # without an incomplete link or open marks
    parts = list[str]()
    for token in _MARKDOWN.parse(DATE_TOKEN.sub(r"\1", start)):
        match token.type:
            case "inline":
                parts += map(_get_content, token.children or ())
            case "fence":
                parts.append(token.content)
            case "list_item_open":
                parts.append(f"{token.info}{token.markup} " if token.info else "- ")
            case "paragraph_close" | "heading_close" | "tr_close":
                parts.append("\n")
            case "td_close" | "th_close":
                parts.append(" ")
    lines = (line.strip() for line in unescape("".join(parts)).split("\n"))
    return "\n".join(line for line in lines if line)


def _get_content(token: Token) -> str:
    return "\n" if token.type in ("softbreak", "hardbreak") else token.content


def button_blocks(controls: Sequence[Button]) -> list[dict[str, Any]]:
    """Return the Block Kit blocks with buttons and menus.

    The two rating buttons become Slack's `feedback_buttons` element, in a block of the type `context_actions`. They are
    not two `icon_button` elements, whose only icon is a bin.
    """
    verdicts = {name: c for c in controls for name in (_GOOD, _BAD) if c.id.startswith(name)}
    rated = list(verdicts.values()) if len(verdicts) == 2 else []
    others = [control for control in controls if control not in rated]
    blocks: list[dict[str, Any]] = []
    if others:
        blocks.append({"type": "actions", "elements": [button_element(control) for control in others]})
    if rated:
        up = verdicts[_GOOD]
        down = verdicts[_BAD]
        feedback = {
            "type": "feedback_buttons",
            "action_id": f"{_FEEDBACK}{up.id.removeprefix(_GOOD)}",
            "positive_button": {**_button_texts(up.label), "value": up.id},
            "negative_button": {**_button_texts(down.label), "value": down.id},
        }
        blocks.append({"type": "context_actions", "elements": [feedback]})
    return blocks


def button_element(control: Button) -> dict[str, Any]:
    """Return a Block Kit element: a `static_select` for a menu, else a `button`."""
    if control.options:
        options = [{"text": _plain_text(option.label), "value": option.id} for option in control.options]
        menu = {"type": "static_select", "action_id": control.id, "placeholder": _plain_text(control.label)}
        return {**menu, "options": options}
    button = {"type": "button", "action_id": control.id, **_button_texts(control.label)}
    if control.style:
        button["style"] = control.style
    if control.url:
        button["url"] = control.url
    return button


def pressed_id(action: Mapping[str, Any]) -> str:
    """Return the `Button.id` of the pressed button or chosen option in a `block_actions` payload."""
    if chosen := action.get("selected_option"):
        return str(chosen.get("value"))
    id_ = str(action.get("action_id"))
    return str(action.get("value")) if id_.startswith(_FEEDBACK) else id_


def _plain_text(label: str) -> dict[str, str]:
    return {"type": "plain_text", "text": label[:LABEL_SIZE]}


def _button_texts(label: str) -> dict[str, Any]:
    return {"text": _plain_text(label), "accessibility_label": label[:LABEL_SIZE]}
