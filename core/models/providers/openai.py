"""Provider of OpenAI's models, and of every server with its chat completions API.

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
    ContextLengthError,
    ProviderError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderStreamError,
    ProviderUnavailableError,
)
from core.models.errors import convert_errors, convert_parse_error, parse_retry_after, status_error
from core.models.grounding import Source, make_grounding
from core.models.media import UNKNOWN_TYPE, add_wav_header, move_files_to_user
from core.models.messages import clean_tool_name, get_response_schema, wants_search
from core.models.provider import (
    IMAGE_TYPES,
    PDF_TYPE,
    Done,
    Grounding,
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
from core.models.tool_calls import parse_call
from core.usage.meter import Usage

#: Maximum time between the chunk with the finish reason and the chunk with the token counts.
_USAGE_WAIT_SECONDS = 5.0

_FINISH_REASONS = {
    "stop": types.FinishReason.STOP,
    "tool_calls": types.FinishReason.STOP,
    "function_call": types.FinishReason.STOP,
    "length": types.FinishReason.MAX_TOKENS,
    "content_filter": types.FinishReason.SAFETY,
}

#: HTTP status of each code or type of error.
_HTTP_STATUSES = {
    "invalid_request_error": 400,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "requests": 429,
    "tokens": 429,
}


#: OpenAI: a request with its files in it has at most 50 MB, in base64.
_MAX_REQUEST_BYTES = 35 * 2**20

_SUPPORTED_FILES = SupportedFiles(
    {**dict.fromkeys((*IMAGE_TYPES, "image/gif"), 15 * 2**20), PDF_TYPE: 24 * 2**20}, max_total_bytes=_MAX_REQUEST_BYTES
)

#: Additional types of files that audio models accept, with their maximum sizes.
_AUDIO_FILES = {"audio/wav": _MAX_REQUEST_BYTES, "audio/mpeg": _MAX_REQUEST_BYTES}

#: OpenAI: a stream has sound as 16-bit samples, 24,000 a second. It needs a voice.
_SOUND_TYPE, _DEFAULT_VOICE = "audio/L16;rate=24000", "alloy"

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class OpenAIProvider:
    """Client of an OpenAI-compatible server, without retries."""

    def __init__(
        self,
        api_key: str,
        base_url: str | None = None,
        *,
        name: str = "openai",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the client; nothing is sent yet.

        Args:
            api_key: the API key; servers without keys accept any text.
            base_url: address of the server up to `/v1`; OpenAI's by default.
            name: name of the vendor in errors.
            extra_body: additional fields of each request, for servers with their own options.
        """
        self.name = name
        self._extra_body = extra_body
        self._is_openai = not base_url
        self._client = openai.AsyncOpenAI(
            api_key=api_key,
            base_url=base_url or None,
            max_retries=0,
            # `ModelAdapter` limits the time between two events of an answer
            timeout=openai.Timeout(None, connect=10.0, pool=10.0),
        )

    def supported_files(self, model: str) -> SupportedFiles:
        return (
            replace(_SUPPORTED_FILES, max_bytes={**_SUPPORTED_FILES.max_bytes, **_AUDIO_FILES})
            if "audio" in model
            else _SUPPORTED_FILES
        )

    def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        return convert_errors(self._events(request), lambda error: self._to_provider_error(error, request.model))

    async def aclose(self) -> None:
        await self._client.close()

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        """Send a request, and yield the events of the answer; raise the SDK's errors."""
        chunks = await self._client.chat.completions.create(
            **build_body(request, is_openai=self._is_openai),
            stream=True,
            stream_options={"include_usage": True},
            extra_body=self._extra_body,
        )
        calls, sound = _CallBuilder(), bytearray()
        finish: str | None = None
        usage = Usage()
        async with convert_parse_error(self.name), chunks:
            while True:
                try:
                    async with asyncio.timeout(None if finish is None else _USAGE_WAIT_SECONDS):
                        chunk = await anext(chunks, None)
                except (TimeoutError, openai.APIConnectionError):
                    if finish is None:
                        raise
                    break  # the answer is complete
                if chunk is None:
                    break
                if chunk.usage is not None:
                    usage = _usage(chunk.usage)
                    request.report_usage(usage)
                for choice in (chunk.choices or ())[:1]:
                    finish = choice.finish_reason or finish
                    for event in _parse_delta(choice.delta, calls, sound):
                        yield event
        if finish is None:
            raise ProviderStreamError(f"{self.name} ended its stream before the answer was complete")
        if sound:
            yield add_wav_header(Media(_SOUND_TYPE, bytes(sound)))
        for call in calls.build(is_truncated=finish == "length"):
            yield call
        yield Done(_FINISH_REASONS.get(finish, types.FinishReason.OTHER), usage)

    def _to_provider_error(self, error: Exception, model: str) -> ProviderError:
        match error:
            case openai.APIStatusError():
                return self._from_status_error(error, model)
            case openai.APIConnectionError():
                return ProviderUnavailableError(f"{self.name} cannot be reached ({type(error).__name__})")
            case openai.APIError():
                return self._from_stream_error(error, model)
            case _:
                return ProviderRequestError(f"{self.name}: the request cannot be sent ({type(error).__name__})")

    def _from_status_error(self, error: openai.APIStatusError, model: str) -> ProviderError:
        """Return the error for an HTTP error response of the API.

        It is the error of `_from_error_code`, or without one that of `status_error`.
        """
        wait = parse_retry_after(error.response.headers)
        return self._from_error_code(error, model) or status_error(
            self.name, model, error.status_code, retry_after=wait
        )

    def _from_stream_error(self, error: openai.APIError, model: str) -> ProviderError:
        """Return the error for an API error within a stream, which has no HTTP status.

        The error's code or type determines it. Other servers than OpenAI's send the HTTP status as the code.
        """
        code = str(error.code)
        status = (
            int(code) if code.isdecimal() else _HTTP_STATUSES.get(code) or _HTTP_STATUSES.get(error.type or "", 500)
        )
        return self._from_error_code(error, model) or status_error(self.name, model, status)

    def _from_error_code(self, error: openai.APIError, model: str) -> ProviderError | None:
        """Return the error for OpenAI's error code; None if the HTTP status determines it.

        There is one for an unknown model, blocked content, a conversation that is too long, and a used-up quota.
        """
        match error.code:
            case "model_not_found":
                return status_error(self.name, model, 404)
            case "content_filter" | "content_policy_violation":
                return ContentBlockedError(f"{self.name} withheld the answer: the prompt was blocked")
            case "context_length_exceeded":
                return ContextLengthError(f"the conversation is too long for {model!r}")
            case "insufficient_quota":
                exhausted = ProviderRateLimitError(f"{self.name}: the quota of this key is used up")
                exhausted.retryable = False
                return exhausted
        if isinstance(error.body, dict) and error.body.get("type") == "exceed_context_size_error":
            return ContextLengthError(f"the conversation is too long for {model!r}")  # llama.cpp
        return None


