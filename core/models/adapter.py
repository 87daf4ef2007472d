"""The bridge between ADK and a provider: one call of the model is one stream of the provider."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import cast

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmCapabilities, LLMRegistry
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import Field, SkipValidation

from core.errors import (
    ContentBlockedError,
    ProviderRequestError,
    ProviderSilentError,
    ProviderStalledError,
    TooLongError,
)
from core.models.finish_reasons import BLOCKED_REASONS
from core.models.media import drop_files, drop_unsupported_files, shorten_history
from core.models.messages import clean_json, clean_text, convert_messages
from core.models.provider import (
    Done,
    Failed,
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
from core.models.retries_and_fallbacks import Fallbacks
from core.models.schemas import list_tools
from core.models.tokens import estimate_tokens
from core.models.tool_calls import keep_own_signatures, mark_signature, unique_id
from core.usage import meter as metering
from core.usage.meter import Usage

log = logging.getLogger(__name__)

#: The error code of an answer that ended well and said nothing. ADK's own word for it.
NO_CONTENT = "MODEL_RETURNED_NO_CONTENT"

#: How long a model may say nothing, unless it is told otherwise.
IDLE_SECONDS = 120.0

#: What `core.models.provider_registry` has providers for.
MODEL_PATTERNS = [r"gemini-.*", r"openai/.*", r"anthropic/.*", r"local/.*"]


class ModelAdapter(BaseLlm):
    """A provider's model as ADK knows models.

    One instance serves any number of calls at once. Each call ends in exactly one of these:

    - one response with `partial=False` that has the whole text, the thoughts and the calls. `finish_reason`
      says how the model ended; beside text, anything but `STOP` means that the text broke off there.
    - the same with `error_code`, when there is neither text nor a call: `NO_CONTENT`, or else the finish
      reason (`MAX_TOKENS`, `MALFORMED_FUNCTION_CALL`, ...). ADK stores it and ends its run.
    - an error of `core.errors`: the provider's own, `ContentBlockedError` when the safety rules left nothing,
      `ProviderSilentError` when the stream says nothing for `idle_seconds`, or `ProviderStalledError` when it just
      ended. The time that tools take between two calls does not count.

    With `stream=True` a partial response for each delta of text or thought comes before.

    An error that is `retryable` is raised at once, unless there are `waits`: then the request is sent again after
    each of these seconds, as `core.models.retries_and_fallbacks` has it.

    Where a request names one of the models that are `offered`, by its full name, that one is asked; else `provider`.
    One that `is_fixed` was named by its agent, and none that somebody chooses takes its place, nor any of the
    `fallbacks`, which answer where another one cannot.
    """

    provider: SkipValidation[Provider] = Field(exclude=True, repr=False)
    selectable: SkipValidation[Mapping[str, ModelHandle]] = Field(default_factory=dict, exclude=True, repr=False)
    fallbacks: SkipValidation[Fallbacks] = Field(default_factory=Fallbacks, exclude=True, repr=False)
    is_fixed: bool = False
    idle_seconds: float = IDLE_SECONDS
    retry_seconds: tuple[float, ...] = ()

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities(output_schema_and_tools=False)

    def resolve_name(self, selected: str | None) -> str:
        """The full name of the model that is asked where that one was chosen, or none."""
        return self.model if selected is None or self.is_fixed or selected not in self.selectable else selected

    def supported_files(self, model: str) -> SupportedFiles:
        """The files that a model can be given, by its full name."""
        asked = self._get_handle(model)
        return asked.provider.supported_files(asked.model)

    def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        attempt = partial(self._attempt, llm_request, stream)
        return self.fallbacks.stream(llm_request.model or self.model, attempt, self.retry_seconds)

    def _get_handle(self, name: str | None) -> ModelHandle:
        name = name or self.model
        return self.selectable.get(name) or self.fallbacks.models.get(name) or ModelHandle(self.provider, name)

    async def _attempt(
        self, llm_request: LlmRequest, stream: bool, name: str, instead_of: str
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses of one attempt. A request that the model refuses is sent again without its files.

        No vendor says which file it minds. A fallback gets the newer half of a conversation that is too long for it.
        """
        asked, has_output = self._get_handle(name), False
        request: ModelRequest | None = _to_model_request(llm_request, asked)
        while request is not None:
            try:
                async with aclosing(self._stream_metered(request, asked, stream, name, instead_of)) as responses:
                    async for response in responses:
                        has_output = True
                        yield response
                return
            except ProviderRequestError as refusal:
                messages = _shorten(request.messages, refusal, is_fallback=bool(instead_of))
                if has_output or messages is None:
                    raise
                log.warning("%s refused a request; a smaller one follows: %s", name, refusal)
                request = replace(request, messages=messages)

    async def _stream_metered(
        self, request: ModelRequest, asked: ModelHandle, stream: bool, name: str, instead_of: str
    ) -> AsyncGenerator[LlmResponse, None]:
        meter, last = metering.current_meter(), None
        await meter.check_limits(name, partial(_estimate_input_tokens, request))
        answer = _AnswerBuilder(request.messages, asked.provider.name)
        with meter.measure_call(name, instead_of=instead_of) as count:
            count.estimate = lambda: replace(answer.estimate, input=_estimate_input_tokens(request))
            responses = self._stream_responses(replace(request, report_usage=count.set_usage), answer, asked, stream)
            async with aclosing(responses):
                async for response in responses:
                    if response.partial:
                        yield response
                    else:
                        last = response
        if last is not None:
            last.model_version, last.custom_metadata = name, meter.answer_metadata(count.usage)
            yield last

    async def _stream_responses(
        self, request: ModelRequest, answer: "_AnswerBuilder", asked: ModelHandle, stream: bool
    ) -> AsyncGenerator[LlmResponse, None]:
        # The contract: what `stream` returns is an async generator, and closing it closes the connection.
        events = cast(AsyncGenerator[ProviderEvent, None], asked.provider.stream(request))
        async with aclosing(events):
            while True:
                event = await self._next_event(events, asked.provider.name)
                if isinstance(event, Done):
                    break
                if isinstance(event, Failed):
                    raise event.error
                answer.add(event)
                if stream and not isinstance(event, ToolCall) and event.text:
                    yield _response([_text_part(event.text, isinstance(event, Thought))], partial=True)
        request.report_usage(event.usage)
        yield _final_response(answer, event)

    async def _next_event(self, events: AsyncGenerator[ProviderEvent, None], provider: str) -> ProviderEvent:
        try:
            async with asyncio.timeout(self.idle_seconds) as idle:
                return await anext(events)
        except StopAsyncIteration:
            message = f"{provider} ended its stream without saying that it was done"
            raise ProviderStalledError(message) from None
        except TimeoutError:
            if not idle.expired():
                raise
            message = f"{provider} said nothing for {self.idle_seconds:g} seconds"
            raise ProviderSilentError(message) from None


