import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrig.page.markdown import render_discord, render_slack
from chatrig.page.mrkdwn import render_mrkdwn

NAMES = {"12": "ada", "5": "general", "U1": "ada", "C5": "general"}

#: HTML elements of the page's renderer; no input may lead to any other.
TAGS = {"a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p"}
TAGS |= {"pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "time", "tr", "u", "ul"}
ATTRIBUTES = {"href", "target", "rel", "class", "tabindex", "role", "aria-label", "data-language", "start"}


class ParsedHtml(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.wrong: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.wrong += [tag] if tag not in TAGS else []
        for name, value in attrs:
            is_led_away = name == "href" and not re.match(r"(?i)https?://|mailto:", value or "")
            self.wrong += [f"{tag} {name}={value}"] if name not in ATTRIBUTES or is_led_away else []


def render_slack_mrkdwn(text: str) -> str:
    return render_slack(text, lambda inner: "")


@given(st.text(st.sampled_from("<>@#!|&;:/\"'`*_~()[]\\\n -ahtps:jv\ue000\ue0010")))
def test_any_text_renders_only_allowed_html(text: str) -> None:
    for html in (render_discord(text, NAMES), render_slack_mrkdwn(text), render_mrkdwn(text, NAMES)):
        assert ParsedHtml(html).wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**b** *i* __u__ ~~s~~", "<strong>b</strong> <em>i</em> <u>u</u> <s>s</s>"),
        ("<@12> in <#5>", '<span class="mention">@ada</span> in <span class="mention">#general</span>'),
        ("-# small", '<p class="subtext">small</p>'),
        ("| a | b |\n| - | - |", "| a | b |"),
        ("a\nb", "a<br />"),
        (">no quote", "&gt;no quote"),
        ("<t:-99999999999>", "&lt;t:-99999999999&gt;"),
        ("```py\nx = 1\n```", 'data-language="py"'),
    ],
)
def test_discord_markdown_is_rendered(text: str, expected: str) -> None:
    assert expected in render_discord(text, NAMES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*b* _i_ ~s~", "<strong>b</strong> <em>i</em> <s>s</s>"),
        ("**b**", "**b**"),
        ("<@U1> <#C5> <!here>", '@ada</span> <span class="mention">#general</span> <span class="mention">@here'),
        ("&gt; q\nnot", "<blockquote>q</blockquote>not"),
        ("`a*b*c`", "<code>a*b*c</code>"),
        ("<https://a.b|a&amp;b>", ">a&amp;b</a>"),
        (":wave:", "👋"),
    ],
)
def test_mrkdwn_is_rendered(text: str, expected: str) -> None:
    assert expected in render_mrkdwn(text, NAMES)


def test_slack_tables_align_their_columns() -> None:
    html = render_slack_mrkdwn("# T\n\n| a | b | c |\n| - | -: | :-: |\n| 1 | 2 | 3 |")
    assert {"table", "th", "td", "h1"} <= set(ParsedHtml(html).tags)
    assert '<td>1</td>\n<td class="to-right">2</td>\n<td class="to-center">3</td>' in html
    assert ParsedHtml(html).wrong == []  # no style attribute: the page's Content-Security-Policy forbids them


@pytest.mark.parametrize("text", ["`&lt;b> &amp; c`", "```\n&lt;b> &amp; c\n```"])
def test_slack_entities_are_decoded_in_code(text: str) -> None:
    assert "&lt;b&gt; &amp; c</code>" in render_slack_mrkdwn(text)