class _CallBuilder:
    """Builder of an answer's tool calls from their deltas.

    OpenAI numbers the calls by `index`. Some compatible servers send no index, the same index for all calls, or no id.
    So a new id, or a new name without an index, starts a call as well.
    """

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []

    def add_delta(self, piece: Any) -> None:
        """Add a delta to the tool call that it continues, or start a new call."""
        function = piece.function
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        index, call_id = getattr(piece, "index", None), getattr(piece, "id", None)
        call = self._find_open_call(index, call_id, name)
        if call is None:
            call = {"index": index, "id": call_id or "", "name": name or "", "arguments": []}
            self._calls.append(call)
        call["id"] = call["id"] or call_id or ""
        call["name"] = call["name"] or name or ""
        call["arguments"].append(json.dumps(arguments) if isinstance(arguments, dict) else arguments or "")

    def build(self, *, is_truncated: bool) -> list[ToolCall]:
        """Return the complete tool calls of the answer.

        Args:
            is_truncated: whether a token limit ended the answer; calls with incomplete arguments are then left out.
                Otherwise they become malformed calls: see `parse_call`.
        """
        read = (
            parse_call(call["id"], call["name"], "".join(call["arguments"]), is_truncated=is_truncated)
            for call in self._calls
        )
        return [call for call in read if call is not None]

    def _find_open_call(self, index: int | None, call_id: str | None, name: str | None) -> dict[str, Any] | None:
        """Return the call that a delta continues; None if the delta starts a new call.

        The call is a dict with `index`, `id`, `name`, and the pieces of the text of `arguments` so far.
        """
        if index is None:
            last = self._calls[-1] if self._calls else None
            begins = (call_id and last and last["id"] != call_id) or (name and not call_id)
            return None if begins else last
        for call in reversed(self._calls):
            if call["index"] == index:
                begins = call_id and call["id"] and call["id"] != call_id
                return None if begins else call
        return None


