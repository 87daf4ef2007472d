"""Anthropic's models, through its Messages API.

Anthropic: https://platform.claude.com/docs/en/api/messages
"""

import base64
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

import anthropic
import httpx2
from anthropic import transform_schema
from anthropic.types import (
    InputJSONDelta,
    MessageDeltaUsage,
    RawContentBlockDeltaEvent,
    RawContentBlockStartEvent,
    RawMessageDeltaEvent,
    RawMessageStartEvent,
    RawMessageStopEvent,
    RawMessageStreamEvent,
    RedactedThinkingBlock,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolUseBlock,
)
from anthropic.types import Usage as StartUsage
from google.genai import types

from core.errors import (
    ProviderError,
    ProviderLimitError,
    ProviderRequestError,
    ProviderStalledError,
    ProviderUnavailableError,
    TooLongError,
)
from core.models.errors import parse_errors, retry_after, status_error, with_failure_event
from core.models.messages import clean_tool_name
from core.models.provider import (
    IMAGE_TYPES,
    PDF_TYPE,
    Done,
    Media,
    ModelMessage,
    ModelRequest,
    Part,
    ProviderEvent,
    SupportedFiles,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from core.models.schemas import answer_schema
from core.models.tool_calls import parse_call
from core.usage.meter import Usage

_FINISHES = {
    "end_turn": types.FinishReason.STOP,
    "tool_use": types.FinishReason.STOP,
    "stop_sequence": types.FinishReason.STOP,
    "max_tokens": types.FinishReason.MAX_TOKENS,
    "model_context_window_exceeded": types.FinishReason.MAX_TOKENS,
    "refusal": types.FinishReason.SAFETY,
}

#: An error within a stream has no HTTP status of its own, only its kind.
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


#: Anthropic: an image has at most 5 MB, in base64, and a request at most 32 MB.
_MOST_IMAGE, _MOST_BYTES = 3_900_000, 22 * 2**20

_TAKES = SupportedFiles(
    {**dict.fromkeys((*IMAGE_TYPES, "image/gif"), _MOST_IMAGE), PDF_TYPE: _MOST_BYTES}, max_total_bytes=_MOST_BYTES
)

Block = dict[str, Any]

#: What the signature of redacted thinking begins with; the rest is its data. No signature has a colon in it.
REDACTED = b"redacted:"

#: Anthropic wants a limit. What every model of these years can say in one answer.
MAX_TOKENS = 8192

#: Anthropic: thinking gets at least so many tokens.
_LEAST_BUDGET = 1024

_THINKING = ("thinking", "redacted_thinking")

_IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}

#: Marks the end of a part of the prompt that is to be cached, for five minutes from its last use.
_CACHED: Block = {"type": "ephemeral"}


class AnthropicProvider:
    """The models of Anthropic's API. It tries each request once."""

    name = "anthropic"

    def __init__(self, api_key: str, base_url: str | None = None) -> None:
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            base_url=base_url or None,
            max_retries=0,
            # How long an answer may take is up to who reads it.
            timeout=anthropic.Timeout(None, connect=10.0, pool=10.0),
        )

    def supported_files(self, model: str) -> SupportedFiles:
        del model
        return _TAKES

    def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        return with_failure_event(self._events(request), lambda error: _named(error, request.model))

    async def aclose(self) -> None:
        await self._client.close()

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        answer = _Answer()
        chunks = await self._client.messages.create(**body(request), stream=True)
        async with parse_errors(self.name), chunks:
            while not answer.is_whole:
                chunk = await anext(chunks, None)
                if chunk is None:
                    raise ProviderStalledError("anthropic ended its stream without saying that it was done")
                if (event := answer.hear(chunk)) is not None:
                    yield event
                else:  # nothing else tells of tokens
                    request.report_usage(answer.usage)
        for call in answer.calls():
            yield call
        yield Done(answer.finish, answer.usage)


