"""Redaction: removes a user's texts and names from sessions that others share.

In a run that answered the user, all texts, arguments and results are replaced. The messages and calls themselves stay,
so that models accept the history. In all other runs, the user's names and id, and quotes of their messages, are
replaced. Text that others or a model wrote in their own words stays.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.inbox_message import InboxMessage, InboxOutcome
from core.models.grounding import READ_URLS_KEY
from core.models.tokens import estimate_tokens
from core.models.tool_calls import read_signature
from core.privacy.known_users import get_author_name, list_sessions_with
from core.sessions import state as scopes
from core.sessions.codec import USER_ROLES, measure_event, parse_event, to_folded_column, to_row
from core.sessions.lifecycle import delete_prompts, delete_unreferenced_blobs, is_turn_at
from core.sessions.prompt_text import (
    CONTINUATION_PREFIX,
    LINE_PREFIX,
    LOCAL_TIME_PREFIX,
    AttributedPrompt,
    PromptFile,
    strip_author,
)
from core.sessions.resume import correction_run_id
from core.store.errors import name_row
from core.store.schema import (
    JsonText,
    UnreadableJson,
    artifacts,
    human_requests,
    inbox,
    jobs,
    memories,
    messages,
    schedules,
    sessions,
    state,
    tool_calls,
    turns,
)
from core.turns.queries import is_message, parse_inbox_message

#: The replacements of a text and of a name.
DELETED_TEXT, DELETED_NAME = "[deleted]", "somebody"

#: The fewest characters of a user's message that is searched for in the texts of others.
MIN_QUOTE_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Redaction:
    """The names, texts and runs of a user in a session, which are to be removed.

    Attributes:
        user_id: the platform's id of the user.
        names: the display names of the user in the session.
        texts: the texts of the user's messages, and of their answers to questions of the agent.
        runs: the ids of the runs that answered the user.
    """

    user_id: str
    names: frozenset[str] = frozenset()
    texts: Sequence[str] = ()
    runs: frozenset[str] = frozenset()

    def redact_text(self, text: str) -> str:
        """Return another author's text with the user's messages, names and id replaced.

        Messages of 8 characters (`MIN_QUOTE_LENGTH`) or more, and quotes of the user in prompts, become `[deleted]`.
        Names, as whole words, and the id become `somebody`.
        """
        for words in sorted(self.texts, key=len, reverse=True):
            if len(words) >= MIN_QUOTE_LENGTH:
                text = text.replace(words, DELETED_TEXT)
        text = "\n".join(self._redact_quote(text.split("\n")))
        if self.names:
            names = "|".join(re.escape(name) for name in sorted(self.names, key=len, reverse=True))
            text = re.sub(rf"(?<!\w)(?:{names})(?!\w)", DELETED_NAME, text)
        return text.replace(self.user_id, DELETED_NAME)

    def _redact_quote(self, lines: Iterable[str]) -> Iterable[str]:
        """Yield the lines of a prompt, with `[deleted]` for quoted messages of the user."""
        is_theirs = False
        for line in lines:
            if line.startswith(CONTINUATION_PREFIX) or line == CONTINUATION_PREFIX.rstrip():  # a continuation line
                if not is_theirs:
                    yield line
                continue
            is_theirs = any(line.startswith(f"{LINE_PREFIX}{name}: ") for name in self.names)
            yield f"{LINE_PREFIX}{DELETED_TEXT}" if is_theirs else line

    def redact_json(self, value: Any) -> Any:
        """Return a copy of a JSON value with `redact_text` applied to all texts and keys."""
        match value:
            case str():
                return self.redact_text(value)
            case Mapping():
                return {self.redact_text(key): self.redact_json(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self.redact_json(inner) for inner in value]
            case UnreadableJson():
                raise ValueError("not JSON")
        return value


async def find_sessions_of(connection: AsyncConnection, user_id: str) -> tuple[list[str], list[str]]:
    """Return the ids of sessions in which only a user wrote, and of shared sessions.

    The second list includes sessions that only name the user, or in which they only decided something. Both are sorted.
    """
    inbox_sessions = sa.select(inbox.c.session).where(inbox.c.author == user_id).distinct()
    ids = await list_sessions_with(connection, user_id) | set((await connection.execute(inbox_sessions)).scalars())
    # SQLite's LIKE ignores case: the rows are compared once more
    may_be_author = sa.cast(human_requests.c.authors, sa.Text).contains(json.dumps(user_id), autoescape=True)
    query = sa.select(human_requests).where((human_requests.c.decided_by == user_id) | may_be_author)
    for row in await connection.execute(query):
        with name_row("human_requests", row.id):
            ids |= {row.session} if user_id in (row.decided_by, *row.authors) else set()
    ids.discard("")
    own_sessions = list[str]()
    shared_sessions = list[str]()
    for session_id in sorted(ids):
        (own_sessions if await is_only_author(connection, session_id, user_id) else shared_sessions).append(session_id)
    return own_sessions, shared_sessions


async def is_only_author(connection: AsyncConnection, session_id: str, user_id: str) -> bool:
    """Return whether no other person than a user wrote to the bot in a session.

    A stored message without a known author counts as another person's. The result is True if nobody wrote.
    """
    is_to_bot = is_message(inbox) & inbox.c.outcome.is_distinct_from(InboxOutcome.UNADDRESSED)
    inbox_authors = sa.select(inbox.c.author).where(inbox.c.session == session_id, is_to_bot).distinct()
    authors: set[str | None] = set((await connection.execute(inbox_authors)).scalars()) - {""}
    is_correction = messages.c.invocation_id.endswith(correction_run_id(""))  # written by Parley, not by a user
    prompts = sa.select(messages.c.id, messages.c.attribution).where(
        messages.c.session == session_id, messages.c.role.in_(USER_ROLES), ~is_correction
    )
    for id_, attribution in await connection.execute(prompts):
        with name_row("messages", id_):
            authors |= (
                {author for author, _ in attribution["parts"] if author} if attribution else {None}
            )  # None: unknown author
    return authors <= {user_id}


async def load_redaction(connection: AsyncConnection, session_id: str, user_id: str) -> Redaction:
    """Read a user's names, texts and runs in a session."""
    names = set[str]()
    texts = list[str]()
    runs = set[str]()
    rows = sa.select(messages.c.invocation_id, messages.c.content, messages.c.attribution).where(
        messages.c.session == session_id, messages.c.attribution.is_not(None)
    )
    for run, content, attribution in await connection.execute(rows):
        names |= {attribution["people"][user_id]} if user_id in attribution["people"] else set()
        if any(author == user_id for author, _ in attribution["parts"]):
            runs.add(run)
            prompt = AttributedPrompt.from_json(content, attribution)
            for author, text in prompt.parts if prompt is not None else ():
                if author == user_id:
                    texts.append(
                        next((strip_author(text, name) for name in names if text.startswith(f"{name}: ")), text)
                    )
    inbox_messages = sa.select(inbox.c.id, inbox.c.turn, inbox.c.message).where(
        inbox.c.session == session_id, inbox.c.author == user_id
    )
    for id_, turn_id, inbound in await connection.execute(inbox_messages):
        runs |= {turn_id} if turn_id else set()
        if message := parse_inbox_message(inbound, id_):
            texts.append(message.text)
            names.add(get_author_name(message))
    scheduled = sa.select(schedules.c.id, schedules.c.message).where(
        schedules.c.session == session_id, schedules.c.author == user_id
    )
    for id_, inbound in await connection.execute(scheduled):
        with name_row("schedules", id_):
            message = InboxMessage.from_json(inbound)
            texts.append(message.text)
            names.add(get_author_name(message))
    c = human_requests.c
    answered = sa.select(c.answer).where(c.session == session_id, c.decided_by == user_id, c.answer.is_not(None))
    for answer in (await connection.execute(answered)).scalars():
        values = answer.values() if isinstance(answer, dict) else [answer]
        texts += [value for value in values if isinstance(value, str)]
    return Redaction(user_id, frozenset(names - {""}), [text for text in texts if text], frozenset(runs))


