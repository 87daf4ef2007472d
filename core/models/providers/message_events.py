"""Reader of the events of an answer in Anthropic's format, also from compatible servers.

An event is JSON of any shape. Fields of an unknown shape, and unknown types of events and blocks, are left out, so that
they cost no answer. The SDK's own parser checks no types.

Anthropic: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from core.models.finish_reasons import Ending, get_ending
from core.models.grounding import Source, make_grounding
from core.models.provider import Grounding, ProviderEvent, Text, Thought, ToolCall
from core.models.providers.json_fields import get_count, get_text, list_objects
from core.models.tool_calls import parse_call, parse_json
from core.usage.meter import Usage

Block = dict[str, Any]

#: Prefix of a signature that contains redacted thinking. No other signature has a colon.
REDACTED_PREFIX = b"redacted:"

#: Signature of thinking that a compatible server sent without one; the server may require the thinking with the results
#: of its calls.
UNSIGNED = b"unsigned:"

_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class MessageReader:
    """Reader of one answer; `stop_reason` is empty until the server has sent one."""

    def __init__(self) -> None:
        self.stop_reason = ""
        self.is_complete = False
        self._blocks: list[Block] = []
        self._pieces: dict[tuple[int, str], list[str]] = {}  # of deltas, by the block's place in `_blocks` and field
        self._places: dict[int, int] = {}  # by the server's index
        self._unsigned: dict[int, bytes] = {}  # signatures of thinking that has none yet, by its block's place
        self._counts = dict.fromkeys((*_COUNTS, "thinking_tokens"), 0)

    def read(self, event: Any) -> Iterator[ProviderEvent]:
        """Yield the provider events of an event.

        Raises:
            ValueError: the event, or the part of the answer in it, is no JSON object.
        """
        if not isinstance(event, Mapping):
            raise ValueError("the event is no JSON object")
        match event.get("type"):
            case "message_start":
                self._read_usage(_get_object(event, "message"), is_final=False)
            case "content_block_start":
                yield from self._start_block(event.get("index"), _get_object(event, "content_block"))
            case "content_block_delta":
                yield from self._read_delta(event.get("index"), _get_object(event, "delta"))
            case "content_block_stop":
                yield from self._end_thinking(self._find_place(event.get("index")))
            case "message_delta":
                self._end(event.get("delta"), event)
            case "message_stop":
                self.is_complete = True
            case "message":  # the whole answer, of a server that does not stream
                for block in list_objects(event.get("content")):
                    yield from self._start_block(None, block)
                    yield from self._end_thinking(len(self._blocks) - 1)
                self._end(event, event)
                self.is_complete = True

    def build_calls(self) -> list[ToolCall]:
        """Return the tool calls, without those whose arguments are incomplete because the answer ended early."""
        is_truncated = get_ending(self.stop_reason) is not Ending.COMPLETE
        calls = (
            parse_call(
                get_text(block, "id"),
                get_text(block, "name"),
                "".join(self._pieces.get((place, "input"), ())) or json.dumps(block.get("input")),
                is_truncated=is_truncated,
            )
            for place, block in enumerate(self._blocks)
            if block["type"] == "tool_use"
        )
        return [call for call in calls if call is not None]

    def build_content(self) -> tuple[Block, ...]:
        """Return the blocks of the answer as the server sent them, for a request that continues it.

        Anthropic: a text block is not empty. https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools
        """
        blocks = [dict(block) for block in self._blocks]
        for (place, name), pieces in self._pieces.items():
            text = "".join(pieces)
            block = blocks[place]
            block[name] = get_text(block, name) + text if name != "input" else parse_json(text or "{}")
        return tuple(block for block in blocks if block["type"] != "text" or block.get("text"))

    @property
    def usage(self) -> Usage:
        """Token counts of the answer so far; 0 for those that the server has not sent, or that cannot be read.

        Anthropic: each count is a total. `input_tokens` excludes the cache, `output_tokens` includes thinking.
        """
        cached = self._counts["cache_read_input_tokens"]
        cache_write = self._counts["cache_creation_input_tokens"]
        thinking = self._counts["thinking_tokens"]
        return Usage(
            input=self._counts["input_tokens"] + cache_write + cached,
            output=max(0, self._counts["output_tokens"] - thinking),
            thinking=thinking,
            cached=cached,
            cache_write=cache_write,
        )

    def _start_block(self, index: Any, block: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        kind = get_text(block, "type")
        self._add_block(index, {**block, "type": kind})
        match kind:
            case "redacted_thinking" if data := get_text(block, "data"):
                yield Thought("", REDACTED_PREFIX + data.encode())
            case "thinking":
                if text := get_text(block, "thinking"):
                    yield Thought(text)
                if signature := get_text(block, "signature"):
                    yield Thought("", signature.encode())
                else:
                    self._unsigned[len(self._blocks) - 1] = UNSIGNED if block.get("signature") is None else b""
            case "text" if text := get_text(block, "text"):
                yield Text(text)
                yield from map(_read_citation, list_objects(block.get("citations")))

    def _read_delta(self, index: Any, delta: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        match get_text(delta, "type"):
            case "text_delta" if text := get_text(delta, "text"):
                self._add_piece(self._find_block(index, "text"), "text", text)
                yield Text(text)
            case "thinking_delta" if thinking := get_text(delta, "thinking"):
                self._add_piece(self._find_block(index, "thinking"), "thinking", thinking)
                yield Thought(thinking)
            case "signature_delta" if signature := get_text(delta, "signature"):
                place = self._find_block(index, "thinking")
                self._add_piece(place, "signature", signature)
                self._unsigned.pop(place, None)
                yield Thought("", signature.encode())
            case "citations_delta":
                for citation in list_objects(delta.get("citation")):
                    block = self._blocks[self._find_block(index, "text")]
                    block["citations"] = [*list_objects(block.get("citations")), citation]
                    yield _read_citation(citation)
            case "input_json_delta" if piece := get_text(delta, "partial_json"):
                if (place := self._find_place(index)) >= 0 and self._blocks[place]["type"].endswith("tool_use"):
                    self._add_piece(place, "input", piece)

    def _end_thinking(self, place: int) -> Iterator[Thought]:
        if place in self._unsigned:
            yield Thought("", self._unsigned.pop(place))

    def _end(self, reason: Any, message: Mapping[str, Any]) -> None:
        self.stop_reason = get_text(reason, "stop_reason") or self.stop_reason
        self._read_usage(message, is_final=True)

    def _read_usage(self, message: Mapping[str, Any], *, is_final: bool) -> None:
        """Store the newest counts, without the output so far: an estimate is better if no other count follows."""
        usage = message.get("usage")
        if not isinstance(usage, Mapping):
            return
        for name in _COUNTS:
            if usage.get(name) is not None and (is_final or name != "output_tokens"):
                self._counts[name] = get_count(usage, name)
        if isinstance(details := usage.get("output_tokens_details"), Mapping):
            self._counts["thinking_tokens"] = get_count(details, "thinking_tokens")

    def _add_block(self, index: Any, block: Block) -> None:
        place = len(self._blocks)
        self._blocks.append(block)
        if isinstance(index, int):
            self._places[index] = place

    def _find_place(self, index: Any) -> int:
        return self._places.get(index, len(self._blocks) - 1) if isinstance(index, int) else len(self._blocks) - 1

    def _find_block(self, index: Any, kind: str) -> int:
        """Return the place of the block that a delta extends; of a new one if the server has started none."""
        place = self._find_place(index)
        if place < 0 or self._blocks[place]["type"] != kind:
            place = len(self._blocks)
            self._add_block(index, {"type": kind})
        return place

    def _add_piece(self, place: int, name: str, piece: str) -> None:
        self._pieces.setdefault((place, name), []).append(piece)


def _get_object(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = event.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is no JSON object")
    return value


def _read_citation(citation: Mapping[str, Any]) -> Grounding:
    """Return the page of a citation: of a web page with `url`, of a search result with `source`."""
    url = get_text(citation, "url") or get_text(citation, "source")
    return Grounding(make_grounding([Source(url, get_text(citation, "title"))]))
