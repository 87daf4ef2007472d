import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from google.genai import types

from core.conversations.feedback import FeedbackStore
from core.errors import UnreadableRowError
from core.inbox.store import InboxStore
from core.inbox.watermarks import Watermarks
from core.messages.inbox_message import AcceptResult
from core.models.tokens import TokenCounter
from core.privacy import deletion as deletion_module
from core.privacy import deletion_queries
from core.privacy.deletion import DeletionRequest, DeletionResult, DeletionService, wipe
from core.privacy.known_users import KnownUser
from core.privacy.retention import DAY_SECONDS, RetentionService
from core.sessions.artifacts import ArtifactService
from core.sessions.codec import to_row
from core.sessions.history import repair_history
from core.sessions.history_summary import create_summary_event
from core.sessions.memory import MemoryService
from core.sessions.prompt_text import AttributedPrompt, build_quote, describe_local_time, quote_message
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.store.schema import human_requests, memories, messages, metadata, sessions, state, tool_calls
from core.store.schema import inbox as inbox_table
from core.store.schema import turns as turns_table
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.usage.meter import ModelCall, UsageMeter
from core.usage.prices import Prices
from core.usage.spending_ledger import FIRST_DAY, SpendingStore, make_rows
from tests.core.conftest import FailingDatabase
from tests.core.sessions.events import call_event, model_event, response_event
from tests.fixtures.inbox_messages import inbound

#: Zofia's message, name and id; those of others.
WORDS = ("vermilion umbrella", "Zofia", "U0ZOFIA")
OTHERS = ("harmless teapot", "Grace", "U0GRACE")

PRICES = Prices()
CALL = ModelCall("gemini-2.5-flash", input=3, output=1)
COST = PRICES.get_cost(CALL) or 0

SHARED, ALONE = "slack:T1:C1:171", "slack:T1:D9:172"


