import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa

from core.errors import SettingsError
from core.inbox.store import InboxStore
from core.models.provider import Media, ModelMessage, ModelRequest, Text, Thought, ToolCall, ToolResult, ToolSpec
from core.models.tokens import TokenCounter
from core.observability.secret_redaction import MASK, RunSecrets, add_secret, set_run_secrets
from core.privacy import prompts as prompts_module
from core.privacy.deletion import DeletionRequest, DeletionService, wipe
from core.privacy.prompts import MAX_CHARACTERS, PromptStore, StoredPrompt
from core.privacy.retention import DAY_SECONDS, CleanupService, RetentionService
from core.sessions.lifecycle import lock_session_row
from core.sessions.service import SessionService
from core.store.schema import messages, prompts
from core.store.schema import turns as turns_table
from core.turns.store import TurnStore
from core.turns.turn import Turn
from tests.core.conftest import FailingDatabase, complete_turn
from tests.core.privacy.test_deletion import PRICES, SHARED, StoredConversations
from tests.fixtures.inbox_messages import inbound

KEY = "thirty-two characters, or more..."

REQUEST = ModelRequest(
    "m",
    [
        ModelMessage("system", (Text("Be kind."),)),
        ModelMessage("user", (Text("a vermilion umbrella"), Media("image/png", data=b"\x89PNG bytes", name="sky.png"))),
        ModelMessage("assistant", (Thought("hm"), ToolCall("c1", "look", {"at": "sky"}))),
        ModelMessage("tool", (ToolResult("c1", "look", {"seen": 1}, (Media("image/gif", data=b"GIF89"),)),)),
    ],
    [ToolSpec("look", "Looks.", {"type": "object", "properties": {"password": {"type": "string"}}})],
)


@pytest.fixture
def store(database: FailingDatabase) -> PromptStore:
    return PromptStore(database, KEY)


@pytest.fixture
def service(database: FailingDatabase, counter: TokenCounter) -> SessionService:
    return SessionService(database, counter, agent="app")


@pytest.fixture
def conversations(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore, service: SessionService
) -> StoredConversations:
    return StoredConversations(database, inbox, turns, service)


async def claim(inbox: InboxStore, turns: TurnStore, session: str = SHARED, **fields: Any) -> Turn:
    await inbox.accept(inbound(session=session, **fields))
    (turn,) = await turns.claim(1)
    return turn


async def save(store: PromptStore, turn_id: str, request: ModelRequest = REQUEST) -> None:
    store.save(turn_id, "openai/m", "helper", request)
    await store.wait(turn_id)


async def read_prompt(store: PromptStore, turn_id: str) -> StoredPrompt:
    (prompt,) = await store.list(turn_id)
    assert prompt is not None
    return prompt


async def list_ciphertexts(database: FailingDatabase) -> list[str | None]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(prompts.c.ciphertext).order_by(prompts.c.id))).scalars())


