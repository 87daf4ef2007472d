"""Provider of Anthropic's models, through its Messages API.

Anthropic: https://platform.claude.com/docs/en/api/messages
"""

import base64
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

import anthropic
from anthropic import transform_schema
from google.genai import types

from core.errors import (
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
    Thought,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from core.models.providers.message_events import REDACTED_PREFIX, UNSIGNED, Block, MessageReader
from core.models.providers.server_sent_events import END, ChunkReader

#: HTTP status of each type of error. An error within a stream has only a type.
_HTTP_STATUSES = {
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
_MAX_IMAGE_BYTES, _MAX_REQUEST_BYTES = 3_900_000, 22 * 2**20

_SUPPORTED_FILES = SupportedFiles(
    {**dict.fromkeys((*IMAGE_TYPES, "image/gif"), _MAX_IMAGE_BYTES), PDF_TYPE: _MAX_REQUEST_BYTES},
    max_total_bytes=_MAX_REQUEST_BYTES,
)

_NO_SIGNATURES = (b"", UNSIGNED)

#: Anthropic requires a limit. Every model since 2025 supports this one.
DEFAULT_MAX_TOKENS = 8192

#: Anthropic: minimum budget for thinking.
_MIN_THINKING_TOKENS = 1024

_THINKING = ("thinking", "redacted_thinking")

_IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}

#: Anthropic's search, which its servers run: https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool
_WEB_SEARCH: Block = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}

#: Mark of the end of a cached part of the prompt. The cache lives for five minutes after its last use.
_CACHE_CONTROL: Block = {"type": "ephemeral"}


class AnthropicProvider:
    """Client of Anthropic's API, without retries."""

    name = "anthropic"

    def __init__(self, api_key: str, base_url: str | None = None) -> None:
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            base_url=base_url or None,
            max_retries=0,
            # `ModelAdapter` limits the time between two events of an answer
            timeout=anthropic.Timeout(None, connect=10.0, pool=10.0),
        )

    def supported_files(self, model: str) -> SupportedFiles:
        return _SUPPORTED_FILES

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        reader = MessageReader()
        with convert_errors(lambda error: _to_provider_error(error, request.model)):
            sending = self._client.messages.with_streaming_response.create(**build_body(request), stream=True)
            async with sending as response:
                chunks = ChunkReader(response.http_response, self.name)
                while not reader.is_complete and (chunk := await chunks.read()) != END:
                    if chunk is None:
                        raise ProviderStreamError("anthropic ended its stream before the answer was complete")
                    usage = reader.usage
                    with convert_parse_error(self.name):
                        data = json.loads(chunk)
                        if error := _find_error(data):
                            message = "an error in the stream"
                            raise anthropic.APIStatusError(message, response=response.http_response, body=error)
                        events = list(reader.read(data))  # all of an event, or nothing
                    for event in events:
                        yield event
                    if reader.usage != usage:
                        request.report_usage(reader.usage)
            with convert_parse_error(self.name):
                calls = reader.build_calls()
                is_paused = get_ending(reader.stop_reason) is Ending.CONTINUE and not calls
                content = reader.build_content() if is_paused else ()
            for call in calls:
                yield call
            yield Done(to_finish_reason(reader.stop_reason), reader.usage, content)

    async def aclose(self) -> None:
        await self._client.close()


def _find_error(event: Any) -> Any:
    is_error = isinstance(event, Mapping) and (event.get("type") == "error" or event.get("error"))
    return event if is_error else None


def _to_provider_error(error: Exception, model: str) -> ProviderError:
    match error:
        case anthropic.APIStatusError():
            return _from_status_error(error, model)
        case anthropic.APIConnectionError():
            return ProviderUnavailableError(f"anthropic cannot be reached ({type(error).__name__})")
        case _:
            return ProviderRequestError(f"anthropic: the request cannot be sent ({type(error).__name__})")