class _Answer:
    """What is heard of an answer: what comes in pieces is kept until it is whole."""

    def __init__(self) -> None:
        self.is_whole = False
        self._calls: dict[int, tuple[ToolUseBlock, list[str]]] = {}
        self._stop_reason: str | None = None
        self._usages: list[StartUsage | MessageDeltaUsage] = []

    def hear(self, chunk: RawMessageStreamEvent) -> ProviderEvent | None:
        """Take in a chunk; what it lets pass on at once is returned.

        Anthropic: there may be new kinds of everything, which are no errors. The SDK makes of such a one some kind
        that it knows; what it is in truth stands in `type`.
        """
        match chunk:
            case RawMessageStartEvent(type="message_start"):
                self._usages.append(chunk.message.usage)
            case RawContentBlockStartEvent(content_block=ToolUseBlock(type="tool_use") as block):
                self._calls[chunk.index] = block, []
            case RawContentBlockStartEvent(content_block=RedactedThinkingBlock(type="redacted_thinking", data=data)):
                return Thought("", REDACTED + data.encode())
            case RawContentBlockStartEvent(content_block=TextBlock(type="text", text=text)) if text:
                return Text(text)
            case RawContentBlockDeltaEvent(delta=InputJSONDelta(partial_json=piece)) if chunk.index in self._calls:
                self._calls[chunk.index][1].append(piece)
            case RawContentBlockDeltaEvent(delta=delta):
                return _heard(delta)
            case RawMessageDeltaEvent(type="message_delta"):
                self._stop_reason = chunk.delta.stop_reason or self._stop_reason
                self._usages.append(chunk.usage)
            case RawMessageStopEvent(type="message_stop"):
                self.is_whole = True
        return None

    def calls(self) -> list[ToolCall]:
        """The calls, without one whose arguments the token limit cut off."""
        cut_short = self.finish is types.FinishReason.MAX_TOKENS
        read = (
            parse_call(block.id, block.name, "".join(pieces) or json.dumps(block.input), is_truncated=cut_short)
            for block, pieces in self._calls.values()
        )
        return [call for call in read if call is not None]

    @property
    def finish(self) -> types.FinishReason:
        return _FINISHES.get(self._stop_reason or "", types.FinishReason.OTHER)

    @property
    def usage(self) -> Usage:
        """Anthropic: a count that is told again stands for all until then.

        The cache's tokens are counted beside the other ones of the prompt, those of the thinking among those of
        the answer.
        """
        details = [usage.output_tokens_details for usage in self._usages if usage.output_tokens_details]
        thinking = details[-1].thinking_tokens if details else 0
        cached, written = self._newest("cache_read_input_tokens"), self._newest("cache_creation_input_tokens")
        return Usage(
            input=self._newest("input_tokens") + written + cached,
            output=max(0, self._newest("output_tokens") - thinking),
            thinking=thinking,
            cached=cached,
            cache_write=written,
        )

    def _newest(self, count: str) -> int:
        with_failure_event: Sequence[Any] = [getattr(usage, count) for usage in self._usages]
        return next((tokens for tokens in reversed(with_failure_event) if tokens is not None), 0)


def _heard(delta: Any) -> ProviderEvent | None:
    match delta:
        case TextDelta(type="text_delta", text=text):
            return Text(text)
        case ThinkingDelta(type="thinking_delta", thinking=thinking):
            return Thought(thinking)
        case SignatureDelta(type="signature_delta", signature=signature):
            return Thought("", signature.encode())
    return None


def _named(error: Exception, model: str) -> ProviderError:
    match error:
        case ProviderError():
            return error
        case anthropic.APIStatusError():
            return _status_named(error, model)
        case anthropic.APIConnectionError() | httpx2.HTTPError():  # in a stream, the SDK lets these through
            return ProviderUnavailableError(f"anthropic cannot be reached ({type(error).__name__})")
        case _:
            return ProviderRequestError(f"anthropic cannot be asked this ({type(error).__name__})")


def _status_named(error: anthropic.APIStatusError, model: str) -> ProviderError:
    if error.type == "billing_error":
        exhausted = ProviderLimitError("anthropic: the credit of this key is used up")
        exhausted.retryable = False
        return exhausted
    if "prompt is too long" in (error.api_message or ""):  # it has no kind of its own
        return TooLongError(f"the conversation is too long for {model!r}")
    within = error.status_code < 400
    status = _STATUSES.get(error.type or "", 500) if within else error.status_code
    wait = None if within else retry_after(error.response.headers)
    return status_error("anthropic", model, status, retry_after=wait)


def body(request: ModelRequest) -> dict[str, Any]:
    """What the SDK makes a message of, but for `stream`."""
    config = request.config
    messages = _messages(request.messages)
    limit = config.max_output_tokens or MAX_TOKENS
    thinking = _thinking(config.thinking_config) if _may_think(messages) else None
    if thinking is not None and "budget_tokens" in thinking:
        limit = max(limit, thinking["budget_tokens"] + _LEAST_BUDGET)
    system = "\n".join(message.text for message in request.messages if message.role == "system")
    schema, tools = answer_schema(config), _tools(request)
    given = {
        "system": [_text(system)] if system.strip() else None,
        "thinking": thinking,
        "stop_sequences": [stop for stop in config.stop_sequences or () if stop.strip()] or None,
        "output_config": {"format": {"type": "json_schema", "schema": transform_schema(schema)}} if schema else None,
        "extra_body": _sampling(config) if thinking is None or thinking["type"] == "disabled" else None,
        **tools,
    }
    _mark_cached(tools.get("tools", ()), given["system"] or (), messages)
    return {
        "model": request.model,
        "max_tokens": limit,
        "messages": messages,
        **{name: value for name, value in given.items() if value},
    }