async def test_a_prompt_is_read_as_it_was_sent_with_files_only_described(
    store: PromptStore, inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    turn = await claim(inbox, turns)
    before = time.time()
    await save(store, turn.id)
    prompt = await read_prompt(store, turn.id)
    assert before <= prompt.called_at <= time.time()
    assert (prompt.model, prompt.agent, prompt.cut_characters) == ("openai/m", "helper", 0)
    parts = [[(part["kind"], part["text"]) for part in message["parts"]] for message in prompt.messages]
    assert list(zip([message["role"] for message in prompt.messages], parts, strict=True)) == [
        ("system", [("text", "Be kind.")]),
        ("user", [("text", "a vermilion umbrella"), ("file", "sky.png, image/png, 10 bytes")]),
        ("assistant", [("thought", "hm"), ("call", 'look({"at": "sky"})')]),
        ("tool", [("result", 'look: {"seen": 1}'), ("file", "image/gif, 5 bytes")]),
    ]
    (tool,) = prompt.tools
    assert (tool["name"], tool["description"]) == ("look", "Looks.")
    assert json.loads(tool["parameters"]) == REQUEST.tools[0].parameters
    (ciphertext,) = await list_ciphertexts(database)
    assert ciphertext is not None
    assert "umbrella" not in ciphertext


async def test_another_key_and_a_moved_prompt_are_errors(
    store: PromptStore, inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    turn = await claim(inbox, turns)
    await save(store, turn.id)
    await complete_turn(turns, turn)
    other = await claim(inbox, turns)
    for key in ("", "another key"):
        with pytest.raises(SettingsError, match=r"^SECRET_KEY: the prompts of turn .* with another key; set that key"):
            await PromptStore(database, key).list(turn.id)
    async with database.write() as connection:
        await connection.execute(sa.update(prompts).values(turn=other.id))
    with pytest.raises(SettingsError, match="was stored for another turn"):
        await store.list(other.id)


async def test_a_long_prompt_keeps_instruction_and_newest_messages(
    store: PromptStore, inbox: InboxStore, turns: TurnStore
) -> None:
    turn, part = await claim(inbox, turns), MAX_CHARACTERS // 2 - 100
    texts = ["Be kind.", "o" * 500, "a" * part, "b" * part, "newest"]
    roles: list[Any] = ["system", "user", "assistant", "user", "user"]
    request = ModelRequest("m", [ModelMessage(role, (Text(text),)) for role, text in zip(roles, texts, strict=True)])
    await save(store, turn.id, request)
    prompt = await read_prompt(store, turn.id)
    stored = [message["parts"][0] for message in prompt.messages]
    assert [one["text"] for one in (stored[0], *stored[2:])] == [texts[0], *texts[2:]]
    assert len(stored[1]["text"]) == MAX_CHARACTERS - sum(len(text) for text in (texts[0], *texts[2:]))
    assert stored[1]["cut_characters"] == prompt.cut_characters == sum(map(len, texts)) - MAX_CHARACTERS


async def test_a_secret_at_the_cut_is_not_stored_in_part(
    store: PromptStore, inbox: InboxStore, turns: TurnStore, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_secret("correct horse battery staple")
    monkeypatch.setattr(prompts_module, "MAX_CHARACTERS", 20)
    turn = await claim(inbox, turns)
    await save(store, turn.id, ModelRequest("m", [ModelMessage("user", (Text("it is correct horse battery staple"),))]))
    assert (await read_prompt(store, turn.id)).messages[0]["parts"][0]["text"] == f"it is {MASK}"


async def test_secrets_are_masked(store: PromptStore, inbox: InboxStore, turns: TurnStore) -> None:
    secrets = RunSecrets()
    secrets.add_call("c1", {"pin": "917", "note": "hunter2-zq"}, [("pin",), ("note",)])
    set_run_secrets(secrets)
    add_secret("sesame-of-settings")
    turn = await claim(inbox, turns)
    request = ModelRequest(
        "m",
        [
            ModelMessage("system", (Text("The key is sesame-of-settings, or sk-ant-api03-abcdefghijklmnop."),)),
            ModelMessage("assistant", (ToolCall("c1", "look", {"pin": "917", "note": "x"}), Thought("hunter2-zq, hm"))),
            ModelMessage("tool", (ToolResult("c1", "look", {"copy": "hunter2-zq", "pin": "917"}),)),
        ],
        [ToolSpec("look", "Uses sesame-of-settings.", {"type": "object"})],
    )
    await save(store, turn.id, request)
    shown = str(await read_prompt(store, turn.id))
    for secret in ("917", "hunter2", "sesame", "sk-ant"):
        assert secret not in shown


async def test_a_failure_is_logged_once_and_raises_nothing(
    store: PromptStore,
    inbox: InboxStore,
    turns: TurnStore,
    database: FailingDatabase,
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn = await claim(inbox, turns)
    database.failures = 3
    for _ in range(3):
        await save(store, turn.id)
    assert await store.list(turn.id) == []
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line == f"prompts of model calls cannot be stored (turn {turn.id}): StoreError: out of reach"
    await save(store, turn.id)
    assert len(await store.list(turn.id)) == 1


async def test_a_run_does_not_wait_long_for_a_database_that_hangs(
    store: PromptStore, inbox: InboxStore, turns: TurnStore, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts_module, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(prompts_module, "STORE_SECONDS", 600.0)
    turn = await claim(inbox, turns)
    async with database.write() as connection:
        await lock_session_row(connection, turn.session_id)
        async with asyncio.timeout(30):
            await save(store, turn.id)
    assert await store.list(turn.id) == []


async def reset(inbox: InboxStore, turns: TurnStore, turn: Turn) -> None:
    await inbox.reset_session(inbound(session=turn.session_id))


async def end(inbox: InboxStore, turns: TurnStore, turn: Turn) -> None:
    await complete_turn(turns, turn)


async def delete_message(inbox: InboxStore, turns: TurnStore, turn: Turn) -> None:
    await inbox.delete_message(turn.messages[0].event_key)


@pytest.mark.parametrize("act", [reset, end, delete_message])
async def test_no_prompt_is_stored_after_a_deletion_or_the_end_of_the_turn(
    store: PromptStore,
    inbox: InboxStore,
    turns: TurnStore,
    act: Callable[[InboxStore, TurnStore, Turn], Awaitable[None]],
) -> None:
    turn = await claim(inbox, turns)
    await act(inbox, turns, turn)
    await save(store, turn.id)
    assert await store.list(turn.id) == []


async def store_two_turns(
    store: PromptStore, inbox: InboxStore, turns: TurnStore, conversations: StoredConversations
) -> tuple[Turn, Turn]:
    """Return an ended turn of Zofia and one of Grace in a shared session, each with a prompt."""
    await conversations.say(SHARED, "U0ZOFIA", "Zofia", "vermilion umbrella")
    ended = list[Turn]()
    for author in ("U0ZOFIA", "U0GRACE"):
        turn = await claim(inbox, turns, author=author, address={"speaker": author, "author": author})
        await save(store, turn.id)
        await complete_turn(turns, turn)
        ended.append(turn)
    return ended[0], ended[1]


async def forget_user(conversations: StoredConversations, turn: Turn) -> None:
    await DeletionService(conversations.database, PRICES).delete(DeletionRequest(user_id="U0ZOFIA"))


async def expire_messages(conversations: StoredConversations, turn: Turn) -> None:
    async with conversations.database.write() as connection:
        await connection.execute(sa.update(messages).values(created_at=messages.c.created_at - 3 * DAY_SECONDS))
    await RetentionService(conversations.database, PRICES, days=1).delete_expired()


async def reset_session(conversations: StoredConversations, turn: Turn) -> None:
    await conversations.inbox.reset_session(inbound(session=SHARED))


async def delete_one_message(conversations: StoredConversations, turn: Turn) -> None:
    await conversations.inbox.delete_message(turn.messages[0].event_key)


@pytest.mark.parametrize(
    "act",
    [forget_user, expire_messages, reset_session, delete_one_message],
    ids=lambda act: act.__name__,
)
async def test_deleting_any_message_deletes_all_prompts_of_the_session(
    store: PromptStore,
    inbox: InboxStore,
    turns: TurnStore,
    conversations: StoredConversations,
    act: Callable[[StoredConversations, Turn], Awaitable[None]],
) -> None:
    zofias, graces = await store_two_turns(store, inbox, turns, conversations)
    database = conversations.database
    before = [ciphertext for ciphertext in await list_ciphertexts(database) if ciphertext]
    assert len(before) == 2
    await act(conversations, zofias)
    assert await store.list(graces.id) == [None]  # the row tells that there was a prompt
    assert not any(await list_ciphertexts(database))
    if database.file is not None:
        await wipe(database)
        content = b"".join(file.read_bytes() for file in database.file.parent.glob("parley.db*"))
        assert not any(ciphertext[-40:].encode() in content for ciphertext in before)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_the_prompts_of_a_place_are_deleted_with_a_user(
    store: PromptStore,
    inbox: InboxStore,
    turns: TurnStore,
    conversations: StoredConversations,
    is_shared: bool,
) -> None:
    await conversations.say("slack:T1:C1:1", "U0ZOFIA", "Zofia", "vermilion umbrella")
    if is_shared:
        await conversations.say("slack:T1:C1:1", "U0GRACE", "Grace", "harmless teapot")
    await conversations.say("slack:T1:C1:2", "U0GRACE", "Grace", "harmless teapot")
    beside = await claim(inbox, turns, "slack:T1:C1:2", author="U0GRACE")
    await save(store, beside.id)
    await complete_turn(turns, beside)
    await conversations.say("slack:T1:C2:3", "U0GRACE", "Grace", "harmless teapot")
    elsewhere = await claim(inbox, turns, "slack:T1:C2:3", author="U0GRACE")
    await save(store, elsewhere.id)
    await forget_user(conversations, beside)
    assert await store.list(beside.id) == [None]
    assert len(await store.list(elsewhere.id)) == 1
    assert (await read_prompt(store, elsewhere.id)).model == "openai/m"


@pytest.mark.parametrize(("prompt_days", "kept"), [(2, [False, True]), (0, [False, False])])
async def test_prompts_are_deleted_after_their_days_and_rows_with_the_turn(
    store: PromptStore,
    inbox: InboxStore,
    turns: TurnStore,
    database: FailingDatabase,
    prompt_days: float,
    kept: list[bool],
) -> None:
    for session in ("a:1", "b:1"):
        turn = await claim(inbox, turns, session)
        await save(store, turn.id)
        await complete_turn(turns, turn)
        async with database.write() as connection:
            await connection.execute(sa.update(prompts).values(called_at=prompts.c.called_at - 1.5 * DAY_SECONDS))
    cleanup = CleanupService(database, days=30, prompt_days=prompt_days)
    while await cleanup.delete_batch():
        pass
    assert [ciphertext is not None for ciphertext in await list_ciphertexts(database)] == kept
    async with database.write() as connection:
        await connection.execute(sa.update(turns_table).values(finished_at=1.0, cost=0))
    while await cleanup.delete_batch():
        pass
    assert await list_ciphertexts(database) == []
