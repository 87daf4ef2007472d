import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.channel import Chunk, Limits, Priority
from channels.discord.markdown import DiscordMarkdown
from channels.discord.markdown import size as utf16
from channels.graphemes import boundaries
from channels.planner import Planner
from channels.slack.text import SlackMarkdown
from channels.slack.text import size as utf8
from channels.words import PLACEHOLDER

#: Small enough for a text of some hundred characters to need several messages.
SMALL = Limits(chunk_size=400, measure=utf8)
SLACK = Limits(chunk_size=400, measure=utf8, reserve=20, dialect=SlackMarkdown())
DISCORD = Limits(chunk_size=400, measure=utf16, dialect=DiscordMarkdown())

_PIECES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "word ", "\n", "\n\n", "\r\n", " ", "   ", "\t", "# Title\n", "- item\n", "x" * 150, "word " * 60,
            "\n" * 500, " " * 500, "```", "~~~", "````", "``", "`", "```py\n", "```python title=\"a\"\n", "\n```\n",
            "\r\n```\r\n", "~~~~ info\n", "\n~~~~\n", "```" + "i" * 450, "  ```\n", "    ```\n", "code = 1\n" * 20,
            "`" * 40, "<!channel>", "<@U123>", "<https://x|y>", "< ", "👩‍👩‍👧‍👦", "e\u0301", "❤️", "漢字", "\u200d", "🇩🇪",
            "**", "*", "_", "~~", "**bold** ", "*it* ", "`code` ", "[label](https://x.y/z) ", "[", "](", ")", "![i](u)",
            "[bank.example](https://evil.example)", "https://x.y/" + "z" * 120 + " ", "<@1>", "@everyone", "\\", "|",
            "\n| a | b |\n|---|---|\n", "| cell | another cell |\n", "| 漢字 | `x` |\n" * 12, "|---|\n", "\n|", "| a ",
            "\n1. one\n   ```sh\n   ls\n", "   ```\n2. two\n", "> quote\n", "> ```\n> code\n", "\n- a\n    - b\n", "---\n",
            "#### deep\n", "<br>", "<b>x</b>", "- [ ] task\n", "[^1]", "[1]: https://x.y\n", "&lt;", "\u2028", "_" * 50,
        ]
    ),
)  # fmt: skip
texts = st.lists(_PIECES, max_size=25).map("".join)
limits = st.sampled_from([SMALL, Limits(600, len), Limits(500, utf16), SLACK, DISCORD])
plain_limits = st.sampled_from([SMALL, Limits(600, len), Limits(500, utf16)])
priorities = st.sampled_from(Priority)


def planned(text: str, of: Limits = SMALL, priority: Priority = Priority.FINAL) -> list[Chunk]:
    planner = Planner(of)
    planner.feed(text)
    return list(planner.plan(priority).chunks)


def shown(text: str, of: Limits = SMALL, priority: Priority = Priority.FINAL) -> list[str]:
    return [chunk.text for chunk in planned(text, of, priority)]


def growing(text: str, of: Limits = SMALL) -> str:
    """What is shown of the end of a text of which more is to come."""
    chunks = shown(text, of, Priority.TICK)
    return chunks[-1] if chunks else ""


def open_fence(text: str) -> str:
    """The marks of the fence that a reader of Markdown would find open at the end of `text`, at the margin."""
    marks = ""
    for line in re.split(r"\r\n?|\n", text):
        found = re.match(r" {0,3}(`{3,16}(?!`)|~{3,16}(?!~))(.*)", line)
        if not found:
            continue
        if not marks:
            marks = "" if found[1][0] == "`" and "`" in found[2] else found[1]
        elif found[1].startswith(marks) and not found[2].strip():
            marks = ""
    return marks


def ink(text: str) -> Iterator[str]:
    return iter("".join(text.split()))


@given(texts, limits, priorities)
def test_the_spans_partition_the_text_and_give_it_back(text: str, of: Limits, priority: Priority) -> None:
    chunks = planned(text, of, priority)
    assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == (text if text.strip() else "")
    assert all(before.end == after.start for before, after in pairwise(chunks))


@given(texts, limits, priorities)
def test_every_chunk_fits_and_has_something_to_read(text: str, of: Limits, priority: Priority) -> None:
    for chunk in planned(text, of, priority):
        assert of.measure(chunk.text) <= of.chunk_size - of.reserve
        assert chunk.text.strip()


@given(st.lists(_PIECES, max_size=20), limits)
def test_a_text_fed_in_pieces_is_cut_as_if_fed_whole_and_nothing_stable_changes(pieces: list[str], of: Limits) -> None:
    planner, stable = Planner(of), list[Chunk]()
    for piece in pieces:
        planner.feed(piece)
        chunks = list(planner.plan(Priority.TICK).chunks)
        assert chunks[: len(stable)] == stable
        stable = chunks[:-1]
    assert list(planner.plan(Priority.FINAL).chunks) == planned("".join(pieces), of)


@given(texts, limits)
def test_a_text_fed_by_the_character_ends_as_if_fed_whole(text: str, of: Limits) -> None:
    planner = Planner(of)
    for character in text[:1500]:
        planner.feed(character)
        planner.plan(Priority.TICK)
    assert list(planner.plan(Priority.FINAL).chunks) == planned(text[:1500], of)


@given(texts, plain_limits)
def test_nothing_that_can_be_read_is_left_out(text: str, of: Limits) -> None:
    left = ink("".join(shown(text, of)))
    assert all(character in left for character in ink(text))


@given(texts, limits, priorities)
def test_no_chunk_leaves_a_fence_open(text: str, of: Limits, priority: Priority) -> None:
    text = re.sub(r"(?m)^[ \t]+|^[ \t]*(?:[>+*-]|\d+[.)])+[ \t]*", "", text)  # lists and quotations close what is in them
    for chunk in planned(text, of, priority):
        assert not open_fence(chunk.text)


@given(texts, texts, priorities)
def test_a_replaced_text_is_planned_as_if_nothing_had_been_there(first: str, second: str, priority: Priority) -> None:
    planner = Planner(SMALL)
    planner.feed(first)
    planner.plan(priority)
    planner.replace(second)
    assert planner.text == second
    assert list(planner.plan(Priority.FINAL).chunks) == planned(second)


@given(texts)
def test_nothing_calls_anybody_on_slack_in_code_or_outside(text: str) -> None:
    for priority in (Priority.TICK, Priority.FINAL):
        assert not re.search(r"<[!@#A-Za-z/]", "".join(shown(text, SLACK, priority)))


@given(texts)
def test_nothing_calls_anybody_on_discord(text: str) -> None:
    for chunk in shown(text.replace("`", ""), DISCORD):
        if "```" not in chunk:
            assert not re.search(r"<@|<#\d|</\w|@(?:everyone|here)", chunk)