def _from_status_error(error: anthropic.APIStatusError, model: str) -> ProviderError:
    if error.type == "billing_error":
        exhausted = ProviderRateLimitError("anthropic: the credit of this key is used up")
        exhausted.retryable = False
        return exhausted
    if "prompt is too long" in (error.api_message or ""):  # has no error type of its own
        return ContextLengthError(f"the conversation is too long for {model!r}")
    is_in_stream = error.status_code < 400
    status = _HTTP_STATUSES.get(error.type or "", 500) if is_in_stream else error.status_code
    wait = None if is_in_stream else parse_retry_after(error.response.headers)
    return status_error("anthropic", model, status, retry_after=wait)


def build_body(request: ModelRequest) -> dict[str, Any]:
    """Return the keyword arguments of the SDK's `messages.create`, without `stream`."""
    config = request.config
    messages = _format_messages(move_files_to_user(request.messages))
    limit = config.max_output_tokens or DEFAULT_MAX_TOKENS
    thinking = _thinking(config.thinking_config) if _can_think(messages) else None
    if thinking is not None and "budget_tokens" in thinking:
        limit = max(limit, thinking["budget_tokens"] + _MIN_THINKING_TOKENS)
    system = "\n".join(message.text for message in request.messages if message.role == "system")
    schema = get_response_schema(config)
    tools = _format_tools(request)
    options = {
        "system": [_text_block(system)] if system.strip() else None,
        "thinking": thinking,
        "stop_sequences": [stop for stop in config.stop_sequences or () if stop.strip()] or None,
        "output_config": {"format": {"type": "json_schema", "schema": transform_schema(schema)}} if schema else None,
        "extra_body": _sampling(config) if thinking is None or thinking["type"] == "disabled" else None,
        **tools,
    }
    _mark_cached(tools.get("tools", ()), options["system"] or (), messages)
    if request.paused_content:
        messages.append({"role": "assistant", "content": list(request.paused_content)})
    return {
        "model": request.model,
        "max_tokens": limit,
        "messages": messages,
        **{name: value for name, value in options.items() if value},
    }


def _mark_cached(tools: Sequence[Block], system: Sequence[Block], messages: Sequence[Block]) -> None:
    """Set `cache_control`, in place, on the blocks that the next request repeats.

    Anthropic: a write to the cache costs a quarter more than a read without it, a read from it a tenth. The order of
    the prompt is tools, system, messages. A mark finds the cache of an earlier request up to 20 blocks before it, and a
    request has at most four marks. Anthropic ignores the marks of a prompt that is too short for the model's cache.
    https://platform.claude.com/docs/en/build-with-claude/prompt-caching#cache-limitations

    All conversations share the tools and the system instruction. The messages are marked only if another request is
    likely to follow: in a conversation with an answer, or with tools, whose results come next. The user's message
    before the newest one is marked too, because the previous request ended there.
    """
    if prefix := [*tools, *system]:
        prefix[-1]["cache_control"] = _CACHE_CONTROL
    user_contents = [message["content"] for message in messages if message["role"] == "user"]
    if tools or len(user_contents) < len(messages):
        for content in user_contents[-2:]:
            content[-1]["cache_control"] = _CACHE_CONTROL


def _sampling(config: types.GenerateContentConfig) -> dict[str, Any]:
    """Return the temperature or `top_p` of a request, as fields of `extra_body`.

    Anthropic: a temperature of at most 1.0, or `top_p`, not both. Newer models and the SDK have neither.
    """
    if config.temperature is not None:
        return {"temperature": min(config.temperature, 1.0)}
    return {} if config.top_p is None else {"top_p": config.top_p}


def _thinking(config: types.ThinkingConfig | None) -> Block | None:
    """Return the option `thinking` for Gemini's budget: 0 disables it; if it is negative or None, the model decides."""
    if config is None:
        return None
    budget = config.thinking_budget
    if budget is None or budget < 0:
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": max(budget, _MIN_THINKING_TOKENS)} if budget else {"type": "disabled"}


