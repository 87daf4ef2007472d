"""OpenAI's models, and those of every server that speaks its chat completions.

OpenAI: https://platform.openai.com/docs/api-reference/chat
"""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import openai
from google.genai import types
from openai.types.completion_usage import CompletionUsage

from core.errors import (
    ContentBlockedError,
    ProviderError,
    ProviderLimitError,
    ProviderRequestError,
    ProviderStalledError,
    ProviderUnavailableError,
    TooLongError,
)
from core.models.errors import parse_errors, retry_after, status_error, unknown_model, with_failure_event
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

#: Seconds that the usage may come after the model has finished.
_USAGE_SECONDS = 5.0

_FINISHES = {
    "stop": types.FinishReason.STOP,
    "tool_calls": types.FinishReason.STOP,
    "function_call": types.FinishReason.STOP,
    "length": types.FinishReason.MAX_TOKENS,
    "content_filter": types.FinishReason.SAFETY,
}

#: By the code or the type of an error.
_STATUSES = {
    "invalid_request_error": 400,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "requests": 429,
    "tokens": 429,
}


#: OpenAI: a request with its files in it has at most 50 MB, in base64.
_MOST_BYTES = 35 * 2**20

_TAKES = SupportedFiles(
    {**dict.fromkeys((*IMAGE_TYPES, "image/gif"), 15 * 2**20), PDF_TYPE: 24 * 2**20}, max_total_bytes=_MOST_BYTES
)

