import asyncio
import json
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
from core.privacy import export_attachments as exported
from core.privacy.export import stream_export
from core.privacy.transcript import stream_runs
from core.sessions.artifacts import ArtifactService
from core.sessions.codec import to_row
from core.sessions.history_summary import create_summary_event
from core.sessions.prompt_text import AttributedPrompt
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.store.schema import messages, sessions
from core.turns.store import TurnStore
from core.usage.meter import ModelCall
from core.usage.prices import Prices, format_exact_dollars
from core.usage.spending_ledger import SpendingStore
from tests.core.conftest import FailingDatabase
from tests.core.sessions.events import call_event, model_event, response_event
from tests.core.usage.test_spending_ledger import CALL, COST, MODEL, PRICES, claim_turn
from tests.fixtures.inbox_messages import inbound

SESSION = "place:1"
PICTURE = b"\x89PNG\r\n\x1a\n" + b"picture" * 300


async def export_text(database: FailingDatabase, form: str, **kwargs: int) -> str:
    return "".join([piece async for piece in stream_export(database, SESSION, form, PRICES, **kwargs)])  # type: ignore[arg-type]


@pytest.fixture
async def conversation(database: FailingDatabase, inbox: InboxStore, turns: TurnStore, service: SessionService) -> str:
    """Store a turn with a tool call, image, file, rating and summary; return its id."""
    await inbox.accept(inbound("look", session=SESSION, author="U1"))
    (turn,) = await turns.claim(1)
    session = await service.get_session(app_name="app", user_id="place", session_id=SESSION)
    assert isinstance(session, StoredSession)
    prompt = AttributedPrompt((("U1", "Ada: look"), ("U2", "Grace: please")), {"U1": "Ada", "U2": "Grace"})
    session.prompt = prompt
    parts = [types.Part(text=prompt.text), types.Part.from_bytes(data=PICTURE, mime_type="image/png")]
    question = Event(author="user", invocation_id=turn.id, content=types.Content(role="user", parts=parts))
    steps = [call_event("c", name="look", args={"at": "`it`"}), response_event("c", name="look", response={"seen": 1})]
    for event in (question, *steps, model_event("**A cat.**")):
        await service.append_event(session, event.model_copy(update={"invocation_id": turn.id}))
    artifacts = ArtifactService(database, run_id=turn.id)
    saved = types.Part.from_bytes(data=b"a,b", mime_type="text/csv")
    await artifacts.save_artifact(
        app_name="app", user_id="place", session_id=SESSION, filename="../../etc/cron.d/x.csv", artifact=saved
    )
    turn.meter.add(CALL)
    await turns.save_answer(turn, "**A cat.**", turn.meter.to_json())
    await turns.end(turn, "done")
    await FeedbackStore(database).save_feedback(turn.id, "U2", "good")
    row = to_row(create_summary_event("Ada looks.\nAt a cat.", begin=1.0, end=2.0), tokens=5)
    async with database.write() as connection:
        values = {**row, "session": SESSION, "generation": 1, "summarized_id": 1, "content": "Ada looks.\nAt a cat."}
        await connection.execute(sa.insert(messages).values(values))
    return turn.id


async def test_the_markdown_export_has_authors_tools_files_costs_and_summaries(
    conversation: str, database: FailingDatabase
) -> None:
    text = await export_text(database, "md")
    assert text.startswith(f"# Conversation `{SESSION}`\n")
    assert "\n## Ada, Grace, " in text
    for line in (
        "Ada: look\n\nGrace: please",
        '*Used `look`:* `` {"at": "`it`"} ``',
        '*`look` gave:* `{"seen": 1}`',
        "**A cat.**",
        "*Feedback: 1 good*",
        "*1,010 tokens, $0.0003*",
        "*Made the file:* `made-1-x.csv` (text/csv, 3 bytes)",
        "> Ada looks.\n> At a cat.",
    ):
        assert f"\n{line}\n" in text, line
    assert "## Summary of the earlier messages, written by a model, " in text


async def test_the_json_export_has_the_same_content_and_the_files(
    conversation: str, database: FailingDatabase, tmp_path: Path
) -> None:
    document = json.loads(await export_text(database, "json"))
    assert (document["format"], document["version"], document["is_whole"], document["session"]["id"]) == (
        "parley-conversation",
        1,
        True,
        SESSION,
    )
    run, summed = document["runs"] if document["runs"][0]["kind"] == "run" else document["runs"][::-1]
    assert (summed["kind"], summed["text"]) == ("summary", "Ada looks.\nAt a cat.")
    question, called_, gave, answer = run["messages"]
    assert [(part["by"], part["name"], part["text"]) for part in question["parts"]] == [
        ("U1", "Ada", "Ada: look"),
        ("U2", "Grace", "Grace: please"),
    ]
    assert called_["calls"] == [{"id": "c", "tool": "look", "arguments": {"at": "`it`"}}]
    assert gave["results"] == [{"id": "c", "tool": "look", "result": {"seen": 1}}]
    assert answer["text"] == "**A cat.**"
    assert (run["turn"]["id"], run["turn"]["usage"]["input"], run["feedback"][0]["author"]) == (
        conversation,
        CALL.input,
        "U2",
    )
    assert run["turn"]["dollars"] == format_exact_dollars(COST)

    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "made-1-x.csv").symlink_to(tmp_path / "elsewhere")
    found = [file async for run in stream_runs(database, SESSION) for message in run.messages for file in message.files]
    assert await exported.write_files(database, SESSION, found, folder) == 1
    assert (folder / question["files"][0]["name"]).read_bytes() == PICTURE
    files = [file async for run in stream_runs(database, SESSION) for file in run.files]
    with pytest.raises(FileExistsError):  # existing links are not followed, files not overwritten
        await exported.write_files(database, SESSION, files, folder)
    (folder / "made-1-x.csv").unlink()
    assert await exported.write_files(database, SESSION, files, folder) == 1
    assert (folder / run["files"][0]["name"]).read_bytes() == b"a,b"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("form", ["md", "json"])
