"""History that is sent to the model: cut to its limits, with a response per call."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from google.adk.events.event import Event
from google.genai import types

from core.models.tool_calls import unique_id
from core.sessions.codec import SEARCHABLE_ROLES, get_role

logger = logging.getLogger(__name__)

DEFAULT_BUDGET_TOKENS = 32_000

#: The most turns of history that are sent by default.
DEFAULT_MAX_TURNS = 40

INTERRUPTED_ERROR = "interrupted, may have taken effect"

#: ADK: name of the call that requests a confirmation of another call.
CONFIRMATION_CALL_NAME = "adk_request_confirmation"

#: The limit by which older messages are not sent to the model; empty if all are sent.
HistoryLimit = Literal["", "tokens", "turns"]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """Stored ADK event of a history, with its estimated tokens and its row in `messages`."""

    event: Event
    tokens: int
    id: int = 0


def is_user_message(event: Event) -> bool:
    """Return whether an event is a user's message, which begins a turn in the history."""
    return get_role(event) == "user"


def count_sent_turns(count: int, limit: int = DEFAULT_MAX_TURNS) -> int:
    """Return the number of a session's newest turns that are sent to the model.

    Up to `limit` turns, this is all of them. With one turn more, only the newest half of `limit` is sent. After that,
    the oldest sent turn stays the same until more than `limit` turns would be sent: a provider's prompt cache needs
    prompts with the same beginning. The number depends only on `limit` and `count`, the user messages after the
    summary, so that all workers send the same turns.
    """
    if count <= limit:
        return count
    step = limit + 1 - max(1, limit // 2)
    return count - -(-(count - limit) // step) * step


def token_budget_truncate(
    entries: Sequence[HistoryEntry],
    budget: int | None = None,
    *,
    turns: int | None = None,
    summarized_id: int = -1,
    label: str = "a session",
) -> list[HistoryEntry]:
    """Return the newest events that fit into a token budget and a number of turns, oldest first.

    A cut is logged, and the rest begins with a user message if it has one, never with a tool response. Some events are
    returned regardless of the limits: the newest user message, ADK's compaction events, and calls that may still get a
    response. The same applies to long-running calls of returned responses. The user message before such a call is
    returned too.

    Args:
        budget: the most tokens; None or 0 for 32,000.
        turns: the most turns to return; None for `count_sent_turns` of the turns in `entries`.
        summarized_id: the id of the last message that a summary covers; -1 without a summary. Of the covered events,
            only those that ignore the limits are returned.
        label: names the session in the log.
    """
    budget = budget or DEFAULT_BUDGET_TOKENS
    if turns is None:
        turns = count_sent_turns(sum(entry.id > summarized_id and is_user_message(entry.event) for entry in entries))
    newest = next((i for i in reversed(range(len(entries))) if is_user_message(entries[i].event)), None)
    kept = _find_required(entries) | ({newest} if newest is not None else set())
    start = _find_budget_start(entries, budget - sum(entries[i].tokens for i in kept), turns, kept)
    summarized_count = sum(entry.id <= summarized_id for entry in entries)
    if start <= summarized_count == 0:
        return list(entries)
    kept.update(range(_find_valid_start(entries, max(start, summarized_count)), len(entries)))
    kept |= _find_calls_of_answers(entries, kept)
    if start > summarized_count:
        logger.warning("the history of %s is cut to its newest %d events", label, len(kept))
    return [entries[i] for i in sorted(kept)]


def _find_budget_start(entries: Sequence[HistoryEntry], remaining: int, turns: int, free: set[int]) -> int:
    """Return the index of the oldest entry that fits; the tokens of entries in `free` do not count."""
    turn_count = 0
    oldest = len(entries)
    for i in range(len(entries) - 1, -1, -1):
        remaining -= 0 if i in free else entries[i].tokens
        if remaining < 0 and i not in free:
            return i + 1
        if is_user_message(entries[i].event):
            if turn_count == turns:
                return oldest
            turn_count = turn_count + 1
            oldest = i
    return 0


def _find_valid_start(entries: Sequence[HistoryEntry], start: int) -> int:
    """Return the first index from `start` on at which a history may begin.

    This is a user message. Without one, it is no tool response, and all its calls have a later response.
    """
    for i in range(start, len(entries)):
        if is_user_message(entries[i].event):
            return i
    answered = {id_ for entry in entries[start:] for id_ in _response_ids(entry.event)}
    for i in range(start, len(entries)):
        calls = _call_ids(entries[i].event)
        if get_role(entries[i].event) != "tool" and all(id_ in answered for id_ in calls):
            return i
    return len(entries)


def _find_required(entries: Sequence[HistoryEntry]) -> set[int]:
    """Return the indexes of the entries that are sent regardless of the limits.

    These are ADK's compaction events, and calls that may still get a response: long-running calls, and calls that no
    message follows. Of each call, `_find_call_group` is included.
    """
    kept: set[int] = set()
    answered: set[str] = set()
    has_spoken = False
    for i in range(len(entries) - 1, -1, -1):
        event = entries[i].event
        if _has_calls(event):
            calls = set(_call_ids(event))
            pending = calls - answered
            waits = pending & (event.long_running_tool_ids or set()) if has_spoken else pending
            if waits:
                kept |= _find_call_group(entries, i)
            answered |= set(_response_ids(event))
            answered -= calls
        if event.actions.compaction is not None:
            kept.add(i)
        has_spoken = has_spoken or get_role(event) in ("user", "assistant")
    return kept


def _find_calls_of_answers(entries: Sequence[HistoryEntry], kept: set[int]) -> set[int]:
    """Return the long-running calls that the limits cut off from their responses, such as decided approvals."""
    events_with_calls = [entries[i].event for i in kept if _has_calls(entries[i].event)]
    call_ids = {id_ for event in events_with_calls for id_ in _call_ids(event)}
    missing = {id_ for event in events_with_calls for id_ in _response_ids(event)} - call_ids
    if not missing:
        return set()
    groups = (
        _find_call_group(entries, i)
        for i, entry in enumerate(entries)
        if i not in kept and missing & set(_call_ids(entry.event)) and entry.event.long_running_tool_ids
    )
    return set().union(*groups)


def _find_call_group(entries: Sequence[HistoryEntry], index: int) -> set[int]:
    """Return the indexes of a call, a call that it asks to approve, their responses, and the user message before."""
    calls = [index]
    for call in entries[index].event.get_function_calls():
        original = ((call.args or {}).get("originalFunctionCall") or {}).get("id")
        calls += [i for i in range(index) if original in _call_ids(entries[i].event)][-1:] if original else []
    ids = {id_ for i in calls for id_ in _call_ids(entries[i].event)}
    answers = [i for i in range(min(calls), len(entries)) if ids & set(_response_ids(entries[i].event))]
    prompts = [i for i in range(min(calls)) if is_user_message(entries[i].event)]
    return {*calls, *answers, *prompts[-1:]}


def repair_history(events: Sequence[Event]) -> list[Event]:
    """Return a history that every model accepts: with a response for each call.

    Responses without a call are removed, and repeated call ids are renamed. A call without a response gets the error
    `INTERRUPTED_ERROR` if other messages follow. Calls that may still be answered have none: long-running calls, and
    the calls of the last message of each ADK branch.
    """
    if not any(map(_has_calls, events)):
        return list(events)
    paired = [part for event in _pair_calls(events) for part in split_responses(event)]
    answered = {id_ for event in paired for id_ in _response_ids(event)}
    last_words = {event.branch: i for i, event in enumerate(paired) if get_role(event) == "assistant"}
    last_message = max((i for i, event in enumerate(paired) if get_role(event) == "user"), default=-1)
    repaired: list[Event] = []
    interruptions: list[Event] = []
    for i, event in enumerate(paired):
        if get_role(event) in ("user", "assistant"):
            repaired += interruptions
            interruptions = []
        repaired.append(event)
        open_ids = set(_call_ids(event)) - answered - (event.long_running_tool_ids or set())
        if open_ids and i < max(last_message, last_words.get(event.branch, -1)):
            interruptions.append(answer_interrupted_calls(event, open_ids))
    return repaired


def split_responses(event: Event) -> list[Event]:
    """Split a person's event with both confirmations and other tool responses in two.

    The second event has the confirmations. ADK 2.13 does not send an event with a confirmation to the model, and so
    would hide the other responses. It executes the confirmed calls of the newest event only.
    """
    responses = event.get_function_responses() if event.author == "user" else []
    if len({response.name == CONFIRMATION_CALL_NAME for response in responses}) < 2:
        return [event]
    parts = (event.content and event.content.parts) or []
    confirmations = [part for part in parts if _is_confirmation(part)]
    others = [part for part in parts if not _is_confirmation(part)]
    return [_replace_parts(event, others, {}), _replace_parts(event, confirmations, {})]


def _is_confirmation(part: types.Part) -> bool:
    return part.function_response is not None and part.function_response.name == CONFIRMATION_CALL_NAME


def answer_interrupted_calls(event: Event, ids: set[str]) -> Event:
    """Return a new event with `INTERRUPTED_ERROR` as the response to some calls."""
    return answer_calls(event, {id_: {"error": INTERRUPTED_ERROR} for id_ in ids})


def answer_calls(event: Event, answers: Mapping[str, dict[str, Any]]) -> Event:
    """Return a new event with tool responses, by call id, to some calls of an event."""
    parts = [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=answers[call.id]))
        for call in event.get_function_calls()
        if call.id is not None and call.id in answers
    ]
    return Event(
        author=event.author,
        invocation_id=event.invocation_id,
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        timestamp=event.timestamp,
        content=types.Content(role="user", parts=parts),
    )


