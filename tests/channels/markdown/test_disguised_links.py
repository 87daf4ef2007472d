"""Links in model texts: no label shows another address than the link's target."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.base import Priority
from channels.discord.text import DiscordMarkdown
from channels.discord.text import utf16_size as utf16
from channels.markdown.dialect import MessageLimits
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.text import SlackMarkdown, utf8_size

SLACK = MessageLimits(chunk_size=400, measure=utf8_size, status_reserve=20, dialect=SlackMarkdown())
DISCORD = MessageLimits(chunk_size=400, measure=utf16, dialect=DiscordMarkdown())

GOOD, EVIL = "good.example", "https://evil.example"

_PIECES = [
    "[", "]", "(", ")", "](", "]:", "][", "![", "!", ":", "|", "\\", '"', "'", "<", ">", "`", "``", "*", "**", "_",
    "~~", GOOD, f"https://{GOOD}", EVIL, f"({EVIL})", f"[https://{GOOD}]({EVIL})", f"[x]({EVIL})", f"[{GOOD}][1]",
    f"[1]: {EVIL}", f"<{EVIL}>", f'<a href="{EVIL}">', "</a>", "<b ", "<br>", "<span>", "</span>", "<!--", "-->",
    "[^1]", "&#46;", "\n", "\n\n", "\r", "\t", " ", "   ", "    ", "> ", "- ", "1. ", "# ", "#### ", "```", "```\n",
    "\n```\n", "~~~\n", "\n| a | b |\n|---|---|\n", "| ", "word ", "x",
]  # fmt: skip
texts = st.lists(st.sampled_from(_PIECES), min_size=2, max_size=25).map("".join)

_COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])

#: Discord's Markdown: an escaped character, a code block, inline code, and a link. A label
#: may contain line breaks.
_DISCORDS = re.compile(
    r"""
      \\[^0-9A-Za-z\s]
    | ```(?:[a-z0-9_+\-.\#]+?\n)?\n*[^\n].*?\n*```
    | (?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)
    | \[(?P<label>(?:\[[^\]`]*\]|[^\[\]`\\]|\\.|`[^`]+`|\](?=[^\[]*\]))*)\]
      \(\s*<?(?P<target>(?:\([^)]*\)|[^\s\\]|\\.)*?)>?(?:\s+['"].*?['"])?\s*\)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def plan_texts(text: str, limits: MessageLimits, priority: Priority = Priority.FINAL) -> list[str]:
    planner = ChunkPlanner(limits)
    planner.feed(text)
    return [chunk.text for chunk in planner.plan(priority).chunks]


def find_links(message: str) -> Iterator[tuple[str, str]]:
    """Yield (label, target) of each link that a CommonMark parser finds."""
    for block in _COMMONMARK.parse(message):
        label, target = "", ""
        for token in block.children or ():
            if token.type == "link_open":
                label, target = "", str(token.attrGet("href"))
            elif token.type == "link_close":
                yield label, target
            else:
                label += token.content


def find_masked_links(message: str) -> Iterator[tuple[str, str]]:
    """Yield (label, target) of each link that Discord finds."""
    for found in _DISCORDS.finditer(message):
        if found["target"]:
            yield re.sub(r"[*_~]", "", found["label"]), found["target"]


def find_disguised_links(message: str, limits: MessageLimits) -> list[tuple[str, str]]:
    found = find_links(message) if limits is SLACK else find_masked_links(message)
    return [(label, target) for label, target in found if "evil" in target and GOOD in label]


LIMITS = pytest.mark.parametrize("limits", [SLACK, DISCORD], ids=["slack", "discord"])


@LIMITS
@settings(deadline=None)
@given(text=texts, priority=st.sampled_from([Priority.FINAL, Priority.STREAM_UPDATE]))
def test_no_message_has_a_disguised_link(limits: MessageLimits, text: str, priority: Priority) -> None:
    assert not [
        found for message in plan_texts(text, limits, priority) for found in find_disguised_links(message, limits)
    ]


@LIMITS
@pytest.mark.parametrize(
    "text",
    [
        f"[https://{GOOD}]({EVIL}/(a(b)))",
        f"[https://{GOOD}]({EVIL}/((((a)))))",
        f"[https://{GOOD}]({EVIL} (title))",
        f'[https://{GOOD}]({EVIL} "a\\"b")',
        f"[https://{GOOD}]({EVIL}/\\()",
        f"[a [b [c]] https://{GOOD}]({EVIL})",
        f"[https://{GOOD} `]`]({EVIL})",
        f"[https://{GOOD} {'x ' * 400}]({EVIL})"[:390],
        f"[x][https://{GOOD}]({EVIL})",
        f"<b [https://{GOOD}]({EVIL})>",
        f"[{GOOD.replace('.', '&#46;')}]({EVIL})",
        f"[{GOOD.replace('.', '<!-- -->.')}]({EVIL})",
        f"[{GOOD.replace('.', '<span></span>.')}]({EVIL})",
        f"[https://{GOOD}]<span></span>({EVIL})",
        f"[https://{GOOD} `](https://x.example)` y]({EVIL})",
        f"#### [https://{GOOD}]**({EVIL})",
        f"| ` [https://{GOOD}]({EVIL}) | ` |\n|---|---|\n| ` [https://{GOOD}]({EVIL} (x)) | ` |",
        f"[{GOOD}][1]\n\n[1]: {EVIL}",
        f"[{GOOD}][1]\n\n> [1]: {EVIL}",
        f"[{GOOD}][1]\n\n- [1]: {EVIL}",
        f"[{GOOD}][1]\n\n[1]:\n{EVIL}",
        f"[{GOOD}][a\\]b]\n\n[a\\]b]: {EVIL}",
        f"- ```\n[https://{GOOD}]({EVIL})\n  ```",
        f"> > ```\n> [https://{GOOD}]({EVIL})\n> > ```",
        f"| a | b |\n|---|---|\n```x | y\n```\n[https://{GOOD}]({EVIL})\n```\n```",
        f"    `\nx ` y ` [https://{GOOD}]({EVIL}) ` z",
        f"````a```\n[https://{GOOD}]({EVIL})\n```b````",
        f"[{GOOD} [[1]]({EVIL})",
    ],
)
def test_known_disguises_are_broken(text: str, limits: MessageLimits) -> None:
    for priority in (Priority.FINAL, Priority.STREAM_UPDATE):
        assert not [
            found for message in plan_texts(text, limits, priority) for found in find_disguised_links(message, limits)
        ]


