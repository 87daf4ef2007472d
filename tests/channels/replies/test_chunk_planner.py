import asyncio
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.base import Chunk, Priority
from channels.discord.text import DiscordMarkdown
from channels.discord.text import utf16_size as utf16
from channels.i18n.messages import PLACEHOLDER
from channels.markdown.dialect import MessageLimits
from channels.markdown.split_points import cluster_starts
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.text import SlackMarkdown, utf8_size

#: Limits small enough that some hundred characters need several chunks.
SMALL = MessageLimits(chunk_size=400, measure=utf8_size)
SLACK = MessageLimits(chunk_size=400, measure=utf8_size, status_reserve=20, dialect=SlackMarkdown())
DISCORD = MessageLimits(chunk_size=400, measure=utf16, dialect=DiscordMarkdown())

_PIECES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "word ", "\n", "\n\n", "\r\n", " ", "   ", "\t", "# Title\n", "- item\n", "x" * 150, "word " * 60,
            "\n" * 500, " " * 500, "```", "~~~", "````", "``", "`", "```py\n", "```python title=\"a\"\n", "\n```\n",
            "\r\n```\r\n", "~~~~ info\n", "\n~~~~\n", "```" + "i" * 450, "  ```\n", "    ```\n", "code = 1\n" * 20,
            "`" * 40, "<!channel>", "<@U123>", "<https://x|y>", "< ", "👩‍👩‍👧‍👦", "e\u0301", "❤️", "漢字", "\u200d",
            "**", "*", "_", "~~", "**bold** ", "*it* ", "`code` ", "[label](https://x.y/z) ", "[", "](", ")", "![i](u)",
            "[bank.example](https://evil.example)", "https://x.y/" + "z" * 120 + " ", "<@1>", "@everyone", "\\", "|",
            "\n| a | b |\n|---|---|\n", "| cell | another cell |\n", "| 漢字 | `x` |\n" * 12, "|---|\n", "\n|", "| a ",
            "\n1. one\n   ```sh\n   ls\n", "   ```\n2. two\n", "> quote\n", "> ```\n> code\n", "\n- a\n    - b\n",
            "🇩🇪", "#### deep\n", "<br>", "<b>x</b>", "- [ ] task\n", "[^1]", "[1]: https://x.y\n", "&lt;", "\u2028",
            "---\n", "_" * 50,
        ]
    ),
)  # fmt: skip
texts = st.lists(_PIECES, max_size=25).map("".join)
limits = st.sampled_from([SMALL, MessageLimits(600, len), MessageLimits(500, utf16), SLACK, DISCORD])
plain_limits = st.sampled_from([SMALL, MessageLimits(600, len), MessageLimits(500, utf16)])
priorities = st.sampled_from(Priority)


def plan_chunks(text: str, of: MessageLimits = SMALL, priority: Priority = Priority.FINAL) -> list[Chunk]:
    planner = ChunkPlanner(of)
    planner.feed(text)
    return list(planner.plan(priority).chunks)


def plan_texts(text: str, of: MessageLimits = SMALL, priority: Priority = Priority.FINAL) -> list[str]:
    return [chunk.text for chunk in plan_chunks(text, of, priority)]


def get_growing_end(text: str, of: MessageLimits = SMALL) -> str:
    """Return the last chunk of a growing reply with `text` so far; "" without one."""
    chunks = plan_texts(text, of, Priority.STREAM_UPDATE)
    return chunks[-1] if chunks else ""


def find_open_fence(text: str) -> str:
    """Return the marker (such as "```") of the code fence that `text` leaves open.

    Only fences at the margin count. "" if all are closed.
    """
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


def list_visible_characters(text: str) -> Iterator[str]:
    return iter("".join(text.split()))


@given(texts, limits, priorities)
def test_the_spans_partition_the_text(text: str, of: MessageLimits, priority: Priority) -> None:
    chunks = plan_chunks(text, of, priority)
    assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == (text if text.strip() else "")
    assert all(before.end == after.start for before, after in pairwise(chunks))


@given(texts, limits, priorities)
def test_every_chunk_fits_and_is_visible(text: str, of: MessageLimits, priority: Priority) -> None:
    for chunk in plan_chunks(text, of, priority):
        assert of.measure(chunk.text) <= of.chunk_size - of.status_reserve
        assert chunk.text.strip()


