from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import Priority
from channels.markdown.dialect import MessageLimits
from channels.markdown.times import format_time
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.text import (
    SlackMarkdown,
    addresses_others,
    escape,
    escape_tokens,
    mentioned_ids,
    remove_mention,
    to_plain_text,
    utf8_size,
)
from chatrig.slack.state.markup import SlackContent, decode_entities, find_pings, render_text

NAMES = {"U1": "ada", "W2": "grace"}

hostile = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(["<", "<!channel>", "<!here|here>", "<@U1>", "<!subteam^S1>", "```", "`", "|", ">", "&lt;"]),
    ),
    max_size=12,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("hello", "hello"),
        ("<@U1> and <@W2|g>", "@ada and @grace"),
        ("<@U9>", "@U9"),
        ("<@U9|nine>", "@nine"),
        ("in <#C1|general> or <#C2>", "in #general or #C2"),
        ("<!here> <!channel> <!everyone>", "@here @channel @everyone"),
        ("<!here|@here>", "@here"),
        ("<!subteam^S1|@team> <!subteam^S1>", "@team @S1"),
        ("<!date^1392734382^{date}|some day>", "some day"),
        ("<https://x.y/?a=1&amp;b=2>", "https://x.y/?a=1&b=2"),
        ("<https://x.y|the page>", "the page (https://x.y)"),
        ("<https://x.y|https://x.y>", "https://x.y"),
        ("<mailto:a@b.c|a@b.c> <mailto:A@B.c|a@b.c>", "a@b.c a@b.c"),
        ("<mailto:evil@b.c|a@b.c>", "a@b.c (mailto:evil@b.c)"),
        ("<mailto:a@b.c>", "mailto:a@b.c"),
        ("<tel:+4930123|+49 (30) 1-23>", "+49 (30) 1-23"),
        ("<tel:+4930666|+49 30 123>", "+49 30 123 (tel:+4930666)"),
        ("<http://x.y|x.y> <https://x.y/a|x.y/a>", "x.y x.y/a"),
        ("<https://evil.y|x.y>", "x.y (https://evil.y)"),
        ("<ftp://x.y|x.y>", "x.y (ftp://x.y)"),
        ("a &lt;b&gt; &amp;&amp; c", "a <b> && c"),
        ("&amp;lt;", "&lt;"),
        ("&lt;@U1&gt;", "<@U1>"),
        ("<@U1", "<@U1"),
        ("a < b", "a < b"),
        ("<@<@U1>>", "<@@ada>"),
        ("", ""),
    ],
)
def test_tokens_in_a_message_become_words(written: str, read: str) -> None:
    assert to_plain_text(written, NAMES) == read


@pytest.mark.parametrize(
    ("written", "is_for_others"),
    [
        *(
            ("<@W2> hi", True),
            ("<@W2|grace>: hi", True),
            (" \n<@W2>", True),
            ("*<@W2>* hi", True),
            ("<@U1> <@W2>", True),
        ),
        *(("<!here> hi", True), ("<!channel|@channel>", True), ("<!everyone>", True), ("<!subteam^S1|@team> hi", True)),
        *(("<@U1> hi", False), ("hi <@W2>", False), ("&gt; <@W2> hi", False), (":wave: <@W2>", False), ("", False)),
        *(("<#C1> hi", False), ("<!date^1^{date}|now>", False), ("<https://x.y>", False), ("`<@W2>` hi", False)),
    ],
)
def test_a_text_that_begins_with_a_mention_addresses_others(written: str, is_for_others: bool) -> None:
    assert addresses_others(written, "U1") is is_for_others


@given(hostile)
def test_any_text_after_a_mention_addresses_others(text: str) -> None:
    assert addresses_others(f"<@W2>{text}", "U1")
    assert not addresses_others(f"x{text}", "U1")


@given(st.text())
def test_an_escaped_text_is_unescaped(typed: str) -> None:
    assert to_plain_text(escape(typed), NAMES) == typed


@given(hostile)
def test_plain_text_notifies_nobody_and_is_unchanged(text: str) -> None:
    assert not find_pings(SlackContent(escape(text)), NAMES)
    assert render_text(SlackContent(escape(text)), NAMES) == text


@given(hostile)
def test_inert_markdown_notifies_nobody_and_disguises_no_link(text: str) -> None:
    block = {"type": "markdown", "text": escape_tokens(text)}
    assert not find_pings(SlackContent(blocks=[block]), NAMES)
    assert not find_pings(SlackContent(escape_tokens(text)), NAMES)
    assert "<!" not in block["text"]
    assert "<@" not in block["text"]