async def redact_session(connection: AsyncConnection, session_id: str, redaction: Redaction) -> int:
    """Remove a user's texts, names and id from a session, in the caller's transaction.

    The caller has locked the session. Its summaries and memories are deleted, and so are the prompts of all sessions at
    its place, which may quote the state or the memories of the place. Of runs that answered the user, files, background
    jobs and requests to people are deleted, and tool calls lose their arguments and results. No other message is
    deleted, so that models accept the history. The user's names and id are also replaced in the ADK state and the
    memories of the session's place.

    Returns:
        The number of rows of `messages` that were changed.
    """
    runs = {*redaction.runs, *map(correction_run_id, redaction.runs)}
    in_session = messages.c.session == session_id
    await connection.execute(sa.delete(memories).where(memories.c.session == session_id))
    await connection.execute(sa.delete(messages).where(in_session, messages.c.summarized_id.is_not(None)))
    count = 0
    for row in (await connection.execute(sa.select(messages).where(in_session).order_by(messages.c.id))).all():
        with name_row("messages", row.id):
            changed = _redact_message(row, redaction, is_theirs=row.invocation_id in runs)
        if changed is not None:
            await connection.execute(sa.update(messages).where(messages.c.id == row.id).values(changed))
            count += 1
    redacted_turns = sa.select(turns.c.id).where(
        turns.c.session == session_id, turns.c.origin.in_(runs) | turns.c.run.in_(runs)
    )
    turn_ids = {*(await connection.execute(redacted_turns)).scalars()}
    answered = sa.select(human_requests.c.run).where(
        human_requests.c.session == session_id, human_requests.c.decided_by == redaction.user_id
    )
    is_answered = messages.c.invocation_id.in_(runs) | messages.c.invocation_id.in_(answered)
    await connection.execute(sa.update(messages).where(in_session, is_answered).values(unmasked=None))
    empty_turn = {"text": None, "error": None, "run_record": None}
    await connection.execute(sa.update(turns).where(turns.c.id.in_(turn_ids)).values(empty_turn))
    await connection.execute(sa.delete(human_requests).where(human_requests.c.turn.in_(turn_ids)))
    requests = sa.update(human_requests).where(human_requests.c.session == session_id)
    await connection.execute(requests.values(drafts={}))
    await connection.execute(requests.where(human_requests.c.decided_by == redaction.user_id).values(answer=None))
    await connection.execute(sa.delete(artifacts).where(artifacts.c.session == session_id, artifacts.c.run.in_(runs)))
    await connection.execute(sa.delete(jobs).where(jobs.c.session == session_id, jobs.c.run.in_(runs)))
    calls = (tool_calls.c.session == session_id) & tool_calls.c.run.in_(runs)
    empty_call = {"arguments": {}, "arguments_hash": "", "result": {"deleted": True}, "actions": None}
    await connection.execute(sa.update(tool_calls).where(calls).values(empty_call))
    place = await connection.scalar(sa.select(sessions.c.user_id).where(sessions.c.id == session_id)) or ""
    await delete_prompts(connection, (turns.c.session == session_id) | is_turn_at(place))
    for table, condition in (
        (state, (state.c.scope == "user") & scopes.is_owned_by_user(state.c.owner, place)),
        (turns, turns.c.session == session_id),
        (tool_calls, tool_calls.c.session == session_id),
        (memories, memories.c.user_id == place),
        (human_requests, human_requests.c.session == session_id),
        (schedules, schedules.c.session == session_id),
        (jobs, jobs.c.session == session_id),
        (state, (state.c.scope == "session") & (state.c.owner == session_id)),
        (inbox, (inbox.c.session == session_id) & (inbox.c.author != redaction.user_id)),
    ):
        await _redact_rows(connection, table, condition, redaction)
    return count