def _pair_calls(events: Sequence[Event]) -> Iterator[Event]:
    """Yield events with unique call ids, and without responses to unknown calls."""
    ids = set[str]()
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)  # the ids given, by the id or name that came
    latest: dict[str, str] = {}
    for event in events:
        if event.content is None or not _has_calls(event):
            yield event
            continue
        renamed: dict[str, str] = {}
        parts: list[types.Part] = []
        for part in event.content.parts or ():
            if call := part.function_call:
                id_ = unique_id(call.id, call.name or "tool", ids)
                key = call.id or f"name:{call.name}"
                renamed[key] = latest[key] = id_
                waiting[key].append(id_)
                parts.append(_replace_call(part, call, id_, latest))
            elif answer := part.function_response:
                key = answer.id or f"name:{answer.name}"
                if key in latest:
                    id_ = waiting[key].popleft() if waiting[key] else latest[key]
                    update = {"function_response": answer.model_copy(update={"id": id_})}
                    parts.append(part if id_ == answer.id else part.model_copy(update=update))
            else:
                parts.append(part)
        if parts:
            yield _replace_parts(event, parts, renamed)


def _replace_call(part: types.Part, call: types.FunctionCall, id_: str, latest: dict[str, str]) -> types.Part:
    update: dict[str, object] = {} if id_ == call.id else {"id": id_}
    original = (call.args or {}).get("originalFunctionCall")
    if isinstance(original, dict) and latest.get(original.get("id", "")) not in (None, original.get("id")):
        original = {**original, "id": latest[original["id"]]}
        update["args"] = {**(call.args or {}), "originalFunctionCall": original}
    return part.model_copy(update={"function_call": call.model_copy(update=update)}) if update else part