@pytest.mark.parametrize("text", ["a < b", "1 <2", "<- back", "> quote", "x <= y && z", "R&D", "a << 3", "<3"])
def test_text_without_tokens_is_unchanged(text: str) -> None:
    assert escape_tokens(text) == text


@pytest.mark.parametrize(
    "token", ["<https://evil.example|https://bank.example>", "<HTTP://x>", "<mailto:a@b|c>", "</b>"]
)
def test_a_link_with_a_label_is_shown_with_both(token: str) -> None:
    assert escape_tokens(token) == "&lt;" + token[1:]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<@UB> hello", "hello"),
        ("hello <@UB>", "hello"),
        ("<@UB|bot> hello", "hello"),
        ("hey <@UB> you", "hey you"),
        ("<@UB> <@UB> twice", "twice"),
        ("<@UB>", ""),
        ("<@UBC> is another", "<@UBC> is another"),
        ("<@UB>\n```\n  code\n```", "```\n  code\n```"),
        ("Two things:\n<@UB>\n- check A", "Two things:\n\n- check A"),
        ("Two things:\n<@UB> \n- check A", "Two things:\n\n- check A"),
        ("Two things: <@UB>\n- check A", "Two things:\n- check A"),
        ("<@UB>\n    def f():\n        return 1", "    def f():\n        return 1"),
        ("run:\n    <@UB> f()", "run:\n    f()"),
        ("- <@UB> check A\n\n- check B <@UB>", "- check A\n\n- check B"),
        ("hey <@UB> <@UB> you", "hey you"),
        ("hey<@UB>you (<@UB>)", "hey you ()"),
    ],
)
def test_the_mention_of_the_bot_is_removed(text: str, rest: str) -> None:
    assert remove_mention(text, "UB") == rest


@given(
    st.text("ab- \n", max_size=12).filter(str.strip),
    st.text("ab- \n", max_size=12).filter(str.strip),
)
def test_a_mention_takes_at_most_one_space_with_it(before: str, after: str) -> None:
    whole = f"x{before}<@UB>{after}x"
    left, right = f"x{before}", f"{after}x"
    rest = remove_mention(whole, "UB")
    joined = {left + right, left.removesuffix(" ") + right, left + right.removeprefix(" "), f"{left} {right}"}
    assert rest in joined
    assert rest.count("\n") == whole.count("\n")


def test_the_mentioned_users_of_a_text_are_found() -> None:
    text = "<@U1> <@W2|x> <!here> <#C1> <#C2|> <#C3|general> <!subteam^S1> <!subteam^S2|@ops> <@u3> <@U1>"
    assert mentioned_ids(text) == {"U1", "W2", "C1", "C2", "S1"}


def render_chunk(text: str) -> str:
    planner = ChunkPlanner(MessageLimits(chunk_size=3_500, measure=utf8_size, dialect=SlackMarkdown()))
    planner.feed(text)
    (chunk,) = planner.plan(Priority.FINAL).chunks
    return chunk.text


@pytest.mark.parametrize("token", ["<!channel>", "<@U1>", "<#C1|x>", "<!subteam^S1>", "<https://evil.example|bank>"])
def test_a_token_is_inert_in_code_as_well(token: str) -> None:
    safe = f"&lt;{token[1:]}"
    for text in (
        "{}",
        "`{}`",
        "```\n{}\n```",
        "# {}",
        "| a |\n|---|\n| {} |",
        "```{}\nx\n```",
    ):
        assert render_chunk(text.format(token)) == text.format(safe)