_TEXT_TYPES = (sa.Text, sa.JSON, JsonText)
#: Columns without text of people. `core.usage.spending_ledger` redacts `usage`; `search_text` is computed from the
#: content.
_KEY_COLUMNS = {
    "usage",
    "id",
    "session",
    "owner",
    "scope",
    "run",
    "call",
    "call_id",
    "event_key",
    "external_id",
    "key_hash",
    "origin",
    "parent",
    "turn",
    "author",
    "place",
    "platform",
    "rule",
    "search_text",
    "starts_at",
    "time_zone",
}


async def _redact_rows(
    connection: AsyncConnection, table: sa.Table, condition: sa.ColumnElement[bool], redaction: Redaction
) -> None:
    texts = [
        column.name for column in table.c if isinstance(column.type, _TEXT_TYPES) if column.name not in _KEY_COLUMNS
    ]
    for row in (await connection.execute(sa.select(table).where(condition))).all():
        values = row._mapping
        with name_row(table.name, "/".join(str(values[column.name]) for column in table.primary_key)):
            redacted = {name: redaction.redact_json(values[name]) for name in texts}
        changed = {name: value for name, value in redacted.items() if value != values[name]}
        if "content" in changed and "search_text" in table.c:
            changed["search_text"] = to_folded_column(changed["content"])
        if changed:
            is_row = sa.and_(*(column == values[column.name] for column in table.primary_key))
            await connection.execute(sa.update(table).where(is_row).values(changed))