@given(st.lists(_PIECES, max_size=20), limits)
def test_a_text_fed_in_pieces_is_split_as_if_fed_completely(pieces: list[str], of: MessageLimits) -> None:
    planner, stable = ChunkPlanner(of), list[Chunk]()
    for piece in pieces:
        planner.feed(piece)
        chunks = list(planner.plan(Priority.STREAM_UPDATE).chunks)
        assert chunks[: len(stable)] == stable
        stable = chunks[:-1]
    assert list(planner.plan(Priority.FINAL).chunks) == plan_chunks("".join(pieces), of)


@settings(max_examples=40, deadline=None)
@given(texts, limits)
def test_a_text_fed_by_characters_is_split_as_if_fed_completely(text: str, of: MessageLimits) -> None:
    planner, text = ChunkPlanner(of), text[:800]
    for character in text:
        planner.feed(character)
        planner.plan(Priority.STREAM_UPDATE)
    assert list(planner.plan(Priority.FINAL).chunks) == plan_chunks(text, of)


@given(texts, plain_limits)
def test_all_visible_text_is_planned(text: str, of: MessageLimits) -> None:
    left = list_visible_characters("".join(plan_texts(text, of)))
    assert all(character in left for character in list_visible_characters(text.replace("`", "").replace("~", "")))


@given(texts, limits, priorities)
@example("````0```" + "i" * 450 + "\r0", SMALL, Priority.FINAL)
@example("```\r0", SMALL, Priority.FINAL)
@example("~~0" + " " * 400 + "~~~", SMALL, Priority.FINAL)
@example("~~~ ~", SMALL, Priority.FINAL)
def test_no_chunk_leaves_a_fence_open(text: str, of: MessageLimits, priority: Priority) -> None:
    text = re.sub(
        r"(?m)^[ \t]+|^[ \t]*(?:[>+*-]|\d+[.)])+[ \t]*", "", text
    )  # the end of a list or quotation closes its fence
    for chunk in plan_chunks(text, of, priority):
        assert not find_open_fence(chunk.text)


@given(texts, texts, priorities)
def test_a_replaced_text_is_planned_like_a_new_one(first: str, second: str, priority: Priority) -> None:
    planner = ChunkPlanner(SMALL)
    planner.feed(first)
    planner.plan(priority)
    planner.replace(second)
    assert planner.text == second
    assert list(planner.plan(Priority.FINAL).chunks) == plan_chunks(second)


@given(texts, priorities)
def test_no_text_mentions_anybody_on_slack(text: str, priority: Priority) -> None:
    for chunk in plan_texts(text, SLACK, priority):
        assert not re.search(r"<[!@#A-Za-z/]", chunk)


@given(texts, priorities)
def test_no_text_mentions_anybody_on_discord(text: str, priority: Priority) -> None:
    for chunk in plan_texts(re.sub("[`~|]", "", text), DISCORD, priority):
        assert not re.search(r"<@|<#\d|</\w|@(?:everyone|here)", chunk)


# Comparison of the CommonMark rendering of the text and of its chunks.

_READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def list_styled_words(text: str) -> list[tuple[str, frozenset[str]]]:
    """Return (word, styles) of each word in Markdown: strong, em, s, code, or a link."""
    words: list[tuple[str, frozenset[str]]] = []
    for block in _READER.parse(text):
        style: set[str] = set()
        for token in block.children or ():
            if token.nesting == 1:
                style.add(f"{token.tag} {token.attrGet('href') or ''}")
            elif token.nesting == -1:
                style = {one for one in style if one.split()[0] != token.tag}
            else:
                words += [(word, frozenset({*style, *({"code"} & {token.tag})})) for word in token.content.split()]
    return words


def list_code_lines(text: str) -> list[str]:
    return [
        line for token in _READER.parse(text) if token.type == "fence" for line in token.content.split("\n") if line
    ]


def list_table_rows(text: str) -> list[list[str]]:
    """Return the cells of each row of all Markdown tables.

    The first cell of a header row is preceded by "HEAD".
    """
    rows: list[list[str]] = []
    for before, token in pairwise(_READER.parse(text)):
        if token.type == "tr_open":
            rows.append(["HEAD"] if before.type == "thead_open" else [])
        elif token.type == "inline" and before.type in ("td_open", "th_open"):
            rows[-1].append(token.content)
    return rows


_WORD = st.sampled_from(["alpha", "beta", "gamma", "delta5", "it's", "漢字", "naïve", "x"])
_WORDS = st.lists(_WORD, min_size=1, max_size=12).map(" ".join)
_STYLED = st.one_of(
    _WORDS,
    _WORDS.map("**{}**".format),
    _WORDS.map("*{}*".format),
    _WORDS.map("~~{}~~".format),
    st.tuples(_WORDS, _WORDS).map(lambda two: f"**{two[0]} *{two[1]}* {two[0]}**"),
    _WORDS.map("`{}`".format),
    _WORDS.map("[{}](https://example.com/a_b(c))".format),
)
paragraphs = st.lists(_STYLED, min_size=1, max_size=40).map(" ".join)