@pytest.mark.parametrize(
    ("model", "slack"),
    [
        ("[bank.example](https://evil.example)", "bank.example (https://evil.example)"),
        ("[page](<https://x.y|bank.example>)", "page (https://x.y|bank.example)"),
        ("[page](https://x.y)", "[page](https://x.y)"),
        ("[page <@U1>](https://x.y)", "[page &lt;@U1>](https://x.y)"),
        ("<https://x.y/?a=b&c=d>", "https://x.y/?a=b&c=d"),
        ("[page](<https://x.y/a b>)s", "[page](https://x.y/a%20b)s"),
        ("[page](<https://x.y/a>)s", "[page](https://x.y/a)s"),
        ("[bank.example][1]\n\n[1]: https://evil.example", "[bank.example][1]\n\n[1]\\: https://evil.example"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("So:\n| a | b |\n|---|---|\n| 1 | 2 |\nDone", "So:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nDone"),
        ("So:\r| a | b |\r|---|---|\rDone", "So:\r\n\n| a | b |\r|---|---|\r\n\nDone"),
        (
            "1. one\n   ```sh\ncat << E\n   x\nE\n   ```\n2. two",
            "1. one\n   ```sh\n   cat << E\n   x\n   E\n   ```\n2. two",
        ),
        ("*\t```\nx\n\t```\nmore", "*\t```\n    x\n    ```\nmore"),
    ],
)
def test_a_link_shows_its_target_and_markdown_is_unchanged(model: str, slack: str) -> None:
    assert render_chunk(model) == slack


@pytest.mark.parametrize("after", ["에서", "をご覧", "。然后", "s", "/b", "—next", "_", "`code`", "<@U1>", "**"])
def test_the_end_of_an_explicit_address_stays(after: str) -> None:
    link = "[https://x.y/a_b?c&d](https://x.y/a_b?c&d)"
    assert render_chunk(f"see <https://x.y/a_b?c&d>{after} z") == f"see {link}{after.replace('<', '&lt;')} z"
    mark = "" if after in ("에서", "をご覧") else "*"  # CommonMark ends no emphasis between a bracket and a letter
    assert render_chunk(f"- *<https://x.y/a_b?c&d>*{after}") == f"- {mark}{link}{mark}{after.replace('<', '&lt;')}"


@pytest.mark.parametrize(
    "address", ["https://x.y/a_(b)", "https://x.y/_b_", "https://x.y/*b", f"https://x.y/{'a' * 600}"]
)
def test_an_address_that_is_no_label_ends_at_a_space(address: str) -> None:
    assert render_chunk(f"<{address}>에서") == f"{address} 에서"
    assert render_chunk(f"<{address}>\n에서") == f"{address}\n에서"


def test_a_mail_address_loses_its_brackets() -> None:
    assert render_chunk("<a@b.example> <mailto:a@b.example>에게") == "a@b.example a@b.example 에게"


def test_a_growing_text_never_shows_a_longer_address() -> None:
    planner = ChunkPlanner(MessageLimits(chunk_size=3_500, measure=utf8_size, dialect=SlackMarkdown()))
    stable = ""
    for character in "see <https://x.y/a>에서 and":
        planner.feed(character)
        (chunk,) = planner.plan(Priority.STREAM_UPDATE).chunks
        assert "/a에" not in chunk.text
        assert chunk.text.startswith(stable)
        stable = chunk.text[: chunk.stable_length]
    assert stable.startswith("see [https://x.y/a](https://x.y/a)에서")


literals = st.lists(
    st.one_of(st.text(max_size=5), st.sampled_from(["<", "&", ";", "&lt;", "&amp;lt;", "&amp;", "<@U1>", "&#60;"]))
).map("".join)  # fmt: skip


@given(literals)
def test_escaped_text_and_code_are_reversible(text: str) -> None:
    assert decode_entities(escape_tokens(text)) == text
    assert decode_entities(SlackMarkdown().render_code(text)) == text


@given(st.lists(st.sampled_from(["a", " ", "<", ">", "&", "lt;", "&lt;", "&amp;lt;", "&amp;", "&copy;", "<@U1>"])))
def test_people_see_the_entities_of_prose_decoded_once(pieces: list[str]) -> None:
    text = f"x{''.join(pieces)}x"
    assert decode_entities(render_chunk(text)) == unescape(text)


@pytest.mark.parametrize("code", ["`{}`", "```xml\n{}\n```", "| a |\n|---|\n| `{}` |"])
def test_entities_in_code_are_seen_as_written(code: str) -> None:
    for text in ("&lt;b&gt;", "R&amp;D", '<a href="?x=1&amp;y=2">', "&amp;amp;", "a && b", "&#60;!here&#62;"):
        shown = render_chunk(code.format(text))
        assert decode_entities(shown) == code.format(text)


def test_an_escaped_entity_is_literal() -> None:
    assert decode_entities(render_chunk(r"\&lt; \<b> &amp;lt;")) == "&lt; <b> &lt;"


def test_a_time_is_a_date_that_each_reader_sees_in_their_own_zone() -> None:
    token = "<!date^1764374400^{date_short_pretty} {time}|2025-11-29 00:00 (UTC)>"
    assert SlackMarkdown().render_prose(f"until {format_time(1_764_374_400)}.") == f"until {token}."
    assert SlackMarkdown().render_prose("<t:253402300800:f>") == "&lt;t:253402300800:f>"  # no date of Slack
    assert to_plain_text(token, {}) == "2025-11-29 00:00 (UTC)"
