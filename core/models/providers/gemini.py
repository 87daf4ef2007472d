"""Provider of Google's models, through google-genai and the Gemini API.

Gemini: https://ai.google.dev/api/generate-content
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast

import httpx
from google import genai
from google.adk.utils.content_utils import SKIP_THOUGHT_SIGNATURE_VALIDATOR
from google.genai import errors, types
from pydantic import BaseModel

from core.errors import (
    ContentBlockedError,
    ProviderAuthError,
    ProviderError,
    ProviderRequestError,
    ProviderStreamError,
    ProviderUnavailableError,
)
from core.models.errors import convert_errors, convert_parse_error, status_error
from core.models.media import UNKNOWN_TYPE, add_wav_header
from core.models.messages import clean_tool_name
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
from core.models.providers.json_fields import get_count, get_text
from core.models.providers.server_sent_events import END, ChunkReader
from core.models.tool_calls import part_text
from core.usage.meter import Usage

#: Seconds. `ModelAdapter` limits the time between two events of an answer.
_TIMEOUTS = {"connect": 10.0, "read": None, "write": 60.0, "pool": 10.0}

#: HTTP responses of the current stream. The SDK leaves them to the garbage collector if a stream is closed early.
_open_responses: ContextVar[list[httpx.Response] | None] = ContextVar("_opened", default=None)


#: Token counts that are read.
_COUNTS = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
)

#: Metadata of a candidate that is read.
_METADATA: Mapping[str, type[BaseModel]] = {
    "groundingMetadata": types.GroundingMetadata,
    "urlContextMetadata": types.UrlContextMetadata,
}

#: Gemini: a request with its files in it has at most 20 MB, and base64 makes files a third larger.
_MAX_REQUEST_BYTES = 14 * 2**20

#: Gemini: "Image understanding", "Audio understanding", "Video understanding", "Document processing".
_SUPPORTED_FILES = SupportedFiles(
    dict.fromkeys(
        (
            *IMAGE_TYPES,
            "image/heic",
            "image/heif",
            PDF_TYPE,
            *(f"audio/{name}" for name in ("wav", "mpeg", "aiff", "aac", "ogg", "flac", "mp4")),
            *(f"video/{name}" for name in ("mp4", "mpeg", "quicktime", "webm", "x-msvideo", "3gpp")),
        ),
        _MAX_REQUEST_BYTES,
    ),
    max_total_bytes=_MAX_REQUEST_BYTES,
)


class GeminiProvider:
    """Client of the Gemini API, without retries."""

    name = "gemini"

    def __init__(self, api_key: str, base_url: str | None = None) -> None:
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=1000, max_keepalive_connections=100),
            event_hooks={"request": [_set_timeouts], "response": [_collect_response]},
        )
        self._client = genai.Client(
            vertexai=False,
            api_key=api_key,
            http_options=types.HttpOptions(base_url=base_url or None, httpx_async_client=self._http),
        )

    def supported_files(self, model: str) -> SupportedFiles:
        return _SUPPORTED_FILES

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        responses = list[httpx.Response]()
        finish: types.FinishReason | None = None
        usage = Usage()
        try:
            with convert_errors(lambda error: _to_provider_error(error, request.model)):
                chunks = await self._client.aio.models.generate_content_stream(
                    model=request.model,
                    contents=cast(types.ContentListUnion, _format_contents(request)),
                    config=_build_config(request),
                )
                while True:
                    with (
                        convert_parse_error(self.name, has_response=lambda: bool(responses)),
                        _collect_responses_in(responses),
                    ):
                        chunk = await anext(chunks, None)
                    if chunk is None:
                        break
                    if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason is not None:
                        reason = chunk.prompt_feedback.block_reason.value
                        raise ContentBlockedError(f"gemini withheld the answer: the prompt was blocked ({reason})")
                    if chunk.usage_metadata is not None:
                        usage = _usage(chunk.usage_metadata)
                        request.report_usage(usage)
                    for candidate in (chunk.candidates or ())[:1]:
                        finish = candidate.finish_reason or finish
                        for part in (candidate.content and candidate.content.parts) or ():
                            for event in _parse_part(part):
                                yield event
                        if (grounding := _parse_grounding(candidate)) is not None:
                            yield grounding
                if finish is None:
                    raise ProviderStreamError("gemini ended its stream before the answer was complete")
                yield Done(finish, usage)
        finally:
            for response in responses:
                await response.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()


async def _set_timeouts(request: httpx.Request) -> None:
    request.extensions["timeout"] = _TIMEOUTS


async def _collect_response(response: httpx.Response) -> None:
    if (responses := _open_responses.get()) is not None:
        responses.append(response)
        if response.is_success:
            response.stream = _ReadableBody(response)
            response.headers.pop("content-encoding", None)


class _ReadableBody(httpx.AsyncByteStream):
    """Body of a response whose chunks have only the fields that `stream` reads, in the types that the SDK expects.

    The SDK ends an answer at a field of another type, and at an event without data. An answer that is not streamed
    becomes a stream.
    """

    def __init__(self, response: httpx.Response) -> None:
        self._response = httpx.Response(response.status_code, headers=response.headers, stream=response.stream)
        self._chunks = ChunkReader(self._response, "gemini")

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        data = await self._chunks.read()
        if data is None or data == END:
            raise StopAsyncIteration
        return b"".join(f"data: {chunk}\n\n".encode() for chunk in _clean_chunks(data))

    async def aclose(self) -> None:
        await self._response.aclose()


def _clean_chunks(data: str) -> Iterator[str]:
    """Yield the JSON of each chunk, without the metadata that the SDK would refuse; errors stay as they are."""
    try:
        chunks = json.loads(data)
    except (ValueError, RecursionError):
        yield data
        return
    for chunk in chunks if isinstance(chunks, list) else [chunks]:
        if isinstance(chunk, dict) and "error" not in chunk:
            usage = chunk.get("usageMetadata")
            if isinstance(candidates := chunk.get("candidates"), list):
                chunk["candidates"] = [_clean_candidate(candidate) for candidate in candidates[:1]]
            chunk["usageMetadata"] = {name: get_count(usage, name) for name in _COUNTS} if usage else None
        yield json.dumps(chunk)


def _clean_candidate(candidate: Any) -> Any:
    if not isinstance(candidate, dict):
        return candidate
    metadata = {
        name: value for name, kind in _METADATA.items() if (value := candidate.get(name)) and _is_valid(value, kind)
    }
    finish_reason = get_text(candidate, "finishReason") or None
    return {"content": candidate.get("content"), "finishReason": finish_reason, **metadata}


def _is_valid(value: Any, kind: type[BaseModel]) -> bool:
    try:
        kind.model_validate(value, extra="ignore")
    except ValueError:
        return False
    return True


@contextmanager
def _collect_responses_in(responses: list[httpx.Response]) -> Iterator[None]:
    token = _open_responses.set(responses)
    try:
        yield
    finally:
        _open_responses.reset(token)


def _build_config(request: ModelRequest) -> types.GenerateContentConfig:
    """Return ADK's configuration for Gemini's SDK, without labels, which Gemini refuses."""
    system = "\n".join(message.text for message in request.messages if message.role == "system")
    native = [
        tool
        for declared in request.config.tools or ()
        if isinstance(declared, types.Tool)
        and (tool := declared.model_copy(update={"function_declarations": None})).model_dump(exclude_none=True)
    ]
    functions = [types.Tool(function_declarations=[_format_tool(spec) for spec in request.tools])]
    return request.config.model_copy(
        update={
            "system_instruction": system or None,
            "tools": native + (functions if request.tools else []) or None,
            "labels": None,
            "http_options": None,
            "automatic_function_calling": types.AutomaticFunctionCallingConfig(disable=True),
        }
    )


def _format_tool(spec: ToolSpec) -> types.FunctionDeclaration:
    """Return the declaration of a tool; Gemini expects no schema for a function without parameters."""
    takes_nothing = spec.parameters.get("type") == "object" and not spec.parameters.get("properties")
    return types.FunctionDeclaration(
        name=spec.name,
        description=spec.description,
        parameters_json_schema=None if takes_nothing else dict(spec.parameters),
    )


def _format_contents(request: ModelRequest) -> list[types.Content]:
    return [
        types.Content(
            role="model" if message.role == "assistant" else "user",
            parts=[_format_part(part) for part in _add_signature(message, request.model)],
        )
        for message in request.messages
        if message.role != "system"
    ]


def _add_signature(message: ModelMessage, model: str) -> Iterable[Part]:
    """Return a message's parts, with a placeholder signature for the first call if no call has one.

    Gemini 3 and later refuse the first call of a step without a signature. They accept a placeholder for calls that the
    model did not make.
    """
    calls = message.tool_calls
    is_foreign = bool(calls) and not any(call.signature for call in calls)
    if not is_foreign or model.startswith(("gemini-1", "gemini-2")):
        return message.parts
    signed = replace(calls[0], signature=SKIP_THOUGHT_SIGNATURE_VALIDATOR)
    return [signed if part is calls[0] else part for part in message.parts]


def _format_part(part: Part) -> types.Part:
    match part:
        case Text(text, signature):
            return types.Part(text=text, thought_signature=signature)
        case Thought(text, signature):
            return types.Part(text=text, thought=True, thought_signature=signature)
        case Media(mime_type, bytes(data)):
            blob = types.Blob(mime_type=mime_type, data=data)
            return types.Part(inline_data=blob, thought_signature=part.signature)
        case Media(mime_type, _, uri):
            file = types.FileData(mime_type=mime_type, file_uri=uri)
            return types.Part(file_data=file, thought_signature=part.signature)
        case ToolCall(id_, name, arguments, signature):
            call = types.FunctionCall(id=id_, name=clean_tool_name(name, ".:"), args=dict(arguments))
            return types.Part(function_call=call, thought_signature=signature)
        case ToolResult(id_, name, result, media):
            parts = [_format_result_file(item) for item in media] or None
            response = types.FunctionResponse(
                id=id_, name=clean_tool_name(name, ".:"), response=dict(result), parts=parts
            )
            return types.Part(function_response=response)


def _format_result_file(media: Media) -> types.FunctionResponsePart:
    if media.data is not None:
        blob = types.FunctionResponseBlob(mime_type=media.mime_type, data=media.data)
        return types.FunctionResponsePart(inline_data=blob)
    file = types.FunctionResponseFileData(mime_type=media.mime_type, file_uri=media.uri)
    return types.FunctionResponsePart(file_data=file)


def _parse_part(part: types.Part) -> Iterable[ProviderEvent]:
    signature = part.thought_signature
    if (call := part.function_call) is not None:
        yield ToolCall(call.id or "", call.name or "", call.args or {}, signature)
        return
    if part.thought and (part.inline_data or part.file_data):
        return  # Gemini: a draft of the image that follows
    if (blob := part.inline_data) is not None:
        yield add_wav_header(
            Media(blob.mime_type or UNKNOWN_TYPE, blob.data or b"", None, blob.display_name or "", signature)
        )
        return
    if (file := part.file_data) is not None:
        yield Media(file.mime_type or UNKNOWN_TYPE, None, file.file_uri, file.display_name or "", signature)
        return
    text = part_text(part)
    if text or signature is not None:
        yield Thought(text, signature) if part.thought else Text(text, signature)


def _parse_grounding(candidate: types.Candidate) -> Grounding | None:
    context = candidate.url_context_metadata
    read_urls = tuple(
        page.retrieved_url
        for page in (context and context.url_metadata) or ()
        if page.retrieved_url and page.url_retrieval_status is types.UrlRetrievalStatus.URL_RETRIEVAL_STATUS_SUCCESS
    )
    metadata = candidate.grounding_metadata
    return Grounding(metadata, read_urls) if metadata is not None or read_urls else None


def _usage(usage: types.GenerateContentResponseUsageMetadata) -> Usage:
    return Usage(
        input=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output=usage.candidates_token_count or 0,
        thinking=usage.thoughts_token_count or 0,
        cached=usage.cached_content_token_count or 0,
    )


def _to_provider_error(error: Exception, model: str) -> ProviderError:
    match error:
        case errors.APIError():
            details = list(_list_error_details(error.details))
            if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
                return ProviderAuthError("gemini refused the key: it is not valid")
            # an error within a stream has its HTTP status in the body
            status = error.code if isinstance(error.code, int) else 500
            return status_error("gemini", model, status, retry_after=_retry_after(details))
        case httpx.HTTPError():
            return ProviderUnavailableError(f"gemini cannot be reached ({type(error).__name__})")
        case _:
            return ProviderRequestError(f"gemini: the request cannot be sent ({type(error).__name__})")


def _list_error_details(body: Any) -> Iterable[dict[str, Any]]:
    """Return the items of `details` in the JSON body of an API error, with keys such as `reason` or `retryDelay`."""
    error = body.get("error", body) if isinstance(body, dict) else {}
    details = error.get("details") if isinstance(error, dict) else None
    return (detail for detail in details or () if isinstance(detail, dict))


def _retry_after(details: Iterable[dict[str, Any]]) -> float | None:
    """Return the seconds of a valid `RetryInfo.retryDelay` such as `7s`."""
    for detail in details:
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and delay.removesuffix("s").replace(".", "", 1).isdigit():
            return float(delay.removesuffix("s"))
    return None