@given(paragraphs)
def test_words_have_the_same_style_in_chunks_as_in_the_text(text: str) -> None:
    assert [word for chunk in plan_texts(text) for word in list_styled_words(chunk)] == list_styled_words(text)


@given(paragraphs, st.data())
def test_a_growing_text_has_every_mark_closed_and_every_word_shown(text: str, data: st.DataObject) -> None:
    text = text[: data.draw(st.integers(1, len(text)))]
    for chunk in plan_texts(text, SMALL, Priority.STREAM_UPDATE):
        assert not any(re.search(r"[*`~\[\]]", word) for word, _ in list_styled_words(chunk))
    seen = " ".join(
        word for chunk in plan_texts(text, SMALL, Priority.STREAM_UPDATE) for word, _ in list_styled_words(chunk)
    )
    written = re.sub(r"\]\(\S*", "", text.rpartition(" ")[0])
    assert re.findall(r"[^\W_]+", written) == re.findall(r"[^\W_]+", seen)[: len(re.findall(r"[^\W_]+", written))]


_CELLS = st.lists(st.sampled_from(["a", "two words", "**bold**", "漢字", "`code`", "x" * 25]), min_size=3, max_size=3)
_ROWS = st.lists(_CELLS, min_size=1, max_size=40)


@given(_ROWS, _WORDS)
def test_a_split_table_repeats_its_header_and_has_each_row_once(rows: list[list[str]], words: str) -> None:
    text = f"{words}\n\n| one | two | three |\n|---|:-:|--:|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    text += f"\n{words}"
    seen = [list_table_rows(chunk) for chunk in plan_texts(text)]
    assert [row for chunk in seen for row in chunk if row[0] != "HEAD"] == rows
    assert all(chunk[0] == ["HEAD", "one", "two", "three"] and len(chunk) > 1 for chunk in seen if chunk)


@given(_ROWS, _WORDS)
def test_a_table_on_discord_has_aligned_columns_in_each_chunk(rows: list[list[str]], words: str) -> None:
    text = f"{words}\n| one | two | three |\n|---|:-:|--:|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    lines = [line for chunk in plan_texts(text, DISCORD) for line in list_code_lines(chunk)]
    heads = [line for line in lines if re.fullmatch(r"one +\| +two +\| +three", line)]
    assert len(lines) - 2 * len(heads) == len(rows)
    assert {line.count("|") for line in lines if "-+-" not in line} == {2}


@given(
    st.lists(
        st.sampled_from(["print(1)", "  if x:", "```", "~~~", "a" * 60, "| a | b |", "<b>"]), min_size=1, max_size=60
    )
)
def test_split_code_in_a_list_stays_the_same_code(code: list[str]) -> None:
    inside = "".join(f"   {line}\n" for line in code)
    text = f"1. one\n\n   ````py\n{inside}   ````\n2. two\n"
    assert [line for chunk in plan_texts(text) for line in list_code_lines(chunk)] == list_code_lines(text) == code


@pytest.mark.parametrize(
    ("so_far", "seen"),
    [
        ("Look: **bo", "Look: **bo**"),
        ("Look: **", "Look:"),
        ("Look: **bold*", "Look: **bold**"),
        ("Look: **bold** and *it", "Look: **bold** and *it*"),
        ("Call `print(", "Call `print(`"),
        ("Call ``a`b", "Call ``a`b``"),
        ("See [the page", "See the page"),
        ("See [the page](https://exam", "See the page"),
        ("See [the page](https://example.com)", "See [the page](https://example.com)"),
        ("See [the **page", "See the **page**"),
        ("See ![a cat](https://exam", "See a cat"),
        ("Ask <@U12", "Ask"),
        ("Ask <https://exa", "Ask"),
        ("x <y and", "x <y and"),
        ("a < b", "a < b"),
        ("So:\n| a | b", "So:"),
        ("So:\n\n| a | b |\n|--", "So:"),
        ("So:\n\n| a | b |\n|---|---|\n| 1 |", "So:\n\n| a | b |\n|---|---|"),
        ("So:\n\n| a | b |\nno table", "So:\n\n| a | b |\nno table"),
        ("Code:\n```py", "Code:"),
        ("Code:\n```py\nx = 1", "Code:\n```py\nx = 1\n```"),
        ("Code:\n~~~~\nx = 1\n~~", "Code:\n~~~~\nx = 1\n~~~~"),
        ("> ```\n> x", "> ```\n> x\n> ```"),
        ("Text\n--", "Text"),
        ("- one\n-", "- one"),
        ("one\n\n# ", "one"),
        ("5 * 3 = 15", "5 * 3 = 15"),
        ("a_b_c d", "a_b_c d"),
        ("\\*not *em", "\\*not *em*"),
    ],
)
def test_the_end_of_a_growing_text_is_completed(so_far: str, seen: str) -> None:
    assert get_growing_end(so_far) == seen