@LIMITS
@pytest.mark.parametrize(
    "link",
    [
        "[the page](https://x.example/a_(b))",
        "[the page](https://x.example/a_(b_(c_(d))))",
        "[https://x.example/a_b](https://x.example/a_b)",
        "[`code` of it](https://x.example)",
        "[**bold**](https://x.example)",
        "[x.example](https://x.example/page)",
    ],
)
def test_an_undisguised_link_stays_a_link(link: str, limits: MessageLimits) -> None:
    assert plan_texts(f"See {link} there.", limits) == [f"See {link} there."]


@LIMITS
def test_code_keeps_its_brackets(limits: MessageLimits) -> None:
    for code in ("`handlers[i](event)`", "```js\nhandlers[i](event)\n```", "- ```js\n  a[0](b)\n  ```"):
        assert "](" in plan_texts(f"{code}\n\nand", limits)[0]


@LIMITS
def test_text_that_is_not_a_link_is_unchanged(limits: MessageLimits) -> None:
    (message,) = plan_texts("Say [who](no one) or [what [is](this", limits)
    assert message == "Say [who]\\(no one) or [what [is]\\(this"


@pytest.mark.parametrize(
    "begun",
    [
        "[label](https://x.y/a_(b_(c",
        "[label](https://x.y/\\",
        "[label](<https://x.y/a b",
        "[label](<https://x.y> ",
        '[label](https://x.y "ti\\"t',
        "[label](https://x.y (ti",
        "[label](https://x.y 'title'",
    ],
)
def test_an_unfinished_link_is_shown_as_its_label(begun: str) -> None:
    assert plan_texts(f"See {begun}", SLACK, Priority.STREAM_UPDATE) == ["See label"]
