"""Service for requests to people: stores and decides approvals, questions and sign-ins.

The first decision on a request counts, over all workers. After the last decision on the requests of a turn, a row in
the inbox starts the turn that resumes the run. If all these requests are questions that expired, no turn starts.
"""

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import run_every
from core.errors import UnreadableRowError
from core.messages.identity import AUTHOR, OTHERS, User, to_user_state
from core.messages.inbox_message import InboxOutcome
from core.observability.secret_redaction import format_error
from core.sessions import state as scopes
from core.sessions.codec import to_json_value
from core.sessions.lifecycle import lock_session_row
from core.sessions.resume import close_calls
from core.store.database import Database
from core.store.schema import human_requests, inbox, sessions, turns
from core.store.turn_states import states_before
from core.store.upsert import insert_or_ignore
from core.tools.adk_confirmations import ConfirmationRequest, standing_approval_key
from core.tools.adk_requests import (
    Answer,
    CredentialRequest,
    Decision,
    HumanDecision,
    MessageAnswer,
    QuestionRequest,
    SignInDecision,
)
from core.tools.call_log import hash_arguments
from core.tools.human_requests import (
    Approval,
    DecisionResult,
    HumanRequest,
    MessageAnswerResult,
    Question,
    Verdict,
    select_requests,
)
from core.tools.question_form import Entries, EntryError, parse_answer
from core.turns.queries import get_run_authors, message_columns, record_message
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker
from core.usage.user_rate_limits import NO_RATE_LIMITS, UserRateLimiter

log = logging.getLogger(__name__)

#: Request of a run to people.
AgentRequest = ConfirmationRequest | QuestionRequest | CredentialRequest

#: Values of the columns that only an approval has.
_NO_APPROVAL: Mapping[str, Any] = {"hint": "", "may_allow_always": False, "tool_hash": "", "secret_paths": []}

HOUR_SECONDS = 3600.0

#: Seconds between two queries for expired requests.
EXPIRY_INTERVAL_SECONDS = 15.0

#: The most runs that continue each other because a message answers a question.
MAX_ANSWERS = 100


