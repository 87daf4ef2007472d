import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.discord.replies.surface import LIMITS
from channels.discord.text import addresses_others, disable_mentions, remove_mentions, replace_tokens

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


@pytest.mark.parametrize(
    ("written", "is_for_others"),
    [
        *(("<@2> hi", True), ("<@!2>, hi", True), (" \n<@2>", True), ("**<@2>** hi", True), ("<@1> <@2>", True)),
        *(("<@&3> hi", True), ("@everyone lunch?", True), ("@here", True), ("<@12> hi", True)),
        *(("<@1> hi", False), ("hi <@2>", False), ("> <@2> hi", False), ("<:wave:4> <@2>", False), ("", False)),
        *(("<#5> hi", False), ("@hereby", False), ("<t:5>", False), ("`<@2>` hi", False), ("<@x>", False)),
    ],
)
def test_a_text_that_begins_with_a_mention_addresses_others(written: str, is_for_others: bool) -> None:
    assert addresses_others(written, 1) is is_for_others


@given(TEXTS)
def test_any_text_after_a_mention_addresses_others(text: str) -> None:
    assert addresses_others(f"<@2>{text}", 1)
    assert not addresses_others(f"x{text}", 1)


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