class StoredConversations:
    """Conversations in the database, with rows in every table."""

    def __init__(self, database: FailingDatabase, inbox: InboxStore, turns: TurnStore, service: SessionService) -> None:
        self.database, self.inbox, self.turns, self.service = database, inbox, turns, service
        self.books = SpendingStore(database, PRICES)

    async def session(self, id_: str) -> StoredSession:
        place = id_.rpartition(":")[0]
        found = await self.service.get_session(app_name="app", user_id=place, session_id=id_)
        assert isinstance(found, StoredSession)
        return found

    async def say(
        self,
        session: str,
        author: str,
        name: str,
        words: str,
        *,
        around: str = "",
        day: str = "",
        is_counted: bool = True,
    ) -> str:
        """Store an ended turn with a tool call, file, rating, request and cost.

        Args:
            name: the author's name.
            words: the user's message.
            around: a context message before it, which names another user.
            day: the day of the cost; "" for today.
            is_counted: whether the spending ledger counts the turn.

        Returns:
            The turn's id.
        """
        address = {"speaker": name, "author": author}
        message = inbound(words, session=session, author=author, address=address)
        await self.inbox.accept(message)
        (turn,) = await self.turns.claim(1)
        loaded = await self.session(session)
        parts = [("", around)] if around else []
        people = {author: name, **({"U0ZOFIA": "Zofia"} if around else {})}
        prompt = AttributedPrompt((*parts, (author, f"{name}: {words}")), people)
        loaded.prompt = prompt
        picture = words.encode() * 100
        stored_parts = [types.Part(text=prompt.text), types.Part.from_bytes(data=picture, mime_type="image/png")]
        call, answer = f"c{turn.id}", {"found": f"{words} of {name}"}
        signed = call_event(call, name="look", args={"for": words})
        thoughts = [{"reasoning_content": f"{' and '.join(people.values())} ask"}, {}]
        get_parts(signed)[0].thought_signature = f"parley:openai:{json.dumps(thoughts)}".encode()
        events = [
            Event(author="user", content=types.Content(role="user", parts=stored_parts)),
            signed,
            response_event(call, name="look", response=answer),
            model_event(f"{name}, you said {words}."),
        ]
        of_place = {
            "app": "app",
            "user_id": message.place,
            "session": session,
            "author": "user",
            "created_at": time.time(),
        }
        recalled = [{**of_place, "key": event.id, "content": f"{name}: {words}"} for event in events]
        for event in events:
            await self.service.append_event(loaded, event.model_copy(update={"invocation_id": turn.id}))
        artifacts = ArtifactService(self.database, run_id=turn.id)
        saved = types.Part.from_bytes(data=words.encode(), mime_type="text/plain")
        await artifacts.save_artifact(
            app_name="app", user_id=message.place, session_id=session, filename=f"{words}.txt", artifact=saved
        )
        async with self.database.write() as connection:
            await connection.execute(sa.insert(memories), recalled)
            journal = {
                "session": session,
                "run": turn.id,
                "id": call,
                "tool": "look",
                "arguments_hash": "h",
                "state": "ended",
            }
            log_fields = {"arguments": {"for": words}, "result": answer, "started_at": time.time()}
            await connection.execute(sa.insert(tool_calls).values(**journal, **log_fields))
            own = {
                "scope": "session",
                "owner": session,
                "key": f"last {author[-2:]}",
                "value": {"by": author, "w": words},
            }
            await connection.execute(sa.insert(state).values(own))
            asks = {"id": f"a{turn.id}", "turn": turn.id, "session": session, "generation": 1, "run": turn.id}
            what = {
                "call_id": "k",
                "tool_call_id": call,
                "tool": "look",
                "arguments": {"for": words},
                "arguments_hash": "h",
                "hint": words,
            }
            user_rows = {
                "authors": [author],
                "deciders": ["author"],
                "drafts": {},
                "kind": "approval",
                "may_allow_always": False,
                "secret_paths": [],
                "tool_hash": "",
                "speakers": [],
                "answer_authors": [],
                "chunks": [],
            }
            when = {"requested_at": 1.0, "expires_at": 2.0, "decided_at": 1.5}
            decided = {"decided_by": author, "decided_by_name": name, "decision": "approved"}
            await connection.execute(sa.insert(human_requests).values(**asks, **what, **user_rows, **when, **decided))
        turn.meter.place, turn.meter.author, turn.meter.author_name = message.place, f"slack:{author}", name
        turn.meter.day = day or turn.meter.day
        turn.meter.add(CALL)
        await self.turns.save_answer(turn, f"{name}, you said {words}.", turn.meter.to_json())
        await self.turns.end(turn, "done")
        if is_counted:
            await self.books.record_ended_turns()
        await FeedbackStore(self.database).save_feedback(turn.id, author, "good")
        return turn.id

    async def save_summary(self, session: str, text: str) -> None:
        row = to_row(create_summary_event(text, begin=1.0, end=2.0), tokens=5)
        values = {**row, "session": session, "generation": 1, "summarized_id": 1, "content": text}
        async with self.database.write() as connection:
            await connection.execute(sa.insert(messages).values(values))

    async def list_spending(self) -> list[tuple[str, str, int, int]]:
        """Return (user id, name, calls, cost) of each user with spending."""
        return [
            (one.key, one.name, one.calls, one.cost) for one in await self.books.sum_spending("user", since=FIRST_DAY)
        ]

    async def find_columns(self, *words: str) -> list[str]:
        """Return `table.column` for each value that contains any of these texts."""
        found = list[str]()
        async with self.database.read() as connection:
            for table in metadata.sorted_tables:
                for row in await connection.execute(sa.select(table)):
                    found += [f"{table.name}.{name}" for name, value in row._mapping.items() if _has(value, words)]
        return found


def get_parts(event: Event) -> list[types.Part]:
    return (event.content and event.content.parts) or []


def _has(value: Any, words: tuple[str, ...]) -> bool:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else json.dumps(value, default=str)
    return any(word in text for word in words)


