"""Requests of a run to people, and their answers, in ADK's events.

In ADK, each request is a long-running call, and the response of that call resumes the run. A confirmation requests
permission for a tool call (`core.tools.adk_confirmations`); a question requests a value.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.events.request_input import RequestInput
from google.genai import types

from core.models.tool_calls import JsonLimitError, parse_json
from core.observability.secret_redaction import RunSecrets
from core.sessions.history import CONFIRMATION_CALL_NAME
from core.sessions.resume import INPUT_CALL, NOT_ANSWERED_ERROR
from core.tools.adk_confirmations import ConfirmationRequest, find_confirmations, is_of_node
from core.tools.secret_answers import find_answer_paths

#: ADK: names of the tools whose only purpose is a question, and of the request for credentials.
CHOICE_TOOL, CREDENTIAL_CALL = "get_user_choice", "adk_request_credential"

#: Prefix of the name of a model's call that only ADK may make. No such tool exists, so the model gets an error.
FORGED_CALL_PREFIX = "forged_call_to_"

#: ADK: arguments of `adk_request_input` that only a workflow's node sets.
_NODE_ARGUMENTS = frozenset({"interruptId", "interrupt_id", "payload"})

#: ADK: prefix of the ids of calls that a workflow makes.
_WORKFLOW_ID_PREFIX = "wf_"

#: Field of the `CredentialOwner` in a credential request's `AuthConfig`, which permits additional fields. Parley writes
#: it for each request, over any value of the tool.
_OWNER_KEY = "parley"

#: Credential in the response that resumes a run after a sign-in, by the type of the request's scheme. Real ones are
#: never in events: the call gets its own when it is made.
_PLACEHOLDER = "signed-in"
_PLACEHOLDERS: Mapping[str, Mapping[str, Any]] = {
    "apiKey": {"authType": "apiKey", "apiKey": _PLACEHOLDER},
    "http": {
        "authType": "http",
        "http": {"scheme": "basic", "credentials": {"username": _PLACEHOLDER, "password": _PLACEHOLDER}},
    },
    "oauth2": {"authType": "oauth2", "oauth2": {"accessToken": _PLACEHOLDER}},
}


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """Long-running call of a run that waits for a person's answer as its response.

    Attributes:
        run: the id of the ADK invocation that waits.
        tool: the name of the call: `adk_request_input`, `get_user_choice`, or that of a tool.
        deciders: people and roles that may answer (see `core.tools.human_requests`), from `approvers` in the `payload`
            of a workflow's `RequestInput`.
    """

    run: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    deciders: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class CredentialOwner:
    """Person whose credential a tool call needs, and the name of the service for people."""

    platform: str
    workspace: str
    person: str
    label: str


@dataclass(frozen=True, slots=True)
class CredentialRequest:
    """Tool call that needs a credential of a person before it is made.

    Attributes:
        run: the id of the ADK invocation that waits.
        call_id: the id of ADK's credential call, whose response resumes the run.
    """

    run: str
    call_id: str
    tool_call_id: str
    tool: str
    credential_key: str
    owner: CredentialOwner


@dataclass(frozen=True, slots=True)
class SignInDecision:
    """Sign-in for a credential request, or its refusal or expiry."""

    call_id: str
    tool_call_id: str
    credential_key: str
    label: str
    is_connected: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on a confirmation request; the call is not allowed if the request expired.

    `call_id` is that of ADK's confirmation call. The hash is the SHA-256 of the arguments that the approver saw.
    """

    call_id: str
    arguments_hash: str
    is_allowed: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a question as a JSON value, or its expiry: nobody answered in time."""

    call_id: str
    tool: str
    value: Any = None
    is_expired: bool = False


#: Decision or answer of people on a request.
HumanDecision = Decision | Answer | SignInDecision


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    """A message that answers a question; its `run` continues the run that asks."""

    run: str
    asking_run: str
    call_id: str


def clean_model_call(call: types.FunctionCall) -> None:
    """Rename a call in a model's answer if only ADK may make it, and drop an id that only a workflow may give.

    ADK makes the requests for a confirmation and for credentials itself. A workflow's node names the people who may
    answer its question; a model that does so in its call of `adk_request_input` imitates one.
    """
    is_request = call.name in (CONFIRMATION_CALL_NAME, CREDENTIAL_CALL)
    if is_request or (call.name == INPUT_CALL and not _NODE_ARGUMENTS.isdisjoint(call.args or ())):
        call.name = FORGED_CALL_PREFIX + str(call.name)
    if (call.id or "").startswith(_WORKFLOW_ID_PREFIX):
        call.id = None


def find_questions(events: Sequence[Event]) -> list[QuestionRequest]:
    """Return the questions in ADK events without a response; confirmations and credentials are left out."""
    waiting = dict[str, QuestionRequest]()
    for event in events:
        for answer in event.get_function_responses():
            waiting.pop(answer.id or "", None)
        for call in event.get_function_calls():
            is_long = call.id in (event.long_running_tool_ids or ()) or call.name == INPUT_CALL
            if call.id and is_long and call.name not in (CONFIRMATION_CALL_NAME, CREDENTIAL_CALL):
                waiting[call.id] = _to_question(event, call)
    confirmed = {request.call_id for request in find_confirmations(events)}
    return [question for question in waiting.values() if question.call_id not in confirmed]


def set_credential_owner(config: AuthConfig, owner: CredentialOwner) -> None:
    """Write the owner to a tool's request, and remove ADK's own authorization URL, state and verifier."""
    config.exchanged_auth_credential = None
    setattr(config, _OWNER_KEY, asdict(owner))


def find_credential_requests(events: Sequence[Event]) -> list[CredentialRequest]:
    """Return the credential requests without a response that ADK has made in the events of a run.

    A request counts only if the response of the tool's call requested it (`requested_auth_configs`).
    """
    tools = {call.id: call.name or "" for event in events for call in event.get_function_calls()}
    requested = {id_: config for event in events for id_, config in event.actions.requested_auth_configs.items()}
    given = _find_responses(events)
    found = dict[str, CredentialRequest]()
    for event in events:
        for call in event.get_function_calls():
            id_ = str((call.args or {}).get("functionCallId") or "")
            config = requested.get(id_)
            owner = (config.model_extra or {}).get(_OWNER_KEY) if config is not None else None
            if call.name == CREDENTIAL_CALL and call.id and call.id not in given and config is not None and owner:
                key = config.credential_key or ""
                found[call.id] = CredentialRequest(
                    event.invocation_id, call.id, id_, tools.get(id_, ""), key, CredentialOwner(**owner)
                )
    return list(found.values())


def is_schema_refusal(error: Exception) -> bool:
    """Return whether an error is ADK's refusal of a question's `response_schema`.

    google-genai 2 raises an `AttributeError` for a list as `type`, and pydantic several errors for values that are no
    schema. All are raised by the request itself, or by its conversion to an event: the traceback is searched for these.
    """
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        isinstance(frame.f_locals.get(name), RequestInput) for frame in frames for name in ("self", "request_input")
    )


def _to_question(event: Event, call: types.FunctionCall) -> QuestionRequest:
    arguments = call.args or {}
    payload = arguments.get("payload") if call.name == INPUT_CALL and is_of_node(event) else None
    names = payload.get("approvers") if isinstance(payload, Mapping) else None
    deciders = tuple(map(str, names)) if isinstance(names, list | tuple) else None
    return QuestionRequest(event.invocation_id, call.id or "", call.name or "", arguments, deciders)


def to_contents(stored: Sequence[Event], decisions: Sequence[HumanDecision]) -> list[types.Content]:
    """Return the user messages that resume a run with people's decisions and answers.

    Their parts are the function responses for ADK. Decisions that the run has stored already are left out. Each agent
    and branch gets a message of its own, since ADK 2.13 delivers a message to one of them: it routes by the first
    response and drops the others.
    """
    calls = {
        call.id: (event.author, event.branch, call)
        for event in stored
        for call in event.get_function_calls()
        if call.id
    }
    confirmations = {request.call_id: request for request in find_confirmations(stored)}
    given = _find_responses(stored)
    messages = dict[tuple[str | None, str | None], list[types.Part]]()
    for decision in decisions:
        if decision.call_id in given:
            continue
        author, branch, call = calls.get(decision.call_id, (None, None, None))
        part = to_response_part(decision, call, confirmations.get(decision.call_id))
        messages.setdefault((author, branch), []).append(part)
    return [types.Content(role="user", parts=parts) for parts in messages.values()]


def to_response_part(
    decision: HumanDecision, call: types.FunctionCall | None, confirmation: ConfirmationRequest | None = None
) -> types.Part:
    """Return the function response that resumes a run with a decision or an answer.

    A permission is valid only for the arguments that were shown. If its `arguments_hash` differs from that of the
    confirmation request, it becomes a denial.
    """
    response: dict[str, Any]
    match decision:
        case Decision():
            name = (call and call.name) or CONFIRMATION_CALL_NAME
            is_same = confirmation is not None and confirmation.arguments_hash == decision.arguments_hash
            response = {"confirmed": decision.is_allowed and is_same}
        case Answer(is_expired=True):
            name = decision.tool
            response = {"error": NOT_ANSWERED_ERROR}
        case Answer():
            name = decision.tool
            response = {"result": _to_result(decision.value, call)}
        case SignInDecision():
            name = CREDENTIAL_CALL
            response = dict(_get_placeholder(call))
    return types.Part(function_response=types.FunctionResponse(id=decision.call_id, name=name, response=response))


def _get_placeholder(call: types.FunctionCall | None) -> Mapping[str, Any]:
    config = ((call and call.args) or {}).get("authConfig") or {}
    return _PLACEHOLDERS.get((config.get("authScheme") or {}).get("type", ""), _PLACEHOLDERS["oauth2"])


def add_answer_secrets(secrets: RunSecrets, stored: Sequence[Event], decisions: Sequence[HumanDecision]) -> None:
    """Add the secret values in people's answers to the secrets of a run."""
    calls = {call.id: call for event in stored for call in event.get_function_calls()}
    for answer in decisions:
        if isinstance(answer, Answer) and not answer.is_expired and (call := calls.get(answer.call_id)) is not None:
            paths = find_answer_paths(answer.tool, call.args or {}, answer.value)
            secrets.add_call(answer.call_id, answer.value, paths, ("result",))


