"""Commands and queries on sessions: status, agent, model, mute, stop, export."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Any

import sqlalchemy as sa

from core.conversations.status import SessionStatus, get_status
from core.messages.identity import BOT_PREFIX
from core.messages.inbox_message import InboxMessage, InboxOutcome, ReplyWithoutMention
from core.privacy.export import ExportFormat, ExportViewer, stream_export
from core.sessions.lifecycle import find_session_row, new_session_row
from core.store.database import Database
from core.store.schema import inbox, sessions, turns
from core.store.turn_states import State
from core.store.upsert import insert_or_ignore
from core.turns.cancel import StopResult, StopTurnResult, stop_session, stop_turn
from core.turns.queries import (
    get_inbox_rows,
    is_message,
    list_readable_messages,
    message_columns,
    parse_inbox_message,
    record_message,
)
from core.turns.store import TurnStore
from core.turns.turn import CancelReason
from core.turns.worker import Worker
from core.usage.prices import Prices

#: The most characters of a session's preview.
MAX_PREVIEW_CHARACTERS = 80

#: The most messages to other people that are stored after a message to the bot: one of its author, one of another.
MAX_UNADDRESSED = 2


@dataclass(frozen=True, slots=True)
class AnsweringAgent:
    """The agent that answers in a session.

    Attributes:
        unavailable_choice: the name of the agent that people chose, if that agent may not answer there any more; else
            empty.
    """

    name: str
    unavailable_choice: str = ""


@dataclass(frozen=True, slots=True)
class RecentSession:
    """Session in which a person has written.

    Attributes:
        at: the time of the person's newest message in the session.
        first: the first stored message of the session since its last reset, by any author.
    """

    session_id: str
    at: float
    first: InboxMessage

    @property
    def preview(self) -> str:
        """The first message on one line, cut at `MAX_PREVIEW_CHARACTERS` with an ellipsis."""
        text = " ".join(self.first.text.split())
        return text if len(text) <= MAX_PREVIEW_CHARACTERS else f"{text[: MAX_PREVIEW_CHARACTERS - 1].rstrip()}…"


@dataclass(frozen=True, slots=True)
class LatestTurn:
    """Newest turn of a reply, with the data for rendering the reply again.

    Attributes:
        origin: the id of the first turn of the reply; the platform adapter finds the messages of the reply by this id.
        session_id: the id of the session.
        state: the state of the turn.
        text: the final text; None if there is none.
        message_ids: the platform's ids of the messages that show the reply.
        inbound: the newest inbox message that the turn was claimed for.
        is_revised: whether a message of the turn was edited after the claim.
    """

    turn_id: str
    origin: str
    session_id: str
    state: State
    text: str | None
    message_ids: tuple[str, ...]
    inbound: InboxMessage
    is_revised: bool


class ConversationService:
    """Service for commands and queries on sessions; `InboxStore` has the reset.

    `location_names` are the names of a session's location, as `InboxMessage.location_names`, and `place` is as
    `InboxMessage.place`.

    Args:
        turns: cancels turns, and notifies the other workers.
        worker: cancels turns in this process; claims turns at once after a change of a session.
        budget: the most tokens of history that are sent to the model.
    """

    def __init__(
        self,
        database: Database,
        turns: TurnStore,
        worker: Worker,
        *,
        budget: int,
    ) -> None:
        self._database = database
        self._turns = turns
        self._worker = worker
        self._budget = budget
        self.agents = turns.agents

    async def stop_session(
        self, session_id: str, *, author: str | None, until: float = inf, command: InboxMessage | None = None
    ) -> StopResult | None:
        """Cancel the running turn of a session, on any worker, and drop waiting messages.

        A turn with a stored final text is not cancelled. Open questions to people are deleted only if the session has
        neither a running turn nor messages to drop nor messages after `until`: see `cancel.stop_session`.

        Args:
            author: the platform's id of the person whose turn and messages are stopped; None for those of all people.
            until: messages that were sent later stay, and so does a turn that answers one.
            command: the message with the command, which is stored in the inbox; None for a button or an operator. If it
                was stored before, nothing changes, and the result is None.

        Raises:
            StoreError: nothing was changed.
        """
        async with self._database.write() as connection:
            if command is not None and not await record_message(connection, command, InboxOutcome.COMMAND, kind="stop"):
                return None
            result = await stop_session(connection, self._turns, session_id, author=author, until=until)
            await self._turns.notify_workers(connection)
        self._worker.cancel_and_wake(result.turn_id, CancelReason.STOP)
        return result

    async def stop_turn(self, turn_id: str, author: str | None) -> StopTurnResult:
        """Cancel a running turn, on any worker, unless its final text is stored.

        Args:
            author: the platform's id of the person who asks, who may stop only turns that answer a message of theirs.
                None for an operator, who may stop any turn.
        """
        stopped = await self._database.write_with_retries(
            lambda connection: stop_turn(connection, self._turns, turn_id, author=author),
            operation=f"stop of turn {turn_id}",
        )
        self._worker.cancel_and_wake(turn_id if stopped is StopTurnResult.STOPPED else None, CancelReason.STOP)
        return stopped

    async def get_status(self, session_id: str, location_names: Sequence[str] = ()) -> SessionStatus:
        """Return the status of a session; one that does not exist has the agent that would answer."""
        async with self._database.read() as connection:
            row = await find_session_row(connection, session_id)
            agent = self._resolve_agent(row, location_names).name
            if row is None:
                return SessionStatus(self._choose_valid_model(None, agent), agent, budget=self._budget)
            return await get_status(
                connection, row, self._choose_valid_model(row.model, agent), agent, budget=self._budget
            )

    async def get_agent(self, session_id: str, location_names: Sequence[str]) -> AnsweringAgent:
        """Return the agent that answers in a session, which may not exist yet."""
        async with self._database.read() as connection:
            return self._resolve_agent(await find_session_row(connection, session_id), location_names)

    async def choose_agent(self, session_id: str, agent: str, *, place: str, location_names: Sequence[str]) -> bool:
        """Set the agent of a session from its next turn on; create the session if needed.

        If `agent` answers at the location by default, an earlier choice is removed, and none is stored. False if that
        agent may not be chosen there: nothing is stored then.
        """
        if agent not in self.agents.list_selectable(location_names):
            return False
        chosen = None if agent == self.agents.get_agent_at(location_names) else agent
        await self._update_session(session_id, new_session_row(session_id, self.agents.default, place), agent=chosen)
        return True

    async def get_model(self, session_id: str, location_names: Sequence[str] = ()) -> str:
        """Return the chosen model if the session's agent has it, else the agent's default model."""
        async with self._database.read() as connection:
            row = await find_session_row(connection, session_id)
        agent = self._resolve_agent(row, location_names).name
        return self._choose_valid_model(row.model if row is not None else None, agent)

    async def list_models(self, session_id: str, location_names: Sequence[str]) -> tuple[str, ...]:
        """Return the full names of the models of the session's agent, the default first."""
        return self.agents.profiles[(await self.get_agent(session_id, location_names)).name].models

    async def choose_model(
        self, session_id: str, model: str | None, *, place: str, location_names: Sequence[str] = ()
    ) -> bool:
        """Set the model of a session from its next turn on; create the session if needed.

        None is the agent's default model. False if the session's agent does not have the model: nothing is stored then.
        """
        if model is not None and model not in await self.list_models(session_id, location_names):
            return False
        await self._update_session(session_id, new_session_row(session_id, self.agents.default, place), model=model)
        return True

    async def set_muted(self, session_id: str, is_muted: bool) -> bool:
        """Store whether only messages that mention the bot are answered; False for no such session."""
        return await self._update_session(session_id, is_muted=is_muted)

    async def is_muted(self, session_id: str) -> bool:
        """Return whether only messages that mention the bot are answered in a session."""
        async with self._database.read() as connection:
            row = await find_session_row(connection, session_id)
        return row is not None and bool(row.is_muted)

    async def list_recent(self, place: str, author: str, limit: int, *, until: float = inf) -> list[RecentSession]:
        """Return at most `limit` sessions of a place in which a person has written.

        The session with the person's newest message comes first. Sessions in which they wrote only before the last
        reset are left out, and messages that were sent after `until` are ignored.
        """
        in_generation = (sessions.c.id == inbox.c.session) & (sessions.c.generation == inbox.c.generation)
        has_text = inbox.c.message.is_not(None) & inbox.c.outcome.is_(None)
        recent_sessions = (
            sa.select(inbox.c.session, sa.func.max(inbox.c.sent_at).label("at"))
            .join(sessions, in_generation)
            .where(inbox.c.place == place, inbox.c.author == author, has_text, inbox.c.sent_at <= until)
            .group_by(inbox.c.session)
            .order_by(sa.desc("at"))
            .limit(limit)
        )
        found = []
        async with self._database.read() as connection:
            for session_id, at in (await connection.execute(recent_sessions)).all():
                texts = (
                    sa.select(inbox.c.message)
                    .join(sessions, in_generation)
                    .where(inbox.c.session == session_id, has_text)
                )
                first = texts.order_by(inbox.c.sent_at, inbox.c.id).limit(1)
                readable = list_readable_messages((await connection.execute(first)).scalars())
                found += [RecentSession(session_id, at, message) for message in readable]
        return found

    async def export_session(
        self,
        session_id: str,
        form: ExportFormat,
        prices: Prices,
        *,
        max_bytes: int | None = None,
        viewer: ExportViewer | None = None,
    ) -> str:
        """Return the history of a session as Markdown or JSON, as `stream_export` yields it."""
        async with aclosing(
            stream_export(self._database, session_id, form, prices, max_bytes=max_bytes, viewer=viewer)
        ) as pieces:
            return "".join([piece async for piece in pieces])

    async def is_for_bot(
        self,
        inbound: InboxMessage,
        *,
        follow: ReplyWithoutMention,
        is_on_answer: bool = False,
        addresses_others: bool = False,
    ) -> bool:
        """Return whether the bot has to answer a message that does not mention the bot.

        In a muted session the result is False. With `author`, messages to other people are stored in the inbox without
        their text, with the outcome `unaddressed`: after each message to the bot one of its author, and one of somebody
        else.

        Args:
            follow: the setting. `everyone`: the bot answers every message in a stored session. `author`: the bot
                answers if the same author wrote the last message to the bot, and nobody else has written since.
                `never`: the bot answers none.
            is_on_answer: whether the message is in a thread on an answer of the bot. Unless `follow` is `never`, the
                bot then answers the first message of the thread, whose session is not stored yet. Otherwise the result
                is False without a stored session.
            addresses_others: whether the message is to other people; with `author`, the bot does not answer it.
        """
        if follow == "never":
            return False
        before = inbox.c.event_key != inbound.event_key, inbox.c.sent_at <= inbound.sent_at, is_message(inbox)
        async with self._database.read() as connection:
            row = await find_session_row(connection, inbound.session_id)
            if row is None:
                return is_on_answer and not (addresses_others and follow == "author")
            if row.is_muted or follow == "everyone":
                return not row.is_muted
            authors_query = sa.select(inbox.c.author, inbox.c.outcome).where(
                inbox.c.session == inbound.session_id, *before
            )
            newest_first = authors_query.order_by(inbox.c.sent_at.desc(), inbox.c.id.desc())
            newest = (await connection.execute(newest_first.limit(MAX_UNADDRESSED + 1))).all()
        asides = list(takewhile(lambda message: message.outcome == InboxOutcome.UNADDRESSED, newest))
        last = newest[len(asides)] if len(asides) < len(newest) else None
        if last is None or any(aside.author != last.author for aside in asides):
            return False
        if inbound.author == last.author and not addresses_others:
            return True
        if inbound.author != last.author or not asides:
            async with self._database.write() as connection:
                await insert_or_ignore(
                    connection, inbox, {**message_columns(inbound, row.generation), "outcome": InboxOutcome.UNADDRESSED}
                )
        return False

    async def count_newest_bot_messages(self, session_id: str, limit: int) -> int:
        """Return the number of messages by bots since the last message of a person, at most `limit`."""
        newest = inbox.c.sent_at.desc(), inbox.c.id.desc()
        written = (inbox.c.session == session_id) & is_message(inbox)
        authors_query = sa.select(inbox.c.author).where(written).order_by(*newest).limit(limit)
        async with self._database.read() as connection:
            authors = (await connection.execute(authors_query)).scalars().all()
        return next((n for n, author in enumerate(authors) if not author.startswith(BOT_PREFIX)), len(authors))

    async def get_latest_turn(self, turn_id: str) -> LatestTurn | None:
        """Return the newest turn that answers the same messages as a turn.

        This is the turn itself, or its newest rerun. None if the session was reset, or if the turn or its messages are
        not stored any more. If the author deleted all messages, `inbound` is one without text.
        """
        named = sa.select(turns.c.origin).where(turns.c.id == turn_id).scalar_subquery()
        in_generation = (sessions.c.id == turns.c.session) & (sessions.c.generation == turns.c.generation)
        reply_turns = sa.select(turns).join(sessions, in_generation).where(turns.c.origin == named)
        async with self._database.read() as connection:
            newest = reply_turns.order_by(turns.c.created_at.desc()).limit(1)
            turn = (await connection.execute(newest)).one_or_none()
            rows = await get_inbox_rows(connection, turn.origin) if turn is not None else ()
            undeleted = [row for row in rows if row.outcome is None]
            own_rows = [row for row in rows if row.kind != "steering"]
            shown = [row for row in own_rows if row.outcome is None] or own_rows
            answered = [message for row in shown if (message := parse_inbox_message(row.message, row.id))]
            if turn is None or not answered:
                return None
            return LatestTurn(
                turn_id=turn.id,
                origin=turn.origin,
                session_id=turn.session,
                state=turn.state,
                text=turn.text,
                message_ids=tuple(turn.chunks or ()),
                inbound=answered[-1],
                is_revised=any(row.edited_message for row in undeleted),
            )

    async def _update_session(self, session_id: str, new: dict[str, Any] | None = None, **values: Any) -> bool:
        """Update columns of a session, and make all workers claim turns; return whether it exists."""
        async with self._database.write() as connection:
            if new is not None:
                await insert_or_ignore(connection, sessions, new)
            changed = await connection.execute(sa.update(sessions).where(sessions.c.id == session_id).values(values))
            await self._turns.notify_workers(connection)  # a claim skips a session whose row is locked
        self._worker.wake()
        return bool(changed.rowcount)

    def _resolve_agent(self, row: sa.Row[Any] | None, location_names: Sequence[str]) -> AnsweringAgent:
        chosen = row.agent if row is not None else None
        name = self.agents.resolve_agent(chosen, location_names)
        return AnsweringAgent(name, unavailable_choice=chosen if chosen is not None and chosen != name else "")

    def _choose_valid_model(self, model: str | None, agent: str) -> str:
        models = self.agents.profiles[agent].models
        return model if model is not None and model in models else models[0]
