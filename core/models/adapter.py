"""Adapter between ADK and providers: one function, `generate_content_async`, has all phases of a model call."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from secrets import token_hex

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmCapabilities, LLMRegistry
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import Field, SkipValidation

from core.errors import (
    ContentBlockedError,
    ContextLengthError,
    ProviderError,
    ProviderRequestError,
    ProviderStreamError,
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
from core.models.providers.coalescing import DeltaSchedule, ProviderStream
from core.models.retries_and_fallbacks import Attempts, Fallbacks, create_retraction
from core.models.thinking import Reclassified, ThinkingReader
from core.models.tokens import estimate_media_tokens, estimate_text_tokens, estimate_tokens
from core.models.tool_calls import keep_own_signatures, mark_signature, unique_id
from core.usage.meter import RunningCall, Usage, UsageMeter, get_current_meter

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
        schedule: times at which text deltas are passed on, joined; None to pass on each at once.
        open_thinkers: full names of models whose text begins in thinking that only a closing mark ends. A model whose
            answer shows it is added.
    """

    provider: SkipValidation[Provider] = Field(exclude=True, repr=False)
    selectable: SkipValidation[Mapping[str, ModelHandle]] = Field(default_factory=dict, exclude=True, repr=False)
    fallbacks: SkipValidation[Fallbacks] = Field(default_factory=Fallbacks, exclude=True, repr=False)
    is_fixed: bool = False
    idle_seconds: float = IDLE_SECONDS
    retry_delays: tuple[float, ...] = ()
    schedule: SkipValidation[DeltaSchedule | None] = Field(default=None, exclude=True, repr=False)
    open_thinkers: SkipValidation[set[str]] = Field(default_factory=set, exclude=True, repr=False)

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities(output_schema_and_tools=False)

    def resolve_name(self, selected: str | None) -> str:
        """Return the full name of the model to call: the selected one if it is `selectable`, and not `is_fixed`."""
        return self.model if selected is None or self.is_fixed or selected not in self.selectable else selected

    def supported_files(self, model: str) -> SupportedFiles:
        """Return the types and sizes of files that the model with this full name accepts."""
        handle = self._get_handle(model)
        return handle.provider.supported_files(handle.model)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses of a model call: see the class.

        Each pass of the loop sends one request to a vendor. Another one follows an error, or a pause of the answer.
        """
        meter = get_current_meter()
        is_stale = False  # whether a failed attempt has yielded partial responses

        # Select: the model, and a request that it accepts
        attempts = Attempts(self.fallbacks, llm_request.model or self.model, self.retry_delays)
        answer = self._begin_answer(llm_request, attempts.model)
        while True:
            try:
                answer.input_file_tokens = await estimate_media_tokens(answer.request.messages)
                async with (
                    # Spend: at a spending limit, an error is raised here, or while a long answer grows
                    meter.run_call(attempts.model, answer.estimate_input, instead_of=attempts.instead_of) as call,
                    # Call
                    ProviderStream(answer.provider, answer.bind(call), self.idle_seconds, self.schedule) as events,
                ):
                    _save_prompt(meter, attempts.model, answer.request)
                    while not answer.is_complete:
                        # Merge deltas: `read` joins those that come in quick succession
                        event = await events.read()
                        partials = list(answer.add(event))
                        if isinstance(event, Media):
                            answer.file_tokens += await estimate_media_tokens([ModelMessage("assistant", (event,))])
                        await meter.extend_reservation(call, answer.tokens)
                        for partial in partials if stream else ():
                            if is_stale:
                                yield create_retraction()
                            is_stale = False
                            answer.is_shown = True
                            yield partial
                    # Meter: the call is added at the end of the block, also after an error
                    response = answer.create_response()
                    call.estimate_unread()
                answer.usage += call.usage
                if answer.is_paused:
                    answer.continue_request()
                    continue
                if attempts.has_retry and _should_repeat(llm_request, response):
                    raise ProviderStreamError(f"{attempts.model} broke off its answer ({response.finish_reason})")
                break
            except ProviderError as error:
                # Retry, or fall back
                is_stale = is_stale or answer.is_shown
                answer = await self._recover(llm_request, attempts, answer, error)
        attempts.succeed()
        if is_stale:
            yield create_retraction()
        response.model_version = attempts.model
        response.usage_metadata = _to_usage_metadata(answer.usage)
        response.custom_metadata = {**(response.custom_metadata or {}), **meter.answer_metadata(answer.usage)}
        yield response

    async def _recover(
        self, llm_request: LlmRequest, attempts: Attempts, answer: "_AnswerBuilder", error: ProviderError
    ) -> "_AnswerBuilder":
        """Wait for the next attempt after an error, and return its answer, which is empty.

        A request that the model refuses is sent again without its files, since no vendor says which file is at fault.
        If the conversation is too long for a fallback, its newer half is sent.
        """
        if isinstance(error, ProviderRequestError) and not answer.is_shown:
            messages = _shorten(answer.request.messages, error, is_fallback=bool(attempts.instead_of))
            if messages is not None:
                log.warning("%s refused a request; a smaller one is sent: %s", attempts.model, error)
                request = replace(answer.request, messages=messages, paused_content=())
                return _AnswerBuilder(attempts.model, answer.provider, request, self.open_thinkers)
        await asyncio.sleep(attempts.fail(error))
        return self._begin_answer(llm_request, attempts.model)

    def _begin_answer(self, llm_request: LlmRequest, name: str) -> "_AnswerBuilder":
        handle = self._get_handle(name)
        return _AnswerBuilder(name, handle.provider, _to_model_request(llm_request, handle), self.open_thinkers)

    def _get_handle(self, name: str) -> ModelHandle:
        """Return a model's handle; the adapter's own provider gets a name that is not listed."""
        return self.selectable.get(name) or self.fallbacks.models.get(name) or ModelHandle(self.provider, name)


def _shorten(
    messages: Sequence[ModelMessage], refusal: ProviderRequestError, *, is_fallback: bool
) -> list[ModelMessage] | None:
    """Return a refused request's messages with less content; None if there is nothing to leave out."""
    if is_fallback and isinstance(refusal, ContextLengthError):
        return shorten_history(messages)
    plain = drop_files(messages)
    return plain if plain != messages else None


