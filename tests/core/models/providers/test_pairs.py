"""Histories of one provider that are sent to another: every pair, there and back."""

import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedResponse, Step, Think
from core.models.adapter import ModelAdapter
from tests.core.models import wire_rules as rules
from tests.core.models.conftest import VENDORS, ConnectedProvider, connect_provider

PNG_BYTES = b"\x89PNG"
PNG = types.Part.from_bytes(data=PNG_BYTES, mime_type="image/png")
PDF = types.Part.from_bytes(data=b"pdf", mime_type="application/pdf")
PLACEHOLDER = "skip_thought_signature_validator"


@dataclass
class ScriptedSpeaker:
    """Model of one provider, with scripted and signed answers.

    Attributes:
        lines: the next answers.
        signatures: the signatures of all answers.
        wire: the provider and its scripted server.
    """

    vendor: str
    lines: list[ScriptedResponse] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)
    wire: ConnectedProvider | None = None

    def script(self, _request: ReceivedRequest) -> ScriptedResponse:
        return self.lines.pop(0)

    def begin(self) -> None:
        self.lines.clear()
        self.signatures.clear()
        assert self.wire is not None
        self.wire.server.requests.clear()

    async def say(self, contents: list[types.Content], steps: Sequence[Step]) -> types.Content | None:
        """Send a history to the provider, and return the answer; None without content.

        Args:
            steps: the steps of the model's answer.
        """
        assert self.wire is not None
        self.lines.append([self._sign(step) for step in steps])
        adapter = ModelAdapter(model="gemini-3-pro", provider=self.wire.provider)
        request = LlmRequest(contents=contents, config=types.GenerateContentConfig(system_instruction="Be brief."))
        [answer] = [response async for response in adapter.generate_content_async(request)]
        return answer.content

    def _sign(self, step: Step) -> Step:
        """Return a step with a signature, and append the signature to `signatures`.

        Gemini signs calls, thoughts and texts; Anthropic signs thoughts; OpenAI signs nothing.
        """
        signature = f"{self.vendor}-made-{len(self.signatures)}"
        match step:
            case Think(text) if self.vendor != "openai":
                self.signatures.append(signature)
                return Think(text, signature=signature.encode())
            case CallTool(name, arguments, id_) if self.vendor == "gemini":
                self.signatures.append(signature)
                return CallTool(name, arguments, id_, signature=signature.encode())
            case Say(text) if self.vendor == "gemini":
                self.signatures.append(signature)
                return Say(text, signature=signature.encode())
        return step


@pytest.fixture(params=list(product(VENDORS, VENDORS)), ids="-".join)
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[tuple[ScriptedSpeaker, ScriptedSpeaker]]:
    one, other = (ScriptedSpeaker(vendor) for vendor in request.param)
    async with (
        connect_provider(one.vendor, one.script) as one.wire,
        connect_provider(other.vendor, other.script) as other.wire,
    ):
        yield one, other


def requests(speaker: ScriptedSpeaker) -> list[dict[str, Any]]:
    assert speaker.wire is not None
    return speaker.wire.server.requests


def count_sent_images(speaker: ScriptedSpeaker) -> int:
    """Return the number of images in the speaker's last request."""
    return json.dumps(requests(speaker)[-1]).count(base64.b64encode(PNG_BYTES).decode())


def count_images(contents: Sequence[types.Content]) -> int:
    """Return the number of images from the user and from tools in a history."""
    parts = [part for content in contents for part in content.parts or ()]
    results = [part.function_response for part in parts if part.function_response]
    return parts.count(PNG) + sum(len(result.parts or ()) for result in results)


def add_results(answer: types.Content, *, left_out: int = 0) -> types.Content:
    """Return the results of an answer's tool calls, each with an image.

    Args:
        left_out: the number of first results to leave out.
    """
    calls = [part.function_call for part in answer.parts or () if part.function_call]
    blob = types.FunctionResponseBlob(mime_type="image/png", data=PNG_BYTES)
    image = types.FunctionResponsePart(inline_data=blob)
    parts = [
        types.Part(
            function_response=types.FunctionResponse(
                id=call.id, name=call.name, response={"result": number}, parts=[image]
            )
        )
        for number, call in enumerate(calls)
    ]
    return types.Content(role="user", parts=parts[left_out:])