def _replace_parts(event: Event, parts: list[types.Part], renamed: dict[str, str]) -> Event:
    content = event.content
    assert content is not None
    if list(map(id, parts)) == list(map(id, content.parts or ())):
        return event
    update: dict[str, object] = {"content": content.model_copy(update={"parts": parts})}
    if event.long_running_tool_ids:
        update["long_running_tool_ids"] = {renamed.get(id_, id_) for id_ in event.long_running_tool_ids}
    return event.model_copy(update=update)


def _has_calls(event: Event) -> bool:
    for part in (event.content and event.content.parts) or ():  # noqa: SIM110 - `any` takes three times as long
        if part.function_call or part.function_response:
            return True
    return False


def _call_ids(event: Event) -> list[str]:
    return [call.id or f"name:{call.name}" for call in event.get_function_calls()]


def _response_ids(event: Event) -> list[str]:
    return [answer.id or f"name:{answer.name}" for answer in event.get_function_responses()]


@dataclass(frozen=True, slots=True)
class HistoryWindow:
    """Size and limits of the part of a session's history that is sent to the model.

    Attributes:
        messages: the number of sent messages with text of users and agents.
        tokens: the tokens of all sent events, the summary included.
        budget: the most tokens that may be sent.
        limit: the limit by which older messages are not sent; empty if all are sent.
        newest_id: the id of the newest stored message; 0 without any.
        summarized_id: the id of the newest message that the summary covers; 0 without a summary.
        turns: the number of user messages that are sent.
    """

    messages: int = 0
    tokens: int = 0
    budget: int = 0
    limit: HistoryLimit = ""
    newest_id: int = 0
    summarized_id: int = 0
    turns: int = 0


def describe_window(
    entries: Sequence[HistoryEntry], kept: Sequence[HistoryEntry], *, budget: int | None, turns: int, newest_id: int
) -> HistoryWindow:
    """Return the size and the limits of `kept`, the sent part of a history without its summary."""
    sent_turns = sum(is_user_message(entry.event) for entry in kept)
    bound: HistoryLimit = "" if len(kept) == len(entries) else "turns" if sent_turns >= turns else "tokens"
    messages = sum(map(_has_text, kept))
    tokens = sum(entry.tokens for entry in kept)
    return HistoryWindow(messages, tokens, budget or DEFAULT_BUDGET_TOKENS, bound, newest_id, turns=sent_turns)


def _has_text(entry: HistoryEntry) -> bool:
    content = entry.event.content
    parts = (content and content.parts) or ()
    return get_role(entry.event) in SEARCHABLE_ROLES and any(part.text and not part.thought for part in parts)
