"""Anthropic's models, through its Messages API.

Anthropic: https://platform.claude.com/docs/en/api/messages
"""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anthropic
import httpx2
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
from core.models.errors import reading, retry_after, status_error, told
from core.models.provider import IMAGES, PDF, Done, ProviderEvent, Request, Takes, Text, Thought, ToolCall, Usage
from core.models.providers.anthropic_request import REDACTED, body
from core.models.tool_calls import read_call

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

_TAKES = Takes({**dict.fromkeys((*IMAGES, "image/gif"), _MOST_IMAGE), PDF: _MOST_BYTES}, total=_MOST_BYTES)


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

    def takes(self, model: str) -> Takes:
        del model
        return _TAKES

    def stream(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        return told(self._events(request), lambda error: _named(error, request.model))

    async def aclose(self) -> None:
        await self._client.close()

    async def _events(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        answer = _Answer()
        chunks = await self._client.messages.create(**body(request), stream=True)
        async with reading(self.name), chunks:
            while not answer.is_whole:
                chunk = await anext(chunks, None)
                if chunk is None:
                    raise ProviderStalledError("anthropic ended its stream without saying that it was done")
                if (event := answer.hear(chunk)) is not None:
                    yield event
                else:  # nothing else tells of tokens
                    request.tell(answer.usage)
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
            read_call(block.id, block.name, "".join(pieces) or json.dumps(block.input), cut_short=cut_short)
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
        cached = self._newest("cache_read_input_tokens")
        return Usage(
            input=self._newest("input_tokens") + self._newest("cache_creation_input_tokens") + cached,
            output=max(0, self._newest("output_tokens") - thinking),
            thinking=thinking,
            cached=cached,
        )

    def _newest(self, count: str) -> int:
        told: Sequence[Any] = [getattr(usage, count) for usage in self._usages]
        return next((tokens for tokens in reversed(told) if tokens is not None), 0)


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
