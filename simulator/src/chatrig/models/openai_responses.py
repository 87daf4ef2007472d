"""OpenAI's Responses API: events and bodies of scripted responses, and the parser of its requests.

OpenAI: https://platform.openai.com/docs/api-reference/responses and .../responses-streaming
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chatrig.models.script import (
    CallTool,
    Cite,
    Fail,
    Finish,
    RawChunk,
    ReceivedRequest,
    ReceivedToolResult,
    Say,
    SendFile,
    Step,
    Think,
    decode_tool_result,
    split_text,
)
from chatrig.models.server import Chunk, WireFormat

Item = dict[str, Any]

#: Finish reasons of an incomplete response; `length` is the reason of chat completions.
_INCOMPLETE_REASONS = {
    "length": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}
#: OpenAI: developer messages replace system messages for newer models; both are instructions.
SYSTEM_ROLES = ("system", "developer")
_ERROR_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


class ResponsesWireFormat(WireFormat):
    """Response as output items, each with an `added` event, deltas and a `done` event.

    Attributes:
        output: the output items so far, complete.
    """

    def __init__(self, response_id: str, request: Mapping[str, Any]) -> None:
        self.output: list[Item] = []
        self._id = response_id
        self._request = request
        self._sequence_number = -1
        self._is_open = False
        self._finish = Finish()
        self._error: Chunk | None = None

    def to_chunks(self, step: Step) -> Iterable[Chunk]:
        if isinstance(step, RawChunk):
            yield step.chunk
            return
        yield from self._start_response()
        match step:
            case Say(text):
                yield from self._open_message()
                self.output[-1]["content"][0]["text"] += text
                yield self._item_event("output_text.delta", content_index=0, delta=text, logprobs=[])
            case Think(text):
                yield from self._open_reasoning()
                self.output[-1]["summary"][0]["text"] += text
                yield self._item_event("reasoning_summary_text.delta", summary_index=0, delta=text)
            case CallTool():
                yield from self._add_tool_call(step)
            case SendFile(mime_type, data) if mime_type.startswith("image/"):
                result = base64.b64encode(data).decode()
                yield from self._start_item("image_generation_call", {"result": result}, {"result": None})
                yield self._item_event("image_generation_call.completed")
                yield from self._close_item()
            case Cite(url, title):
                yield from self._open_message()
                yield self._add_citation(url, title)
            case Finish():
                self._finish = step
                if self._is_open:
                    self.output[-1]["status"] = self._status
                    yield from self._close_item()
                yield self._event(f"response.{self._status}", response=self.body())
            case _:
                return

    def error_chunks(self, fail: Fail, error_body: Chunk) -> Iterable[Chunk]:
        code = fail.code or _ERROR_CODES.get(fail.status, "server_error")
        yield from self._start_response()
        self._error = {"code": code, "message": fail.message}
        yield self._event("error", **self._error, param=None)
        yield self._event("response.failed", response=self._response("failed", self.output))

    def body(self) -> Chunk:
        return {**self._response(self._status, self.output), "usage": self._usage}

    def _start_response(self) -> Iterable[Chunk]:
        if self._sequence_number < 0:
            yield self._event("response.created", response=self._response("in_progress"))
            yield self._event("response.in_progress", response=self._response("in_progress"))

    def _open_message(self) -> Iterable[Chunk]:
        if self._is_open and self.output[-1]["type"] == "message":
            return
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield from self._start_item("message", {"role": "assistant", "content": [part]}, {"content": []})
        yield self._item_event("content_part.added", content_index=0, part=part)

    def _open_reasoning(self) -> Iterable[Chunk]:
        if self._is_open and self.output[-1]["type"] == "reasoning":
            return
        part = {"type": "summary_text", "text": ""}
        yield from self._start_item("reasoning", {"summary": [part]}, {"summary": []})
        yield self._item_event("reasoning_summary_part.added", summary_index=0, part=part)

    def _add_tool_call(self, call: CallTool) -> Iterable[Chunk]:
        arguments = call.raw if call.raw is not None else json.dumps(call.arguments)
        call_id = call.id if call.id is not None else f"call_{self._id}_{len(self.output)}"
        fields = {"call_id": call_id, "name": call.name, "arguments": arguments}
        yield from self._start_item("function_call", fields, {"arguments": ""})
        for piece in split_text(arguments, call.pieces):
            yield self._item_event("function_call_arguments.delta", delta=piece)
        yield from self._close_item()

    def _add_citation(self, url: str, title: str) -> Chunk:
        [part] = self.output[-1]["content"]
        page = {"type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": len(part["text"])}
        part["annotations"].append(page)
        index = len(part["annotations"]) - 1
        return self._item_event(
            "output_text.annotation.added", content_index=0, annotation_index=index, annotation=page
        )

    def _start_item(self, kind: str, fields: Item, empty: Item) -> Iterable[Chunk]:
        """Add a complete item; its `added` event has the values of `empty`."""
        yield from self._close_item()
        id_ = f"{kind}_{self._id}_{len(self.output)}"
        self.output.append({"id": id_, "type": kind, "status": "completed", **fields})
        self._is_open = True
        item = {**self.output[-1], "status": "in_progress", **empty}
        yield self._event("response.output_item.added", output_index=len(self.output) - 1, item=item)

    def _close_item(self) -> Iterable[Chunk]:
        if not self._is_open:
            return
        self._is_open = False
        item = self.output[-1]
        match item:
            case {"type": "message", "content": [part]}:
                yield self._item_event("output_text.done", content_index=0, text=part["text"], logprobs=[])
                yield self._item_event("content_part.done", content_index=0, part=part)
            case {"type": "reasoning", "summary": [part]}:
                yield self._item_event("reasoning_summary_text.done", summary_index=0, text=part["text"])
                yield self._item_event("reasoning_summary_part.done", summary_index=0, part=part)
            case {"type": "function_call", "name": name, "arguments": arguments}:
                yield self._item_event("function_call_arguments.done", name=name, arguments=arguments)
        yield self._event("response.output_item.done", output_index=len(self.output) - 1, item=item)

    def _item_event(self, kind: str, /, **fields: Any) -> Chunk:
        index = len(self.output) - 1
        return self._event(f"response.{kind}", item_id=self.output[-1]["id"], output_index=index, **fields)

    def _event(self, kind: str, **fields: Any) -> Chunk:
        self._sequence_number += 1
        return {"type": kind, "sequence_number": self._sequence_number, **fields}

    def _response(self, status: str, output: Sequence[Item] = ()) -> Chunk:
        request = self._request
        reason = _INCOMPLETE_REASONS.get(self._finish.reason or "")
        return {
            "id": self._id,
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "error": self._error,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": request.get("instructions"),
            "max_output_tokens": request.get("max_output_tokens"),
            "metadata": request.get("metadata") or {},
            "model": request["model"],
            "output": list(output),
            "parallel_tool_calls": request.get("parallel_tool_calls", True),
            "previous_response_id": request.get("previous_response_id"),
            "reasoning": request.get("reasoning") or {"effort": None, "summary": None},
            "store": request.get("store", True),
            "temperature": request.get("temperature", 1.0),
            "text": request.get("text") or {"format": {"type": "text"}},
            "tool_choice": request.get("tool_choice", "auto"),
            "tools": request.get("tools") or [],
            "top_p": request.get("top_p", 1.0),
            "truncation": request.get("truncation", "disabled"),
            "usage": None,
        }

    @property
    def _status(self) -> str:
        return "incomplete" if self._finish.reason in _INCOMPLETE_REASONS else "completed"

    @property
    def _usage(self) -> Chunk:
        """Token usage: `output_tokens` includes reasoning, `input_tokens` includes cached tokens."""
        finish = self._finish
        output = finish.output + finish.thinking
        return {
            "input_tokens": finish.input,
            "input_tokens_details": {"cached_tokens": finish.cached, "cache_write_tokens": finish.cache_write},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": finish.thinking},
            "total_tokens": finish.input + output,
        }


def list_input_items(body: Mapping[str, Any]) -> list[Item]:
    """Return the input items of a request; a text is one message of the user."""
    items = body.get("input") or []
    return [{"role": "user", "content": items}] if isinstance(items, str) else list(items)


def parse_responses_request(
    body: Mapping[str, Any], items: Sequence[Item], headers: Mapping[str, str]
) -> ReceivedRequest:
    """Parse a request of the Responses API.

    Args:
        items: the items of the earlier responses that the request continues, and its own.
    """
    texts = [(item["role"], join_text(item.get("content"))) for item in items if "role" in item]
    instructions = [body.get("instructions") or "", *(text for role, text in texts if role in SYSTEM_ROLES)]
    return ReceivedRequest(
        model=body["model"],
        text=next((text for role, text in reversed(texts) if role == "user"), ""),
        system="\n".join(filter(None, instructions)),
        messages=tuple((role, text) for role, text in texts if role not in SYSTEM_ROLES),
        tools=tuple(tool.get("name") or tool["type"] for tool in body.get("tools") or ()),
        tool_results=tuple(_parse_tool_results(items)),
        body=body,
        headers=headers,
        is_streaming=bool(body.get("stream")),
    )


def join_text(content: Any) -> str:
    """Return the text of a message's content, which is a text or a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def _parse_tool_results(items: Sequence[Item]) -> list[ReceivedToolResult]:
    names: dict[str, str] = {}
    results: list[ReceivedToolResult] = []
    for item in items:
        match item:
            case {"type": "function_call_output", "call_id": id_, "output": output}:
                results.append(ReceivedToolResult(id_, names.get(id_), decode_tool_result(join_text(output))))
            case {"type": "function_call", "call_id": id_, "name": name}:
                names[id_] = name
                results = []
            case {"role": "assistant"} | {"type": "reasoning"}:
                results = []
    return results