@pytest.fixture
def conversations(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore, tmp_path: Path
) -> StoredConversations:
    return StoredConversations(database, inbox, turns, SessionService(database, TokenCounter(tmp_path), agent="bot"))


async def test_a_session_is_deleted_from_every_table_and_from_the_file(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    await conversations.say(ALONE, "U0ZOFIA", "Zofia", "vermilion umbrella", is_counted=False)
    await conversations.save_summary(ALONE, "Zofia has a vermilion umbrella")
    async with database.write() as connection:
        of_place = {
            "scope": "user",
            "owner": json.dumps(["app", "slack:T1:D9"]),
            "key": "k",
            "value": "vermilion umbrella",
        }
        await connection.execute(sa.insert(state).values(of_place))
    await conversations.say(SHARED, "U0GRACE", "Grace", "harmless teapot")
    async with database.read() as connection:
        key = (await connection.execute(sa.select(inbox_table.c.event_key).limit(1))).scalar_one()
    assert len(await conversations.find_columns(*WORDS)) > 15
    deletion = DeletionService(database, PRICES)
    survey = await deletion.preview(DeletionRequest(session_id=ALONE))
    assert (survey.sessions, survey.partial_sessions, survey.messages, survey.files) == ((ALONE,), (), 5, 2)
    assert len(await conversations.find_columns(*WORDS)) > 15  # the preview deletes nothing
    assert await deletion.delete(DeletionRequest(session_id=ALONE)) == DeletionResult(
        conversations=1, messages=5, files=2
    )
    assert not await deletion.preview(DeletionRequest(session_id=ALONE))
    assert await conversations.find_columns(*WORDS) == []
    assert await conversations.find_columns("harmless teapot") != []
    assert await conversations.list_spending() == [("", "", 1, COST), ("slack:U0GRACE", "Grace", 1, COST)]

    redelivered = inbound("vermilion umbrella", session=ALONE, event_key=key, author="U0ZOFIA")
    assert await conversations.inbox.accept(redelivered) is AcceptResult.DUPLICATE
    assert await conversations.find_columns(*WORDS) == []
    assert await conversations.turns.claim(10) == []
    if database.file is not None:
        await wipe(database)
        for file in database.file.parent.glob("parley.db*"):
            assert b"vermilion umbrella" not in file.read_bytes()
            assert b"Zofia" not in file.read_bytes()
        assert b"harmless teapot" in database.file.read_bytes()


async def test_a_user_is_removed_from_shared_sessions_which_stay_usable(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    await conversations.say(ALONE, "U0ZOFIA", "Zofia", "vermilion umbrella")
    around = build_quote(
        "Earlier messages of other people",
        [quote_message("Zofia", "my vermilion umbrella\nis wet"), quote_message("Lin", "ok")],
    )
    await conversations.say(SHARED, "U0ZOFIA", "Zofia", "vermilion umbrella", is_counted=False)
    await conversations.say(SHARED, "U0GRACE", "Grace", "harmless teapot", around=around, is_counted=False)
    await conversations.save_summary(SHARED, "Zofia has a vermilion umbrella")
    async with database.write() as connection:
        notice = {"user_key": "slack:U0ZOFIA", "kind": "access", "expires_at": 1.0}
        await connection.execute(sa.insert(metadata.tables["denial_notices"]).values(notice))
        reserved = UsageMeter("t")
        reserved.author, reserved.author_name = "slack:U0ZOFIA", "Zofia"
        rows = make_rows([ModelCall("m", input=1)], reserved.to_attribution(), PRICES, turn="t")
        await connection.execute(sa.insert(metadata.tables["spending"]), rows)
    deletion = DeletionService(database, PRICES)
    survey = await deletion.preview(DeletionRequest(user_id="U0ZOFIA"))
    assert (survey.sessions, survey.partial_sessions, survey.records) == ((ALONE,), (SHARED,), 7)
    deleted = await deletion.delete(DeletionRequest(user_id="U0ZOFIA"))
    assert deleted == DeletionResult(conversations=1, changed=1, messages=5, redacted=6, files=4, records=7)
    assert await conversations.find_columns(*WORDS) == []
    assert not await deletion.preview(DeletionRequest(user_id="U0ZOFIA"))
    if database.file is not None:
        await wipe(database)
        assert all(b"vermilion" not in file.read_bytes() for file in database.file.parent.glob("parley.db*"))

    events = (await conversations.session(SHARED)).events
    assert repair_history(events) == events
    calls = [call.id for event in events for call in event.get_function_calls()]
    answers = [answer.id for event in events for answer in event.get_function_responses()]
    assert len(calls) == 2
    assert calls == answers
    parts = [part for event in events for part in get_parts(event)]
    assert not [part for part in parts if part.thought_signature]
    texts = [part.text for part in parts if part.text]
    assert texts[0] == texts[1] == "[deleted]"
    assert "> [deleted]\n> Lin: ok" in texts[2]
    assert texts[2].endswith("\n\nGrace: harmless teapot")
    assert texts[3] == "Grace, you said harmless teapot."
    pictures = [part.inline_data.data for part in parts if part.inline_data]
    assert pictures == [b"harmless teapot" * 100]
    async with database.read() as connection:
        usage = (await connection.execute(sa.select(turns_table.c.usage))).scalars().all()
    assert [used["input"] for used in usage] == [3, 3]  # token sums are not deleted
    assert await conversations.list_spending() == [("", "", 2, 2 * COST), ("slack:U0GRACE", "Grace", 1, COST)]
    assert await conversations.find_columns("Grace", "harmless teapot") != []


@pytest.mark.parametrize(
    ("table", "damage"),
    [("messages", {"event": "{"}), ("inbox", {"message": 7}), ("messages", {"attribution": {"people": ["U0ZOFIA"]}})],
)
async def test_an_unreadable_row_is_named_and_only_its_session_is_not_redacted(
    conversations: StoredConversations, database: FailingDatabase, table: str, damage: dict[str, Any]
) -> None:
    broken = "slack:T1:C2:173"
    for session in (broken, SHARED):
        await conversations.say(session, "U0ZOFIA", "Zofia", "vermilion umbrella")
        await conversations.say(session, "U0GRACE", "Grace", "harmless teapot")
    rows = metadata.tables[table]
    async with database.write() as connection:
        newest = sa.select(sa.func.min(rows.c.id)).where(rows.c.session == broken).scalar_subquery()
        await connection.execute(sa.update(rows).where(rows.c.id == newest).values(damage))
    deletion = DeletionService(database, PRICES)
    with pytest.raises(UnreadableRowError, match=rf"row 1 of {table} cannot be read"):
        await deletion.delete(DeletionRequest(user_id="U0ZOFIA"))
    assert (await deletion.delete(DeletionRequest(session_id=broken))).conversations == 1
    await deletion.delete(DeletionRequest(user_id="U0ZOFIA"))
    assert await conversations.find_columns(*WORDS) == []
    assert await conversations.find_columns("harmless teapot") != []


async def test_an_unreadable_row_is_named_and_only_its_session_does_not_expire(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    for session in (SHARED, ALONE):
        await conversations.say(session, "U0GRACE", "Grace", "harmless teapot")
    async with database.write() as connection:
        await connection.execute(sa.update(messages).values(created_at=1.0))
        damaged = messages.c.event.contains('"data"') & (messages.c.session == SHARED)
        await connection.execute(sa.update(messages).where(damaged).values(event='{"data"', created_at=time.time()))
    with pytest.raises(UnreadableRowError, match=f"row 1 of messages cannot be read .session {SHARED}."):
        await RetentionService(database, PRICES, days=1).delete_expired()
    async with database.read() as connection:
        left = (await connection.execute(sa.select(messages.c.session).distinct())).scalars().all()
    assert left == [SHARED]


async def test_the_time_zone_of_a_deleted_user_is_removed(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    zone = describe_local_time("Asia/Seoul", time.time())
    await conversations.say(SHARED, "U0ZOFIA", "Zofia", "vermilion umbrella", around=zone)
    await conversations.say(SHARED, "U0GRACE", "Grace", "harmless teapot")
    assert await conversations.find_columns("Asia/Seoul") != []
    await DeletionService(database, PRICES).delete(DeletionRequest(user_id="U0ZOFIA"))
    assert await conversations.find_columns("Asia/Seoul", *WORDS) == []


async def test_a_name_is_no_user_id_and_finds_the_users_who_have_it(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    await conversations.say(SHARED, "U0ZOFIA", "Zofia", "vermilion umbrella")
    await conversations.say(SHARED, "U0GRACE", "Grace", "harmless teapot")
    deletion = DeletionService(database, PRICES)
    for text in ("Zofia", "zof", "slack:U0ZOFIA", "u0zofia"):
        assert not await deletion.preview(DeletionRequest(user_id=text))
        assert await deletion.find_users(text) == [KnownUser("U0ZOFIA", ("Zofia",))]
    assert await deletion.find_users("bob") == []


async def test_a_deleted_persons_name_is_in_no_folded_text(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    await conversations.say(SHARED, "U0ZOFIA", "Zofia", "vermilion crème", is_counted=False)
    await conversations.say(SHARED, "U0GRACE", "Grace", "harmless café", is_counted=False)
    place = SHARED.rpartition(":")[0]
    noted = model_event("Zofia and Zoë like tea.")
    await MemoryService(database).add_events_to_memory(app_name="app", user_id=place, events=[noted])
    assert {"messages.search_text", "memories.search_text"} <= {*await conversations.find_columns("zofia")}
    await DeletionService(database, PRICES).delete(DeletionRequest(user_id="U0ZOFIA"))
    assert await conversations.find_columns("Zofia", "zofia") == []
    assert {"messages.search_text", "memories.search_text"} <= {
        *await conversations.find_columns("like tea.", "harmless")
    }


async def test_old_turns_are_deleted_as_a_whole_except_open_calls(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    long_ago = f"{time.strftime('%Y-%m-%d', time.gmtime(time.time() - 40 * DAY_SECONDS))}"
    old = await conversations.say(SHARED, "U0ZOFIA", "Zofia", "vermilion umbrella", day=long_ago)
    waiting = await conversations.say(SHARED, "U0LIN", "Lin", "may I?")
    await conversations.say(ALONE, "U0ZOFIA", "Zofia", "vermilion umbrella", day=long_ago, is_counted=False)
    await conversations.save_summary(SHARED, "Zofia has a vermilion umbrella")
    async with database.write() as connection:
        await _age(connection, days=40)
        statement = sa.update(messages).where(messages.c.invocation_id == waiting, messages.c.role == "assistant")
        await connection.execute(statement.values(long_running_calls={"k": False}))
    await conversations.say(SHARED, "U0GRACE", "Grace", "harmless teapot")
    retention = RetentionService(database, PRICES, days=30)
    await retention.delete_expired()
    # the state of tools does not expire before its session
    assert set(await conversations.find_columns(*WORDS)) == {"state.value"}
    async with database.read() as connection:
        runs = set((await connection.execute(sa.select(messages.c.invocation_id))).scalars())
        session_ids = (await connection.execute(sa.select(sessions.c.id))).scalars().all()
    assert old not in runs
    assert waiting in runs
    assert session_ids == [SHARED]
    assert await conversations.find_columns("harmless teapot") != []
    assert await conversations.list_spending() == [
        ("", "", 2, 2 * COST),
        ("slack:U0GRACE", "Grace", 1, COST),
        ("slack:U0LIN", "Lin", 1, COST),
    ]
    await conversations.save_summary(SHARED, "Grace has a harmless kettle")
    await retention.delete_expired()  # no row has expired
    assert waiting in runs
    assert await conversations.find_columns("harmless kettle") != []


@pytest.mark.parametrize("meanwhile", ["somebody speaks", "what was said long ago is delivered", "a turn runs"])
async def test_an_old_session_with_a_new_message_stays_and_is_answered(
    conversations: StoredConversations, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    await conversations.say(ALONE, "U0GRACE", "Grace", "harmless teapot")
    at = time.time() - 40 * DAY_SECONDS if meanwhile == "what was said long ago is delivered" else time.time()
    message = inbound("and now?", session=ALONE, author="U0GRACE", sent_at=at)
    if meanwhile == "a turn runs":  # an old turn
        await conversations.inbox.accept(message)
        (turn,) = await conversations.turns.claim(1)
    async with database.write() as connection:
        await _age(connection, days=40)
    list_sessions = DeletionService.list_sessions

    async def list_and_accept(self: DeletionService, wish: DeletionRequest) -> tuple[list[str], list[str]]:
        found = await list_sessions(self, wish)
        assert found == ([ALONE], [])
        if meanwhile != "a turn runs":
            await conversations.inbox.accept(message)
        return found

    monkeypatch.setattr(DeletionService, "list_sessions", list_and_accept)
    await RetentionService(database, PRICES, days=30).delete_expired()
    if meanwhile != "a turn runs":
        (turn,) = await conversations.turns.claim(1)
    assert turn.messages == (message,)
    assert await conversations.turns.list_owned() == {turn.id: None}
    assert await conversations.find_columns("and now?") != []


async def test_more_sessions_can_expire_than_a_statement_takes_values(
    database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.privacy.retention.PAUSE_SECONDS", 0.0)
    old = {"app": "app", "user_id": "p", "created_at": 1.0, "updated_at": 1.0}
    async with database.write() as connection:
        await connection.execute(sa.insert(sessions), [{"id": f"p:{number}", **old} for number in range(33_000)])
    deleted = list[str]()

    async def record_deletion(_self: DeletionService, session: str, _before: float, _result: DeletionResult) -> None:
        deleted.append(session)

    monkeypatch.setattr(DeletionService, "_delete_before", record_deletion)
    await RetentionService(database, PRICES, days=30).delete_expired()
    assert len(deleted) == 33_000
    survey = await DeletionService(database, PRICES).preview(DeletionRequest(before=time.time() - DAY_SECONDS))
    assert len(survey.sessions) == 33_000


async def test_messages_after_the_retention_limit_are_not_deleted_with_the_old_ones(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    await conversations.say(ALONE, "U0GRACE", "Grace", "harmless teapot")
    async with database.write() as connection:
        await _age(connection, days=40)
    missed = time.time() - 60  # sent while the bot was stopped
    await RetentionService(database, PRICES, days=30).delete_expired()
    assert await conversations.find_columns("harmless teapot") == []
    over, _ = await Watermarks(database).get_cancellation_times([ALONE])
    assert missed - 31 * DAY_SECONDS < over[ALONE] < missed - 29 * DAY_SECONDS


@pytest.mark.parametrize("begins", [False, True], ids=["waits", "is being answered"])
async def test_a_message_during_a_deletion_is_answered_in_a_new_session(
    conversations: StoredConversations, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    await conversations.say(ALONE, "U0ZOFIA", "Zofia", "vermilion umbrella")
    await conversations.inbox.accept(inbound("my vermilion umbrella?", session=ALONE, author="U0ZOFIA"))
    (running,) = await conversations.turns.claim(1)
    await conversations.inbox.accept(inbound("vermilion umbrella!", session=ALONE, author="U0ZOFIA"))
    started, wait_for_turns = list[Turn](), DeletionService._wait_for_turns

    async def accept_and_wait(self: DeletionService, turn_ids: Any) -> None:
        await conversations.inbox.accept(inbound("meanwhile", session=ALONE, author="U0GRACE"))
        assert await conversations.turns.list_owned() == {running.id: "reset"}
        await conversations.turns.end(running, "cancelled", error="reset")
        if begins:
            started.extend(await conversations.turns.claim(1))
            await conversations.inbox.accept(inbound("behind it", session=ALONE, author="U0GRACE"))
        await wait_for_turns(self, turn_ids)

    monkeypatch.setattr(DeletionService, "_wait_for_turns", accept_and_wait)
    await DeletionService(database, PRICES).delete(DeletionRequest(session_id=ALONE))
    assert await conversations.find_columns("vermilion umbrella") == []
    for turn in started:
        assert await conversations.turns.list_owned() == {turn.id: None}
        await conversations.turns.end(turn, "failed")
    (turn,) = await conversations.turns.claim(10)
    texts = [message.text for one in (*started, turn) for message in one.messages]
    assert texts == (["meanwhile", "behind it"] if begins else ["meanwhile"])


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_session_that_starts_during_its_deletion_stays_and_is_answered(
    conversations: StoredConversations, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conversations.say(ALONE, "U0ZOFIA", "Zofia", "vermilion umbrella")
    deleting, saying, delete = (
        DeletionService(database, PRICES),
        list[asyncio.Task[Any]](),
        deletion_queries.delete_session,
    )
    await deleting.delete(DeletionRequest(session_id=ALONE))

    async def accept_and_delete(*args: Any, **kwargs: Any) -> None:
        saying.append(asyncio.create_task(conversations.inbox.accept(inbound("harmless teapot", session=ALONE))))
        await asyncio.wait(saying, timeout=0.2)
        await delete(*args, **kwargs)

    monkeypatch.setattr(deletion_module, "delete_session", accept_and_delete)
    await deleting._delete_session(ALONE, "", DeletionResult())
    await asyncio.wait_for(saying[0], 30)
    (turn,) = await conversations.turns.claim(1)
    assert [message.text for message in turn.messages] == ["harmless teapot"]


async def test_a_running_turn_ends_before_its_deletion_and_stores_no_more(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    await conversations.inbox.accept(inbound("vermilion umbrella", session=ALONE, author="U0ZOFIA"))
    (turn,) = await conversations.turns.claim(1)
    loaded = await conversations.session(ALONE)
    loaded.fence = conversations.turns.fencing_token(turn)
    deletion = asyncio.create_task(DeletionService(database, PRICES).delete(DeletionRequest(session_id=ALONE)))
    async with asyncio.timeout(30):
        while (await conversations.turns.list_owned()).get(turn.id) != "reset":  # noqa: ASYNC110 - as a worker looks
            await asyncio.sleep(0.01)
    await conversations.turns.end(turn, "cancelled", error="reset")
    await asyncio.wait_for(deletion, 30)
    event = Event(author="user", invocation_id=turn.id, content=types.UserContent("vermilion umbrella"))
    with pytest.raises(Exception, match=re.escape(ALONE) + "|another worker"):
        await conversations.service.append_event(loaded, event)
    assert await conversations.find_columns("vermilion umbrella") == []


async def test_a_user_is_deleted_while_another_one_gets_an_answer(
    conversations: StoredConversations, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conversations.say(ALONE, "U0ZOFIA", "Zofia", "vermilion umbrella")
    list_sessions = DeletionService.list_sessions

    async def list_then_accept(self: DeletionService, request: DeletionRequest) -> tuple[list[str], list[str]]:
        found = await list_sessions(self, request)
        assert found == ([ALONE], [])
        await conversations.inbox.accept(inbound("harmless teapot", session=ALONE, author="U0GRACE"))
        return found

    monkeypatch.setattr(DeletionService, "list_sessions", list_then_accept)
    await DeletionService(database, PRICES).delete(DeletionRequest(user_id="U0ZOFIA"))
    assert await conversations.find_columns(*WORDS) == []
    (turn,) = await conversations.turns.claim(1)
    assert [message.text for message in turn.messages] == ["harmless teapot"]


@pytest.mark.parametrize(
    "remaining", [{"owner": "a dead worker"}, {"owner": None, "state": "queued"}], ids=["dead", "stopped"]
)
async def test_a_deletion_waits_until_an_abandoned_turn_has_ended(
    conversations: StoredConversations, database: FailingDatabase, remaining: dict[str, Any]
) -> None:
    await conversations.inbox.accept(inbound("vermilion umbrella", session=ALONE, author="U0ZOFIA"))
    await conversations.turns.claim(1)
    async with database.write() as connection:
        await connection.execute(sa.update(turns_table).values(remaining))
    deletion = asyncio.create_task(DeletionService(database, PRICES).delete(DeletionRequest(session_id=ALONE)))
    async with asyncio.timeout(30):
        while not await _is_to_end(database):  # noqa: ASYNC110 - as a worker looks
            await asyncio.sleep(0.01)
    await asyncio.sleep(3 * deletion_module.CHECK_SECONDS)
    (turn,) = await conversations.turns.claim(1)
    assert turn.cancel == "reset"
    await conversations.turns.end(turn, "cancelled", error="reset")
    await asyncio.wait_for(deletion, 30)
    assert await conversations.find_columns("vermilion umbrella") == []


async def _is_to_end(database: FailingDatabase) -> bool:
    async with database.read() as connection:
        return bool((await connection.execute(sa.select(turns_table.c.cancel_reason))).scalar_one_or_none())


async def test_waiting_messages_of_a_deleted_user_are_not_answered(
    conversations: StoredConversations, database: FailingDatabase
) -> None:
    await conversations.say(SHARED, "U0ZOFIA", "Zofia", "vermilion umbrella")
    await conversations.inbox.accept(inbound("harmless teapot", session=SHARED, author="U0GRACE"))
    (turn,) = await conversations.turns.claim(1)
    await conversations.inbox.accept(inbound("my vermilion umbrella", session=SHARED, author="U0ZOFIA"))
    await conversations.inbox.accept(inbound("tea?", session=SHARED, author="U0GRACE"))
    deletion = asyncio.create_task(DeletionService(database, PRICES).delete(DeletionRequest(user_id="U0ZOFIA")))
    async with asyncio.timeout(30):
        while (await conversations.turns.list_owned()).get(turn.id) != "stop":  # noqa: ASYNC110 - as a worker looks
            await asyncio.sleep(0.01)
    await conversations.turns.end(turn, "cancelled", error="stop")
    async with asyncio.timeout(30):
        while not (claimed := await conversations.turns.claim(1)):  # noqa: ASYNC110 - a claim skips locked rows
            await asyncio.sleep(0.01)
    (following,) = claimed
    assert [message.text for message in following.messages] == ["tea?"]
    loaded = await conversations.session(SHARED)
    loaded.fence = conversations.turns.fencing_token(following)
    async with asyncio.timeout(30):
        # workers poll for cancellations as well
        while not deletion.done() and (await conversations.turns.list_owned()).get(following.id) != "stop":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    if not deletion.done():  # the deletion waits for this turn, whose history had the text
        reply = model_event("Zofia has a vermilion umbrella.").model_copy(update={"invocation_id": following.id})
        await conversations.service.append_event(loaded, reply)
        await conversations.turns.end(following, "cancelled", error="stop")
    await asyncio.wait_for(deletion, 30)
    assert await conversations.find_columns("vermilion umbrella", "U0ZOFIA") == []


async def _age(connection: Any, *, days: float) -> None:
    for table, name in (
        (messages, "created_at"),
        (turns_table, "finished_at"),
        (tool_calls, "started_at"),
        (inbox_table, "sent_at"),
        (inbox_table, "accepted_at"),
        (sessions, "updated_at"),
        (metadata.tables["artifacts"], "created_at"),
        (memories, "created_at"),
    ):
        await connection.execute(sa.update(table).values({name: time.time() - days * DAY_SECONDS}))