def _redact_message(row: sa.Row[Any], redaction: Redaction, *, is_theirs: bool) -> dict[str, Any] | None:
    """Return new values for the columns of a message, with the user's data replaced.

    If the message belongs to a run that answered the user (`is_theirs`), all its text is replaced. If it has no event,
    all content is removed.
    """
    event = parse_event(row.event, row.id)
    if event is None:  # an imported or older row: it may hold anything
        return {
            **{"content": DELETED_TEXT, "search_text": None, "tool_calls": [], "event": None},
            **{"attribution": None, "files": None},
        }
    prompt = AttributedPrompt.from_json(row.content, row.attribution, row.files)
    redacted = prompt
    text = None
    if row.role in USER_ROLES and (is_theirs or (prompt is not None and redaction.user_id in prompt.names)):
        former = prompt or AttributedPrompt(((redaction.user_id, row.content),), {})
        deleted = [
            file for file in former.files if file.author == redaction.user_id or (is_theirs and file.media is not None)
        ]
        former = former.delete_files(deleted, DELETED_TEXT)
        redacted = AttributedPrompt(
            tuple(
                ("", DELETED_TEXT)
                if author == redaction.user_id or (is_theirs and words.startswith(LOCAL_TIME_PREFIX))
                else (author, redaction.redact_text(words))
                for author, words in former.parts
            ),
            {id_: name for id_, name in former.names.items() if id_ != redaction.user_id},
            former.files,
        )
        text = redacted.text if is_theirs else None
        event = _delete_files(event, deleted, redacted.text)
    changed = _redact_event(event, redaction, is_theirs=is_theirs, text=text)
    return None if changed == event and redacted == prompt else _to_changed_row(row, changed, redacted)


def _delete_files(event: Event, deleted: Collection[PromptFile], text: str) -> Event:
    """Return a prompt's event without some of its files; `text` is the prompt without them."""
    if event.content is None or not deleted:
        return event
    positions = {file.media for file in deleted}
    media = (event.content.parts or [])[1:]  # the text comes first
    kept = [part for position, part in enumerate(media) if position not in positions]
    content = event.content.model_copy(update={"parts": [types.Part(text=text), *kept]})
    return event.model_copy(update={"content": content})


def _to_changed_row(row: sa.Row[Any], event: Event, prompt: AttributedPrompt | None) -> dict[str, Any]:
    words, tokens = measure_event(event)
    return {
        **to_row(event, tokens=tokens + estimate_tokens(words)),
        "long_running_calls": row.long_running_calls,
        "attribution": prompt and prompt.to_json(),
        "files": prompt and prompt.files_to_json(),
        "created_at": row.created_at,
    }