@pytest.mark.parametrize("damage", [{"event": "{"}, {"attribution": [7], "event": '{"data"'}, {"tool_calls": ["x"]}])
async def test_an_unreadable_row_ends_the_export_with_an_error_that_names_it(
    database: FailingDatabase, conversation: str, form: str, damage: dict[str, Any]
) -> None:
    async with database.write() as connection:
        await connection.execute(sa.update(messages).where(messages.c.id == 2).values(damage))
    with pytest.raises(UnreadableRowError, match=r"^row 2 of messages cannot be read$"):
        await export_text(database, form)


async def test_an_answer_of_lango_agent_is_exported_as_that_of_parley(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore, service: SessionService
) -> None:
    turn = await claim_turn(inbox, turns, place="place")
    session = await service.get_session(app_name="app", user_id="place", session_id=SESSION)
    assert session is not None
    for event in (
        Event(author="user", invocation_id=turn.id, content=types.UserContent("look")),
        Event(author="lango_agent", invocation_id=turn.id, content=types.ModelContent("A cat.")),
    ):
        await service.append_event(session, event)
    assert "## parley, " in await export_text(database, "md")


async def test_the_export_has_the_cost_of_running_and_counted_turns(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore, service: SessionService
) -> None:
    async def get_dollars() -> str:
        document = json.loads(await export_text(database, "json"))
        return str(document["runs"][0]["turn"].get("dollars"))

    turn = await claim_turn(inbox, turns, place="place")
    session = await service.get_session(app_name="app", user_id="place", session_id=SESSION)
    assert session is not None
    question = Event(author="user", invocation_id=turn.id, content=types.UserContent("look"))
    answer = Event(author="bot", invocation_id=turn.id, content=types.ModelContent("A cat."))
    await service.append_event(session, question)
    assert await get_dollars() == "None"
    used = types.GenerateContentResponseUsageMetadata(prompt_token_count=CALL.input, candidates_token_count=CALL.output)
    answer.usage_metadata, answer.model_version, answer.custom_metadata = used, MODEL, turn.meter.answer_metadata()
    await service.append_event(session, answer)
    partly = PRICES.total_cost([ModelCall(MODEL, input=CALL.input, output=CALL.output)])[0]
    assert await get_dollars() == format_exact_dollars(partly)
    turn.meter.add(CALL)
    await turns.save_answer(turn, "A cat.", turn.meter.to_json())
    assert await get_dollars() == format_exact_dollars(COST)
    await turns.end(turn, "done")
    assert await get_dollars() == format_exact_dollars(COST)
    await SpendingStore(database, Prices()).record_ended_turns()
    assert await get_dollars() == format_exact_dollars(COST)
    assert "*1,010 tokens, $0.0003*" in await export_text(database, "md")


async def test_a_long_export_is_truncated_with_a_note_in_both_formats(
    conversation: str, database: FailingDatabase
) -> None:
    assert (await export_text(database, "md", max_bytes=100)).endswith(
        "*The rest is left out: the export reached its size limit.*\n"
    )
    assert json.loads(await export_text(database, "json", max_bytes=100))["is_whole"] is False


async def test_a_long_export_is_streamed_without_blocking(database: FailingDatabase) -> None:
    count = 10_000  # more rows do not change the size of a piece
    row = {"session": SESSION, "generation": 1, "role": "user", "content": "word " * 20, "tool_calls": [], "tokens": 1}
    rows = [{**row, "created_at": float(n), "invocation_id": f"i{n // 2}"} for n in range(count)]
    async with database.write() as connection:
        session = {"id": SESSION, "app": "app", "user_id": "place", "created_at": 1.0, "updated_at": 1.0}
        await connection.execute(sa.insert(sessions).values(session))
        await connection.execute(sa.insert(messages), rows)
    longest, size, largest, ended = 0.0, 0, 0, asyncio.Event()

    async def beat() -> None:
        nonlocal longest
        while not ended.is_set():
            began = time.thread_time()  # CPU time of the thread: other processes do not count
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - began)

    beating = asyncio.create_task(beat())
    async for piece in stream_export(database, SESSION, "json", PRICES):
        size, largest = size + len(piece), max(largest, len(piece))
    ended.set()
    await beating
    assert size > count * 100
    assert largest < 2_000
    assert longest < 0.25
