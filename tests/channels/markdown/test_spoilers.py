"""Spoilers of Discord (`||text||`) in growing and in split replies."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.base import Priority
from channels.discord.text import DiscordMarkdown
from channels.discord.text import utf16_size as utf16
from channels.markdown.dialect import MessageLimits
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.text import SlackMarkdown, utf8_size

DISCORD = MessageLimits(chunk_size=200, measure=utf16, dialect=DiscordMarkdown())
SLACK = MessageLimits(chunk_size=200, measure=utf8_size, dialect=SlackMarkdown())

#: What Discord reads before a spoiler that begins further right, and spoilers.
_DISCORD = re.compile(r"\\[^\w\s]|```.+?```|(`+)(?!`).+?(?<!`)\1(?!`)|(?P<spoiler>\|\|.+?\|\|)", re.DOTALL)
_HIDDEN_CODE = re.compile(r"\|\|```.+?```\|\|", re.DOTALL)
_BLOCK = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*>]|-#|#{1,3}|\d+\.)[ \t])|(?<=\n)(?=```)|(?<=```)\n|(?m:^#.*\n)")


def list_visible_words(message: str) -> list[str]:
    """Return the hidden words that a reader sees: in no spoiler, as Discord reads each block of a message."""
    without_code = _HIDDEN_CODE.sub("", message)
    blocks = [message] if "```" in without_code else _BLOCK.split(without_code)
    shown = "\n".join(_DISCORD.sub(lambda found: "" if found["spoiler"] else found[0], block or "") for block in blocks)
    return re.findall(r"secret\d*", shown)


def plan(text: str, limits: MessageLimits = DISCORD) -> list[str]:
    """Return the messages of a complete reply."""
    planner = ChunkPlanner(limits)
    planner.feed(text)
    return [chunk.text for chunk in planner.plan(Priority.FINAL).chunks]


def list_versions(text: str, limits: MessageLimits = DISCORD, pieces: int = 1) -> list[str]:
    """Return each text that a message of a growing reply has."""
    planner, versions = ChunkPlanner(limits), dict[str, None]()
    for start in range(0, len(text), pieces):
        planner.feed(text[start : start + pieces])
        versions |= dict.fromkeys(chunk.text for chunk in planner.plan(Priority.STREAM_UPDATE).chunks)
    return [*versions, *(chunk.text for chunk in planner.plan(Priority.FINAL).chunks)]


_HIDDEN = [
    "secret", "**secret** secret", "secret *a secret* secret", "`secret()` secret", "`secret || secret` secret",
    "[secret](https://x.example/a) secret", "secret https://x.example/secret", "<https://x.example/secret> secret",
    "secret\nsecret", "secret\n\nsecret secret\n\nsecret", "\n- secret\n- secret\n\nsecret", "secret | secret",
    "\n```py\nsecret = secret or secret\n```\n", "\n```\nsecret || secret\n```\n", "> secret",
    "secret\n> secret\n> secret", "\n| secret | b |\n|---|---|\n| secret | secret |\n", "\n# secret\nsecret",
    "1 \\| secret", "secret <br> secret", "\n-# secret\nsecret", "\n1. secret\n2. secret\n   - secret\n",
    "secret " * 60, "\n\n```\n" + "secret\n" * 60 + "```\n", "secret\n\n" * 40, "- secret\n" * 40,
    "\n| a |\n|---|\n" + "| secret |\n" * 40, "se**cret** secret", "~~secret~~ secret",
    "[secret || secret](https://x.example/a||b) secret", "\nsecret\n\n---\n\nsecret\n",
]  # fmt: skip
_SHOWN = [
    "words ", "**bold** ", "`a || b` ", "\n```\na || b\n```\n", "- item\n", "\n\n", "> quote\n", "# Title\n",
    "[l](https://x.y) ", "\\|\\| ", "| a | b |\n|---|---|\n| 1 | |\n\n", "https://x.y ", "x | y ", "*it ", "word " * 30,
]  # fmt: skip
spoilers = st.sampled_from(_HIDDEN).map("||{}||".format)
texts = st.lists(st.one_of(spoilers, st.sampled_from(_SHOWN)), min_size=1, max_size=8).map("".join)
_FRAMES = ["{}", "Text {} end", "**bold {} bold**", "- {}\n- item", "> {}\n", "# {}\n", "a\n\n{}\n\nb"]


@pytest.mark.parametrize("hidden", _HIDDEN)
@pytest.mark.parametrize("frame", _FRAMES)
def test_no_version_of_a_message_shows_a_hidden_word(hidden: str, frame: str) -> None:
    versions = list_versions(frame.format(f"||{hidden}||"))
    assert [version for version in versions if list_visible_words(version)] == []
    assert max(map(utf16, versions)) <= DISCORD.chunk_size


@given(texts, st.integers(1, 30))
@example("**a ||secret** secret|| b", 1)
@example("||\n| a |\n|---|\n" + "| secret |\n" * 40 + "||||secret||", 1)
@example("||\n| a |\n|---|\n| secret |\n||\\|\\| ", 1)
def test_random_texts_and_splits_show_no_hidden_word(text: str, pieces: int) -> None:
    versions = list_versions(text, pieces=pieces)
    assert [version for version in versions if list_visible_words(version)] == []
    assert max(map(utf16, versions), default=0) <= DISCORD.chunk_size


@pytest.mark.parametrize(
    "row", ["| a | ||secret|| |", "| ||secret|| | b |", r"| a | \|\|secret\|\| |", "| a | x ||secret|| y |"]
)
def test_a_table_with_a_spoiler_is_hidden_as_a_whole(row: str) -> None:
    versions = list_versions(f"Who?\n\n| one | two |\n|---|---|\n{row}\n\nEnd")
    assert "secret" in versions[-1]
    assert [version for version in versions if list_visible_words(version)] == []


@pytest.mark.parametrize("row", ["| a | |", "|| b |", r"| `a \|\| b` | c |", r"| a \|\| b | c |"])
def test_a_table_without_a_spoiler_is_shown(row: str) -> None:
    (text,) = plan(f"| one | two |\n|---|---|\n{row}\n")
    assert not text.startswith("||")


@pytest.mark.parametrize(
    "text",
    [
        "Use a || b here", "Use `a || b` here", "An empty |||| here", r"Escaped \|\|no spoiler\|\|", "The end ||",
        "||a|| and b || c", "a || b\n\n- c\n- d", "|| a\n\nb", "||word||", "Look: ||**a** b|| and **b ||c|| d**",
        "||a\nb||",
    ],
)  # fmt: skip
def test_pairs_and_unpaired_marks_are_shown_unchanged(text: str) -> None:
    assert plan(text) == [text]


def test_an_unpaired_mark_hides_nothing_in_a_complete_text_of_many_messages() -> None:
    text = "Use the || operator. " + "More words follow here. " * 40
    messages = plan(text)
    assert len(messages) > 3
    assert "".join(messages).count("||") == 1
    assert " ".join(" ".join(messages).split()) == text.strip()


def test_an_unpaired_mark_is_escaped_before_a_mark_in_code() -> None:
    assert plan("Use || as in `a || b`") == [r"Use \|\| as in `a || b`"]


@pytest.mark.parametrize(
    ("so_far", "seen"),
    [
        ("It is ||sec", "It is ||sec||"),
        ("It is ||sec|", "It is ||sec||"),
        ("It is ||", "It is"),
        ("It is ||**se", "It is ||**se**||"),
        ("**It is ||se", "**It is ||se||**"),
        ("- ||a\n- b", "- ||a||\n- ||b||"),
        ("||a\n\n> b", "||a||\n\n> ||b||"),
        ("||\n```py\na = 1", "||```py\na = 1\n```||"),
        ("So ||`a || b`", "So ||`a |\u200b| b`||"),
    ],
)
def test_a_growing_spoiler_is_closed_in_each_block(so_far: str, seen: str) -> None:
    planner = ChunkPlanner(DISCORD)
    planner.feed(so_far)
    assert planner.plan(Priority.STREAM_UPDATE).chunks[-1].text == seen


@pytest.mark.parametrize("text", ["It is ||sec", "It is ||secret|| here", "a || b", "||a\n\n- b\n- c||"])
def test_slack_shows_pipes_as_text(text: str) -> None:
    assert plan(text, SLACK) == [text]