@pytest.mark.parametrize("text", ["**", "<@U1", "| a |", "```", "["])
def test_a_growing_text_without_visible_characters_shows_a_placeholder(text: str) -> None:
    assert get_growing_end(text) == PLACEHOLDER
    assert plan_texts(text)[0].startswith(text)


def test_the_final_text_is_shown_unchanged() -> None:
    text = "An *open [end <@U1 | []() and `more"
    assert plan_texts(text) == [text]
    assert plan_texts(text, priority=Priority.ERROR) == [text]
    assert plan_texts("```py\nx") == ["```py\nx\n```"]


@pytest.mark.parametrize("mark", ["```", "~~~", "`````"])
def test_a_split_fence_is_reopened_with_its_info_string(mark: str) -> None:
    code = "".join(f"line {n}\n" for n in range(100))
    first, *others = plan_texts(f"See:\n\n{mark}python\n{code}{mark}\n\nThat is all.")
    assert len(others) >= 2
    assert first.endswith(f"\n{mark}")
    assert all(chunk.startswith(f"{mark}python\nline ") for chunk in others)
    assert others[-1].endswith(f"line 99\n{mark}\n\nThat is all.")
    lines = [line for chunk in (first, *others) for line in chunk.split("\n") if line.startswith("line ")]
    assert lines == code.splitlines()


def test_a_shorter_fence_within_a_longer_one_is_text() -> None:
    inner = "```\nnot a fence of its own\n```\n" * 30
    chunks = plan_texts(f"````markdown\n{inner}````")
    assert len(chunks) > 1
    assert all(chunk.startswith("````markdown\n") and chunk.endswith("\n````") for chunk in chunks)


def test_a_text_is_split_at_paragraphs_then_lines_then_words() -> None:
    assert plan_chunks("a" * 300 + "\n\n" + "b\nb " * 30)[0].end == 302
    assert plan_chunks("a" * 300 + "\n" + "b b " * 40)[0].end == 301
    assert plan_chunks("a" * 300 + " " + "b" * 300)[0].end == 301
    assert plan_chunks("a" * 800)[0].end == 400


def test_a_heading_stays_with_its_text() -> None:
    text = "word " * 50 + "\n\n# Heading\n\n" + "more " * 50
    assert plan_texts(text)[1].startswith("# Heading\n\nmore")


def test_a_list_stays_with_the_line_that_announces_it() -> None:
    text = "a" * 250 + "\n\n" + "b" * 50 + "\n\nThe items:\n\n" + "- item\n" * 50
    assert plan_texts(text)[1].startswith("The items:\n\n- item")


def test_a_split_list_continues_at_the_margin() -> None:
    text = "- item\n" + "    - nested item of the list\n" * 30
    chunks = plan_texts(text)
    assert len(chunks) > 1
    assert all(chunk.startswith("- nested") for chunk in chunks[1:])


def test_a_quotation_split_within_a_line_stays_a_quotation() -> None:
    chunks = plan_texts("> " + "quoted words " * 60)
    assert len(chunks) > 1
    assert all(chunk.startswith("> ") for chunk in chunks)


_WHOLES = ["[" + "label " * 30 + f"](https://x.y/{'p' * 100})", "`" + "code " * 40 + "`", f"<https://x.y/{'z' * 200}>"]