def _should_repeat(llm_request: LlmRequest, response: LlmResponse) -> bool:
    """Return whether the same request is likely to get a better response than this one.

    Gemini: an empty answer after a tool result is a known fault, while any other empty answer may be meant.
    """
    if response.get_function_calls():
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
    config = llm_request.config
    history = convert_messages(llm_request.contents, config.system_instruction)
    messages = drop_unsupported_files(
        keep_own_signatures(history, handle.provider.name), handle.provider.supported_files(handle.model)
    )
    if not messages or messages[-1].role not in ("user", "tool"):
        messages.append(ModelMessage("user", (Text("Go on as instructed."),)))
    return ModelRequest(handle.model, messages, list_tools(config), config)


def _save_prompt(meter: UsageMeter, model: str, request: ModelRequest) -> None:
    if meter.prompts is not None:
        meter.prompts.save(meter.turn, model, (request.config.labels or {}).get(AGENT_LABEL, ""), request)


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

    Attributes:
        request: the newest request for the answer; its tool calls have other ids than those of the answer.
        input_file_tokens, file_tokens: estimates for the files in the newest request, and in its answer so far.
        usage: the token counts of the ended requests.
        is_shown: whether a partial response was yielded.
    """

    def __init__(self, model: str, provider: Provider, request: ModelRequest, open_thinkers: set[str]) -> None:
        self.provider = provider
        self.request = request
        self.input_file_tokens = 0
        self.usage = Usage()
        self.is_shown = False
        self._model = model
        self._open_thinkers = open_thinkers
        self._pieces: list[Text | Thought | Media | ToolCall] = []
        self._grounding: types.GroundingMetadata | None = None
        self._read_urls: list[str] = []
        self._ids = {call.id for message in request.messages for call in message.tool_calls}
        self._continuations = 0
        self._begin_stream()

    def _begin_stream(self) -> None:
        self.done: Done | None = None
        self.file_tokens = 0
        self._bytes = 0
        self._start = len(self._pieces)
        self._thinking = ThinkingReader(starts_open=self._model in self._open_thinkers)

    def bind(self, call: RunningCall) -> ModelRequest:
        """Return the request, whose token counts and estimates go to a call of the meter from now on."""
        call.estimate = self.estimate_usage
        self.request = replace(self.request, report_usage=call.set_usage)
        return self.request

    @property
    def is_complete(self) -> bool:
        return self.done is not None

    @property
    def is_paused(self) -> bool:
        return self.done is not None and bool(self.done.paused_content) and self._continuations < MAX_CONTINUATIONS

    def continue_request(self) -> None:
        assert self.done is not None, "a paused stream has ended"
        self.request = replace(self.request, paused_content=self.request.paused_content + self.done.paused_content)
        self._continuations += 1
        self._begin_stream()

    def add(self, event: ProviderEvent) -> Iterator[LlmResponse]:
        for piece in self._thinking.read(event):
            match piece:
                case Done():
                    self.done = piece
                    self.request.report_usage(piece.usage)
                case Reclassified(kind):
                    is_changed = self._reclassify(kind)
                    if kind is Thought:
                        self._open_thinkers.add(self._model)
                        if is_changed:
                            yield create_retraction()
                case Grounding():
                    self._grounding = merge_grounding(self._grounding, piece.metadata)
                    self._read_urls += [url for url in piece.read_urls if url not in self._read_urls]
                case _:
                    self._add_piece(piece)
                    if isinstance(piece, Text | Thought) and piece.text:
                        yield _response([_text_part(piece.text, isinstance(piece, Thought))], partial=True)

    def _add_piece(self, piece: Text | Thought | Media | ToolCall) -> None:
        self._bytes += len(_get_characters(piece).encode("utf-8", "replace"))
        last = self._pieces[-1] if len(self._pieces) > self._start else None
        if (joined := join_text(last, piece)) is not None:
            self._pieces[-1] = joined
        elif isinstance(last, Thought) and last.signature is None and isinstance(piece, Thought) and not piece.text:
            self._pieces[-1] = replace(last, signature=piece.signature)
        elif isinstance(piece, ToolCall | Media) or piece.text or piece.signature is not None:
            self._pieces.append(piece)

    def _reclassify(self, kind: type[Text] | type[Thought]) -> bool:
        """Make all text and thoughts of the newest request `Text` or `Thought`; return whether that changed any."""
        pieces = self._pieces[self._start :]
        self._pieces[self._start :] = [
            kind(piece.text, piece.signature) if isinstance(piece, Text | Thought) else piece for piece in pieces
        ]
        return self._pieces[self._start :] != pieces

    @property
    def tokens(self) -> int:
        """Estimated tokens of the answer to the newest request; unlike `estimate_usage`, it takes constant time."""
        return self._bytes // 4 + self.file_tokens

    def estimate_input(self) -> int:
        paused = json.dumps(self.request.paused_content) if self.request.paused_content else ""
        texts = estimate_text_tokens(self.request.messages, self.request.tools)
        return self.input_file_tokens + texts + estimate_tokens(paused)

    def estimate_usage(self) -> Usage:
        """Return the estimated tokens of the newest request and its answer so far; files are part of `output`."""
        pieces = self._pieces[self._start :]
        thoughts = "".join(piece.text for piece in pieces if isinstance(piece, Thought))
        text = "".join(piece.text for piece in pieces if isinstance(piece, Text))
        calls = "".join(_get_characters(piece) for piece in pieces if isinstance(piece, ToolCall))
        output = estimate_tokens(text + calls) + self.file_tokens
        return Usage(input=self.estimate_input(), output=output, thinking=estimate_tokens(thoughts))

    def create_response(self) -> LlmResponse:
        """Return the complete response of the model call, once the stream has ended.

        Raises:
            ContentBlockedError: safety rules left no content.
        """
        assert self.done is not None, "the stream has ended"
        response = _response([self._part(piece) for piece in self._pieces], partial=False)
        response.turn_complete = True
        response.grounding_metadata = self._grounding
        response.custom_metadata = {READ_URLS_KEY: self._read_urls} if self._read_urls else None
        response.finish_reason = reason = self.done.finish_reason
        if not self._has_content:
            if get_ending(reason) is Ending.REFUSED:
                raise ContentBlockedError(f"{self.provider.name} withheld the answer ({reason.value})")
            response.error_code = NO_CONTENT_ERROR_CODE if reason is types.FinishReason.STOP else reason.value
            response.error_message = "The model ended without an answer."
        return response

    @property
    def _has_content(self) -> bool:
        return any(
            isinstance(piece, ToolCall | Media) or (isinstance(piece, Text) and piece.text.strip())
            for piece in self._pieces
        )

    def _part(self, piece: Text | Thought | Media | ToolCall) -> types.Part:
        signature = mark_signature(piece.signature, self.provider.name)
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
    """Register the models that agents name by a string, with ADK's registry; agents that name none get `default`.

    ADK has one registry per process. A later registration replaces an earlier one.
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