def _to_result(value: Any, call: types.FunctionCall | None) -> Any:
    """Return the value of an answer as ADK expects it in the function response.

    Only answers to `adk_request_input` calls change. Missing properties of an object become None. ADK parses a string
    as JSON, even if the schema requires a string: a string such as `12` is encoded as JSON, so that it stays a string.
    So is JSON over the limits of `parse_json`, also without a schema.
    """
    if call is None or call.name != INPUT_CALL:
        return value
    schema = (call.args or {}).get("response_schema")
    if isinstance(value, Mapping) and isinstance(schema, Mapping) and isinstance(schema.get("properties"), Mapping):
        return {**dict.fromkeys(schema["properties"]), **value}
    if not isinstance(value, str):
        return value
    try:
        must_stay_text = not isinstance(parse_json(value), str) and isinstance(schema, Mapping)
    except JsonLimitError:
        must_stay_text = True
    except ValueError:
        must_stay_text = False
    return json.dumps(value) if must_stay_text else value


def find_events_after_response(stored: Sequence[Event], decisions: Sequence[HumanDecision]) -> list[Event] | None:
    """Return the events that a run stored after the first response to these decisions; None without one."""
    positions = _find_responses(stored)
    given = [positions[decision.call_id] for decision in decisions if decision.call_id in positions]
    return list(stored[min(given) + 1 :]) if given else None


