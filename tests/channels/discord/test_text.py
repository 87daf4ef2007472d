import re

from hypothesis import given
from hypothesis import strategies as st

from channels.discord.replies.surface import LIMITS
from channels.discord.text import disable_mentions, remove_mentions, replace_tokens

#: Text that Discord shows as a mention, or as a link to a channel or command.
TOKEN = re.compile(r"<@[!&]?\d+>|<#\d+>|</[^>]+:\d+>|@everyone|@here")
TEXTS = st.lists(st.sampled_from([*"<@&!#/>19 \u200b", "everyone", "here", "hi"])).map("".join)


def test_the_mention_of_the_bot_is_removed_anywhere() -> None:
    assert remove_mentions("<@1> hi", 1) == "hi"
    assert remove_mentions("well <@!1> hi", 1) == "well hi"
    assert remove_mentions("hi <@&2>", 1, 2) == "hi"
    assert remove_mentions("hi <@12> <@&1>", 1) == "hi <@12>"
    assert remove_mentions("<@1>", 1) == ""


def test_ids_become_names_and_unknown_ids_are_numbers() -> None:
    names = {("@", 1): "Ada", ("@&", 1): "crew", ("#", 1): "general"}
    assert replace_tokens("<@1> <@!1> <@&1> <#1>", names) == "@Ada @Ada @crew #general"
    assert replace_tokens("<@2> <#2> <t:1:R> <a:smile:1>", names) == "@2 #2 1970-01-01 00:00 UTC :smile:"
    assert replace_tokens("</ask about:7> <id:guide> <t:999999999999>", names) == "/ask about #guide <t:999999999999>"


@given(TEXTS | st.text())
def test_an_inert_text_has_no_token_and_reads_the_same(text: str) -> None:
    assert TOKEN.search(disable_mentions(text)) is None
    assert disable_mentions(text).replace("\u200b", "") == text.replace("\u200b", "")


@given(st.text())
def test_a_text_without_tokens_is_unchanged(text: str) -> None:
    if not re.search("<[@#/]|@(everyone|here)", text):
        assert disable_mentions(text) == text


@given(TEXTS | st.text())
def test_a_character_beyond_the_first_plane_counts_twice(text: str) -> None:
    assert LIMITS.measure(text) == sum(1 + (character > "\uffff") for character in text)
