"""Provider of OpenAI's models, and of every server with its chat completions API.

OpenAI: https://platform.openai.com/docs/api-reference/chat
"""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import openai
from google.genai import types

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
from core.models.finish_reasons import Ending, get_ending, to_finish_reason
from core.models.media import move_files_to_user
from core.models.messages import clean_tool_name, find_newest_question, get_response_schema, wants_search
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
    ToolResult,
    ToolSpec,
)
from core.models.providers.completion_chunks import CompletionReader
from core.models.providers.json_fields import get_text
from core.models.providers.server_sent_events import END, ChunkReader
from core.models.providers.tool_call_deltas import SignedFields

#: Maximum time between the chunk with the finish reason and the chunk with the token counts.
_USAGE_WAIT_SECONDS = 5.0

#: Maximum time between the last event of a stream and the end of the response.
_DRAIN_SECONDS = 0.5

#: HTTP status of each code or type of error.
_HTTP_STATUSES = {
    "invalid_request_error": 400,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "requests": 429,
    "tokens": 429,
}


_OPENAI_URL, _OPENAI_HOST = "https://api.openai.com/v1", "api.openai.com"

#: Azure: hosts of OpenAI's models.
_AZURE_HOSTS = ("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com")

#: OpenAI: a request with its files in it has at most 50 MB, in base64.
_MAX_REQUEST_BYTES = 35 * 2**20

_SUPPORTED_FILES = SupportedFiles(
    {**dict.fromkeys((*IMAGE_TYPES, "image/gif"), 15 * 2**20), PDF_TYPE: 24 * 2**20}, max_total_bytes=_MAX_REQUEST_BYTES
)

#: Additional types of files that audio models accept, with their maximum sizes.
_AUDIO_FILES = {"audio/wav": _MAX_REQUEST_BYTES, "audio/mpeg": _MAX_REQUEST_BYTES}

#: OpenAI: an answer with sound needs a voice.
_DEFAULT_VOICE = "alloy"

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
        """Create the client; `base_url` ends in `/v1`, and a server without keys accepts any `api_key`."""
        self.name = name
        self._extra_body = extra_body
        self._host = urlsplit(base_url or _OPENAI_URL).hostname or ""
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

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        reader = CompletionReader()
        with convert_errors(lambda error: self._to_provider_error(error, request.model)):
            await self._connect()
            sending = self._client.chat.completions.with_streaming_response.create(
                **build_body(request, self._host),
                stream=True,
                stream_options={"include_usage": True},
                extra_body=self._extra_body,
            )
            async with sending as response:
                chunks = ChunkReader(response.http_response, self.name)
                while (chunk := await _read_chunk(chunks, reader)) is not None and chunk != END:
                    usage = reader.usage
                    with convert_parse_error(self.name):
                        data = json.loads(chunk)
                        if error := _find_error(data):
                            raise openai.APIError("an error in the stream", response.http_request, body=error)
                        events = list(reader.read(data))  # all of a chunk, or nothing
                    for event in events:
                        yield event
                    if reader.usage is not usage:
                        request.report_usage(reader.usage)
                if chunk == END:
                    with suppress(TimeoutError, ProviderUnavailableError):  # a read body frees the connection for reuse
                        async with asyncio.timeout(_DRAIN_SECONDS):
                            await chunks.read()
                elif not reader.finish:
                    raise ProviderStreamError(f"{self.name} ended its stream before the answer was complete")
            for event in reader.end():
                yield event
            yield Done(to_finish_reason(reader.finish), reader.usage)

    async def aclose(self) -> None:
        await self._client.close()

    async def _connect(self) -> None:
        """Prepare the server for a request: a subclass may start it."""

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
        wait = parse_retry_after(error.response.headers)
        return self._from_error_code(error, model) or status_error(
            self.name, model, error.status_code, retry_after=wait
        )

    def _from_stream_error(self, error: openai.APIError, model: str) -> ProviderError:
        """Return the error within a stream, which has no status; other servers than OpenAI's send it as the code."""
        code = str(error.code)
        status = (
            int(code) if code.isdecimal() else _HTTP_STATUSES.get(code) or _HTTP_STATUSES.get(error.type or "", 500)
        )
        return self._from_error_code(error, model) or status_error(self.name, model, status)

    def _from_error_code(self, error: openai.APIError, model: str) -> ProviderError | None:
        """Return the error for OpenAI's error code; None if the HTTP status determines it."""
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


