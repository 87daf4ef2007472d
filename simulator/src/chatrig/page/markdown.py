"""Conversion of Discord's Markdown and of Slack's Markdown blocks to HTML.

Messages are untrusted: their text is escaped, and only elements created here reach the page. Discord:
support.discord.com, "Markdown Text 101". Slack: docs.slack.dev, "Markdown block".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound
from rich.emoji import Emoji

from chatrig.slack.state.markup import decode_entities

#: Returns safe HTML for the inside of `<...>`, or an empty text if it is not markup.
AngleRenderer = Callable[[str], str]

#: URLs that a message may link to.
_SAFE_URL = re.compile(r"(?:https?://|mailto:)[^\s]+", re.IGNORECASE)
_ANGLE = re.compile(r"<([^<>\n]+)>")
_BARE_URL = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,:;!?)\]}*_~|]")
_EMOJI = re.compile(r":[a-z0-9_+-]+:")
_SPOILER = re.compile(r"\|\|(.+?)\|\|", re.DOTALL)
_SUBTEXT = re.compile(r"-# (?=\S)")
_WORDS = re.compile(r"[^\n!#$%&*+\-:<=>@\[\\\]^_`{|}~]+")
_FORMATTER = HtmlFormatter(nowrap=True, classprefix="hl-")


def render_link(address: str, label: str = "") -> str:
    """Return an HTML link that opens in a new tab.

    A URL that is not http(s) or mailto is no link: only the escaped text is returned.

    Args:
        address: the URL.
        label: the text of the link, not escaped yet; "" for the URL itself.
    """
    text = escape(label or address)
    if not _SAFE_URL.fullmatch(address):
        return text
    return f'<a href="{escape(address)}" target="_blank" rel="noopener noreferrer nofollow">{text}</a>'


def render_mention(text: str) -> str:
    """Return plain text, such as `@ada`, as escaped HTML that highlights a mention."""
    return f'<span class="mention">{escape(text)}</span>'


def render_code(text: str, language: str = "") -> str:
    """Return plain text as an HTML code block, highlighted if the language is known.

    The text and the language are escaped.

    Args:
        language: a name of the language that Pygments may know; "" for none.
    """
    try:
        html = highlight(text, get_lexer_by_name(language), _FORMATTER) if language else escape(text)
    except ClassNotFound:
        html = escape(text)
    name = f' data-language="{escape(language)}"' if language else ""
    return f'<pre tabindex="0"{name}><code>{html.rstrip()}</code></pre>'


def render_discord(text: str, names: Mapping[str, str]) -> str:
    """Convert Discord's Markdown to safe HTML.

    HTML in the text and in the names is escaped. Only http(s) and mailto URLs become links.

    Args:
        names: names of users, channels and roles by id, for mentions; a mention without a name shows the id.
    """
    # Discord: `>>>` quotes all following lines; `>` needs a space and quotes its own line.
    text = re.sub(r"(?ms)^>>> (.*)", lambda found: re.sub("(?m)^", "> ", found[1]), text)
    text = re.sub(r"(?m)^(?=>(?! ))", "\\\\", text)
    text = re.sub(r"(?m)^(> .*\n)(?!>|\n|\Z)", r"\1\n", text)
    return str(_DISCORD_PARSER.render(text, {"angle": lambda inner: _render_discord_angle(inner, names)}))


def render_slack(text: str, render_angle: AngleRenderer) -> str:
    """Convert the text of Slack's `markdown` block to safe HTML.

    HTML in the text is escaped. Only http(s) and mailto URLs become links.

    Args:
        render_angle: converts the inside of `<...>`, such as a mention, to safe HTML. If it returns "", other Markdown
            rules apply.
    """
    return str(_SLACK_PARSER.render(text, {"angle": render_angle}))


def _render_discord_angle(inner: str, names: Mapping[str, str]) -> str:
    if found := re.fullmatch(r"(@[!&]?|#)(\d+)", inner):
        return render_mention(f"{found[1][0]}{names.get(found[2], found[2])}")
    if found := re.fullmatch(r"a?(:\w+:)\d+", inner):
        return escape(found[1])
    if found := re.fullmatch(r"(/[^:]+):\d+", inner):
        return render_mention(found[1])
    if found := re.fullmatch(r"t:(-?\d{1,11})(?::\w)?", inner):
        return render_time(int(found[1]))
    return render_link(inner) if re.match("https?://", inner) else ""


def render_time(at: int) -> str:
    """Return a time in seconds since the epoch as HTML, in local time; "" if it is out of range."""
    with suppress(ValueError, OverflowError, OSError):
        return f"<time>{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}</time>"
    return ""


def _parse_angle(state: StateInline, silent: bool) -> bool:
    """Parse `<...>` as a mention or link: an inline rule of markdown-it.

    Returns:
        Whether the rule matches at the position; then the position moves and, unless `silent`, a token is added.
    """
    found = _ANGLE.match(state.src, state.pos)
    html = state.env["angle"](found[1]) if found else ""
    if not html or found is None:
        return False
    if not silent:
        state.push("raw", "", 0).content = html
    state.pos = found.end()
    return True


def _parse_spoiler(state: StateInline, silent: bool) -> bool:
    """Parse Discord's `||spoiler||`, and its inside: an inline rule of markdown-it.

    Returns:
        Whether the rule matches at the position; then the position moves and, unless `silent`, tokens are added.
    """
    found = _SPOILER.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("raw", "", 0).content = '<span class="spoiler" tabindex="0" role="button" aria-label="Spoiler">'
        pos, end = state.pos, state.posMax
        state.pos, state.posMax = pos + 2, found.end() - 2
        state.md.inline.tokenize(state)
        state.pos, state.posMax = pos, end
        state.push("raw", "", 0).content = "</span>"
    state.pos = found.end()
    return True


def _parse_words(state: StateInline, silent: bool) -> bool:
    """Parse plain text up to a character that may start another inline rule.

    This rule of markdown-it also stops at Discord's `|`.

    Returns:
        Whether there is such text at the position; then the position moves and, unless `silent`, the text is added.
    """
    found = _WORDS.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


def _render_raw(_self: RendererHTML, tokens: Sequence[Token], number: int, _options: Any, _env: Any) -> str:
    """Return the content of a `raw` token, which is HTML already."""
    return tokens[number].content


def _render_fence(_self: RendererHTML, tokens: Sequence[Token], number: int, _options: Any, _env: Any) -> str:
    token = tokens[number]
    return render_code(token.content, token.info.strip().partition(" ")[0])


def _render_slack_fence(_self: RendererHTML, tokens: Sequence[Token], number: int, _options: Any, _env: Any) -> str:
    """Return a fenced code block as HTML, with Slack's entities (`&amp;`) decoded.

    Slack decodes entities in code, too.
    """
    token = tokens[number]
    return render_code(decode_entities(token.content), token.info.strip().partition(" ")[0])


def _render_slack_code(_self: RendererHTML, tokens: Sequence[Token], number: int, _options: Any, _env: Any) -> str:
    return f"<code>{escape(decode_entities(tokens[number].content))}</code>"


def _render_table_cell(self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    """Return the opening tag of a table cell, with its alignment as a CSS class.

    The page's Content-Security-Policy forbids inline styles.
    """
    side = str(tokens[number].attrs.pop("style", "")).removeprefix("text-align:")
    tokens[number].attrs |= {"class": f"to-{side}"} if side else {}
    return self.renderToken(tokens, number, options, env)


def _render_strong(self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    """Return a tag of bold text, or of underlined text for Discord's two underscores."""
    if tokens[number].markup == "__":
        tokens[number].tag = "u"
    return self.renderToken(tokens, number, options, env)