def _shorten(
    messages: Sequence[ModelMessage], refusal: ProviderRequestError, *, is_fallback: bool
) -> list[ModelMessage] | None:
    """Return the messages without the older half or without files; None if neither can help."""
    if is_fallback and isinstance(refusal, TooLongError):
        return shorten_history(messages)
    plain = drop_files(messages)
    return plain if plain != messages else None


def _to_model_request(llm_request: LlmRequest, asked: ModelHandle) -> ModelRequest:
    config = llm_request.config
    history = convert_messages(llm_request.contents, config.system_instruction)
    messages = drop_unsupported_files(
        keep_own_signatures(history, asked.provider.name), asked.provider.supported_files(asked.model)
    )
    if not messages or messages[-1].role not in ("user", "tool"):
        messages.append(ModelMessage("user", (Text("Go on as instructed."),)))
    return ModelRequest(asked.model, messages, list_tools(config), config)


def _estimate_input_tokens(request: ModelRequest) -> int:
    """About how many a request has, files not counted: four letters are one, more or less."""
    return (
        sum(len(str(part)) for message in request.messages for part in message.parts if not isinstance(part, Media))
        // 4
    )


def _final_response(answer: "_AnswerBuilder", done: Done) -> LlmResponse:
    usage = done.usage
    response = _response(answer.parts(), partial=False)
    response.turn_complete = True
    response.finish_reason = done.finish_reason
    response.usage_metadata = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=usage.input,
        candidates_token_count=usage.output,
        thoughts_token_count=usage.thinking,
        cached_content_token_count=usage.cached,
        total_token_count=usage.input + usage.output + usage.thinking,
    )
    if not answer.has_content:
        if done.finish_reason in BLOCKED_REASONS:
            reason = done.finish_reason.value
            raise ContentBlockedError(f"{answer.provider} withheld the answer ({reason})")
        ended_well = done.finish_reason is types.FinishReason.STOP
        response.error_code = NO_CONTENT if ended_well else done.finish_reason.value
        response.error_message = "The model ended without an answer."
    return response


