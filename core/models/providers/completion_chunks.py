"""Reader of the chunks of a chat completion, in the shapes of OpenAI and of compatible servers.

A chunk is JSON of any shape. Fields of an unknown shape are left out, so that they cost no answer.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from core.models.finish_reasons import Ending, get_ending
from core.models.grounding import Source, make_grounding
from core.models.media import UNKNOWN_TYPE, add_wav_header
from core.models.provider import Grounding, Media, ProviderEvent, Text, Thought
from core.models.providers.json_fields import get_count, get_text, list_objects
from core.models.providers.tool_call_deltas import ToolCallBuilder
from core.usage.meter import Usage

#: OpenAI: a stream has sound as 16-bit samples, 24,000 a second.
_SOUND_TYPE = "audio/L16;rate=24000"

#: Fields of a delta with thoughts: of DeepSeek, vLLM and llama.cpp; of OpenRouter and Ollama.
_THOUGHT_FIELDS = ("reasoning_content", "reasoning")

#: Fields of `reasoning_details` whose text comes in several deltas.
_CONTINUED_FIELDS = ("text", "summary", "data")

#: Types of content blocks with thoughts, of Mistral and of Anthropic's format.
_THOUGHT_TYPES = ("thinking", "reasoning")


class CompletionReader:
    """Reader of one answer; `finish` is empty, and each token count 0, until the server has sent it."""

    def __init__(self) -> None:
        self.finish = ""
        self.usage = Usage()
        self._calls = ToolCallBuilder()
        self._sound = bytearray()
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []

    def read(self, chunk: Any) -> Iterator[ProviderEvent]:
        """Yield the events of a chunk.

        Raises:
            ValueError: the chunk or its delta is no JSON object, or a file in it cannot be decoded.
        """
        if not isinstance(chunk, Mapping):
            raise ValueError("the chunk is no JSON object")
        if isinstance(usage := chunk.get("usage"), Mapping):
            self.usage = _read_usage(usage)
        for choice in list_objects(chunk.get("choices"))[:1]:
            finish = get_text(choice, "finish_reason")
            self.finish = self.finish if finish in ("", "null") else finish
            delta = choice.get("delta") or choice.get("message") or {}  # some servers stream messages
            if not isinstance(delta, Mapping):
                raise ValueError("the delta is no JSON object")
            yield from self._read_delta(delta)

    def end(self) -> Iterator[ProviderEvent]:
        """Yield the events that are complete at the end of the answer: sound and tool calls."""
        if self._sound:
            yield add_wav_header(Media(_SOUND_TYPE, bytes(self._sound)))
        fields: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._thoughts.items()}
        if self._details:
            fields["reasoning_details"] = self._details
        yield from self._calls.build(fields, is_truncated=get_ending(self.finish) is not Ending.COMPLETE)

    def _read_delta(self, delta: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        thought = next((delta[name] for name in _THOUGHT_FIELDS if delta.get(name)), None)
        for name in _THOUGHT_FIELDS:
            if isinstance(piece := delta.get(name), str):
                self._thoughts.setdefault(name, []).append(piece)
        for detail in list_objects(delta.get("reasoning_details")):
            self._add_detail(detail)
        yield from (Thought(event.text) for event in _read_content(thought) if isinstance(event, Text | Thought))
        texts = _read_content(delta.get("content") or delta.get("refusal"))
        yield from (Thought(part.text) for part in texts) if _is_thought(delta) else texts
        for call in list_objects(delta.get("tool_calls")):
            self._calls.add_delta(call)
        if isinstance(audio := delta.get("audio"), Mapping):
            if isinstance(samples := audio.get("data"), str):
                self._sound += base64.b64decode(samples)
            yield from _read_content(audio.get("transcript"))
        images = delta.get("images")  # extension of OpenRouter and LiteLLM
        yield from (_read_image(image) for image in (images if isinstance(images, list) else ()) if image)
        cited = [note.get("url_citation") for note in list_objects(delta.get("annotations"))]
        if sources := [_read_source(page) for page in cited if isinstance(page, Mapping)]:
            yield Grounding(make_grounding(sources))

    def _add_detail(self, detail: Mapping[str, Any]) -> None:
        """Add an item of `reasoning_details`, or continue the last item if it has the same type and index.

        OpenRouter: https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks
        """
        last = self._details[-1] if self._details else {}
        if "index" not in detail or any(detail.get(name) != last.get(name) for name in ("type", "index")):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            is_continued = name in _CONTINUED_FIELDS and isinstance(value, str) and isinstance(last.get(name), str)
            if value is not None:
                last[name] = last[name] + value if is_continued else value


def _read_content(value: Any) -> Iterator[Text | Thought]:
    """Yield the texts and thoughts of a content: a text, a block, or a list of texts and blocks."""
    for block in value if isinstance(value, list) else [value]:
        if isinstance(block, str) and block:
            yield Text(block)
        elif isinstance(block, Mapping):
            kind = str(block.get("type") or "")
            inner = next((block[name] for name in ("text", kind, "value") if block.get(name)), None)
            texts: Iterable[Text | Thought] = _read_content(inner)
            yield from (Thought(part.text) for part in texts) if kind in _THOUGHT_TYPES else texts


def _is_thought(delta: Mapping[str, Any]) -> bool:
    """Return whether the content of a delta is a thought, as Google's server says it."""
    extra = delta.get("extra_content")
    google = extra.get("google") if isinstance(extra, Mapping) else None
    return isinstance(google, Mapping) and google.get("thought") is True


def _read_image(image: Any) -> Media:
    """Return an image of an answer; a web address is not fetched, and its type counts as PNG."""
    if isinstance(image, Mapping):
        image = image.get("image_url") or image.get("url")
    url = image.get("url") if isinstance(image, Mapping) else image
    if not isinstance(url, str):
        raise ValueError("an image has no URL")
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:")):
        return Media("image/png", uri=url)
    return Media(head.removeprefix("data:").partition(";")[0] or UNKNOWN_TYPE, base64.b64decode(data))


def _read_source(page: Mapping[str, Any]) -> Source:
    return Source(get_text(page, "url"), get_text(page, "title"))


def _read_usage(usage: Mapping[str, Any]) -> Usage:
    """Return the token counts. OpenAI: the completion tokens include the reasoning tokens."""
    prompt = usage.get("prompt_tokens_details")
    completion = usage.get("completion_tokens_details")
    thinking = get_count(completion, "reasoning_tokens")
    return Usage(
        input=get_count(usage, "prompt_tokens"),
        output=max(0, get_count(usage, "completion_tokens") - thinking),
        thinking=thinking,
        cached=get_count(prompt, "cached_tokens"),
        cache_write=get_count(prompt, "cache_write_tokens"),
    )