def _mark_cached(tools: Sequence[Block], system: Sequence[Block], messages: Sequence[Block]) -> None:
    """Mark the parts of the prompt that the next request repeats.

    Anthropic: a write to the cache costs a quarter more than a read without it, a read from it a tenth. The order of
    the prompt is tools, system, messages. A mark finds the cache of an earlier request up to 20 blocks before it, and a
    request has at most four marks. Anthropic ignores the marks of a prompt that is too short for the model's cache.
    https://platform.claude.com/docs/en/build-with-claude/prompt-caching#cache-limitations

    All conversations share the tools and the instruction. The messages are marked only if another request is likely to
    follow: in a conversation with an answer, or with tools, whose results come next. The user's message before the
    newest one is marked too, because the request before ends there.
    """
    if prefix := [*tools, *system]:
        prefix[-1]["cache_control"] = _CACHED
    user_contents = [message["content"] for message in messages if message["role"] == "user"]
    if tools or len(user_contents) < len(messages):
        for content in user_contents[-2:]:
            content[-1]["cache_control"] = _CACHED


def _sampling(config: types.GenerateContentConfig) -> dict[str, Any]:
    """Anthropic: a temperature of at most 1.0, or `top_p`, not both; newer models, and so the SDK, know neither."""
    if config.temperature is not None:
        return {"temperature": min(config.temperature, 1.0)}
    return {} if config.top_p is None else {"top_p": config.top_p}


def _thinking(config: types.ThinkingConfig | None) -> Block | None:
    """Gemini's way to say it: a budget of 0 is none, one below 0 or none at all is up to the model."""
    if config is None:
        return None
    budget = config.thinking_budget
    if budget is None or budget < 0:
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": max(budget, _LEAST_BUDGET)} if budget else {"type": "disabled"}


def _may_think(messages: Sequence[Block]) -> bool:
    """Anthropic: what began without thinking, and goes on with what tools gave back, is also finished without."""
    began = None
    for message in reversed(messages):
        first = message["content"][0]["type"]
        if message["role"] == "assistant":
            began = first
        elif first != "tool_result":
            break
    return messages[-1]["content"][0]["type"] != "tool_result" or began in _THINKING


def _tools(request: ModelRequest) -> dict[str, Any]:
    """Anthropic: calls in the history need the tools, even when there are none any more."""
    if request.tools:
        return {"tools": [_tool(spec) for spec in request.tools]}
    called = sorted({clean_tool_name(call.name) for message in request.messages for call in message.tool_calls})
    if not called:
        return {}
    tools = [_tool(ToolSpec(name, "Not there any more.", {})) for name in called]
    return {"tools": tools, "tool_choice": {"type": "none"}}


def _tool(spec: ToolSpec) -> Block:
    return {"name": spec.name, "description": spec.description, "input_schema": {"type": "object", **spec.parameters}}


def _messages(messages: Iterable[ModelMessage]) -> list[Block]:
    """Anthropic: the user begins, and then they take turns; what tools gave back is said by the user.

    No text is blank, and no answer ends in thinking. A user who said nothing that can be told still has a turn.
    """
    with_failure_event: list[Block] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = [block for part in message.parts for block in _blocks(part, role)]
        while blocks and blocks[-1]["type"] in _THINKING:
            blocks.pop()
        if not blocks and role == "user":
            blocks = [_text("(nothing)")]
        if blocks and not with_failure_event and role == "assistant":
            with_failure_event.append({"role": "user", "content": [_text("(What came before is left out.)")]})
        if with_failure_event and with_failure_event[-1]["role"] == role:
            with_failure_event[-1]["content"].extend(blocks)
        elif blocks:
            with_failure_event.append({"role": role, "content": blocks})
    return with_failure_event


def _blocks(part: Part, role: str) -> Iterable[Block]:
    match part:
        case Text(text) if text.strip():
            yield _text(text)
        case Thought(text, bytes(signature)):
            if signature.startswith(REDACTED):
                yield {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED).decode()}
            else:
                yield {"type": "thinking", "thinking": text, "signature": signature.decode()}
        case Media():
            yield _media(part) if role == "user" else _placeholder(part)
        case ToolCall(id_, name, arguments):
            yield {"type": "tool_use", "id": id_, "name": clean_tool_name(name), "input": dict(arguments)}
        case ToolResult(id_, _, result, media):
            content = [_text(json.dumps(dict(result), ensure_ascii=False)), *map(_media, media)]
            failed = {"is_error": True} if "error" in result else {}
            yield {"type": "tool_result", "tool_use_id": id_, "content": content, **failed}


def _media(media: Media) -> Block:
    kind, uri = media.mime_type, media.uri or ""
    if kind.startswith("text/") and media.data is not None:
        text = media.data.decode("utf-8", "replace").replace("\0", "")
        return _text(text) if text.strip() else _placeholder(media)
    shape = "image" if kind in _IMAGES else "document" if kind == "application/pdf" else None
    if shape is None:
        return _placeholder(media)
    if media.data:
        data = base64.b64encode(media.data).decode()
        return {"type": shape, "source": {"type": "base64", "media_type": kind, "data": data}}
    if uri.startswith("https://"):
        return {"type": shape, "source": {"type": "url", "url": uri}}
    return _placeholder(media)


def _placeholder(media: Media) -> Block:
    return _text(f"[attachment: {media.mime_type} {media.uri or ''}".rstrip() + "]")


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