def _render_text(_self: RendererHTML, tokens: Sequence[Token], number: int, _options: Any, _env: Any) -> str:
    """Return text as HTML, with emoji in place of their names and links for bare URLs."""
    text, parts, end = Emoji.replace(tokens[number].content), list[str](), 0
    for found in _BARE_URL.finditer(text):
        parts += escape(text[end : found.start()]), render_link(found[0])
        end = found.end()
    return "".join([*parts, escape(text[end:])])


def _render_link_aware_text(_self: RendererHTML, tokens: Sequence[Token], number: int, _options: Any, _env: Any) -> str:
    """Return text as `_render_text` does; inside a link, only escape it."""
    is_inside = sum({"link_open": 1, "link_close": -1}.get(token.type, 0) for token in tokens[:number]) > 0
    return escape(tokens[number].content) if is_inside else _render_text(_self, tokens, number, _options, _env)


def _render_link_open(self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    tokens[number].attrs |= {"target": "_blank", "rel": "noopener noreferrer nofollow"}
    return self.renderToken(tokens, number, options, env)


def _render_paragraph(self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    """Return the opening tag of a paragraph.

    A paragraph that begins with Discord's `-# ` gets the CSS class `subtext`, and the sign is removed.
    """
    children = tokens[number + 1].children or []
    if children and children[0].type == "text" and (found := _SUBTEXT.match(children[0].content)):
        children[0].content = children[0].content[found.end() :]
        return '<p class="subtext">'
    return self.renderToken(tokens, number, options, env)


def _is_safe_url(url: str) -> bool:
    return bool(_SAFE_URL.fullmatch(url))


def _create_parser(*disabled_rules: str, **options: Any) -> MarkdownIt:
    """Return a markdown-it parser for the Markdown that both platforms have.

    Args:
        disabled_rules: further rules of markdown-it to disable.
        options: options of markdown-it.
    """
    md = MarkdownIt("commonmark", {"html": False, "breaks": True, **options})
    md.enable(["strikethrough"]).disable(["html_inline", "html_block", "image", "code", "reference", "lheading"])
    md.disable(list(disabled_rules)).disable("autolink")
    md.inline.ruler.before("emphasis", "angles", _parse_angle)
    md.validateLink = _is_safe_url  # type: ignore[method-assign] # markdown-it documents this assignment
    md.add_render_rule("raw", _render_raw)
    md.add_render_rule("fence", _render_fence)
    md.add_render_rule("text", _render_link_aware_text)
    md.add_render_rule("link_open", _render_link_open)
    return md


def _create_discord_parser() -> MarkdownIt:
    md = _create_parser("hr", "entity")
    md.inline.ruler.at("text", _parse_words)
    md.inline.ruler.before("emphasis", "spoilers", _parse_spoiler)
    md.add_render_rule("strong_open", _render_strong)
    md.add_render_rule("strong_close", _render_strong)
    md.add_render_rule("paragraph_open", _render_paragraph)
    return md


def _create_slack_parser() -> MarkdownIt:
    md = _create_parser().enable("table")
    md.add_render_rule("fence", _render_slack_fence)
    md.add_render_rule("code_inline", _render_slack_code)
    md.add_render_rule("th_open", _render_table_cell)
    md.add_render_rule("td_open", _render_table_cell)
    return md


_DISCORD_PARSER = _create_discord_parser()
_SLACK_PARSER = _create_slack_parser()
