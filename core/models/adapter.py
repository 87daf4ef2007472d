"""Adapter between ADK and a provider: each model call is a stream of the provider."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any, cast

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmCapabilities, LLMRegistry
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import Field, SkipValidation

from core.errors import (
    ContentBlockedError,
    ContextLengthError,
    ProviderRequestError,
    ProviderStreamError,
    ProviderTimeoutError,
)
from core.models.finish_reasons import Ending, get_ending
from core.models.grounding import READ_URLS_KEY, merge_grounding
from core.models.media import drop_files, drop_unsupported_files, shorten_history
from core.models.messages import clean_json, clean_text, convert_messages, list_tools
from core.models.provider import (
    Done,
    Grounding,
    Media,
    ModelHandle,
    ModelMessage,
    ModelRequest,
    Provider,
    ProviderEvent,
    SupportedFiles,
    Text,
    Thought,
    ToolCall,
    join_text,
)
from core.models.retries_and_fallbacks import Fallbacks, create_retraction
from core.models.thinking import Reclassified, ThinkingReader
from core.models.tokens import estimate_media_tokens, estimate_text_tokens, estimate_tokens
from core.models.tool_calls import keep_own_signatures, mark_signature, unique_id
from core.usage import meter as metering
from core.usage.meter import Usage

log = logging.getLogger(__name__)

#: Error code of an empty answer that ended normally, as ADK calls it.
NO_CONTENT_ERROR_CODE = "MODEL_RETURNED_NO_CONTENT"

#: Default maximum time between two events of a model's stream.
IDLE_SECONDS = 120.0

#: The most requests that continue an answer that the vendor pauses.
MAX_CONTINUATIONS = 5

#: ADK: label of a request with the name of the agent that makes it.
AGENT_LABEL = "adk_agent_name"

#: Full names of models for which `core.models.provider_registry` has a provider.
MODEL_PATTERNS = [r"gemini-.*", r"openai/.*", r"anthropic/.*", r"local/.*"]


class ModelAdapter(BaseLlm):
    """ADK model (`BaseLlm`) that sends each call to a provider.

    One instance serves any number of concurrent calls. Each call ends in exactly one of these:

    - one response with `partial=False` that has the whole text, the thoughts, the files and the tool calls.
      `finish_reason` is the model's; anything but `STOP` beside text means that the text breaks off there.
      `grounding_metadata` has the pages of the answer, and `custom_metadata` those that the model read as a whole.
    - the same with `error_code` if there is neither text nor a file nor a call: `NO_CONTENT_ERROR_CODE`, or else the
      finish reason (`MAX_TOKENS`, `MALFORMED_FUNCTION_CALL`, ...). ADK stores it and ends its run.
    - an error of `core.errors`: the provider's, `ContentBlockedError` if the safety rules left nothing,
      `ProviderTimeoutError` after `idle_seconds` without an event, or `ProviderStreamError` if the stream ends early.
      The time that tools take between two calls does not count. At a spending limit, it is `SpendingLimitError`.

    With `stream=True` a partial response for each delta of text or thought comes before. A retraction among them (see
    `is_retraction`) cancels all earlier ones: the text begins again.

    Attributes:
        provider: provider of the model.
        selectable: models that a request may name instead, by their full names.
        fallbacks: models that replace one that fails.
        is_fixed: whether the agent names its model, and no selection replaces it.
        idle_seconds: the most seconds between two events of a stream.
        retry_delays: seconds before each retry of a call with a `retryable` error; empty for no retry.
        open_thinkers: full names of models whose text begins in thinking that only a closing mark ends. A model whose
            answer shows it is added.
    """

    provider: SkipValidation[Provider] = Field(exclude=True, repr=False)
    selectable: SkipValidation[Mapping[str, ModelHandle]] = Field(default_factory=dict, exclude=True, repr=False)
    fallbacks: SkipValidation[Fallbacks] = Field(default_factory=Fallbacks, exclude=True, repr=False)
    is_fixed: bool = False
    idle_seconds: float = IDLE_SECONDS
    retry_delays: tuple[float, ...] = ()
    open_thinkers: SkipValidation[set[str]] = Field(default_factory=set, exclude=True, repr=False)

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities(output_schema_and_tools=False)

    def resolve_name(self, selected: str | None) -> str:
        """Return the full name of the model to call: the selected one or the adapter's.

        Args:
            selected: the full name of the model that the conversation has selected; None without a selection. It is
                ignored if `is_fixed` is True, or if it is no key of `selectable`.
        """
        return self.model if selected is None or self.is_fixed or selected not in self.selectable else selected

    def supported_files(self, model: str) -> SupportedFiles:
        """Return the types and sizes of files that a model accepts.

        Args:
            model: the full name of the model. A name that is neither `selectable` nor a fallback is given to
                the adapter's own provider.
        """
        handle = self._get_handle(model)
        return handle.provider.supported_files(handle.model)

    def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses of a model call, with retries and fallbacks: see the class.

        Args:
            llm_request: ADK's request; its `model` is the full name of the model to call.
            stream: whether partial responses are wanted.
        """
        attempt, should_repeat = partial(self._attempt, llm_request, stream), partial(_should_repeat, llm_request)
        return self.fallbacks.stream(llm_request.model or self.model, attempt, self.retry_delays, should_repeat)

    def _get_handle(self, name: str | None) -> ModelHandle:
        """Return the provider of a model, and the model's name at that vendor.

        Args:
            name: the full name of the model; None for this adapter's own. For a name that is neither selectable nor a
                fallback, the result is the adapter's own provider and the name unchanged.
        """
        name = name or self.model
        return self.selectable.get(name) or self.fallbacks.models.get(name) or ModelHandle(self.provider, name)

    async def _attempt(
        self, llm_request: LlmRequest, stream: bool, name: str, instead_of: str
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses of one attempt at a model call.

        A request that the model refuses is sent again without its files, since no vendor says which file is at fault.
        If the conversation is too long for a fallback, its newer half is sent.

        Args:
            llm_request: ADK's request.
            stream: whether partial responses are wanted.
            name: the full name of the model to call.
            instead_of: the full name of the model that it replaces as a fallback; empty without one.
        """
        handle, has_output = self._get_handle(name), False
        request: ModelRequest | None = _to_model_request(llm_request, handle)
        while request is not None:
            try:
                async with aclosing(self._stream_metered(request, handle, stream, name, instead_of)) as responses:
                    async for response in responses:
                        has_output = True
                        yield response
                return
            except ProviderRequestError as refusal:
                messages = _shorten(request.messages, refusal, is_fallback=bool(instead_of))
                if has_output or messages is None:
                    raise
                log.warning("%s refused a request; a smaller one is sent: %s", name, refusal)
                request = replace(request, messages=messages)

    async def _stream_metered(
        self, request: ModelRequest, handle: ModelHandle, stream: bool, name: str, instead_of: str
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses to a request, and add the model call to the usage meter.

        The meter is that of the current run, or a new one outside of a run. The complete response gets `name` as its
        `model_version`, and the meter's metadata. An answer that the vendor pauses is continued by further requests;
        each is a model call.

        Args:
            request: the request to the provider.
            handle: the provider, and the model's name at that vendor.
            stream: whether partial responses are wanted.
            name: the full name of the model.
            instead_of: the full name of the model that it replaces as a fallback; empty without one.

        Raises:
            SpendingLimitError: a spending limit is reached; the request is not sent.
        """
        meter, last, usage = metering.get_current_meter(), None, Usage()
        files = await estimate_media_tokens(request.messages)
        answer = _AnswerBuilder(request.messages, handle.provider.name)

        def estimate_input() -> int:
            paused = json.dumps(request.paused_content) if request.paused_content else ""
            return files + estimate_text_tokens(request.messages, request.tools) + estimate_tokens(paused)

        for _ in range(1 + MAX_CONTINUATIONS):
            async with meter.run_call(name, estimate_input, instead_of=instead_of) as call:
                if meter.prompts is not None:
                    agent = (request.config.labels or {}).get(AGENT_LABEL, "")
                    meter.prompts.save(meter.turn, name, agent, request)
                call.estimate = lambda: replace(answer.estimate, input=estimate_input())
                extend = partial(meter.extend_reservation, call)
                responses = self._stream_responses(
                    replace(request, report_usage=call.set_usage), answer, handle, stream, name=name, extend=extend
                )
                async with aclosing(responses):
                    async for response in responses:
                        if response.partial:
                            yield response
                        else:
                            last = response
                call.estimate_unread()
            usage += call.usage
            if not answer.paused_content:
                break
            answer.begin_request()
            request = replace(request, paused_content=request.paused_content + answer.paused_content)
        if last is not None:
            last.model_version = name
            last.usage_metadata = _to_usage_metadata(usage)
            last.custom_metadata = {**(last.custom_metadata or {}), **meter.answer_metadata(usage)}
            yield last

    async def _stream_responses(
        self,
        request: ModelRequest,
        answer: "_AnswerBuilder",
        handle: ModelHandle,
        stream: bool,
        *,
        name: str,
        extend: Callable[[int], Awaitable[None]],
    ) -> AsyncGenerator[LlmResponse, None]:
        """Send a request, and yield partial responses and then the complete response.

        Args:
            answer: builder that gets the pieces of the answer.
            stream: whether partial responses are wanted.
            name: the full name of the model.
            extend: called with the estimated tokens of the answer so far; raises an error if the answer must end.
        """
        thinking = ThinkingReader(starts_open=name in self.open_thinkers)
        # `Provider.stream` is an async generator, and closing it closes the connection
        events = cast(AsyncGenerator[ProviderEvent, None], handle.provider.stream(request))
        async with aclosing(events):
            while True:
                for event in thinking.read(await self._next_event(events, handle.provider.name)):
                    if isinstance(event, Done):
                        request.report_usage(event.usage)
                        answer.paused_content = event.paused_content
                        yield _final_response(answer, event)
                        return
                    if isinstance(event, Reclassified):
                        is_changed = answer.reclassify(event.kind)
                        if event.kind is Thought:
                            self.open_thinkers.add(name)
                            if is_changed and stream:
                                yield create_retraction()
                        continue
                    answer.add(event)
                    if isinstance(event, Media):
                        answer.media_tokens += await estimate_media_tokens([ModelMessage("assistant", (event,))])
                    await extend(answer.tokens)
                    if stream and isinstance(event, Text | Thought) and event.text:
                        yield _response([_text_part(event.text, isinstance(event, Thought))], partial=True)

    async def _next_event(self, events: AsyncGenerator[ProviderEvent, None], provider: str) -> ProviderEvent:
        """Return the next event of a provider's stream.

        Raises:
            ProviderStreamError: the stream has ended.
            ProviderTimeoutError: no event came within `idle_seconds`.
        """
        try:
            async with asyncio.timeout(self.idle_seconds) as idle:
                return await anext(events)
        except StopAsyncIteration:
            message = f"{provider} ended its stream before the answer was complete"
            raise ProviderStreamError(message) from None
        except TimeoutError:
            if not idle.expired():
                raise
            message = f"{provider} sent nothing for {self.idle_seconds:g} seconds"
            raise ProviderTimeoutError(message) from None


def _shorten(
    messages: Sequence[ModelMessage], refusal: ProviderRequestError, *, is_fallback: bool
) -> list[ModelMessage] | None:
    """Return the messages of a refused request with less content, or None.

    For a fallback whose context is too short, the older half of the messages is left out. In all other cases, a
    description replaces each file.

    Args:
        is_fallback: whether the model replaces another one that failed.

    Returns:
        The messages, oldest first; None if there is nothing to leave out.
    """
    if is_fallback and isinstance(refusal, ContextLengthError):
        return shorten_history(messages)
    plain = drop_files(messages)
    return plain if plain != messages else None


def _should_repeat(llm_request: LlmRequest, response: LlmResponse) -> bool:
    """Return whether the same request is likely to get a better response than this one.

    Gemini: an empty answer after a tool result is a known fault, while any other empty answer may be meant.
    """
    if response.partial or response.get_function_calls():
        return False
    match get_ending(response.finish_reason):
        case Ending.REPEAT:
            return True
        case Ending.UNCLEAR:
            return response.error_code is not None
        case Ending.COMPLETE:
            newest = llm_request.contents[-1] if llm_request.contents else types.Content()
            follows_tool = any(part.function_response for part in newest.parts or ())
            return response.error_code is not None and follows_tool
    return False


def _to_model_request(llm_request: LlmRequest, handle: ModelHandle) -> ModelRequest:
    """Return ADK's request as a request to a provider.

    A description replaces each file that the model does not accept. If the last message is neither a user's nor a tool
    result, a user message tells the model to go on.
    """
    config = llm_request.config
    history = convert_messages(llm_request.contents, config.system_instruction)
    messages = drop_unsupported_files(
        keep_own_signatures(history, handle.provider.name), handle.provider.supported_files(handle.model)
    )
    if not messages or messages[-1].role not in ("user", "tool"):
        messages.append(ModelMessage("user", (Text("Go on as instructed."),)))
    return ModelRequest(handle.model, messages, list_tools(config), config)


def _final_response(answer: "_AnswerBuilder", done: Done) -> LlmResponse:
    """Return the complete response of a model call from the pieces of its answer.

    A response without text, file or call has an error code: `NO_CONTENT_ERROR_CODE` after a normal end, otherwise the
    finish reason.

    Raises:
        ContentBlockedError: safety rules left no content.
    """
    response = _response(answer.parts(), partial=False)
    response.turn_complete = True
    response.grounding_metadata = answer.grounding
    response.custom_metadata = {READ_URLS_KEY: answer.read_urls} if answer.read_urls else None
    response.finish_reason = done.finish_reason
    if not answer.has_content:
        if get_ending(done.finish_reason) is Ending.REFUSED:
            reason = done.finish_reason.value
            raise ContentBlockedError(f"{answer.provider} withheld the answer ({reason})")
        ended_well = done.finish_reason is types.FinishReason.STOP
        response.error_code = NO_CONTENT_ERROR_CODE if ended_well else done.finish_reason.value
        response.error_message = "The model ended without an answer."
    return response


def _to_usage_metadata(usage: Usage) -> types.GenerateContentResponseUsageMetadata:
    return types.GenerateContentResponseUsageMetadata(
        prompt_token_count=usage.input,
        candidates_token_count=usage.output,
        thoughts_token_count=usage.thinking,
        cached_content_token_count=usage.cached,
        total_token_count=usage.input + usage.output + usage.thinking,
    )


class _AnswerBuilder:
    """Builder of a model's answer from the events of its streams: one, or several if the vendor pauses it.

    Args:
        messages: the messages of the request; the answer's tool calls get other ids than the calls in them.
        provider: the name of the provider, for the prefix of the answer's thought signatures.

    Attributes:
        grounding: the web pages of the answer so far; None without a page.
        read_urls: addresses of the pages that the model read as a whole.
        media_tokens: estimated tokens of the files in the answer to the newest request so far.
        paused_content: see `Done`, of the newest request.
    """

    def __init__(self, messages: Iterable[ModelMessage], provider: str) -> None:
        self.provider = provider
        self._pieces: list[Text | Thought | Media | ToolCall] = []
        self.grounding: types.GroundingMetadata | None = None
        self.read_urls: list[str] = []
        self.paused_content: tuple[Mapping[str, Any], ...] = ()
        self.begin_request()
        self._ids = {call.id for message in messages for call in message.tool_calls}

    def begin_request(self) -> None:
        """Count the tokens of the next request's answer from 0."""
        self.media_tokens = self._bytes = 0
        self._start = len(self._pieces)

    def add(self, piece: Text | Thought | Media | ToolCall | Grounding) -> None:
        """Add a piece of the answer, joined to the last piece if both are text or thought.

        Pieces with a signature are not joined. A thought without text directly after an unsigned thought sets the
        signature of that thought. A text or thought without characters and signature is ignored. Web pages are added to
        `grounding` and `read_urls`.
        """
        if isinstance(piece, Grounding):
            self.grounding = merge_grounding(self.grounding, piece.metadata)
            self.read_urls += [url for url in piece.read_urls if url not in self.read_urls]
            return
        self._bytes += len(_get_characters(piece).encode("utf-8", "replace"))
        last = self._pieces[-1] if len(self._pieces) > self._start else None
        if (joined := join_text(last, piece)) is not None:
            self._pieces[-1] = joined
        elif isinstance(last, Thought) and last.signature is None and isinstance(piece, Thought) and not piece.text:
            self._pieces[-1] = replace(last, signature=piece.signature)
        elif isinstance(piece, ToolCall | Media) or piece.text or piece.signature is not None:
            self._pieces.append(piece)

    def reclassify(self, kind: type[Text] | type[Thought]) -> bool:
        """Make all text and thoughts of the newest request `Text` or `Thought`; return whether that changed any."""
        pieces = self._pieces[self._start :]
        self._pieces[self._start :] = [
            kind(piece.text, piece.signature) if isinstance(piece, Text | Thought) else piece for piece in pieces
        ]
        return self._pieces[self._start :] != pieces

    @property
    def tokens(self) -> int:
        """Estimated tokens of the answer to the newest request; unlike `estimate`, it takes constant time."""
        return self._bytes // 4 + self.media_tokens

    @property
    def estimate(self) -> Usage:
        """Estimated tokens of the answer to the newest request.

        `output` counts text, tool calls and files, `thinking` counts thoughts. The other counts are 0.
        """
        pieces = self._pieces[self._start :]
        thoughts = "".join(piece.text for piece in pieces if isinstance(piece, Thought))
        text = "".join(piece.text for piece in pieces if isinstance(piece, Text))
        calls = "".join(_get_characters(piece) for piece in pieces if isinstance(piece, ToolCall))
        return Usage(output=estimate_tokens(text + calls) + self.media_tokens, thinking=estimate_tokens(thoughts))

    @property
    def has_content(self) -> bool:
        return any(
            isinstance(piece, ToolCall | Media) or (isinstance(piece, Text) and piece.text.strip())
            for piece in self._pieces
        )

    def parts(self) -> list[types.Part]:
        return [self._part(piece) for piece in self._pieces]

    def _part(self, piece: Text | Thought | Media | ToolCall) -> types.Part:
        signature = mark_signature(piece.signature, self.provider)
        if isinstance(piece, Media):
            return _media_part(piece, signature)
        if isinstance(piece, ToolCall):
            # random, because other branches and the older history may have calls that this request lacks
            call_id = piece.id or f"call_{piece.name}_{token_hex(4)}"
            call = types.FunctionCall(
                id=unique_id(call_id, piece.name, self._ids),
                name=piece.name,
                args=clean_json(piece.arguments),
            )
            return types.Part(function_call=call, thought_signature=signature)
        return _text_part(piece.text, isinstance(piece, Thought), signature)


def _get_characters(piece: Text | Thought | Media | ToolCall) -> str:
    """Return the text of a piece, or the name and arguments of a tool call; empty for a file."""
    match piece:
        case ToolCall():
            return f"{piece.name} {piece.arguments}"
        case Media():
            return ""
    return piece.text


def _text_part(text: str, thought: bool, signature: bytes | None = None) -> types.Part:
    return types.Part(text=clean_text(text), thought=thought or None, thought_signature=signature)


def _media_part(file: Media, signature: bytes | None) -> types.Part:
    name = clean_text(file.name) or None
    if file.data is not None:
        blob = types.Blob(mime_type=file.mime_type, data=file.data, display_name=name)
        return types.Part(inline_data=blob, thought_signature=signature)
    address = types.FileData(mime_type=file.mime_type, file_uri=file.uri, display_name=name)
    return types.Part(file_data=address, thought_signature=signature)


def _response(parts: list[types.Part], *, partial: bool) -> LlmResponse:
    content = types.Content(role="model", parts=parts) if parts else None
    return LlmResponse(content=content, partial=partial)


def register_adapter(make_adapter: Callable[[str], ModelAdapter], *, default: str) -> None:
    """Register the models that agents name by a string, with ADK's registry.

    ADK has one registry per process. A later registration replaces an earlier one.

    Args:
        make_adapter: returns the adapter for the full name of a model.
        default: the full name of the model of agents that name none.
    """

    class RegisteredAdapter(ModelAdapter):
        """Adapter that needs only a model's name, as ADK's registry creates models."""

        def __init__(self, *, model: str) -> None:
            adapter = make_adapter(model)
            super().__init__(**{name: getattr(adapter, name) for name in ModelAdapter.model_fields})

        @classmethod
        def supported_models(cls) -> list[str]:
            return MODEL_PATTERNS

    LLMRegistry.register(RegisteredAdapter)
    LlmAgent.set_default_model(default)
    LlmAgent.set_default_live_model(default)  # ADK resolves it for agents without live sessions too