async def talk(
    one: ScriptedSpeaker, other: ScriptedSpeaker, turns: Sequence[tuple[bool, list[types.Part], list[list[Step]], int]]
) -> None:
    """Run a conversation that alternates between two providers' models.

    Checks the rules of the vendor in each request.

    Args:
        turns: for each turn: whether `other` answers, the user's parts, the model's answers, and the number of left-out
            tool results.
    """
    for speaker in (one, other):
        speaker.begin()
    contents: list[types.Content] = []
    for is_other, user_parts, answers, left_out in turns:
        contents.append(types.UserContent(user_parts))
        for steps in answers:
            answer = await (other if is_other else one).say(contents, steps)
            if answer is None:
                break
            contents.append(answer)
            results = add_results(answer, left_out=left_out)
            if not results.parts:
                break
            contents.append(results)
    await other.say([*contents, types.UserContent("And now?")], [Say("Now this.")])
    assert count_sent_images(other) == count_images(contents)
    for speaker in (one, other):
        stranger = one if speaker is other else other
        for body in requests(speaker):
            rules.check_request(speaker.vendor, body)
            text = json.dumps(body)
            assert "parley:" not in text
            signatures = rules.list_signatures(speaker.vendor, body)
            same = stranger.signatures if stranger.vendor == speaker.vendor else []
            assert set(signatures) <= {*speaker.signatures, *same, PLACEHOLDER}
            if stranger.vendor != speaker.vendor:
                assert f"{stranger.vendor}-made" not in text


HARD_IDS = ["a.b", "a:b", "a_b", "same", "ünsafe", "x" * 70, "call_" + "y" * 36, ""]
texts = st.sampled_from(["Fine.", " ", "\n", "Zürich \N{CHEESE WEDGE}", "a\0b"])
calls = st.builds(
    CallTool,
    st.sampled_from(["look_up", "no such.tool", "n" * 64]),
    st.dictionaries(st.sampled_from("ab"), st.integers() | texts, max_size=1),
    st.none() | st.sampled_from(HARD_IDS),
)
steps = st.tuples(
    st.lists(st.builds(Think, st.sampled_from(["Hm.", ""])), max_size=2),
    st.lists(st.builds(Say, texts), max_size=1),
    st.lists(calls, max_size=3),
).map(lambda kinds: [step for kind in kinds for step in kind])
user_parts = st.lists(st.sampled_from([PNG, PDF, types.Part(text=" "), types.Part(text="Hi")]), min_size=1, max_size=3)
turns = st.lists(
    st.tuples(st.booleans(), user_parts, st.lists(steps, max_size=3), st.integers(0, 2)), min_size=1, max_size=4
)


@given(turns)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_history_of_one_provider_can_be_sent_to_another(
    pair: tuple[ScriptedSpeaker, ScriptedSpeaker], turns: list[tuple[bool, list[types.Part], list[list[Step]], int]]
) -> None:
    await talk(*pair, turns)


async def test_a_full_conversation_continues_with_another_provider(
    pair: tuple[ScriptedSpeaker, ScriptedSpeaker],
) -> None:
    one, other = pair
    work: list[Step] = [Think("Hm."), Say("Wait."), CallTool("look_up", {"n": 1}, "a.b"), CallTool("look_up", {"n": 2})]
    await talk(one, other, [(False, [types.Part(text="What is this?"), PNG, PDF], [work, [Say("A cat.")]], 0)])
    body = requests(other)[-1]
    text = json.dumps(body)
    assert all(phrase in text for phrase in ("What is this?", "cGRm", "Wait.", "A cat.", "look_up", "And now?"))
    signatures = rules.list_signatures(other.vendor, body)
    if one.vendor == other.vendor:
        assert signatures == one.signatures
    else:
        assert signatures == ([PLACEHOLDER] if other.vendor == "gemini" else [])
    assert ("Hm." in text) is (one.vendor == other.vendor != "openai")
