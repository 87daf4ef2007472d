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
from core.tools.call_log import hash_arguments

#: ADK: the name of the call that asks a person whether another one may be made.
CONFIRMATION_CALL_NAME = "adk_request_confirmation"

#: What ADK says in its own name where a tool gives no reason for asking begins so.
_DEFAULT_HINT_PREFIX = "Please approve or reject the tool call"

#: Where a request says by which rule it is decided, in what ADK keeps for the tool's own use.
_RULE_KEY = "parley"

#: What the keys of a session's state begin with that say which tools may be used without asking again.
_STANDING_APPROVAL_PREFIX = "parley:always:"


#: The path of a value in a call's arguments: names of fields, and positions in lists.
ArgumentPath = tuple[str | int, ...]


def standing_approval_key(app: str, tool: str) -> str:
    """The key under which it is kept that an app's tool may be used without asking: another app's of the same name is
    another tool.
    """
    return f"{_STANDING_APPROVAL_PREFIX}{app}:{tool}"


@dataclass(frozen=True, slots=True)
class ConfirmationRequest:
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
    confirmation_id: str
    tool_call_id: str
    tool: str
    arguments: Mapping[str, Any]
    hint: str = ""
    approvers: tuple[str, ...] | None = None
    may_allow_always: bool = True
    secret_paths: tuple[ArgumentPath, ...] = ()

    @property
    def arguments_hash(self) -> str:
        """Of the arguments."""
        return hash_arguments(to_json_value(self.arguments))


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person has decided, or nobody in time.

    Attributes:
        call: the id of ADK's call that has asked.
        hash: of the arguments for which it was decided.
    """

    confirmation_id: str
    arguments_hash: str
    is_allowed: bool


def confirmations_in(event: Event) -> Iterator[ConfirmationRequest]:
    """What an event asks for."""
    for question in event.get_function_calls():
        if question.name != CONFIRMATION_CALL_NAME or not question.id:
            continue
        given = question.args or {}
        try:
            call = types.FunctionCall.model_validate(given.get("originalFunctionCall"))
            confirmation = ToolConfirmation.model_validate(given.get("toolConfirmation") or {})
        except ValidationError:
            continue
        payload = confirmation.payload
        rule = payload.get(_RULE_KEY) if isinstance(payload, dict) else None
        approvers = rule.get("approvers") if isinstance(rule, dict) else None
        yield ConfirmationRequest(
            run=event.invocation_id,
            confirmation_id=question.id,
            tool_call_id=call.id or "",
            tool=call.name or "",
            arguments=call.args or {},
            hint="" if confirmation.hint.startswith(_DEFAULT_HINT_PREFIX) else confirmation.hint,
            approvers=tuple(map(str, approvers)) if approvers is not None else None,
            may_allow_always=bool(rule.get("always")) if isinstance(rule, dict) else payload is None,
            secret_paths=tuple(map(tuple, rule.get("secret_paths") or ())) if isinstance(rule, dict) else (),
        )


def set_rule(
    context: ToolContext,
    approvers: Sequence[str] | None,
    *,
    may_allow_always: bool,
    secret_paths: Sequence[ArgumentPath] = (),
) -> None:
    """Add to a call's request for approval who may decide, and which of its arguments are secret."""
    asked = context.actions.requested_tool_confirmations.get(context.function_call_id or "")
    if asked is None or (asked.payload is not None and not secret_paths):
        return
    own = asked.payload if isinstance(asked.payload, dict) else {}
    rule = {
        "approvers": None if approvers is None else list(approvers),
        "always": may_allow_always and asked.payload is None,
        "secret_paths": [list(path) for path in secret_paths],
    }
    asked.payload = {**own, _RULE_KEY: rule}


def find_secret_paths(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[ArgumentPath]:
    """Return the paths of the arguments that a JSON Schema marks with `writeOnly: true` or `format: password`."""
    return list(_iterate_secret_paths(arguments, [schema], schema, ()))


def _iterate_secret_paths(
    value: Any, schemas: Sequence[Any], root: Mapping[str, Any], path: ArgumentPath
) -> Iterator[ArgumentPath]:
    applied = _resolve_schemas(schemas, root)
    if value is None or not applied:
        return
    if any(schema.get("writeOnly") is True or schema.get("format") == "password" for schema in applied):
        yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _iterate_secret_paths(
                item, [_get_field_schema(schema, name) for schema in applied], root, (*path, name)
            )
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _iterate_secret_paths(
                item, [_get_item_schema(schema, i) for schema in applied], root, (*path, i)
            )


def _resolve_schemas(schemas: Sequence[Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return schemas and those that they refer to or combine."""
    applied, left = list[Mapping[str, Any]](), list(schemas)
    while left:
        schema = left.pop()
        if isinstance(schema, Mapping) and not any(schema is one for one in applied):
            applied.append(schema)
            left += [option for name in ("allOf", "anyOf", "oneOf") for option in schema.get(name) or ()]
            left += [_resolve_reference(schema["$ref"], root)] if "$ref" in schema else []
    return applied


def _resolve_reference(reference: Any, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in str(reference).removeprefix("#").split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _get_field_schema(schema: Mapping[str, Any], name: str) -> Any:
    return (schema.get("properties") or {}).get(name, schema.get("additionalProperties"))


def _get_item_schema(schema: Mapping[str, Any], position: int) -> Any:
    first = schema.get("prefixItems") or ()
    return first[position] if position < len(first) else schema.get("items")


def apply_standing_approval(context: ToolContext, tool: str) -> None:
    """Let a call be made without asking, if that was decided for its tool and session once for all."""
    if context.tool_confirmation is None and context.state.get(standing_approval_key(context.session.app_name, tool)):
        context.tool_confirmation = ToolConfirmation(confirmed=True)


def to_contents(stored: Sequence[Event], decisions: Sequence[Decision]) -> list[types.Content]:
    """Return the messages that give a run the decisions that it does not have yet.

    A decision holds for the arguments that were shown, and for no others. Each agent and branch gets a message of its
    own, for ADK 2.13 delivers a message to one of them: it routes by the first response and drops the others.

    Args:
        stored: the events of the run.
    """
    asked = {
        ask.confirmation_id: (ask.arguments_hash, event.author, event.branch)
        for event in stored
        for ask in confirmations_in(event)
    }
    given = _get_decided_ids(stored)
    messages = dict[tuple[str | None, str | None], list[types.Part]]()
    for one in decisions:
        if one.confirmation_id in given:
            continue
        shown, author, branch = asked.get(one.confirmation_id, (None, None, None))
        answer = types.FunctionResponse(
            id=one.confirmation_id,
            name=CONFIRMATION_CALL_NAME,
            response={"confirmed": one.is_allowed and shown == one.arguments_hash},
        )
        messages.setdefault((author, branch), []).append(types.Part(function_response=answer))
    return [types.Content(role="user", parts=parts) for parts in messages.values()]


def events_after(stored: Sequence[Event], decisions: Sequence[Decision]) -> list[Event] | None:
    """Return the events that a run stored after the first of these decisions; None if it has none of them."""
    calls = {decision.confirmation_id for decision in decisions}
    for i, event in enumerate(stored):
        if calls & _get_decided_ids([event]):
            return list(stored[i + 1 :])
    return None


def _get_decided_ids(events: Sequence[Event]) -> set[str | None]:
    return {answer.id for event in events if event.author == "user" for answer in event.get_function_responses()}