def _parse_delta(delta: Any, calls: _CallBuilder, sound: bytearray) -> list[ProviderEvent]:
    """Return the provider events of a delta: thoughts, texts, images and sources.

    Args:
        calls: builder to which the deltas of tool calls are added.
        sound: buffer to which the samples of sound are appended.
    """
    if delta is None:
        return []
    events: list[ProviderEvent] = []
    # Extensions: `reasoning_content` of DeepSeek, vLLM and llama.cpp, `reasoning` of OpenRouter.
    reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
    if isinstance(reasoning, str) and reasoning:
        events.append(Thought(reasoning))
    if text := delta.content or delta.refusal:
        events.append(Text(text))
    for piece in delta.tool_calls or ():
        calls.add_delta(piece)
    if (audio := delta.audio) is not None:
        sound += base64.b64decode(audio.data or "")
        if audio.transcript:
            events.append(Text(audio.transcript))
    # Extension of OpenRouter and LiteLLM.
    events += [_parse_image(image["image_url"]["url"]) for image in getattr(delta, "images", None) or ()]
    cited = [note["url_citation"] for note in getattr(delta, "annotations", None) or () if "url_citation" in note]
    if cited:
        sources = [Source(page.get("url") or "", page.get("title") or "") for page in cited]
        events.append(Grounding(make_grounding(sources)))
    return events


def _parse_image(url: str) -> Media:
    """Return an image of an answer as a file, from a data URL or a web address.

    The web address is not fetched, and its type counts as PNG.
    """
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:")):
        return Media("image/png", uri=url)
    return Media(head.removeprefix("data:").partition(";")[0] or UNKNOWN_TYPE, base64.b64decode(data))


def _usage(usage: CompletionUsage) -> Usage:
    """Return the token counts of an answer.

    OpenAI: the completion tokens include the reasoning tokens.
    """
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    thinking = (completion and completion.reasoning_tokens) or 0
    return Usage(
        input=usage.prompt_tokens or 0,
        output=max(0, (usage.completion_tokens or 0) - thinking),
        thinking=thinking,
        cached=(prompt and prompt.cached_tokens) or 0,
        cache_write=(prompt and prompt.cache_write_tokens) or 0,
    )


def build_body(request: ModelRequest, *, is_openai: bool) -> dict[str, Any]:
    """Return the keyword arguments of the SDK's `chat.completions.create`.

    `stream` and `stream_options` are not among them.

    Args:
        is_openai: whether the server is OpenAI's. Its newer models accept only `max_completion_tokens`, other servers
            `max_tokens`.

    Returns:
        A dict with `model`, `messages`, and the options that the request has, such as `temperature` and `tools`.
    """
    config = request.config
    limit = "max_completion_tokens" if is_openai else "max_tokens"
    options = {
        limit: config.max_output_tokens,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "stop": config.stop_sequences or None,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "tools": [_format_tool(spec) for spec in request.tools] or None,
        "response_format": _response_format(request),
        "web_search_options": {} if is_openai and wants_search(config) else None,
        **_modalities(config),
    }
    return {
        "model": request.model,
        "messages": [row for message in move_files_to_user(request.messages) for row in _format_message(message)],
        **{name: value for name, value in options.items() if value is not None},
    }


