"""Conversion of Slack's mrkdwn and Block Kit blocks to HTML.

Slack: docs.slack.dev/messaging/formatting-message-text (mrkdwn), docs.slack.dev/reference/block-kit/blocks. Buttons and
menus are in `chatrig.slack.state.controls`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from rich.emoji import Emoji

from chatrig.page.markdown import render_code, render_link, render_mention, render_slack, render_time
from chatrig.slack.state.markup import SlackContent, decode_entities, list_attachment_texts

#: Names of users and channels by id.
Names = Mapping[str, str]

Block = Mapping[str, Any]

_CODE = re.compile(r"```(?P<block>.+?)```\n?|`(?P<line>[^`\n]+)`", re.DOTALL)
_ANGLE = re.compile(r"<([^<>\n]+)>")
_STYLES = (
    (re.compile(r"(?<![\w*])\*(?![\s*])([^*\n]*[^*\s])\*(?![\w*])"), "strong"),
    (re.compile(r"(?<![\w_])_(?![\s_])([^_\n]*[^_\s])_(?![\w_])"), "em"),
    (re.compile(r"(?<![\w~])~(?![\s~])([^~\n]*[^~\s])~(?![\w~])"), "s"),
)
_QUOTE = re.compile(r"&gt; ?")
#: Tags around these elements of a rich text.
_ENCLOSING_TAGS = {
    "rich_text_quote": ("<blockquote>", "</blockquote>"),
    "rich_text_preformatted": ('<pre tabindex="0"><code>', "</code></pre>"),
}
#: Placeholder of finished HTML while styles are applied around it.
_PLACEHOLDER = re.compile("\ue000(\\d+)\ue001")


def render_content(content: SlackContent, names: Names) -> str:
    """Return the content of a Slack message as HTML.

    It has the blocks or, without any, the text; then the attachments. Task cards are left out.

    Args:
        names: names of users and channels by id, for mentions; a mention without a name shows its label or id.
    """
    if content.blocks:
        html = render_blocks(content.blocks, names)
    elif content.is_markdown:
        html = render_slack(content.text, lambda inner: _render_angle(inner, names))
    else:
        html = render_mrkdwn(content.text, names)
    return html + "".join(_render_attachment(attachment, names) for attachment in content.attachments)


def _render_attachment(attachment: Mapping[str, Any], names: Names) -> str:
    texts = "".join(render_mrkdwn(text, names) for text in list_attachment_texts(attachment))
    return f"<blockquote>{texts}{render_blocks(attachment.get('blocks', ()), names)}</blockquote>"


def render_blocks(blocks: Sequence[Block], names: Names) -> str:
    """Convert Block Kit blocks to HTML, without buttons, menus and inputs.

    A block that the page cannot show, such as `image`, becomes its type in parentheses.

    Args:
        names: names of users and channels by id, for mentions.
    """
    return "".join(_render_block(block, names) for block in blocks)


def render_mrkdwn(text: str, names: Names) -> str:
    """Convert mrkdwn to an HTML `div`; "" for an empty text.

    Args:
        names: names of users and channels by id, for mentions; a mention without a name shows its label or id.
    """
    return f"<div>{_render_lines(text, names)}</div>" if text else ""


def _render_lines(text: str, names: Names) -> str:
    """Convert mrkdwn to HTML without an element around it."""
    fragments: list[str] = []

    def store_fragment(html: str) -> str:
        fragments.append(html)
        return f"\ue000{len(fragments) - 1}\ue001"

    def store_code(found: re.Match[str]) -> str:
        if found["block"] is not None:
            return store_fragment(render_code(decode_entities(found["block"].strip("\n"))))
        return store_fragment(f"<code>{escape(decode_entities(found['line']))}</code>")

    text = _CODE.sub(store_code, re.sub("[\ue000\ue001]", "", text))
    text = _ANGLE.sub(
        lambda found: store_fragment(html) if (html := _render_angle(found[1], names)) else found[0], text
    )
    parts = []
    by_quote = groupby(escape(decode_entities(text), quote=False).split("\n"), lambda line: bool(_QUOTE.match(line)))
    for is_quote, lines in by_quote:
        shown = "<br>".join(_apply_styles(_QUOTE.sub("", line, count=1) if is_quote else line) for line in lines)
        parts.append(f"<blockquote>{shown}</blockquote>" if is_quote else shown)
    return _PLACEHOLDER.sub(lambda found: fragments[int(found[1])], "".join(parts))


def _apply_styles(line: str) -> str:
    for pattern, tag in _STYLES:
        line = pattern.sub(rf"<{tag}>\1</{tag}>", line)
    return Emoji.replace(line)


def _render_angle(inner: str, names: Names) -> str:
    """Convert the inside of `<...>` in mrkdwn to HTML.

    The result is "" if the inside is neither a mention nor a link.
    """
    target, _, label = inner.partition("|")
    sign, key = target[:1], target[1:]
    if sign in ("@", "#"):
        return render_mention(f"{sign}{names.get(key) or decode_entities(label) or key}")
    if found := re.fullmatch(r"!date\^(\d{1,11})\^[^^]+", target):
        return render_time(int(found[1])) or escape(decode_entities(label))
    if sign == "!":
        return render_mention(f"@{decode_entities(label).removeprefix('@') or key.partition('^')[0]}")
    if re.match(r"(?:https?://|mailto:)", target, re.IGNORECASE):
        return render_link(decode_entities(target), decode_entities(label))
    return ""


def _render_block(block: Block, names: Names) -> str:
    kind = str(block.get("type"))
    write = _BLOCK_RENDERERS.get(kind)
    return write(block, names) if write else f'<p class="unknown">({escape(kind)})</p>'


def _render_text(text: Block | None, names: Names) -> str:
    """Convert a Block Kit text object (`plain_text` or `mrkdwn`) to HTML; None to ""."""
    if not text:
        return ""
    words = str(text.get("text", ""))
    return _render_lines(words, names) if text.get("type") == "mrkdwn" else Emoji.replace(escape(words))


def _render_section(block: Block, names: Names) -> str:
    parts = [f"<div>{_render_text(block['text'], names)}</div>"] if block.get("text") else []
    fields = "".join(f"<div>{_render_text(field, names)}</div>" for field in block.get("fields", ()))
    return "".join([*parts, f'<div class="fields">{fields}</div>' if fields else ""])


def _render_context(block: Block, names: Names) -> str:
    shown = " ".join(_render_text(element, names) for element in block.get("elements", ()) if "text" in element)
    return f'<p class="context">{shown}</p>'


def _render_rich_text(element: Block, names: Names) -> str:
    """Convert a rich text block, or an element of one, to HTML."""
    match element:
        case {"type": "text", "text": str(text)}:
            html = escape(text).replace("\n", "<br>")
            for name, tag in (("code", "code"), ("bold", "strong"), ("italic", "em"), ("strike", "s")):
                html = f"<{tag}>{html}</{tag}>" if (element.get("style") or {}).get(name) else html
        case {"type": "user", "user_id": str(key)}:
            html = render_mention(f"@{names.get(key, key)}")
        case {"type": "channel", "channel_id": str(key)}:
            html = render_mention(f"#{names.get(key, key)}")
        case {"type": "broadcast", "range": str(key)} | {"type": "usergroup", "usergroup_id": str(key)}:
            html = render_mention(f"@{key}")
        case {"type": "emoji", "name": str(name)}:
            html = escape(Emoji.replace(f":{name}:"))
        case {"type": "link", "url": str(url)}:
            html = render_link(url, str(element.get("text") or ""))
        case {"type": "rich_text_list", "elements": items}:
            tag = "ol" if element.get("style") == "ordered" else "ul"
            html = f"<{tag}>{''.join(f'<li>{_render_rich_text(item, names)}</li>' for item in items)}</{tag}>"
        case _:
            opens, closes = _ENCLOSING_TAGS.get(str(element.get("type")), ("", ""))
            html = f"{opens}{''.join(_render_rich_text(part, names) for part in element.get('elements', ()))}{closes}"
    return html


def _render_table(block: Block, names: Names) -> str:
    rows = (
        "".join(f"<td>{_render_rich_text(cell, names) or escape(str(cell.get('text', '')))}</td>" for cell in row)
        for row in block.get("rows", ())
    )
    return f"<table><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"


_BLOCK_RENDERERS: Mapping[str, Callable[[Block, Names], str]] = {
    "actions": lambda _block, _names: "",
    "context": _render_context,
    "context_actions": lambda _block, _names: "",
    "divider": lambda _block, _names: "<hr>",
    "header": lambda block, names: f"<h2>{_render_text(block['text'], names)}</h2>",
    "input": lambda _block, _names: "",
    "markdown": lambda block, names: render_slack(
        str(block.get("text", "")), lambda inner: _render_angle(inner, names)
    ),
    "rich_text": lambda block, names: f"<div>{_render_rich_text(block, names)}</div>",
    "section": _render_section,
    "table": _render_table,
}
