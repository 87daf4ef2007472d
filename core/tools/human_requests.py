"""Requests of a turn to people: approvals of tool calls, questions, and sign-ins at other services.

The deciders of a request are words and ids. `author` is the authors of the messages that led to the request, `others`
is anybody else. `admins`, `everyone`, and ids of users and roles are as in `core.messages.identity.is_permitted`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.identity import AUTHOR, OTHERS, User, is_permitted
from core.messages.inbox_message import InboxMessage
from core.sessions.resume import INPUT_CALL
from core.store.errors import name_row
from core.store.schema import human_requests, turns
from core.tools.adk_confirmations import Account, ArgumentPath
from core.tools.adk_requests import CHOICE_TOOL, CredentialOwner, MessageAnswer
from core.tools.question_form import Entries, EntryError, QuestionForm, create_form
from core.tools.secret_answers import has_secret_fields, mask_answer
from core.tools.shown_arguments import ShownArguments, show_arguments
from core.turns.queries import get_inbox_rows, parse_inbox_message
from core.turns.turn import FILE_PREFIX
from core.usage.user_rate_limits import RateLimitDenial

Verdict = Literal["approved", "always", "denied", "expired", "answered", "connected"]


@dataclass(frozen=True, kw_only=True)
class HumanRequest:
    """Request of a turn to people, open or decided: an `Approval`, a `Question` or a `SignInRequest`.

    Attributes:
        turn_id: the id of the turn whose run waits for the decision.
        tool: the name of the tool call that waits.
        author_ids: the platform's ids of the authors of the messages that led to the call, without those who only
            answered questions of the run.
        deciders: people and roles that may decide: see the module.
        message_ids: the platform's ids of the messages that show the request.
        speaker_ids: the platform's ids of all people whose words are in the run.
        inbox_message: the newest message that led to the call.
        verdict: `approved`, `always` or `denied` for an approval, `answered` for a question, `connected` or `denied`
            for a sign-in, `expired` for each after its time; None while the request is open.
        decider: the name of the person who decided; empty while the request is open, and after an expiry.
    """

    id: str
    turn_id: str
    session_id: str
    tool: str
    arguments: Any
    author_ids: frozenset[str]
    deciders: tuple[str, ...]
    expires_at: float
    message_ids: tuple[str, ...]
    inbox_message: InboxMessage
    speaker_ids: frozenset[str] = frozenset()
    verdict: Verdict | None = None
    decider: str = ""
    decided_at: float = 0.0

    def is_author(self, person: User) -> bool:
        return person.id in self.author_ids

    def permits(self, verdict: Verdict) -> bool:
        """Return whether people may decide so: the rule for the buttons, and for their presses."""
        raise NotImplementedError

    def may_decide(self, person: User) -> bool:
        return (
            is_permitted(self.deciders, person)
            or (AUTHOR in self.deciders and self.is_author(person))
            or (OTHERS in self.deciders and person.id not in self.author_ids | self.speaker_ids)
        )


@dataclass(frozen=True, kw_only=True)
class Approval(HumanRequest):
    """Request to approve a tool call.

    Attributes:
        hint: the tool's reason for the request; empty if the tool states none.
        may_allow_always: whether the tool lets people allow all its calls in the session.
        app_name: the name of the agent.
        tool_hash: see `core.tools.adk_confirmations.ApprovalRule`.
        secret_paths: the paths of the arguments that are not shown.
        account: the accounts that the call may use; None for none.
    """

    hint: str
    may_allow_always: bool
    app_name: str = ""
    tool_hash: str = ""
    secret_paths: frozenset[ArgumentPath] = frozenset()
    account: Account | None = None

    @cached_property
    def shown_arguments(self) -> ShownArguments:
        return show_arguments(self.arguments, self.secret_paths)

    @property
    def is_readable(self) -> bool:
        """True if people can read all arguments: in the message, or in a file that is posted with it."""
        return not self.shown_arguments.missing or any(id_.startswith(FILE_PREFIX) for id_ in self.message_ids)

    def permits(self, verdict: Verdict) -> bool:
        """Return whether people may decide so.

        Nobody approves arguments that cannot be read, and nobody allows all calls after a message that hides or cuts
        arguments of this one.
        """
        match verdict:
            case "always":
                return self.may_allow_always and not (self.shown_arguments.missing or self.shown_arguments.hidden)
            case "approved":
                return self.is_readable
        return verdict == "denied"


@dataclass(frozen=True, kw_only=True)
class Question(HumanRequest):
    """Request for a value, which becomes the response of the tool call.

    Attributes:
        answer: JSON value, which may be None; also None while the question is open, after its expiry, and if
            `is_answered_by_message`.
        is_answered_by_message: whether the run of a message in the session continues the asking run. A message that
            answers one of several requests of a turn is stored in `answer` instead.
        drafts: form entries that people have not submitted, by the person's id.
    """

    answer: Any = None
    is_answered_by_message: bool = False
    drafts: Mapping[str, Entries] = field(default_factory=dict)

    def permits(self, verdict: Verdict) -> bool:
        return verdict == "answered"

    @cached_property
    def form(self) -> QuestionForm:
        return create_form(self.tool, self.arguments)

    @property
    def takes_messages(self) -> bool:
        """True if a message may be the answer: the call's only purpose is a question. Others have a form."""
        return self.tool in (INPUT_CALL, CHOICE_TOOL)

    def may_be_answered_by(self, message: InboxMessage, author: User) -> bool:
        """Return whether a message in the session is an answer by one of the deciders.

        Any message of the people who were asked may be one. A message of another decider must refer to the question,
        since it may be meant for the agent: as a reply to it, or in its thread, with the bot addressed.
        """
        is_reply = message.replied_id in self.message_ids
        refers = is_reply or (message.is_in_thread and message.is_addressed)
        return self.may_decide(author) and (refers or self.is_author(author))

    @property
    def has_secret_fields(self) -> bool:
        return has_secret_fields(self.tool, self.arguments)

    @property
    def masked_answer(self) -> Any:
        return mask_answer(self.tool, self.arguments, self.answer)

    @property
    def text(self) -> str:
        """The text of the agent's question; empty if the call has none."""
        message = self.arguments.get("message")
        return message if isinstance(message, str) else ""


