import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import Priority
from channels.discord.text import DiscordMarkdown, utf16_size
from channels.markdown.dialect import MessageLimits
from channels.replies.chunk_planner import ChunkPlanner

LIMITS = MessageLimits(chunk_size=2_000, measure=utf16_size, status_reserve=170, dialect=DiscordMarkdown())


def render_text(text: str) -> str:
    planner = ChunkPlanner(LIMITS)
    planner.feed(text)
    (chunk,) = planner.plan(Priority.FINAL).chunks
    return chunk.text


@pytest.mark.parametrize("token", ["<@1>", "<@!1>", "<@&1>", "<#1>", "</cmd:1>", "@everyone", "@here"])
def test_mentions_are_inert_and_code_is_unchanged(token: str) -> None:
    assert token not in render_text(f"Hello {token}!")
    assert render_text(f"Hello {token}!").replace("\u200b", "") == f"Hello {token}!"
    assert render_text(f"Write `{token}`") == f"Write `{token}`"
    assert render_text(f"```\n{token}\n```") == f"```\n{token}\n```"


def test_no_mention_is_assembled_from_harmless_parts() -> None:
    for text in ("@<span>everyone</span>", "@[everyone](mailto:x)", "@<!-- -->here"):
        assert not re.search(r"@(everyone|here)", render_text(text))


@pytest.mark.parametrize("text", ["<t:1700000000:R>", "<:party:123>", "<a:party:123>", "||spoiler||", "-# small"])
def test_other_tokens_of_discord_are_unchanged(text: str) -> None:
    assert render_text(text) == text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("### three", "### three"),
        ("#### four", "**four**"),
        ("###### **six** ##", "**six**"),
        ("one\n\n---\n\ntwo", "one\n\n───\n\ntwo"),
        ("![a cat](https://x.y/cat.png)", "[a cat](https://x.y/cat.png)"),
        ("![](https://x.y/cat.png)", "https://x.y/cat.png"),
        ("[mail](mailto:a@b.c)", "mail (mailto:a@b.c)"),
        ('[page](https://x.y "title")', "[page](https://x.y)"),
        ("[bank.example](https://evil.example)", "bank.example (https://evil.example)"),
        ("__bold__ and **bold**", "**bold** and **bold**"),
        ("snake__case__name", "snake__case__name"),
        ("+ item", "- item"),
        ("1) first", "1. first"),
        ("- [ ] open\n- [x] done", "- ☐ open\n- ☑ done"),
        (">>> all that follows", "> all that follows"),
        ("a<br>b <b>c</b> <i>d</i> <u>e</u> <del>f</del> <kbd>g</kbd>", "a\nb **c** *d* __e__ ~~f~~ `g`"),
        ('<details>\n<summary>More</summary>\ntext\n</details>', "**More**\ntext"),
        ('<a href="https://x.y">page</a> <!-- no --><T>', "[page](https://x.y) <T>"),
        ('<a href="https://evil.example">bank.example</a>', "bank.example (https://evil.example)"),
        ("said[^1]\n\n[^1]: by whom", "said[1]\n\n[1]: by whom"),
        ("a lone ` tick", "a lone \\` tick"),
        ("````a ``` b````", "```a ``\u200b` b```"),
        ("a ``` ``` x", "a ```\u200b``` x"),
        ("<b>use `x` now</b>", "**use `x` now**"),
        ("`x`</span>\ny", "`x`\ny"),
        ("said [[1]](https://x.y)", "said [1](https://x.y)"),
        ("[![alt](https://x.y/i.png)](https://x.y)", "[alt](https://x.y/i.png) (https://x.y)"),
        ("~~~python\nx\n~~~", "```python\nx\n```"),
        ('```python title="x"\ny\n```', "```python\ny\n```"),
        ("````md\n```\nx\n```\n````", "```md\n``\u200b`\nx\n``\u200b`\n```"),
        ("```\n```\nmore", "```\n\u200b\n```\nmore"),
        ("1. one\n   ```sh\n   ls\n   ```", "1. one\n```sh\nls\n```"),
    ],
)  # fmt: skip
def test_unsupported_markdown_is_converted(written: str, expected: str) -> None:
    assert render_text(written) == expected


def test_a_table_becomes_text_columns() -> None:
    table = (
        "| Name | Size | Note |\n|:--|--:|:-:|\n| **Ann** | 3 | [page](https://x.y) |\n| 漢字 `x` | 12345 | a\\|b |\n"
    )
    assert render_text(f"So:\n\n{table}\nDone.") == (
        "So:\n\n```\n"
        "Name   |  Size |        Note\n"
        "-------+-------+-------------------\n"
        "Ann    |     3 | page (https://x.y)\n"
        "漢字 x | 12345 |        a|b\n"
        "```\n\nDone."
    )


@given(st.text(st.sampled_from("ab`~\n \\"), max_size=60))
def test_ticks_pair_in_discord_as_in_commonmark(text: str) -> None:
    """Check the pairs of ticks in rendered text by Discord's rules.

    Discord ends a code block at the next three ticks, at any place.
    """
    read = r"\\[^0-9A-Za-z\s]|```.+?```|(`+)(?!`).*?(?<!`)\1(?!`)"  # an escaped character, a code block, inline code
    assert "```" not in re.sub(read, "", render_text(text + "x"), flags=re.DOTALL)