#: What models take besides that hear.
_HEARD = {"audio/wav": _MOST_BYTES, "audio/mpeg": _MOST_BYTES}

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class OpenAIProvider:
    """The models of an OpenAI-compatible server. It tries each request once."""

    def __init__(
        self,
        api_key: str,
        base_url: str | None = None,
        *,
        name: str = "openai",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a provider.

        Args:
            api_key: the key; a server that wants none takes any.
            base_url: where the server is, up to and with `/v1`; by default OpenAI's own.
            name: the vendor, for errors.
            extra_body: what goes into each request besides, for servers that understand more.
        """
        self.name = name
        self._extra_body = extra_body
        self._is_openai = not base_url
        self._client = openai.AsyncOpenAI(
            api_key=api_key,
            base_url=base_url or None,
            max_retries=0,
            # How long an answer may take is up to who reads it.
            timeout=openai.Timeout(None, connect=10.0, pool=10.0),
        )

    def supported_files(self, model: str) -> SupportedFiles:
        return replace(_TAKES, max_bytes={**_TAKES.max_bytes, **_HEARD}) if "audio" in model else _TAKES

    def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        return with_failure_event(self._events(request), lambda error: self._named(error, request.model))

    async def aclose(self) -> None:
        await self._client.close()

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        chunks = await self._client.chat.completions.create(
            **body(request, own_server=self._is_openai),
            stream=True,
            stream_options={"include_usage": True},
            extra_body=self._extra_body,
        )
        calls = _Calls()
        finish: str | None = None
        usage = Usage()
        async with parse_errors(self.name), chunks:
            while True:
                try:
                    async with asyncio.timeout(None if finish is None else _USAGE_SECONDS):
                        chunk = await anext(chunks, None)
                except (TimeoutError, openai.APIConnectionError):
                    if finish is None:
                        raise
                    break  # the model had said all
                if chunk is None:
                    break
                if chunk.usage is not None:
                    usage = _usage(chunk.usage)
                    request.report_usage(usage)
                for choice in (chunk.choices or ())[:1]:
                    finish = choice.finish_reason or finish
                    for event in _heard(choice.delta, calls):
                        yield event
        if finish is None:
            raise ProviderStalledError(f"{self.name} ended its stream without saying that it was done")
        for call in calls.whole(cut_short=finish == "length"):
            yield call
        yield Done(_FINISHES.get(finish, types.FinishReason.OTHER), usage)

    def _named(self, error: Exception, model: str) -> ProviderError:
        match error:
            case ProviderError():
                return error
            case openai.APIStatusError():
                return self._status_named(error, model)
            case openai.APIConnectionError():
                return ProviderUnavailableError(f"{self.name} cannot be reached ({type(error).__name__})")
            case openai.APIError():
                return self._stream_named(error, model)
            case _:
                return ProviderRequestError(f"{self.name} cannot be asked this ({type(error).__name__})")

    def _status_named(self, error: openai.APIStatusError, model: str) -> ProviderError:
        wait = retry_after(error.response.headers)
        return self._coded(error, model) or status_error(self.name, model, error.status_code, retry_after=wait)

    def _stream_named(self, error: openai.APIError, model: str) -> ProviderError:
        """An error that came within a stream has no HTTP status; not OpenAI's own: servers say one as the code."""
        code = str(error.code)
        status = int(code) if code.isdecimal() else _STATUSES.get(code) or _STATUSES.get(error.type or "", 500)
        return self._coded(error, model) or status_error(self.name, model, status)

    def _coded(self, error: openai.APIError, model: str) -> ProviderError | None:
        """What OpenAI has a word of its own for."""
        match error.code:
            case "model_not_found":
                return unknown_model(self.name, model)
            case "content_filter" | "content_policy_violation":
                return ContentBlockedError(f"{self.name} withheld the answer: the prompt was blocked")
            case "context_length_exceeded":
                return TooLongError(f"the conversation is too long for {model!r}")
            case "insufficient_quota":
                exhausted = ProviderLimitError(f"{self.name}: the quota of this key is used up")
                exhausted.retryable = False
                return exhausted
        if isinstance(error.body, dict) and error.body.get("type") == "exceed_context_size_error":
            return TooLongError(f"the conversation is too long for {model!r}")  # llama.cpp's words
        return None


class _Calls:
    """The tool calls of an answer, out of their pieces.

    OpenAI tells the pieces of several calls apart by `index`. Of the servers that speak its language some send
    no index, some the same one for all, some no id: so a new id or, without any index, a new name begins a
    call as well.
    """

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []

    def add(self, piece: Any) -> None:
        function = piece.function
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        index, call_id = getattr(piece, "index", None), getattr(piece, "id", None)
        call = self._begun(index, call_id, name)
        if call is None:
            call = {"index": index, "id": call_id or "", "name": name or "", "arguments": ""}
            self._calls.append(call)
        call["id"] = call["id"] or call_id or ""
        call["name"] = call["name"] or name or ""
        call["arguments"] += json.dumps(arguments) if isinstance(arguments, dict) else arguments or ""

    def whole(self, *, cut_short: bool) -> list[ToolCall]:
        """The calls; with `cut_short`, without those whose arguments ended in the middle."""
        read = (parse_call(call["id"], call["name"], call["arguments"], is_truncated=cut_short) for call in self._calls)
        return [call for call in read if call is not None]

    def _begun(self, index: int | None, call_id: str | None, name: str | None) -> dict[str, Any] | None:
        if index is None:
            last = self._calls[-1] if self._calls else None
            begins = (call_id and last and last["id"] != call_id) or (name and not call_id)
            return None if begins else last
        for call in reversed(self._calls):
            if call["index"] == index:
                begins = call_id and call["id"] and call["id"] != call_id
                return None if begins else call
        return None


def _heard(delta: Any, calls: _Calls) -> list[ProviderEvent]:
    """What a delta says; the pieces of calls go to `calls`."""
    if delta is None:
        return []
    events: list[ProviderEvent] = []
    # Not OpenAI's own: DeepSeek, vLLM and llama.cpp say `reasoning_content`, OpenRouter `reasoning`.
    reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
    if isinstance(reasoning, str) and reasoning:
        events.append(Thought(reasoning))
    if text := delta.content or delta.refusal:
        events.append(Text(text))
    for piece in delta.tool_calls or ():
        calls.add(piece)
    return events


def _usage(usage: CompletionUsage) -> Usage:
    """OpenAI: the tokens of the reasoning are counted among those of the completion."""
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    thinking = (completion and completion.reasoning_tokens) or 0
    return Usage(
        input=usage.prompt_tokens or 0,
        output=max(0, (usage.completion_tokens or 0) - thinking),
        thinking=thinking,
        cached=(prompt and prompt.cached_tokens) or 0,
        cache_write=(prompt and prompt.cache_write_tokens) or 0,
    )


def body(request: ModelRequest, *, own_server: bool) -> dict[str, Any]:
    """The body of a chat completion.

    OpenAI's own models take `max_completion_tokens`, some of them nothing else; other servers know
    `max_tokens`. `own_server` says which it is.
    """
    config = request.config
    limit = "max_completion_tokens" if own_server else "max_tokens"
    given = {
        limit: config.max_output_tokens,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "stop": config.stop_sequences or None,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "tools": [_function(spec) for spec in request.tools] or None,
        "response_format": _answer_format(request),
    }
    return {
        "model": request.model,
        "messages": [said for message in request.messages for said in _message(message)],
        **{name: value for name, value in given.items() if value is not None},
    }


def _function(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}


def _answer_format(request: ModelRequest) -> dict[str, Any] | None:
    schema = answer_schema(request.config)
    if schema is not None:
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    if request.config.response_mime_type == "application/json":
        return {"type": "json_object"}
    return None


def _message(message: ModelMessage) -> Iterable[dict[str, Any]]:
    if message.role == "tool":
        yield from _results([part for part in message.parts if isinstance(part, ToolResult)])
    elif message.role == "assistant":
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": clean_tool_name(call.name), "arguments": _json(call.arguments)},
            }
            for call in message.tool_calls
        ]
        if message.text or calls:  # an answer of thoughts alone cannot be given back
            said: dict[str, Any] = {"role": "assistant", "content": message.text or None}
            yield {**said, "tool_calls": calls} if calls else said
    elif any(isinstance(part, Media) for part in message.parts):
        yield {"role": message.role, "content": list(_content(message.parts))}
    else:
        yield {"role": message.role, "content": message.text}


def _results(results: Sequence[ToolResult]) -> Iterable[dict[str, Any]]:
    """OpenAI: a tool message is text; what a tool shows comes behind, as if the user had shown it."""
    for result in results:
        yield {"role": "tool", "tool_call_id": result.id, "content": _json(result.result)}
    if media := [item for result in results for item in result.media]:
        yield {"role": "user", "content": list(_content(media))}


def _content(parts: Iterable[Part]) -> Iterable[dict[str, Any]]:
    for part in parts:
        if isinstance(part, Text):
            yield _text(part.text)
        elif isinstance(part, Media):
            yield _media(part)


def _media(media: Media) -> dict[str, Any]:
    kind, uri = media.mime_type, media.uri or ""
    if media.data is None:
        if kind.startswith("image/") and uri.startswith("http"):
            return {"type": "image_url", "image_url": {"url": uri}}
        return _text(f"[attachment: {kind} {uri}]")
    if kind.startswith("text/"):
        return _text(media.data.decode("utf-8", "replace").replace("\0", ""))
    encoded = base64.b64encode(media.data).decode()
    if kind in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO[kind]}}
    url = f"data:{kind};base64,{encoded}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": "attachment", "file_data": url}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)