def _modalities(config: types.GenerateContentConfig) -> dict[str, Any]:
    """Return the options `modalities` and `audio`; empty for answers of text only.

    Returns:
        A dict with `modalities`, a list of `text` and the other kinds. If `audio` is one of them, it has `audio` too,
        with the voice and the format.
    """
    modalities = {str(kind).rpartition(".")[2].lower() for kind in config.response_modalities or ()} - {"text"}
    if not modalities:
        return {}
    options: dict[str, Any] = {"modalities": ["text", *sorted(modalities)]}
    if "audio" in modalities:
        speech = config.speech_config if isinstance(config.speech_config, types.SpeechConfig) else None
        prebuilt = speech and speech.voice_config and speech.voice_config.prebuilt_voice_config
        options["audio"] = {"voice": (prebuilt and prebuilt.voice_name) or _DEFAULT_VOICE, "format": "pcm16"}
    return options


def _format_tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}


def _response_format(request: ModelRequest) -> dict[str, Any] | None:
    """Return the option `response_format` for a JSON answer; None for a text answer.

    It has the type `json_schema` if the request has a schema, and `json_object` if it only requires JSON.
    """
    schema = get_response_schema(request.config)
    if schema is not None:
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    if request.config.response_mime_type == "application/json":
        return {"type": "json_object"}
    return None


def _format_message(message: ModelMessage) -> Iterable[dict[str, Any]]:
    """Yield the messages in OpenAI's format for one message; none for thoughts alone.

    Each is a dict with `role` and `content`. A model's calls are in `tool_calls`, and the id of a result's call in
    `tool_call_id`.
    """
    if message.role == "tool":
        yield from _format_results([part for part in message.parts if isinstance(part, ToolResult)])
    elif message.role == "assistant":
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": clean_tool_name(call.name), "arguments": _to_json(call.arguments)},
            }
            for call in message.tool_calls
        ]
        if message.text or calls:  # OpenAI has no messages of thoughts alone
            row: dict[str, Any] = {"role": "assistant", "content": message.text or None}
            yield {**row, "tool_calls": calls} if calls else row
    elif any(isinstance(part, Media) for part in message.parts):
        yield {"role": message.role, "content": list(_format_parts(message.parts))}
    else:
        yield {"role": message.role, "content": message.text}


def _format_results(results: Sequence[ToolResult]) -> Iterable[dict[str, Any]]:
    """Yield one tool message per result, and one user message with the results' files.

    OpenAI's tool messages contain only text. Without files, there is no user message.
    """
    for result in results:
        yield {"role": "tool", "tool_call_id": result.id, "content": _to_json(result.result)}
    if media := [item for result in results for item in result.media]:
        yield {"role": "user", "content": list(_format_parts(media))}


def _format_parts(parts: Iterable[Part]) -> Iterable[dict[str, Any]]:
    for part in parts:
        if isinstance(part, Text):
            yield _text_block(part.text)
        elif isinstance(part, Media):
            yield _format_file(part)


def _format_file(media: Media) -> dict[str, Any]:
    kind, uri = media.mime_type, media.uri or ""
    if media.data is None:
        if kind.startswith("image/") and uri.startswith("http"):
            return {"type": "image_url", "image_url": {"url": uri}}
        return _text_block(f"[attachment: {kind} {uri}]")
    if kind.startswith("text/"):
        return _text_block(media.data.decode("utf-8", "replace").replace("\0", ""))
    encoded = base64.b64encode(media.data).decode()
    if kind in _AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO_FORMATS[kind]}}
    url = f"data:{kind};base64,{encoded}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": "attachment", "file_data": url}}


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)
