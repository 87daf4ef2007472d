"""Conversion of ADK events to stream events.

A step is one model call of one agent. Its partial events carry pieces of its text, and the text of its final event
replaces them. The reply is the texts of the steps, joined by a blank line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from google.adk.events.event import Event
from google.genai import types

from core.agents.events import StreamEvent
from core.errors import ContentBlockedError, LengthLimitError, ProviderError
from core.models.adapter import NO_CONTENT_ERROR_CODE
from core.models.finish_reasons import Ending, add_ending_note, get_ending
from core.models.grounding import Source, find_sources, is_web_address
from core.models.retries_and_fallbacks import is_retraction
from core.models.tool_calls import format_value, part_text
from core.observability.secret_redaction import RunSecrets
from core.sessions.history import CONFIRMATION_CALL_NAME
from core.sessions.resume import INPUT_CALL
from core.tools.adk_confirmations import ConfirmationRequest, find_confirmations
from core.tools.adk_requests import CHOICE_TOOL, CREDENTIAL_CALL, find_credential_requests, find_questions

#: Names of calls that ask a person. The platform adapter posts a message for each, so the reply shows no status line
#: for them.
_REQUEST_CALLS = frozenset({CONFIRMATION_CALL_NAME, INPUT_CALL, CHOICE_TOOL, CREDENTIAL_CALL})

#: Errors of answers without content, by their endings; of all others, it is `ProviderError`.
_ERRORS = {Ending.REFUSED: ContentBlockedError, Ending.CUT: LengthLimitError}


class EventMapper:
    """Converter of the ADK events of one run to `StreamEvent`s, with the reply's text so far.

    Agents that run in parallel have one unfinished step each; the author and the branch of an event identify its step.

    Args:
        secrets: the secrets of the run, which are masked in the arguments, results and errors of tools.
    """

    def __init__(
        self, progress_texts: Mapping[str, str] = MappingProxyType({}), secrets: RunSecrets | None = None
    ) -> None:
        self._progress_texts = progress_texts
        self._secrets = RunSecrets() if secrets is None else secrets
        self._texts: list[str] = []
        self._open_steps: dict[tuple[str, str | None], int] = {}
        self._error_code = ""  # of the newest event, if it has neither text nor a file
        self._call_events: list[Event] = []
        self._sources: dict[str, Source] = {}

    def map_event(self, event: Event) -> Iterator[StreamEvent]:
        """Yield the stream events of one ADK event of the run; there may be none.

        Call it with each event of the run, in order, and iterate to the end: the state of this object changes on the
        way.
        """
        if event.partial:
            if is_retraction(event):
                yield from self._set_step_text(self._open_step(event), "")
            elif text := _visible_text(event):
                yield from self._set_step_text(self._open_step(event), text, append=True)
            return
        if event.content is not None:
            text = _visible_text(event)
            if text.strip() and not event.get_function_calls():  # with calls, the run continues
                text = add_ending_note(text, event.finish_reason)
            step = self._open_steps.pop((event.author, event.branch), None)
            if step is not None:
                yield from self._set_step_text(step, text)
            elif text:
                yield from self._set_step_text(self._open_step(event), text)
                self._open_steps.pop((event.author, event.branch))
        if event.get_function_calls() or event.get_function_responses():
            self._call_events.append(event)
        if event.author != "user":
            for source in find_sources(event):
                self._sources.setdefault(source.url, source)
        yield from self._map_tools(event)
        for name, version in event.actions.artifact_delta.items():
            yield StreamEvent("file", data={"name": name, "version": version})
        has_answer = event.actions.artifact_delta or _visible_text(event).strip()
        self._error_code = "" if has_answer else event.error_code or ""

    def replay_events(self, stored: Sequence[Event]) -> Iterator[StreamEvent]:
        """Yield the stream events of the stored events, oldest first, of a run that resumes.

        A tool call that has ended yields one `tool_past` instead of its start and end. A call that waits for an
        approval yields `tool_start` and `tool_wait`; without its start in `stored`, only the latter. A call without a
        response yields `tool_start`, since ADK resumes with it. A long-running call without a response yields nothing.
        Texts and files are yielded, and the state of this object changes, as by `map_event`.
        """
        open_calls = find_open_calls(stored)
        calls = dict[str, StreamEvent]()
        for event in stored:
            failures = dict[str, StreamEvent]()
            for mapped in self.map_event(event):
                if not mapped.tool or mapped.call_id in open_calls:
                    yield mapped
                elif mapped.type == "tool_start":
                    calls[mapped.call_id] = mapped
                elif mapped.type == "tool_wait":
                    if (start := calls.get(mapped.call_id)) is not None:
                        yield start
                    yield mapped
                elif mapped.type == "error":
                    failures[mapped.call_id] = mapped
                elif call := calls.get(mapped.call_id):
                    failed = failures.get(mapped.call_id)
                    yield replace(call, type="tool_past", error=failed.error if failed else None)

    def create_last_event(self) -> StreamEvent:
        """Return the last event of the run: `done` with the whole reply, or `error`.

        It is `error` if the newest ADK event has an error code and neither text nor a file; see `_ERRORS`. An empty
        answer that ended normally (`NO_CONTENT_ERROR_CODE`) is `done`. The caller sets `calls` and `usage`.
        """
        if self._error_code and self._error_code != NO_CONTENT_ERROR_CODE:
            kind = _ERRORS.get(get_ending(self._error_code), ProviderError)
            return StreamEvent("error", error=kind(f"the model ended with {self._error_code}"))
        events = self._call_events
        return StreamEvent(
            "done",
            text=self.text,
            confirmations=tuple(
                {request.call_id: self._hide_secrets(request) for request in find_confirmations(events)}.values()
            ),
            questions=tuple(find_questions(events)),
            sign_ins=tuple(find_credential_requests(events)),
            sources=tuple(self._sources.values()),
        )

    @property
    def text(self) -> str:
        """The texts of all steps so far, joined by blank lines; empty steps are left out."""
        return "\n\n".join(text for text in self._texts if text.strip())

    def create_tool_start(self, tool: str, call_id: str, arguments: Mapping[str, Any]) -> StreamEvent:
        shown = self._secrets.mask(arguments, self._secrets.paths.get(call_id, frozenset()))
        return StreamEvent(
            "tool_start", text=self._progress_texts.get(tool, ""), tool=tool, call_id=call_id, data=shown
        )

    def _hide_secrets(self, request: ConfirmationRequest) -> ConfirmationRequest:
        paths = [*request.secret_paths, *self._secrets.find_paths(request.arguments)]
        hint = str(self._secrets.mask(request.hint))
        return replace(request, hint=hint, secret_paths=tuple(dict.fromkeys(paths)))

    def _map_tools(self, event: Event) -> Iterator[StreamEvent]:
        for call in event.get_function_calls():
            if call.name not in _REQUEST_CALLS:
                yield self.create_tool_start(call.name or "", call.id or "", call.args or {})
        for response in event.get_function_responses():
            actions = event.actions
            if response.id in actions.requested_tool_confirmations or response.id in actions.requested_auth_configs:
                yield StreamEvent("tool_wait", tool=response.name or "", call_id=response.id or "")
            elif response.name not in _REQUEST_CALLS:
                yield from _map_response(response, self._secrets)

    def _open_step(self, event: Event) -> int:
        """Return the index in `_texts` of an event's step, which is added if it is new."""
        key = (event.author, event.branch)
        if key not in self._open_steps:
            self._open_steps[key] = len(self._texts)
            self._texts.append("")
        return self._open_steps[key]

    def _set_step_text(self, step: int, text: str, *, append: bool = False) -> Iterator[StreamEvent]:
        """Set or extend a step's text; yield `text_delta` if that extends the reply, `step_reset` if it changes it."""
        before = self.text
        self._texts[step] = self._texts[step] + text if append else text
        after = self.text
        if after.startswith(before):
            if after != before:
                yield StreamEvent("text_delta", text=after[len(before) :])
        else:
            yield StreamEvent("step_reset", text=after)


