"""Requests for approval, as ADK's events hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.adk.events.event import Event
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import ValidationError

from core.sessions.codec import to_json_value
from core.tools.call_log import digest

#: ADK: the name of the call that asks a person whether another one may be made.
QUESTION = "adk_request_confirmation"

#: What ADK says in its own name where a tool gives no reason for asking begins so.
_PLAIN_HINT = "Please approve or reject the tool call"

#: Where a request says by which rule it is decided, in what ADK keeps for the tool's own use.
_RULE = "parley"

#: What the keys of a session's state begin with that say which tools may be used without asking again.
_ALWAYS = "parley:always:"


#: The path of a value in a call's arguments: names of fields, and positions in lists.
Path = tuple[str | int, ...]


def always(app: str, tool: str) -> str:
    """The key under which it is kept that an app's tool may be used without asking: another app's of the same name is
    another tool.
    """
    return f"{_ALWAYS}{app}:{tool}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that is made only if a person allows it.

    Attributes:
        run: the ADK invocation that waits.
        call: the id of ADK's call that asks.
        asks_for: the id of the tool's call.
        hint: why the tool asks, if it says so.
        approvers: who may decide, if the tool says so: see `core.tools.approvals`.
        may_always: whether it may be allowed for all calls of the tool in the session.
        secret_paths: the paths of the arguments that the tool's schema marks as secret.
    """

    run: str
    call: str
    asks_for: str
    tool: str
    arguments: Mapping[str, Any]
    hint: str = ""
    approvers: tuple[str, ...] | None = None
    may_always: bool = True
    secret_paths: tuple[Path, ...] = ()

    @property
    def hash(self) -> str:
        """Of the arguments."""
        return digest(to_json_value(self.arguments))


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person has decided, or nobody in time.

    Attributes:
        call: the id of ADK's call that has asked.
        hash: of the arguments for which it was decided.
    """

    call: str
    hash: str
    is_allowed: bool


def asks_in(event: Event) -> Iterator[Ask]:
    """What an event asks for."""
    for question in event.get_function_calls():
        if question.name != QUESTION or not question.id:
            continue
        given = question.args or {}
        try:
            call = types.FunctionCall.model_validate(given.get("originalFunctionCall"))
            confirmation = ToolConfirmation.model_validate(given.get("toolConfirmation") or {})
        except ValidationError:
            continue
        payload = confirmation.payload
        rule = payload.get(_RULE) if isinstance(payload, dict) else None
        approvers = rule.get("approvers") if isinstance(rule, dict) else None
        yield Ask(
            run=event.invocation_id,
            call=question.id,
            asks_for=call.id or "",
            tool=call.name or "",
            arguments=call.args or {},
            hint="" if confirmation.hint.startswith(_PLAIN_HINT) else confirmation.hint,
            approvers=tuple(map(str, approvers)) if approvers is not None else None,
            may_always=bool(rule.get("always")) if isinstance(rule, dict) else payload is None,
            secret_paths=tuple(map(tuple, rule.get("secret_paths") or ())) if isinstance(rule, dict) else (),
        )


def rule_on(
    context: ToolContext, approvers: Sequence[str] | None, *, always: bool, secret_paths: Sequence[Path] = ()
) -> None:
    """Add to a call's request for approval who may decide, and which of its arguments are secret."""
    asked = context.actions.requested_tool_confirmations.get(context.function_call_id or "")
    if asked is None or (asked.payload is not None and not secret_paths):
        return
    own = asked.payload if isinstance(asked.payload, dict) else {}
    rule = {
        "approvers": None if approvers is None else list(approvers),
        "always": always and asked.payload is None,
        "secret_paths": [list(path) for path in secret_paths],
    }
    asked.payload = {**own, _RULE: rule}


def find_secret_paths(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[Path]:
    """Return the paths of the arguments that a JSON Schema marks with `writeOnly: true` or `format: password`."""
    return list(_secret_paths(arguments, [schema], schema, ()))


def _secret_paths(value: Any, schemas: Sequence[Any], root: Mapping[str, Any], path: Path) -> Iterator[Path]:
    applied = _applied(schemas, root)
    if value is None or not applied:
        return
    if any(schema.get("writeOnly") is True or schema.get("format") == "password" for schema in applied):
        yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secret_paths(item, [_field(schema, name) for schema in applied], root, (*path, name))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _secret_paths(item, [_item(schema, i) for schema in applied], root, (*path, i))


def _applied(schemas: Sequence[Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return schemas and those that they refer to or combine."""
    applied, left = list[Mapping[str, Any]](), list(schemas)
    while left:
        schema = left.pop()
        if isinstance(schema, Mapping) and not any(schema is one for one in applied):
            applied.append(schema)
            left += [option for name in ("allOf", "anyOf", "oneOf") for option in schema.get(name) or ()]
            left += [_referred(schema["$ref"], root)] if "$ref" in schema else []
    return applied


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in str(reference).removeprefix("#").split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _field(schema: Mapping[str, Any], name: str) -> Any:
    return (schema.get("properties") or {}).get(name, schema.get("additionalProperties"))


def _item(schema: Mapping[str, Any], position: int) -> Any:
    first = schema.get("prefixItems") or ()
    return first[position] if position < len(first) else schema.get("items")


def allow(context: ToolContext, tool: str) -> None:
    """Let a call be made without asking, if that was decided for its tool and session once for all."""
    if context.tool_confirmation is None and context.state.get(always(context.session.app_name, tool)):
        context.tool_confirmation = ToolConfirmation(confirmed=True)


def to_contents(stored: Sequence[Event], decisions: Sequence[Decision]) -> list[types.Content]:
    """Return the messages that give a run the decisions that it does not have yet.

    A decision holds for the arguments that were shown, and for no others. Each agent and branch gets a message of its
    own, for ADK 2.13 delivers a message to one of them: it routes by the first response and drops the others.

    Args:
        stored: the events of the run.
    """
    asked = {ask.call: (ask.hash, event.author, event.branch) for event in stored for ask in asks_in(event)}
    given = _answered_by_user(stored)
    messages = dict[tuple[str | None, str | None], list[types.Part]]()
    for one in decisions:
        if one.call in given:
            continue
        shown, author, branch = asked.get(one.call, (None, None, None))
        answer = types.FunctionResponse(
            id=one.call, name=QUESTION, response={"confirmed": one.is_allowed and shown == one.hash}
        )
        messages.setdefault((author, branch), []).append(types.Part(function_response=answer))
    return [types.Content(role="user", parts=parts) for parts in messages.values()]


def events_after(stored: Sequence[Event], decisions: Sequence[Decision]) -> list[Event] | None:
    """Return the events that a run stored after the first of these decisions; None if it has none of them."""
    calls = {decision.call for decision in decisions}
    for i, event in enumerate(stored):
        if calls & _answered_by_user([event]):
            return list(stored[i + 1 :])
    return None


def _answered_by_user(events: Sequence[Event]) -> set[str | None]:
    return {answer.id for event in events if event.author == "user" for answer in event.get_function_responses()}
