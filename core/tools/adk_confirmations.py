"""Confirmations: ADK's requests to a person to approve a tool call, in its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from google.adk.events.event import Event
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import ValidationError

from core.observability.secret_redaction import MAX_JSON_DEPTH
from core.sessions.codec import to_json_value
from core.sessions.history import CONFIRMATION_CALL_NAME
from core.sessions.resume import INPUT_CALL
from core.sessions.state import RESERVED_PREFIX
from core.tools.call_log import hash_arguments
from core.tools.json_schema import SchemaError, SchemaResolver

#: ADK: beginning of a confirmation's hint if the tool states no reason.
_DEFAULT_HINT_PREFIX = "Please approve or reject the tool call"

#: Key of the `ApprovalRule` and the secret arguments in a confirmation's payload, which ADK leaves to the tool. Parley
#: writes it for each request, over any value of the tool.
_RULE_KEY = "parley"

#: ADK: prefix of the id of an input request that confirms a tool which is a node of a workflow.
_NODE_PREFIX = "wf_tool_confirmation:"

#: Path of a value in a call's arguments: names of fields, and positions in lists.
ArgumentPath = tuple[str | int, ...]


def standing_approval_key(app: str, tool: str, account: Account | None = None) -> str:
    """Return the reserved session state key of "always allow this tool": no tool, agent or model reads or writes it.

    If the tool may use the accounts of a person, the approval counts for the calls of that person.
    """
    return f"{RESERVED_PREFIX}always:{app}:{tool}{f':{account.person}' if account else ''}"


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """Rule of a tool's approvals, from the tool and the settings.

    Attributes:
        approvers: people and roles that may decide (see `core.tools.human_requests`).
        may_allow_always: whether a person may allow all calls of the tool in the session.
        tool_hash: SHA-256 of the names of agent and tool and the tool's schema, in hexadecimal.
    """

    approvers: tuple[str, ...]
    may_allow_always: bool
    tool_hash: str

    def matches(self, standing: Any) -> bool:
        """Return whether a stored standing approval was given for the same tool under the same approvers."""
        stored = standing if isinstance(standing, dict) else {}
        given = stored.get("approvers"), stored.get("tool_hash")
        return self.may_allow_always and given == (list(self.approvers), self.tool_hash)


@dataclass(frozen=True, slots=True)
class Account:
    """The accounts at other services that a call may use.

    Attributes:
        person: the person whose accounts they are: platform, workspace and id.
        name: the person's name.
        services: the names of the services.
    """

    person: str
    name: str
    services: tuple[str, ...]

    @classmethod
    def from_json(cls, data: Any) -> Account | None:
        return cls(data["person"], data["name"], tuple(data["services"])) if data else None


@dataclass(frozen=True, slots=True)
class ConfirmationRequest:
    """Tool call that needs a person's approval before it is made.

    Attributes:
        run: the id of the ADK invocation that waits.
        call_id: the id of ADK's confirmation call, whose response is the decision.
        tool_call_id: the id of the tool's call; empty if a workflow makes it.
        hint: the tool's reason for the request; empty if the tool states none.
        approvers: see `ApprovalRule`; None for those of the settings.
        tool_hash: see `ApprovalRule`; empty if a workflow makes the call.
        secret_paths: the paths of the arguments that the tool's schema marks as secret; they are not shown.
        account: the accounts that the call may use; None for none.
    """

    run: str
    call_id: str
    tool_call_id: str
    tool: str
    arguments: Mapping[str, Any]
    hint: str = ""
    approvers: tuple[str, ...] | None = None
    may_allow_always: bool = True
    secret_paths: tuple[ArgumentPath, ...] = ()
    tool_hash: str = ""
    account: Account | None = None

    @property
    def arguments_hash(self) -> str:
        """SHA-256 of the arguments as canonical JSON, in hexadecimal."""
        return hash_arguments(to_json_value(self.arguments))


def is_of_node(event: Event) -> bool:
    """Return whether a workflow's node made an event, and not an agent's model or a remote agent.

    ADK: the author of a node's event is the workflow, and the event's path leads from the workflow to the node. The
    path of an agent's event ends with the agent.
    """
    ancestors = event.node_info.path.split("/")[:-1]
    return any(ancestor.partition("@")[0] == event.author for ancestor in ancestors)


def find_confirmations(events: Sequence[Event]) -> Iterator[ConfirmationRequest]:
    """Yield the confirmation requests that ADK has made in the events of a run.

    A request for a tool counts only if the response of the tool's call requested it (`requested_tool_confirmations`),
    with the name and arguments of that call. A request of a workflow's node has an id with the node's path. Any other
    call of these names, such as one that a model or a remote agent wrote, is left out.
    """
    calls = {call.id: call for event in events for call in event.get_function_calls()}
    requested = {
        id_: confirmation
        for event in events
        for id_, confirmation in event.actions.requested_tool_confirmations.items()
    }
    for event in events:
        for question in event.get_function_calls():
            is_of_path = question.id == f"{_NODE_PREFIX}{event.node_info.path}"
            if question.name == INPUT_CALL and is_of_path and is_of_node(event):
                yield _parse_node_confirmation(event.invocation_id, question)
            if question.name != CONFIRMATION_CALL_NAME or not question.id:
                continue
            try:
                call = types.FunctionCall.model_validate((question.args or {}).get("originalFunctionCall"))
            except ValidationError:
                continue
            original = calls.get(call.id, call)
            if call.id in requested and (call.name, call.args or {}) == (original.name, original.args or {}):
                yield _parse_confirmation(event.invocation_id, question.id, call, requested[call.id])


def _parse_confirmation(
    run: str, id_: str, call: types.FunctionCall, confirmation: ToolConfirmation
) -> ConfirmationRequest:
    payload = confirmation.payload
    rule = payload.get(_RULE_KEY) if isinstance(payload, dict) else None
    found = rule if isinstance(rule, dict) else {}
    return ConfirmationRequest(
        run=run,
        call_id=id_,
        tool_call_id=call.id or "",
        tool=call.name or "",
        arguments=call.args or {},
        hint="" if confirmation.hint.startswith(_DEFAULT_HINT_PREFIX) else confirmation.hint,
        approvers=tuple(map(str, found["approvers"])) if found else None,
        may_allow_always=bool(found.get("always")),
        secret_paths=tuple(map(tuple, found.get("secret_paths") or ())),
        tool_hash=str(found.get("tool_hash") or ""),
        account=Account.from_json(found.get("account")),
    )


def _parse_node_confirmation(run: str, question: types.FunctionCall) -> ConfirmationRequest:
    arguments = question.args or {}
    payload = arguments.get("payload")
    node = payload if isinstance(payload, dict) else {}
    hint = str(arguments.get("message") or "")
    return ConfirmationRequest(
        run=run,
        call_id=question.id or "",
        tool_call_id="",
        tool=str(node.get("tool_name") or ""),
        arguments=node.get("args") or {},
        hint="" if hint.startswith(_DEFAULT_HINT_PREFIX) else hint,
        may_allow_always=False,
    )


def set_approval_rule(
    context: ToolContext,
    rule: ApprovalRule,
    secret_paths: Sequence[ArgumentPath] = (),
    account: Account | None = None,
) -> None:
    """Write the rule of a tool's approvals to the confirmation request that the tool has just made.

    A payload of the tool that is a dict keeps its other keys; any other payload is replaced, and a request with a
    payload is never allowed for all calls. Without a request in `context` nothing changes.
    """
    confirmation = context.actions.requested_tool_confirmations.get(context.function_call_id or "")
    if confirmation is None:
        return
    payload = confirmation.payload if isinstance(confirmation.payload, dict) else {}
    values = {
        "approvers": list(rule.approvers),
        "always": rule.may_allow_always and confirmation.payload is None,
        "tool_hash": rule.tool_hash,
        "secret_paths": [list(path) for path in secret_paths],
        "account": account and asdict(account),
    }
    confirmation.payload = {**payload, _RULE_KEY: values}


def find_secret_paths(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[ArgumentPath]:
    """Return the paths of the arguments that a JSON Schema marks as secret.

    The mark is `writeOnly: true` or `format: password`. References and combinations of schemas are followed. An
    argument that is None has no path. Values below `MAX_JSON_DEPTH` levels are secret, too.

    Raises:
        SchemaError: the schema is too large for the budget of `SchemaResolver`.
    """
    paths = list[ArgumentPath]()
    if not has_secret_mark(schema):
        return paths
    finder = _SchemaFinder(SchemaResolver(schema))
    pending: list[tuple[Any, _ValueSchemas, ArgumentPath]] = [(arguments, finder.get([schema]), ())]
    while pending:
        value, schemas, path = pending.pop()
        if value is None or not schemas.parts:
            continue
        if schemas.are_secret or len(path) > MAX_JSON_DEPTH:
            paths.append(path)
        elif isinstance(value, Mapping):
            fields = [(item, finder.get_of_field(schemas, name), (*path, name)) for name, item in value.items()]
            pending += reversed(fields)
        elif isinstance(value, list | tuple):
            items = [(item, finder.get_of_item(schemas, i), (*path, i)) for i, item in enumerate(value)]
            pending += reversed(items)
    return paths


def find_masked_paths(schema: Mapping[str, Any], arguments: Any) -> list[ArgumentPath]:
    """Return the paths of the values to mask: the secret ones, or the whole if the schema is over the budget."""
    try:
        return find_secret_paths(schema, arguments)
    except SchemaError:
        return [()]


def has_secret_mark(schema: Any) -> bool:
    """Return whether a JSON Schema, or any part of it, has `writeOnly` or the format `password`."""
    pending = [schema]
    seen = set[int]()
    while pending:
        part = pending.pop()
        if not isinstance(part, Mapping | list) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Mapping) and _is_secret(part):
            return True
        pending += part.values() if isinstance(part, Mapping) else part
    return False


def _is_secret(schema: Mapping[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


@dataclass(slots=True)
class _ValueSchemas:
    """The schemas of a value, and those of its fields and items as far as they are known.

    Attributes:
        first_items: the number of first items that may have schemas of their own.
        inner: the schemas of fields by name, and of items by position; of all others by None and -1.
    """

    parts: list[Mapping[str, Any]]
    are_secret: bool
    first_items: int
    inner: dict[str | int | None, _ValueSchemas] = field(default_factory=dict)


class _SchemaFinder:
    """Finds the schemas of the values in a call's arguments, once for all values with the same schemas."""

    def __init__(self, resolver: SchemaResolver) -> None:
        self._resolver = resolver
        self._known = dict[frozenset[int], _ValueSchemas]()
        self._part_ids = set[int]()
        self._names = set[str]()

    def get(self, schemas: Sequence[Any]) -> _ValueSchemas:
        parts = self._resolver.list_parts(schemas)
        key = frozenset(map(id, parts))
        if key not in self._known:
            for part in parts:
                if id(part) not in self._part_ids:
                    self._part_ids.add(id(part))
                    self._names.update(_get_mapping(part, "properties"))
            first_items = max((len(_get_list(part, "prefixItems")) for part in parts), default=0)
            self._known[key] = _ValueSchemas(parts, any(map(_is_secret, parts)), first_items)
        return self._known[key]

    def get_of_field(self, schemas: _ValueSchemas, name: str) -> _ValueSchemas:
        key = name if name in self._names else None
        if key not in schemas.inner:
            schemas.inner[key] = self.get(
                [_get_mapping(part, "properties").get(name, part.get("additionalProperties")) for part in schemas.parts]
            )
        return schemas.inner[key]

    def get_of_item(self, schemas: _ValueSchemas, position: int) -> _ValueSchemas:
        key = position if position < schemas.first_items else -1
        if key not in schemas.inner:
            schemas.inner[key] = self.get([_get_item_schema(part, position) for part in schemas.parts])
        return schemas.inner[key]


def _get_item_schema(schema: Mapping[str, Any], position: int) -> Any:
    first = _get_list(schema, "prefixItems")
    return first[position] if position < len(first) else schema.get("items")


def _get_mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, Mapping) else {}


def _get_list(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = schema.get(key)
    return value if isinstance(value, list | tuple) else ()