def find_open_calls(events: Sequence[Event]) -> set[str | None]:
    """Return the ids of the function calls without a response, apart from long-running calls.

    The set contains None if a call has no id, and no response lacks one.
    """
    responses = {answer.id for event in events for answer in event.get_function_responses()}
    calls = (
        {call.id for call in event.get_function_calls()} - (event.long_running_tool_ids or set()) for event in events
    )
    return set().union(*calls) - responses


def _visible_text(event: Event) -> str:
    """Return the text that the reply shows: a tool's result if the tool has set ADK's `skip_summarization`."""
    if event.content is None or event.author == "user":
        return ""
    actions = event.actions
    if actions.skip_summarization and not (actions.requested_tool_confirmations or actions.requested_auth_configs):
        return "\n\n".join(filter(None, map(_result_text, event.get_function_responses())))
    if event.content.role == "user":
        return ""
    parts = [part for part in event.content.parts or [] if not part.thought]
    text = "".join(_join_parts(parts))
    return text.strip("\n") if any(part.executable_code or part.code_execution_result for part in parts) else text


def _join_parts(parts: Sequence[types.Part]) -> Iterator[str]:
    """Yield the reply's text for each part, in order; bytes yield the file's name if text follows it."""
    has_text = False
    pieces = list[str]()
    for part in reversed(parts):
        if (blob := part.inline_data) is not None:
            piece = f"\n\n📎 `{blob.display_name}`\n\n" if has_text and blob.display_name else ""
        elif (file := part.file_data) is not None:
            piece = _format_address(file)
        else:
            piece = part_text(part)
        has_text = has_text or bool(piece.strip())
        pieces.append(piece)
    yield from reversed(pieces)


def _format_address(file: types.FileData) -> str:
    """Return a line with a file's name and address; only a web address becomes a link."""
    uri = file.file_uri or ""
    name = re.sub(r"[\\`\[\]<>()*_~|]", "", file.display_name or "") or "file"
    return f"\n\n📎 {name}: <{uri}>\n\n" if is_web_address(uri) else f"\n\n📎 {name}: `{uri.replace('`', '')}`\n\n"


def _result_text(response: types.FunctionResponse) -> str:
    """Return a tool's result as the text of the answer; empty for an error, and for `None`, `[]` and `{}`.

    ADK: the response of a tool that returns nothing is `{"result": None}`, such as that of `exit_loop`.
    """
    result = response.response or {}
    if not result or "error" in result:
        return ""
    value = result.get("result") if set(result) == {"result"} else result
    return "" if value is None or value in ([], {}) else format_value(value)


def _map_response(response: types.FunctionResponse, secrets: RunSecrets) -> Iterator[StreamEvent]:
    """Yield `tool_end`, after an `error` if `error` is the response's only key, or if MCP's `isError` is set."""
    name = response.name or ""
    call_id = response.id or ""
    result = secrets.mask(response.response or {})
    if set(result) == {"error"} or result.get("isError") is True:
        error = RuntimeError(str(result.get("error") or result.get("content") or ""))
        yield StreamEvent("error", tool=name, call_id=call_id or name, data=result, error=error)
    yield StreamEvent("tool_end", tool=name, call_id=call_id, data=result)