class _AnswerBuilder:
    """What the model has said so far, in the order in which it said it."""

    def __init__(self, messages: Iterable[ModelMessage], provider: str) -> None:
        self.provider = provider
        self._pieces: list[Text | Thought | ToolCall] = []
        self._ids = {call.id for message in messages for call in message.tool_calls}

    def add(self, piece: Text | Thought | ToolCall) -> None:
        """Take in a piece: text joins text of its kind, unless either of them has a signature of its own.

        A signature that comes behind the thought that it signs joins it.
        """
        last = self._pieces[-1] if self._pieces else None
        if (joined := join_text(last, piece)) is not None:
            self._pieces[-1] = joined
        elif isinstance(last, Thought) and last.signature is None and isinstance(piece, Thought) and not piece.text:
            self._pieces[-1] = replace(last, signature=piece.signature)
        elif isinstance(piece, ToolCall) or piece.text or piece.signature is not None:
            self._pieces.append(piece)

    @property
    def estimate(self) -> Usage:
        """About how many tokens the answer has by now."""
        thoughts = "".join(piece.text for piece in self._pieces if isinstance(piece, Thought))
        said = "".join(piece.text for piece in self._pieces if isinstance(piece, Text))
        calls = "".join(f"{call.name} {call.arguments}" for call in self._pieces if isinstance(call, ToolCall))
        return Usage(output=estimate_tokens(said + calls), thinking=estimate_tokens(thoughts))

    @property
    def has_content(self) -> bool:
        return any(
            isinstance(piece, ToolCall) or (isinstance(piece, Text) and piece.text.strip()) for piece in self._pieces
        )

    def parts(self) -> list[types.Part]:
        return [self._part(piece) for piece in self._pieces]

    def _part(self, piece: Text | Thought | ToolCall) -> types.Part:
        signature = mark_signature(piece.signature, self.provider)
        if isinstance(piece, ToolCall):
            # random, since other branches and cut history may hold calls that this request does not show
            id_ = piece.id or f"call_{piece.name}_{token_hex(4)}"
            call = types.FunctionCall(
                id=unique_id(id_, piece.name, self._ids),
                name=piece.name,
                args=clean_json(piece.arguments),
            )
            return types.Part(function_call=call, thought_signature=signature)
        return _text_part(piece.text, isinstance(piece, Thought), signature)


def _text_part(text: str, thought: bool, signature: bytes | None = None) -> types.Part:
    return types.Part(text=clean_text(text), thought=thought or None, thought_signature=signature)


def _response(parts: list[types.Part], *, partial: bool) -> LlmResponse:
    content = types.Content(role="model", parts=parts) if parts else None
    return LlmResponse(content=content, partial=partial)


def register_adapter(make_adapter: Callable[[str], ModelAdapter], *, default: str) -> None:
    """Have ADK ask `adapter` for each model that an agent names, from now on, and for `default` where it names none.

    There is one registry in a process; the newest word holds.
    """

    class Named(ModelAdapter):
        """What `adapter` has made, as an object of a class: ADK registers classes."""

        def __init__(self, *, model: str) -> None:
            made = make_adapter(model)
            super().__init__(**{name: getattr(made, name) for name in ModelAdapter.model_fields})

        @classmethod
        def supported_models(cls) -> list[str]:
            return MODEL_PATTERNS

    LLMRegistry.register(Named)
    LlmAgent.set_default_model(default)
    LlmAgent.set_default_live_model(default)  # ADK looks at that one too when nothing is live