@dataclass(frozen=True, kw_only=True)
class SignInRequest(HumanRequest):
    """Request for a person's credential at another service. Only that person can decide.

    Attributes:
        run: the id of the ADK invocation that waits.
        tool_call_id: the id of the tool's call.
        credential_key: ADK's key of the credential.
        owner: the person, and the name of the service.
        app_name: the name of the agent.
    """

    run: str
    tool_call_id: str
    credential_key: str
    owner: CredentialOwner
    app_name: str

    def permits(self, verdict: Verdict) -> bool:
        return verdict in ("connected", "denied")

    def may_decide(self, person: User) -> bool:
        is_same_workspace = not self.owner.workspace or person.workspace == self.owner.workspace
        return is_same_workspace and (person.platform, person.id) == (self.owner.platform, self.owner.person)


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """Result of an attempt to decide a request.

    Attributes:
        request: the request as it is now; None if it is unknown.
        limited: the user rate limit that the person exceeds, so that nothing is stored, unless it is a denial: that is
            stored, but may start no turn.
        is_first: whether this attempt stored the verdict. An open request past its time gets the verdict `expired`,
            even if the person may not decide it.
    """

    request: HumanRequest | None = None
    is_first: bool = False
    limited: RateLimitDenial | None = None


@dataclass(frozen=True, slots=True)
class MessageAnswerResult:
    """Result of `answer_with_message`: the question that a message answers, if any.

    Attributes:
        answers: the messages by which the run of this message continues earlier runs, oldest first, this one last.
        question: the question that the message answers, or would answer if it had no error.
    """

    answers: tuple[MessageAnswer, ...] = ()
    question: Question | None = None
    error: EntryError | None = None


async def select_requests(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> list[HumanRequest]:
    """Return the requests that match a SQL condition, oldest first.

    A request is left out if its turn has no stored message any more.

    Raises:
        UnreadableRowError: a request or a message of its turn cannot be read.
    """
    query = sa.select(human_requests, turns.c.origin, turns.c.agent).join(turns, turns.c.id == human_requests.c.turn)
    order = human_requests.c.requested_at, human_requests.c.id
    rows = (await connection.execute(query.where(condition).order_by(*order))).all()
    result = list[HumanRequest]()
    for row in rows:
        messages = [
            message
            for inbox_row in await get_inbox_rows(connection, row.origin)
            if (message := parse_inbox_message(inbox_row.message, inbox_row.id))
        ]
        with name_row("human_requests", row.id):
            result += [_to_request(row, messages[-1])] if messages else []
    return result


def _to_request(row: sa.Row[Any], inbound: InboxMessage) -> HumanRequest:
    common: dict[str, Any] = {
        "id": row.id,
        "turn_id": row.turn,
        "session_id": row.session,
        "tool": row.tool,
        "arguments": dict(row.arguments),
        "author_ids": frozenset(row.authors),
        "speaker_ids": frozenset(row.speakers),
        "deciders": tuple(row.deciders),
        "expires_at": row.expires_at,
        "message_ids": tuple(row.chunks),
        "inbox_message": inbound,
        "verdict": row.decision,
        "decider": row.decided_by_name or "",
        "decided_at": row.decided_at or 0.0,
    }
    if row.kind == "sign_in":
        arguments = dict(row.arguments)
        key = arguments.pop("credential_key")
        return SignInRequest(
            **common,
            run=row.run,
            tool_call_id=row.tool_call_id,
            credential_key=key,
            owner=CredentialOwner(**arguments),
            app_name=row.agent,
        )
    if row.kind == "question":
        is_message = row.answer_run is not None
        return Question(**common, answer=row.answer, is_answered_by_message=is_message, drafts=dict(row.drafts))
    return Approval(
        **common,
        hint=row.hint,
        may_allow_always=row.may_allow_always,
        app_name=row.agent,
        tool_hash=row.tool_hash,
        secret_paths=frozenset(map(tuple, row.secret_paths)),
        account=Account.from_json(row.account),
    )
