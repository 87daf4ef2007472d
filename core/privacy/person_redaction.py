"""What a person has said, taken out of conversations that others are in as well.

All that was said to him, and all that was done for him, goes with his words: of a run that has answered him there
stays that it was, and with whom else. Everywhere else his name goes, what he has said where it is quoted as it was, and
his lines in what was read around a question. What others, or a model, have told of it in words of their own is theirs.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox_message import InboxMessage
from core.models.tokens import estimate_tokens
from core.privacy.known_users import sessions_that_name
from core.sessions import state as scopes
from core.sessions.codec import columns, folded, measured, parsed, to_row
from core.sessions.prompt_text import MARK, SET_IN, Spoken, unattributed
from core.sessions.resume import correction_of
from core.store.schema import (
    JsonText,
    approvals,
    artifacts,
    inbox,
    memories,
    messages,
    sessions,
    state,
    tool_calls,
    turns,
)
from core.turns.queries import parse_message

#: What stands in the place of what was said, and of a name.
DELETED, SOMEBODY = "[deleted]", "somebody"

#: The fewest characters of a message that are looked for where others have quoted it.
QUOTED = 8


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in one session.

    Attributes:
        names: what he goes by there.
        said: his messages.
        runs: what has answered him.
    """

    id: str
    names: frozenset[str] = frozenset()
    said: Sequence[str] = ()
    runs: frozenset[str] = frozenset()
    _name: re.Pattern[str] | None = field(default=None, compare=False)

    def scrubbed(self, text: str) -> str:
        """A text of others without him."""
        for words in sorted(self.said, key=len, reverse=True):
            if len(words) >= QUOTED:
                text = text.replace(words, DELETED)
        text = "\n".join(self._lines(text.split("\n")))
        if self.names:
            names = "|".join(re.escape(name) for name in sorted(self.names, key=len, reverse=True))
            text = re.sub(rf"(?<!\w)(?:{names})(?!\w)", SOMEBODY, text)
        return text.replace(self.id, SOMEBODY)

    def _lines(self, lines: Iterable[str]) -> Iterable[str]:
        """Lines without those that are his in a frame."""
        is_his = False
        for line in lines:
            if line.startswith(SET_IN) or line == SET_IN.rstrip():  # the one before goes on
                if not is_his:
                    yield line
                continue
            is_his = any(line.startswith(f"{MARK}{name}: ") for name in self.names)
            yield f"{MARK}{DELETED}" if is_his else line

    def without(self, value: Any) -> Any:
        """The same of what JSON holds."""
        match value:
            case str():
                return self.scrubbed(value)
            case Mapping():
                return {self.scrubbed(key): self.without(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self.without(inner) for inner in value]
        return value


async def sessions_with(connection: AsyncConnection, person: str) -> tuple[list[str], list[str]]:
    """Return the sessions in which only this person has spoken, and those that others share or that name them."""
    said = sa.select(inbox.c.session).where(inbox.c.author == person).distinct()
    ids = await sessions_that_name(connection, person) | set((await connection.execute(said)).scalars())
    asked = sa.cast(approvals.c.askers, sa.Text).contains(json.dumps(person), autoescape=True)  # SQLite: in any case
    query = sa.select(approvals).where((approvals.c.decided_by == person) | asked)
    ids |= {row.session for row in await connection.execute(query) if person in (row.decided_by, *row.askers)}
    ids.discard("")
    alone, shared = list[str](), list[str]()
    for session in sorted(ids):
        (alone if await is_alone(connection, session, person) else shared).append(session)
    return alone, shared


async def is_alone(connection: AsyncConnection, session: str, person: str) -> bool:
    """Whether nobody else than a person has spoken to the bot in a session."""
    return await _speakers(connection, session) <= {person}


async def _speakers(connection: AsyncConnection, session: str) -> set[str]:
    said = sa.select(inbox.c.author).where(inbox.c.session == session, inbox.c.outcome.is_distinct_from("overheard"))
    speakers = set((await connection.execute(said.distinct())).scalars()) - {""}
    is_ours = messages.c.invocation_id.endswith(correction_of(""))  # our own word to a model that named a wrong agent
    rows = sa.select(messages.c.spoken).where(messages.c.session == session, messages.c.role == "user", ~is_ours)
    for spoken in (await connection.execute(rows)).scalars():
        speakers |= {who for who, _ in spoken["parts"] if who} if spoken else {None}  # said by one who is not known
    return speakers


async def person_in(connection: AsyncConnection, session: str, person: str) -> Person:
    """What is known of a person in a session."""
    names, said, runs = set[str](), list[str](), set[str]()
    rows = sa.select(messages.c.invocation_id, messages.c.content, messages.c.spoken).where(
        messages.c.session == session, messages.c.spoken.is_not(None)
    )
    for run, content, kept in await connection.execute(rows):
        names |= {kept["people"][person]} if person in kept["people"] else set()
        if any(who == person for who, _ in kept["parts"]):
            runs.add(run)
            spoken = Spoken.of(content, kept)
            said += [_words(words, names) for who, words in (spoken.parts if spoken else ()) if who == person]
    own = sa.select(inbox.c.turn, inbox.c.inbound).where(inbox.c.session == session, inbox.c.author == person)
    for turn, inbound in await connection.execute(own):
        runs |= {turn} if turn else set()
        if message := parse_message(inbound):
            said.append(message.text)
            names |= _named(message)
    return Person(person, frozenset(filter(None, names)), [one for one in said if one], frozenset(runs))


def _named(message: InboxMessage) -> set[str]:
    """What a platform tells of a name with a message."""
    name = message.address.get("speaker")
    return {name} if isinstance(name, str) else set()


def _words(said: str, names: Iterable[str]) -> str:
    return next((unattributed(said, name) for name in names if said.startswith(f"{name}: ")), said)


async def redact(connection: AsyncConnection, session: str, person: Person) -> int:
    """Redact a person in a locked session, whose history stays valid for a model.

    Returns:
        How many messages were changed.
    """
    runs = {*person.runs, *map(correction_of, person.runs)}
    here = messages.c.session == session
    told = messages.c.invocation_id.in_(runs) | messages.c.covers.is_not(None)
    keys = memories.c.key.in_(sa.select(messages.c.event_id).where(here, told))
    await connection.execute(sa.delete(memories).where(memories.c.session == session, keys))
    await connection.execute(sa.delete(messages).where(here, messages.c.covers.is_not(None)))
    await connection.execute(sa.update(sessions).where(sessions.c.id == session).values(folder=None))
    count = 0
    for row in (await connection.execute(sa.select(messages).where(here).order_by(messages.c.id))).all():
        if (changed := _message(row, person, of_him=row.invocation_id in runs)) is not None:
            await connection.execute(sa.update(messages).where(messages.c.id == row.id).values(changed))
            count += 1
    own = sa.select(turns.c.id).where(turns.c.session == session, turns.c.origin.in_(runs) | turns.c.run.in_(runs))
    answering = {*(await connection.execute(own)).scalars()}
    await connection.execute(sa.update(turns).where(turns.c.id.in_(answering)).values(_nothing_of(turns)))
    await connection.execute(sa.delete(approvals).where(approvals.c.turn.in_(answering)))
    await connection.execute(sa.delete(artifacts).where(artifacts.c.session == session, artifacts.c.run.in_(runs)))
    called = (tool_calls.c.session == session) & tool_calls.c.run.in_(runs)
    nothing = {"arguments": {}, "hash": "", "result": {"deleted": True}, "actions": None}
    await connection.execute(sa.update(tool_calls).where(called).values(nothing))
    of = await connection.scalar(sa.select(sessions.c.user_id).where(sessions.c.id == session)) or ""
    for table, its in (
        (state, (state.c.scope == "user") & scopes.is_of(state.c.owner, of)),
        (turns, turns.c.session == session),
        (tool_calls, tool_calls.c.session == session),
        (memories, memories.c.user_id == of),
        (approvals, approvals.c.session == session),
        (state, (state.c.scope == "session") & (state.c.owner == session)),
        (inbox, (inbox.c.session == session) & (inbox.c.author != person.id)),
    ):
        await _scrub(connection, table, its, person)
    return count


def _nothing_of(table: sa.Table) -> dict[str, Any]:
    """The columns of a turn that tell what was said."""
    told = ("text", "error", "receipt")
    return {name: None for name in told if name in table.c}


_TEXTS = (sa.Text, sa.JSON, JsonText)
#: Columns that say where something belongs; what was spent is `core.usage.spending`'s to forget.
_KEYS = {
    "usage",
    "id",
    "session",
    "owner",
    "scope",
    "run",
    "call",
    "event_key",
    "origin",
    "parent",
    "turn",
    "author",
    "place",
    "folded",  # made anew from the content
}


async def _scrub(connection: AsyncConnection, table: sa.Table, its: sa.ColumnElement[bool], person: Person) -> None:
    """Take a person out of whatever stands in rows of a table."""
    key = list(table.primary_key)
    for row in (await connection.execute(sa.select(table).where(its))).all():
        values = row._mapping
        changed = {
            column.name: new
            for column in table.c
            if isinstance(column.type, _TEXTS) and column.name not in _KEYS
            if (new := person.without(values[column.name])) != values[column.name]
        }
        if "content" in changed and "folded" in table.c:
            changed["folded"] = folded(changed["content"])
        if changed:
            this = sa.and_(*(column == values[column.name] for column in key))
            await connection.execute(sa.update(table).where(this).values(changed))


def _message(row: sa.Row[Any], person: Person, *, of_him: bool) -> dict[str, Any] | None:
    """The columns of a message without him; nothing if it has nothing of him."""
    event = parsed(row.event, row.id) if row.event else None
    told = Spoken.of(row.content, row.spoken)
    spoken, asked = row.spoken, None
    if of_him and row.role == "user":
        parts = told.parts if told is not None else ((person.id, row.content),)
        kept = [("", DELETED) if who == person.id else (who, person.scrubbed(words)) for who, words in parts]
        people = {id_: name for id_, name in (told.people if told else {}).items() if id_ != person.id}
        left = Spoken(tuple(kept), people)
        spoken, asked = left.to_json(), left.text
    elif told is not None and person.id in told.people:
        people = {id_: name for id_, name in told.people.items() if id_ != person.id}
        spoken = Spoken(tuple((who, person.scrubbed(words)) for who, words in told.parts), people).to_json()
    if event is None:
        content = asked or (DELETED if of_him and row.content.strip() else person.scrubbed(row.content))
        calls = [_call(call, person, of_him=of_him) for call in row.tool_calls or ()]
        return {
            "content": content,
            "folded": folded(content),
            "tool_calls": calls,
            "spoken": spoken,
            "tokens": estimate_tokens(content) + 4,
        }
    clean = _cleaned(event, person, of_him=of_him, asked=asked)
    if clean == event and spoken == row.spoken:
        return None
    words, tokens = measured(clean)
    values = columns(to_row(clean, has_references=True), tokens + estimate_tokens(words))
    return {**values, "held": row.held, "spoken": spoken, "created_at": row.created_at}


def _call(call: Mapping[str, str], person: Person, *, of_him: bool) -> dict[str, str]:
    told = ("input", "output")
    return {
        name: ("{}" if of_him else person.scrubbed(value)) if name in told else value for name, value in call.items()
    }


def _cleaned(event: Event, person: Person, *, of_him: bool, asked: str | None) -> Event:
    """An event without him; the calls and answers stay, empty of what they say if it is of him.

    Args:
        asked: what is left of what was asked, if that is the event.
    """
    content = event.content
    if content is not None and asked is not None:
        content = content.model_copy(update={"parts": [types.Part(text=asked)]})
    elif content is not None:
        parts = [_part(part, person, of_him=of_him) for part in content.parts or ()]
        content = content.model_copy(update={"parts": [part for part in parts if part]})
    delta = {} if of_him else person.without(event.actions.state_delta)
    update: dict[str, Any] = {"content": content, "actions": event.actions.model_copy(update={"state_delta": delta})}
    if of_him:
        update |= {"grounding_metadata": None, "citation_metadata": None, "error_message": None}
    return event.model_copy(update=update)


def _part(part: types.Part, person: Person, *, of_him: bool) -> types.Part | None:
    if of_him and (part.thought or part.inline_data or part.file_data):
        return None
    if part.text:
        text = DELETED if of_him and part.text.strip() else person.scrubbed(part.text)
        return part if text == part.text else types.Part(text=text, thought=part.thought)
    signed = {"thought_signature": None} if of_him else {}
    if call := part.function_call:
        args = _asks(call.args) if of_him else person.without(call.args)
        return part.model_copy(update={"function_call": call.model_copy(update={"args": args}), **signed})
    if answer := part.function_response:
        told = {"deleted": True} if of_him else person.without(answer.response)
        update = {"response": told, **({"parts": None} if of_him else {})}
        return part.model_copy(update={"function_response": answer.model_copy(update=update), **signed})
    return part


def _asks(args: Mapping[str, Any] | None) -> dict[str, Any]:
    """Of what a call is told, what it belongs to: ADK's question to a person names the call that it asks for."""
    original = (args or {}).get("originalFunctionCall")
    return {"originalFunctionCall": {**original, "args": {}}} if isinstance(original, dict) else {}
