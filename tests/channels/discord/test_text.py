import re

from hypothesis import given
from hypothesis import strategies as st

from channels.discord.replies.surface import LIMITS
from channels.discord.text import inert, to_words, without_mention

#: Discord: what it makes a mention of, or a link to a place or command.
TOKEN = re.compile(r"<@[!&]?\d+>|<#\d+>|</[^>]+:\d+>|@everyone|@here")
TEXTS = st.lists(st.sampled_from([*"<@&!#/>19 \u200b", "everyone", "here", "hi"])).map("".join)


def test_the_mention_that_called_the_bot_is_taken_out_wherever_it_stands() -> None:
    assert without_mention("<@1> hi", 1) == "hi"
    assert without_mention("well <@!1> hi", 1) == "well hi"
    assert without_mention("hi <@&2>", 1, 2) == "hi"
    assert without_mention("hi <@12> <@&1>", 1) == "hi <@12>"
    assert without_mention("<@1>", 1) == ""


def test_ids_are_told_as_names_and_unknown_ones_as_numbers() -> None:
    names = {("@", 1): "Ada", ("@&", 1): "crew", ("#", 1): "general"}
    assert to_words("<@1> <@!1> <@&1> <#1>", names) == "@Ada @Ada @crew #general"
    assert to_words("<@2> <#2> <t:1:R> <a:smile:1>", names) == "@2 #2 1970-01-01 00:00 UTC :smile:"
    assert to_words("</ask about:7> <id:guide> <t:999999999999>", names) == "/ask about #guide <t:999999999999>"


@given(TEXTS | st.text())
def test_what_was_made_inert_has_no_token_in_it_and_reads_as_before(text: str) -> None:
    assert TOKEN.search(inert(text)) is None
    assert inert(text).replace("\u200b", "") == text.replace("\u200b", "")


@given(st.text())
def test_a_text_that_holds_no_token_is_left_alone(text: str) -> None:
    if not re.search("<[@#/]|@(everyone|here)", text):
        assert inert(text) == text


@given(TEXTS | st.text())
def test_a_character_beyond_the_first_plane_counts_twice(text: str) -> None:
    assert LIMITS.measure(text) == sum(1 + (character > "\uffff") for character in text)