class HumanRequestService:
    """Service for approvals, questions and sign-ins, in the table `human_requests`.

    Requests whose turn has no stored message are in the results of `list_decisions` only. They cannot be decided, and
    do not expire.

    Args:
        approvers: people and roles that may decide on tool calls, if the tool names none.
        expiry_hours: hours until an undecided request expires.
        rates: limits of messages per person and place, for which decisions and answers by button or form count.
    """

    def __init__(
        self,
        database: Database,
        turns: TurnStore,
        worker: Worker,
        *,
        approvers: Sequence[str] = (AUTHOR,),
        expiry_hours: float = 24.0,
        rates: UserRateLimiter = NO_RATE_LIMITS,
    ) -> None:
        self._database = database
        self._turns = turns
        self._worker = worker
        self._approvers = tuple(approvers)
        self._expiry_hours = expiry_hours
        self._rates = rates

    async def save_answer(
        self,
        turn: Turn,
        text: str,
        usage: Mapping[str, Any],
        requests: Sequence[AgentRequest],
        run_record: Mapping[str, Any] | None = None,
    ) -> list[HumanRequest]:
        """Store a turn's final text, run record and requests in one transaction.

        The turn gets the state `answered`. No requests are stored if it was cancelled or its session was reset. All
        stored requests of the turn are returned, oldest first.

        Raises:
            TurnLostError: another worker owns the turn, or it has ended.
            StoreError: the database cannot be written, after retries for 90 s.
        """
        fence = self._turns.fencing_token(turn)

        async def work(connection: AsyncConnection) -> list[HumanRequest]:
            generation = await lock_session_row(connection, turn.session_id)
            can_answer = fence.owns_turn & turns.c.state.in_(states_before("answered"))
            values = {"text": text, "usage": dict(usage), "run_record": run_record, "state": "answered"}
            update = sa.update(turns).where(can_answer).values(values).returning(turns.c.cancel_reason)
            if (row := (await connection.execute(update)).one_or_none()) is None:
                raise fence.lost_error
            if generation == turn.generation and row.cancel_reason is None:
                await self._insert_requests(connection, turn, requests)
            return await select_requests(connection, human_requests.c.turn == turn.id)

        return await self._database.write_with_retries(work, operation=f"turn {turn.id}")

    async def _insert_requests(self, connection: AsyncConnection, turn: Turn, requests: Sequence[AgentRequest]) -> None:
        run = await get_run_authors(connection, turn.session_id, turn.run_id)
        author_ids = run.first_author_ids or {message.author for message in turn.messages}
        now = time.time()
        for number, request in enumerate(requests):
            arguments = to_json_value(_get_arguments(request))
            row = {
                "id": uuid.uuid5(uuid.NAMESPACE_OID, f"{turn.id} {request.call_id}").hex[:16],
                "turn": turn.id,
                "session": turn.session_id,
                "generation": turn.generation,
                "run": request.run,
                "call_id": request.call_id,
                "tool": request.tool,
                "arguments": arguments,
                "arguments_hash": hash_arguments(arguments),
                "authors": sorted(author_ids),
                "speakers": sorted(run.ids),
                "requested_at": now + number / 1000,  # distinct times keep their order
                "expires_at": now + self._expiry_hours * HOUR_SECONDS,
                "chunks": [],
                "answer_authors": [],
                "drafts": {},
                **self._kind_columns(request),
            }
            await insert_or_ignore(connection, human_requests, row)

    def _kind_columns(self, request: AgentRequest) -> dict[str, Any]:
        if isinstance(request, QuestionRequest):
            return {
                **_NO_APPROVAL,
                "kind": "question",
                "tool_call_id": request.call_id,
                "deciders": list(request.deciders or (AUTHOR,)),
            }
        if isinstance(request, CredentialRequest):
            return {
                **_NO_APPROVAL,
                "kind": "sign_in",
                "tool_call_id": request.tool_call_id,
                "deciders": [request.owner.person],
            }
        approvers = self._approvers if request.approvers is None else request.approvers
        return {
            "kind": "approval",
            "tool_call_id": request.tool_call_id,
            "hint": request.hint,
            "deciders": list(approvers),
            # a standing approval would let authors decide for themselves
            "may_allow_always": request.may_allow_always and OTHERS not in approvers,
            "tool_hash": request.tool_hash,
            "secret_paths": [list(path) for path in request.secret_paths],
            "account": request.account and asdict(request.account),
        }

    async def get(self, id_: str) -> HumanRequest | None:
        """Return a request by its id; None if unknown."""
        async with self._database.read() as connection:
            return next(iter(await select_requests(connection, human_requests.c.id == id_)), None)

    async def list_of_turn(self, turn_id: str) -> list[HumanRequest]:
        """Return the requests of a turn, decided or not, oldest first."""
        async with self._database.read() as connection:
            return await select_requests(connection, human_requests.c.turn == turn_id)

    async def list_decided(self, origin: str) -> list[HumanRequest]:
        """Return the decided requests that led to a turn (`Turn.origin`), oldest first.

        They are the requests whose decisions started the turn, and the question that the turn's message answers.
        """
        continues = _led_to_turn(origin) | (human_requests.c.answer_run == origin)
        return await self._database.read_with_retries(
            lambda connection: select_requests(connection, continues & human_requests.c.decision.is_not(None)),
            operation=f"the decided requests of turn {origin}",
        )

    async def list_open(self, *, session_id: str = "", event_key: str = "") -> list[HumanRequest]:
        """Return the undecided requests of a session or a message's turns, oldest first.

        `session_id` is ignored if `event_key` is given. Without both, the result is empty.
        """
        condition = human_requests.c.session == session_id
        if event_key:
            condition = turns.c.origin.in_(sa.select(inbox.c.turn).where(inbox.c.event_key == event_key))
        async with self._database.read() as connection:
            return await select_requests(connection, condition & human_requests.c.decision.is_(None))

    async def save_message_ids(self, id_: str, message_ids: Sequence[str], address: Mapping[str, Any]) -> None:
        """Store the ids of the messages that show a request, and the address for a reply.

        The reply is that of the turn that resumes the run. An unknown id is ignored.
        """
        values = {"chunks": list(message_ids), "address": dict(address)}
        async with self._database.write() as connection:
            await connection.execute(sa.update(human_requests).where(human_requests.c.id == id_).values(values))

    async def save_draft(self, question: Question, person: str, entries: Entries) -> None:
        """Store a person's unsubmitted entries in a question's form, while it is open.

        Earlier entries of the person are replaced. The decision on the question deletes the entries of all people.
        """
        is_open = (human_requests.c.id == question.id) & human_requests.c.decision.is_(None)
        query = sa.select(human_requests.c.drafts).where(is_open).with_for_update()
        async with self._database.write() as connection:
            if (row := (await connection.execute(query)).one_or_none()) is not None:
                drafts = {**row.drafts, person: to_json_value(dict(entries))}
                await connection.execute(sa.update(human_requests).where(is_open).values(drafts=drafts))

    async def list_decisions(self, origin: str) -> list[HumanDecision]:
        """Return the decisions and answers with which a turn (`Turn.origin`) resumes a run, oldest first."""
        query = sa.select(human_requests).where(_led_to_turn(origin), human_requests.c.decision.is_not(None))
        oldest_first = query.order_by(human_requests.c.requested_at, human_requests.c.id)
        rows = await self._database.run_with_retries(oldest_first, operation=f"the decisions for turn {origin}")
        return [_to_decision(row) for row in rows]

    async def decide(self, id_: str, person: User, verdict: Verdict) -> DecisionResult:
        """Store a person's decision on an open approval or sign-in that they may decide.

        An approval past its time expires instead. After the last decision on the requests of its turn, a new turn
        resumes the run. A denial over a user rate limit is stored too, but resumes no run in which nothing is approved.
        `is_first` of the result is False, and nothing is stored, if they may not decide, or not now.
        """
        return await self._decide_with_retries(id_, [person], verdict)

    async def answer(self, id_: str, person: User, value: Any) -> DecisionResult:
        """Store a person's answer to an open question, as `decide` does; its form is not checked."""
        return await self._decide_with_retries(id_, [person], "answered", value)

    async def _decide_with_retries(
        self, id_: str, people: Sequence[User], verdict: Verdict, value: Any = None
    ) -> DecisionResult:
        decided = await self._database.write_with_retries(
            lambda c: self._decide(c, id_, verdict, people, value, counts=True), operation=f"request {id_}"
        )
        self._worker.wake()
        return decided

    async def complete_sign_in(
        self, id_: str, save: Callable[[AsyncConnection], Awaitable[None]], person: User
    ) -> DecisionResult:
        """Store that a person has signed in, and what `save` stores, in one transaction.

        `is_first` of the result is False, and nothing is stored, if the request is decided, expired or gone, or is not
        that of the person.
        """

        async def work(connection: AsyncConnection) -> DecisionResult:
            decided = await self._decide(connection, id_, "connected", [person])
            if decided.is_first and decided.request is not None and decided.request.verdict == "connected":
                await save(connection)
            return decided

        decided = await self._database.write_with_retries(work, operation=f"request {id_}")
        self._worker.wake()
        return decided

    async def answer_with_message(self, turn: Turn, authors: Sequence[User], text: str) -> MessageAnswerResult:
        """Answer an open question of the session with a turn's message, if possible.

        The message answers the oldest question that takes messages (see `Question.takes_messages`) and that each
        message of the turn may answer (see `Question.may_be_answered_by`). If that is the only request of its turn, the
        run of the message continues the asking run. Otherwise the answer is stored like one that was entered in the
        form. Nothing is stored if the text does not fit the question. A run that has answered a question before has
        only `answers`. The last of `authors` is stored as the person who answered. The text has no author names.
        """
        if not turn.may_answer_question:
            return MessageAnswerResult()
        session_id = turn.session_id
        run = turn.run_id
        is_in_session = (human_requests.c.session == session_id) & (human_requests.c.kind == "question")
        relevant = human_requests.c.decision.is_(None) | human_requests.c.answer_run.is_not(None)
        query = sa.select(human_requests.c.answer_run, human_requests.c.run, human_requests.c.call_id)
        query = query.where(is_in_session, relevant)
        rows = await self._database.run_with_retries(query, operation=f"the questions of session {session_id}")
        answers = {row.answer_run: MessageAnswer(row.answer_run, row.run, row.call_id) for row in rows}
        is_new = turn.kind == "message" and run not in answers
        if not is_new or None not in answers:
            return MessageAnswerResult(_find_chain(answers, run))
        result = await self._database.write_with_retries(
            lambda connection: self._answer_oldest_question(connection, turn, authors, text, answers),
            operation=f"the answer of turn {turn.id}",
        )
        self._worker.wake()
        return result

    async def _answer_oldest_question(
        self,
        connection: AsyncConnection,
        turn: Turn,
        authors: Sequence[User],
        text: str,
        answers: Mapping[str, MessageAnswer],
    ) -> MessageAnswerResult:
        """Answer the oldest open question that a message may answer, in the caller's transaction."""
        await lock_session_row(connection, turn.session_id)
        is_open = (human_requests.c.session == turn.session_id) & human_requests.c.decision.is_(None)
        is_question = (human_requests.c.kind == "question") & (human_requests.c.expires_at >= time.time())
        for question in await select_requests(connection, is_open & is_question):
            if not isinstance(question, Question) or not question.takes_messages:
                continue
            if all(map(question.may_be_answered_by, turn.messages, authors)):
                break
        else:
            return MessageAnswerResult()
        try:
            value = parse_answer(question.form, text)
        except EntryError as error:
            return MessageAnswerResult(question=question, error=error)
        count = sa.select(sa.func.count()).where(human_requests.c.turn == question.turn_id)
        if (await connection.execute(count)).scalar_one() > 1:
            decided = await self._decide(connection, question.id, "answered", authors, value)
            answered = decided.request if isinstance(decided.request, Question) else question
            return MessageAnswerResult(question=answered)
        is_this = human_requests.c.id == question.id
        decider = _decider_columns(authors[-1], time.time())
        update = sa.update(human_requests).where(is_this).values(decision="answered", answer_run=turn.origin, **decider)
        await connection.execute(update.values(drafts={}))
        row = sa.select(human_requests.c.run, human_requests.c.call_id).where(is_this)
        run, call_id = (await connection.execute(row)).one()
        chain = _find_chain({**answers, turn.origin: MessageAnswer(turn.origin, run, call_id)}, turn.origin)
        return MessageAnswerResult(chain, next(iter(await self._select_questions(connection, is_this)), question))

    async def _select_questions(self, connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> list[Question]:
        return [request for request in await select_requests(connection, condition) if isinstance(request, Question)]

    async def expire(self) -> list[HumanRequest]:
        """Store the verdict `expired` for requests past their time, and return them.

        Requests that were decided meanwhile are left out. If no request of a turn is open then, its run resumes, unless
        all of them are expired questions.

        Raises:
            StoreError: the database cannot be used; requests that were stored as expired before are not returned.
        """
        is_expired = human_requests.c.decision.is_(None) & (human_requests.c.expires_at < time.time())
        async with self._database.read() as connection:
            ids = (await connection.execute(sa.select(human_requests.c.id).where(is_expired))).scalars().all()
        expired = []
        for id_ in ids:
            try:
                async with self._database.write() as connection:
                    decided = await self._decide(connection, id_, "expired", ())
            except UnreadableRowError as error:
                log.error("a request expires without a trace in its conversation: %s", format_error(error))
                update = sa.update(human_requests).where(human_requests.c.id == id_).values(decision="expired")
                async with self._database.write() as connection:
                    await connection.execute(update)
                continue
            if decided.is_first and decided.request is not None:
                expired.append(decided.request)
        if expired:
            self._worker.wake()
        return expired

    async def run_expiry(self, show: Callable[[HumanRequest], Awaitable[None]]) -> None:
        """Call `expire` and `show` its requests every 15 seconds, until cancelled; log failures."""

        async def expire() -> None:
            for request in await self.expire():
                try:
                    await show(request)
                except Exception as error:
                    log.warning("an expired request cannot be shown as expired: %s", format_error(error))

        await run_every(EXPIRY_INTERVAL_SECONDS, expire, failure="undecided requests cannot be expired")

    async def _decide(
        self,
        connection: AsyncConnection,
        id_: str,
        verdict: Verdict,
        people: Sequence[User],
        value: Any = None,
        *,
        counts: bool = False,
    ) -> DecisionResult:
        """Store the decision on a request, in the caller's transaction.

        Nothing is stored if the request is decided already or the person may not decide. The verdict is `expired` if
        the request has expired. The verdict `always` also allows the tool in the session's state.

        Args:
            people: the people who decide, of whom the last is stored as the decider; empty for an expiry, which needs
                no permission.
            counts: whether it counts for the user rate limits, over which only a denial is stored. A message does not.
        """
        of_request = human_requests.c.session == sessions.c.id, human_requests.c.id == id_
        session = (await connection.execute(sa.select(sessions.c.id, sessions.c.user_id).where(*of_request))).first()
        person = people[-1] if people else None
        limited = None
        if counts and person is not None and session is not None:  # its locks come first, as for a message
            limited = await self._rates.find_denial(connection, author=person.id, place=session.user_id)
        await lock_session_row(connection, session and session.id)
        matches = await select_requests(connection, human_requests.c.id == id_)
        if not matches:
            return DecisionResult()
        (request,) = matches
        now = time.time()
        if request.verdict is None and request.expires_at < now:
            verdict = "expired"
            people = ()
            person = None
            limited = None
        if request.verdict is not None or not all(_is_permitted(request, verdict, person) for person in people):
            return DecisionResult(request)
        if limited is not None and verdict != "denied":
            return DecisionResult(request, limited=limited)
        by = _decider_columns(person, now)
        is_answer = verdict == "answered"
        update = sa.update(human_requests).where(human_requests.c.id == id_)
        answer = {"answer": value, "answer_authors": list(map(to_user_state, people))} if is_answer else {}
        await connection.execute(update.values(decision=verdict, drafts={}, **answer, **by))
        if verdict == "always" and isinstance(request, Approval):
            owners = scopes.get_scope_owners("", "", request.session_id)
            approval = {
                "by": person and person.id,
                "at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
                "approvers": list(request.deciders),
                "tool_hash": request.tool_hash,
            }
            await scopes.write_state(
                connection, owners, {standing_approval_key(request.app_name, request.tool, request.account): approval}
            )
        if counts and person is not None and self._rates:
            key = f"decided:{request.id}:{now}"  # a stop opens the request again
            act = replace(request.inbox_message, event_key=key, author=person.id, sent_at=now)
            await record_message(connection, act, InboxOutcome.DECIDED, kind=verdict)
        await self._queue_next_turn(connection, request, now, has_room=limited is None)
        decided = replace(request, verdict=verdict, decider=person.name if person else "", decided_at=now)
        if isinstance(decided, Question):
            decided = replace(decided, answer=value if is_answer else None)
        return DecisionResult(decided, is_first=True, limited=limited)

    async def _queue_next_turn(
        self, connection: AsyncConnection, request: HumanRequest, now: float, *, has_room: bool = True
    ) -> None:
        """Insert the inbox row that resumes the run, if no request of the turn is open.

        If all requests are questions that expired, no row is inserted: their calls get an error as response. The same
        holds without room in the user rate limits if nothing was approved or answered.
        """
        c = human_requests.c
        of_turn = sa.select(c.kind, c.decision, c.run, c.call_id).where(c.turn == request.turn_id)
        rows = (await connection.execute(of_turn)).all()
        if any(row.decision is None for row in rows):
            return
        if all(row.decision in ("denied", "expired") and (row.kind == "question" or not has_room) for row in rows):
            await close_calls(connection, request.session_id, {(row.run, row.call_id) for row in rows})
            return
        key = f"decision:{request.id}"
        address_query = sa.select(c.address).where(c.id == request.id)
        address = (await connection.execute(address_query)).scalar_one() or request.inbox_message.address
        message = replace(request.inbox_message, event_key=key, address=address, text="", attachments=(), sent_at=now)
        generation = sa.select(sessions.c.generation).where(sessions.c.id == request.session_id).scalar_subquery()
        row = message_columns(message, (await connection.execute(sa.select(generation))).scalar_one())
        values = {"message": message.to_json(), "kind": "decision", "parent": request.turn_id}
        await insert_or_ignore(connection, inbox, row | values)
        await self._turns.notify_workers(connection)


def _led_to_turn(origin: str) -> sa.ColumnElement[bool]:
    asking_turn = sa.select(inbox.c.parent).where(inbox.c.turn == origin, inbox.c.kind == "decision")
    return human_requests.c.turn.in_(asking_turn)


def _is_permitted(request: HumanRequest, verdict: Verdict, person: User) -> bool:
    return request.permits(verdict) and request.may_decide(person)


def _get_arguments(request: AgentRequest) -> dict[str, Any]:
    if isinstance(request, CredentialRequest):
        return {**asdict(request.owner), "credential_key": request.credential_key}
    return dict(request.arguments)


def _decider_columns(person: User | None, now: float) -> dict[str, Any]:
    return {"decided_by": person and person.id, "decided_by_name": person and person.name, "decided_at": now}


def _find_chain(answers: Mapping[str, MessageAnswer], run: str) -> tuple[MessageAnswer, ...]:
    """Return the messages by which a run continues earlier runs, oldest first.

    The message of a run answers a question of an earlier run (`asking_run`), whose message may do the same, and so on.
    """
    chain = list[MessageAnswer]()
    while run in answers and len(chain) < MAX_ANSWERS:
        chain.insert(0, answers[run])
        run = answers[run].asking_run
    return tuple(chain)


def _to_decision(row: sa.Row[Any]) -> HumanDecision:
    if row.kind == "question":
        return Answer(row.call_id, row.tool, row.answer, is_expired=row.decision == "expired")
    if row.kind == "sign_in":
        key, label = row.arguments["credential_key"], row.arguments["label"]
        return SignInDecision(row.call_id, row.tool_call_id, key, label, row.decision == "connected")
    return Decision(row.call_id, row.arguments_hash, row.decision in ("approved", "always"))
