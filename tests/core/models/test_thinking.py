"""Marked thinking in a model's text, with every split into deltas."""

import pytest
from google.genai.types import FinishReason
from hypothesis import given
from hypothesis import strategies as st

from core.models.provider import Done, Grounding, ProviderEvent, Text, Thought, ToolCall
from core.models.thinking import Reclassified, ThinkingReader

#: Answers that begin with thinking: the text, the visible text.
MARKED = {
    "think": ("<think>\nsecret\n</think>\n\nHello <b>!", "Hello <b>!"),
    "thinking": ("\n<thinking>secret</thinking>Hello", "Hello"),
    "reasoning": ("<Reasoning>secret</Reasoning> Hello", "Hello"),
    "thought": ("<thought>secret</thought>Hello", "Hello"),
    "twice": ("<think>secret</think>\n<think>secret</think>\nHello", "Hello"),
    "another closing tag": ("<think>secret</thinking>Hello", "Hello"),
    "Mistral": ("[THINK]secret[/THINK]Hello", "Hello"),
    "Kimi": ("◁think▷secret◁/think▷Hello", "Hello"),
    "not closed": ("<think>secret", ""),
    "a tag in it": ("<think>secret <br> `a` [b](c)</think>Hello", "Hello"),
    "tags in the answer": ("<think>secret</think>`<think>` and </think> are tags", "`<think>` and </think> are tags"),
    "gpt-oss": (
        "<|channel|>analysis<|message|>secret<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>",
        "Hello",
    ),
    "gpt-oss, with a preamble": (
        "<|start|>assistant<|channel|>analysis<|message|>secret<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>Hel<|end|><|start|>assistant<|channel|>final<|message|>lo",
        "Hello",
    ),
    "gpt-oss, a call": (
        "<|channel|>commentary to=functions.look <|constrain|>json<|message|>secret<|call|>",
        "",
    ),
}

#: Answers in which each tag is text.
PLAIN = [
    "Hello",
    " \n",
    "A <think>tag</b> opens it",
    "`<think>` opens it, `</think>` closes it",
    "Close it with ``a ` </think>``, and `b`",
    "```xml\n<think>\nx\n</think>\n```\nThat is all",
    "~~~\n</think>\n",
    "- a:\n  ```\n  </thinking>\n  ```",
    "[THINK about it] <thinkers> unite, a < b <| c",
    "<th",
    "<|channel|>other",
    "\\` `</think>` it",
]

#: Answers whose thinking began in the prompt: the text, the visible text.
OPENED = {
    "a tag": ("secret `code` secret</think>\n\nHello", "Hello"),
    "an open tick": ("secret ` secret</think>\n\nHello", "Hello"),
    "a code block": ("secret\n```\nsecret\n```\nsecret\n</reasoning>Hello </think>", "Hello </think>"),
    "code with the tag": ("secret `</think>` secret</think>Hello", "Hello"),
    "gpt-oss": ("secret<|end|><|start|>assistant<|channel|>final<|message|>Hello", "Hello"),
}

splits = pytest.mark.parametrize("size", [1, 2, 3, 5, 1_000])


def read(events: list[ProviderEvent], *, starts_open: bool = False) -> tuple[str, str]:
    """Return the text of an answer at its end, and all text that was ever visible."""
    reader, pieces, visible = ThinkingReader(starts_open=starts_open), list[Text | Thought](), ""
    for event in events:
        for piece in reader.read(event):
            if isinstance(piece, Reclassified):
                pieces = [piece.kind(earlier.text) for earlier in pieces]
            elif isinstance(piece, Text | Thought):
                pieces.append(piece)
                visible += piece.text if isinstance(piece, Text) else ""
    return "".join(piece.text for piece in pieces if isinstance(piece, Text)), visible


def split(text: str, size: int) -> list[ProviderEvent]:
    return [*(Text(text[start : start + size]) for start in range(0, len(text), size)), Done()]


@splits
@pytest.mark.parametrize("name", MARKED)
def test_marked_thinking_is_never_visible(name: str, size: int) -> None:
    text, wanted = MARKED[name]
    assert read(split(text, size)) == (wanted, wanted)


@given(st.sampled_from([*MARKED.values(), *((text, text) for text in PLAIN)]), st.data())
def test_two_deltas_are_read_as_one(case: tuple[str, str], data: st.DataObject) -> None:
    text, wanted = case
    at = data.draw(st.integers(0, len(text)))
    assert read([Text(text[:at]), Text(text[at:]), Done()]) == (wanted, wanted)


@splits
@pytest.mark.parametrize("text", PLAIN)
def test_a_tag_elsewhere_is_text(text: str, size: int) -> None:
    assert read(split(text, size)) == (text, text)


@splits
@pytest.mark.parametrize("name", OPENED)
def test_a_lone_closing_tag_hides_the_text_before_it(name: str, size: int) -> None:
    text, wanted = OPENED[name]
    assert read(split(text, size))[0] == wanted
    assert read(split(text, size), starts_open=True) == (wanted, wanted)


@splits
@pytest.mark.parametrize("text", PLAIN)
def test_open_thinking_without_a_tag_is_the_answer(text: str, size: int) -> None:
    assert read(split(text, size), starts_open=True) == (text, "")


def test_open_thinking_that_the_length_limit_ends_is_no_answer() -> None:
    assert read([Text("secret"), Done(FinishReason.MAX_TOKENS)], starts_open=True) == ("", "")


def test_text_after_a_thought_in_a_field_is_the_answer() -> None:
    events: list[ProviderEvent] = [Thought("Hm."), Text("Hel"), Text("lo"), Done()]
    assert read(events, starts_open=True) == ("Hello", "Hello")


def test_other_events_stay_in_their_order() -> None:
    call = ToolCall("c1", "look", {})
    events: list[ProviderEvent] = [Text("a <"), call, Text("b", b"signed"), Grounding(), Done()]
    reader = ThinkingReader()
    assert [piece for event in events for piece in reader.read(event)] == [Text("a "), Text("<"), *events[1:]]