async def delete_message_files(connection: AsyncConnection, event_key: str) -> None:
    """Delete the stored copies of a message's files, in the caller's transaction.

    The texts of the files become `[deleted]` in the user messages that have them, and their media are removed. The
    prompts of the model calls of these sessions are deleted. The event key may be in no inbox.
    """
    may_have_file = sa.cast(messages.c.files, sa.Text).contains(json.dumps(event_key), autoescape=True)
    query = sa.select(messages).where(messages.c.files.is_not(None), may_have_file)
    sessions_with_file = set[str]()
    for row in (await connection.execute(query)).all():
        prompt = AttributedPrompt.from_json(row.content, row.attribution, row.files)
        event = parse_event(row.event, row.id)
        deleted = [file for file in prompt.files if file.event_key == event_key] if prompt else []
        if prompt is None or event is None or not deleted:
            continue
        prompt = prompt.delete_files(deleted, DELETED_TEXT)
        changed = _to_changed_row(row, _delete_files(event, deleted, prompt.text), prompt)
        await connection.execute(sa.update(messages).where(messages.c.id == row.id).values(changed))
        sessions_with_file.add(row.session)
    for session_id in sessions_with_file:
        await delete_prompts(connection, turns.c.session == session_id)
        await delete_unreferenced_blobs(connection, session_id)


def _redact_event(event: Event, redaction: Redaction, *, is_theirs: bool, text: str | None) -> Event:
    """Return an ADK event with the user's texts, names and id replaced.

    In runs that answered the user (`is_theirs`), all text is replaced, by `text` if that is not None. Files are
    removed, and calls, results and changes of the session state are emptied.
    """
    content = event.content
    if content is not None and text is not None:
        content = content.model_copy(update={"parts": [types.Part(text=text)]})
    elif content is not None:
        parts = [_redact_part(part, redaction, is_theirs=is_theirs) for part in content.parts or ()]
        content = content.model_copy(update={"parts": [part for part in parts if part]})
    delta = {} if is_theirs else redaction.redact_json(event.actions.state_delta)
    update: dict[str, Any] = {"content": content, "actions": event.actions.model_copy(update={"state_delta": delta})}
    if is_theirs:
        metadata = {key: value for key, value in (event.custom_metadata or {}).items() if key != READ_URLS_KEY}
        update |= {"custom_metadata": metadata or None}
        update |= {"grounding_metadata": None, "citation_metadata": None, "error_message": None}
    return event.model_copy(update=update)


def _redact_part(part: types.Part, redaction: Redaction, *, is_theirs: bool) -> types.Part | None:
    if is_theirs and (part.thought or part.inline_data or part.file_data):
        return None
    if part.text:
        text = DELETED_TEXT if is_theirs and part.text.strip() else redaction.redact_text(part.text)
        return part if text == part.text else types.Part(text=text, thought=part.thought)
    signed = read_signature(part.thought_signature)
    unsigned = {"thought_signature": None} if is_theirs or redaction.redact_text(signed) != signed else {}
    if call := part.function_call:
        args = _empty_arguments(call.args) if is_theirs else redaction.redact_json(call.args)
        return part.model_copy(update={"function_call": call.model_copy(update={"args": args}), **unsigned})
    if result := part.function_response:
        response = {"deleted": True} if is_theirs else redaction.redact_json(result.response)
        update = {"response": response}
        if is_theirs:
            update["parts"] = None
        return part.model_copy(update={"function_response": result.model_copy(update=update), **unsigned})
    return part


def _empty_arguments(args: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return arguments with only `originalFunctionCall`, by which ADK continues a confirmed call."""
    original = (args or {}).get("originalFunctionCall")
    return {"originalFunctionCall": {**original, "args": {}}} if isinstance(original, dict) else {}