async def _read_chunk(chunks: ChunkReader, reader: CompletionReader) -> str | None:
    """Return the next chunk; None after the last, and if none comes soon after the finish reason."""
    try:
        async with asyncio.timeout(_USAGE_WAIT_SECONDS if reader.finish else None):
            return await chunks.read()
    except (TimeoutError, ProviderUnavailableError):
        if not reader.finish:
            raise
        return None


def _find_error(chunk: Any) -> Any:
    """Return the error in a chunk, of the stream or of its answer."""
    if not isinstance(chunk, Mapping):
        return None
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    if error := chunk.get("error") or choice.get("error"):
        return error
    if get_ending(get_text(choice, "finish_reason")) is Ending.REPEAT:
        return {"code": "502"}
    return chunk if choices is None and isinstance(chunk.get("message"), str) else None


def build_body(request: ModelRequest, host: str) -> dict[str, Any]:
    """Return the keyword arguments of the SDK's `chat.completions.create`, without those of streams.

    OpenAI: its newer models accept only `max_completion_tokens`, also on Azure, and other servers `max_tokens`.
    """
    config = request.config
    is_openai = _is_at(host, _OPENAI_HOST)
    limit = "max_completion_tokens" if is_openai or _is_at(host, *_AZURE_HOSTS) else "max_tokens"
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
        "messages": _format_messages(request.messages),
        **{name: value for name, value in options.items() if value is not None},
    }


def _is_at(host: str, *domains: str) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _modalities(config: types.GenerateContentConfig) -> dict[str, Any]:
    """Return the options `modalities` and `audio`; empty for answers of text only."""
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
    schema = get_response_schema(request.config)
    if schema is not None:
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    if request.config.response_mime_type == "application/json":
        return {"type": "json_object"}
    return None


def _format_messages(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    newest = find_newest_question(messages)
    return [
        row
        for number, message in enumerate(move_files_to_user(messages))
        for row in _format_message(message, is_signed=number > newest)
    ]


def _format_message(message: ModelMessage, *, is_signed: bool) -> Iterable[dict[str, Any]]:
    """Yield the messages in OpenAI's format for one message; none for thoughts alone.

    If `is_signed`, the server gets the fields of thoughts and signatures back that it sent with calls. DeepSeek
    requires them up to the answer, and refuses those of earlier answers.
    """
    if message.role == "tool":
        yield from _format_results([part for part in message.parts if isinstance(part, ToolResult)])
    elif message.role == "assistant":
        row: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        calls = list[dict[str, Any]]()
        for call in message.tool_calls:
            fields = SignedFields.from_signature(call.signature if is_signed else None)
            row |= fields.message
            function = {"name": clean_tool_name(call.name), "arguments": _to_json(call.arguments)}
            calls.append({"id": call.id, "type": "function", "function": function, **fields.call})
        if message.text or calls:  # OpenAI has no messages of thoughts alone
            yield {**row, "tool_calls": calls} if calls else row
    elif any(isinstance(part, Media) for part in message.parts):
        yield {"role": message.role, "content": list(_format_parts(message.parts))}
    else:
        yield {"role": message.role, "content": message.text}


def _format_results(results: Sequence[ToolResult]) -> Iterable[dict[str, Any]]:
    """Yield one tool message per result, then one user message with all files: tool messages have only text."""
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
    kind = media.mime_type
    uri = media.uri or ""
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