def _can_think(messages: Sequence[Block]) -> bool:
    """Return whether Anthropic allows thinking in the next answer.

    Anthropic: after tool results it is allowed only if the turn's first answer began with thinking.
    """
    first_block = None
    for message in reversed(messages):
        first = message["content"][0]["type"]
        if message["role"] == "assistant":
            first_block = first
        elif first != "tool_result":
            break
    return messages[-1]["content"][0]["type"] != "tool_result" or first_block in _THINKING


def _format_tools(request: ModelRequest) -> dict[str, Any]:
    """Return the options `tools` and `tool_choice` of a request.

    Anthropic: calls in the history require declared tools, even if the tools no longer exist.
    """
    search = [_WEB_SEARCH] if wants_search(request.config) else []
    if request.tools or search:
        return {"tools": [*search, *(_format_tool(spec) for spec in request.tools)]}
    called = sorted({clean_tool_name(call.name) for message in request.messages for call in message.tool_calls})
    if not called:
        return {}
    tools = [_format_tool(ToolSpec(name, "Not there any more.", {})) for name in called]
    return {"tools": tools, "tool_choice": {"type": "none"}}


def _format_tool(spec: ToolSpec) -> Block:
    return {"name": spec.name, "description": spec.description, "input_schema": {"type": "object", **spec.parameters}}


def _format_messages(messages: Sequence[ModelMessage]) -> list[Block]:
    """Return the messages in Anthropic's format, without the system message.

    Anthropic: user and assistant alternate, starting with the user. Tool results are in user messages. No text is
    blank, and no answer ends in thinking. A user's message without content becomes a placeholder.
    """
    formatted: list[Block] = []
    newest = find_newest_question(messages)
    for number, message in enumerate(messages):
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        parts = message.parts if number > newest else filter(_is_signed, message.parts)
        blocks = [block for part in parts for block in _format_part(part, role)]
        while blocks and blocks[-1]["type"] in _THINKING:
            blocks.pop()
        if not blocks and role == "user":
            blocks = [_text_block("(nothing)")]
        if blocks and not formatted and role == "assistant":
            formatted.append({"role": "user", "content": [_text_block("(Earlier messages are omitted.)")]})
        if formatted and formatted[-1]["role"] == role:
            formatted[-1]["content"].extend(blocks)
        elif blocks:
            formatted.append({"role": role, "content": blocks})
    return formatted


def _is_signed(part: Part) -> bool:
    return not isinstance(part, Thought) or part.signature not in _NO_SIGNATURES


def _format_part(part: Part, role: str) -> Iterable[Block]:
    """Yield the content blocks of a part; none for blank text or an unsigned thought."""
    match part:
        case Text(text) if text.strip():
            yield _text_block(text)
        case Thought(text, bytes(signature)) if text or signature not in _NO_SIGNATURES:
            if signature.startswith(REDACTED_PREFIX):
                yield {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED_PREFIX).decode()}
            else:
                signed = {} if signature == UNSIGNED else {"signature": signature.decode()}
                yield {"type": "thinking", "thinking": text, **signed}
        case Media():
            yield _format_file(part) if role == "user" else _placeholder(part)
        case ToolCall(id_, name, arguments):
            yield {"type": "tool_use", "id": id_, "name": clean_tool_name(name), "input": dict(arguments)}
        case ToolResult(id_, _, result, media):
            content = [_text_block(json.dumps(dict(result), ensure_ascii=False)), *map(_format_file, media)]
            failed = {"is_error": True} if "error" in result else {}
            yield {"type": "tool_result", "tool_use_id": id_, "content": content, **failed}


def _format_file(media: Media) -> Block:
    """Return the content block of a text, image or PDF; a placeholder for other files, and without data or URL."""
    kind = media.mime_type
    uri = media.uri or ""
    if kind.startswith("text/") and media.data is not None:
        text = media.data.decode("utf-8", "replace").replace("\0", "")
        return _text_block(text) if text.strip() else _placeholder(media)
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
    return _text_block(f"[attachment: {media.mime_type} {media.uri or ''}".rstrip() + "]")


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}