@pytest.mark.parametrize("whole", _WHOLES)
def test_links_and_inline_code_are_not_split(whole: str) -> None:
    for before in range(0, 400, 7):
        text = "w " * (before // 2) + whole + " w" * 100
        assert any(whole in chunk for chunk in plan_texts(text))


def test_a_link_longer_than_a_message_is_split() -> None:
    text = "[label](https://example.com/" + "p" * 900 + ")"
    assert "".join(plan_texts(text)) == text


def test_a_split_within_a_line_starts_no_block() -> None:
    for sign in ("```", "#", "-", "1.", ">", "|", "+"):
        for space in range(370, 402):
            chunks = plan_texts("a" * space + f" {sign} " + "b" * 300)
            assert not any(chunk.startswith(f"{sign} ") for chunk in chunks)


@given(st.text(st.sampled_from("👩‍👦🇩🇪e\u0301❤️한\u1112\u1161\u11abनमस्ते x"), min_size=100, max_size=600))
def test_grapheme_clusters_are_not_split(text: str) -> None:
    wholes = {*cluster_starts(text, 0, len(text)), len(text)}
    assert all(chunk.end in wholes for chunk in plan_chunks(text))


def test_trailing_white_space_needs_no_chunk_of_its_own() -> None:
    assert plan_texts("a" * 400 + "\n" * 5000) == ["a" * 400]
    assert plan_texts("\n" * 5000) == []
    assert plan_texts("") == []
    assert plan_texts("\n" * 5000 + "    indented") == ["    indented"]


def test_invisible_text_belongs_to_a_visible_chunk() -> None:
    unseen = "<br>" * 200
    for text in (f"{unseen}word", f"{'word ' * 70}\n\n{unseen}", f"{'word ' * 70}{unseen}{'word ' * 70}"):
        chunks = plan_chunks(text, DISCORD)
        assert all("word" in chunk.text for chunk in chunks)
        assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == text


@pytest.mark.parametrize("text", ["#", "<br>", "<!-- nothing -->", "<details>\n</details>"])
def test_an_invisible_final_text_shows_the_placeholder_for_empty_answers(text: str) -> None:
    planner = ChunkPlanner(DISCORD)
    planner.feed(text)
    assert planner.plan(Priority.STREAM_UPDATE).chunks[0].text == PLACEHOLDER
    assert list(planner.plan(Priority.FINAL, empty_text="Nothing.").chunks) == [Chunk(0, len(text), "Nothing.")]


def test_a_table_header_stays_with_its_delimiter_row() -> None:
    table, row = "| a | b |\n|---|---|\n", " | ".join(["word"] * 200)
    for before in range(300, 400):
        for chunk in plan_texts("x" * before + f"\n{table}{row}"):
            assert "| a | b |" not in chunk or table.strip() in chunk


class CountingMeasure:
    """Length measure that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        return len(text)


def test_many_blank_lines_are_parsed_once() -> None:
    scale = CountingMeasure()
    planner = ChunkPlanner(MessageLimits(400, scale))
    planner.feed("Hello" + "\n" * 60_000)
    planner.plan(Priority.STREAM_UPDATE)
    assert scale.calls < 2_000


def test_escaped_text_still_fits() -> None:
    chunks = plan_texts("<@U1>" * 1000, SLACK)
    assert max(map(utf8_size, chunks)) <= 380
    assert "".join(chunks) == "&lt;@U1>" * 1000


def test_a_chunk_leaves_room_for_a_status_line() -> None:
    for chunk in plan_texts("word " * 500, SLACK):
        assert utf8_size(f"{chunk}\n\n{'s' * 18}") <= SLACK.chunk_size


@pytest.mark.parametrize(
    "unit", ["word ", "x", "\n", "line\n", "```\ncode\n```\n", "| a | b |\n|---|---|\n", "**a** ", "[a"]
)
def test_the_cost_of_planning_is_linear(unit: str) -> None:
    def count_measured(size: int, *, piece: int) -> int:
        measured = 0

        def measure(text: str) -> int:
            nonlocal measured
            measured += len(text)
            return len(text)

        planner, text = ChunkPlanner(MessageLimits(400, measure)), unit * (size // len(unit))
        for start in range(0, len(text), piece):
            planner.feed(text[start : start + piece])
            planner.plan(Priority.STREAM_UPDATE)
        return measured

    for piece in (50, 10**6):
        assert count_measured(20_000, piece=piece) <= 4.5 * count_measured(5_000, piece=piece) + 2_500


async def test_planning_a_long_text_yields_to_other_tasks() -> None:
    text = "A paragraph of some words.\n\n" * 2_000
    planner, passes = ChunkPlanner(SLACK), 0

    async def count_passes() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_passes())
    planner.replace(text)
    await planner.catch_up()
    counting.cancel()
    assert passes > len(text) / SLACK.chunk_size / 2
    whole = ChunkPlanner(SLACK)
    whole.feed(text)
    assert planner.plan(Priority.FINAL) == whole.plan(Priority.FINAL)