def find_resumed_calls(stored: Sequence[Event], decisions: Sequence[HumanDecision]) -> Iterator[types.FunctionCall]:
    """Yield the tool calls that were approved, or got a credential, and have no later response.

    Only responses after the run's first response to `decisions` count, so that ADK's placeholder before it does not.
    The `arguments_hash` of a decision is not compared. Calls that a workflow makes, which have no id, are left out.
    """
    approved = {decision.call_id for decision in decisions if isinstance(decision, Decision) and decision.is_allowed}
    due = {request.tool_call_id for request in find_confirmations(stored) if request.call_id in approved}
    due |= {made.tool_call_id for made in decisions if isinstance(made, SignInDecision) and made.is_connected}
    ended = {
        answer.id
        for event in find_events_after_response(stored, decisions) or ()
        for answer in event.get_function_responses()
    }
    for event in stored:
        for call in event.get_function_calls():
            if call.id in due - ended:
                due.discard(call.id)
                yield call


def _find_responses(events: Sequence[Event]) -> dict[str, int]:
    """Return the index in `events` of each person's response, by call id; a call that is made again has none."""
    positions = dict[str, int]()
    for i, event in enumerate(events):
        for call in event.get_function_calls():
            positions.pop(call.id or "", None)
        if event.author == "user":
            positions |= {answer.id: i for answer in event.get_function_responses() if answer.id}
    return positions
