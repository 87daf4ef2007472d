"""Prompts of model calls, stored encrypted for `parley why --prompt` while `KEEP_PROMPTS_DAYS` is set.

A prompt has the words of everybody in its conversation. The deletion of any message of a conversation therefore deletes
all prompts of the conversation. Secret answers and arguments are masked before the encryption, other secrets when a
prompt is read. Files are only described.
"""

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import drain_tasks
from core.errors import SettingsError
from core.models.messages import clean_text
from core.models.provider import (
    Media,
    ModelMessage,
    ModelRequest,
    Part,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    ToolSpec,
    describe_part,
)
from core.observability.secret_redaction import (
    RunSecrets,
    format_error,
    get_run_secrets,
    redact_secret_formats,
    redact_secrets,
)
from core.privacy.vault import Cipher
from core.store.database import Database
from core.store.schema import prompts, sessions, turns
from core.turns.queries import is_active

log = logging.getLogger(__name__)

#: The most characters of one stored prompt.
MAX_CHARACTERS = 200_000

#: Characters after a cut that are searched for the end of a secret: a private key has up to 3,300.
MAX_SECRET_CHARACTERS = 4_000

#: The most seconds to encrypt and store a prompt, and that the end of a run waits for the storage.
STORE_SECONDS, WAIT_SECONDS = 5.0, 1.0

_NO_SECRETS = RunSecrets()

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """Prompt of a model call, as it was sent to the model.

    Attributes:
        model: the full name of the model.
        messages: dictionaries with `role` and `parts`. A part has `kind` (`text`, `thought`, `file`, `call` or
            `result`), `text`, and `cut_characters` if it was cut.
        tools: dictionaries with `name`, `description` and `parameters`, the text of a JSON Schema.
        cut_characters: the number of characters over `MAX_CHARACTERS`, which are not stored.
    """

    called_at: float
    model: str
    agent: str
    messages: Sequence[Json]
    tools: Sequence[Json]
    cut_characters: int


class PromptStore:
    """Store of the prompts of model calls, encrypted with a key that is derived from `key`, as in `Vault`."""

    def __init__(self, database: Database, key: str) -> None:
        self._database = database
        self._cipher = Cipher(key)
        self._tasks = dict[str, set[asyncio.Task[None]]]()
        self._is_failing = False

    def save(self, turn_id: str, model: str, agent: str, request: ModelRequest) -> None:
        """Store the prompt of a model call that begins, in the background.

        The secrets of the current run are masked. The first of several failures is logged.
        """
        call = {"called_at": time.time(), "model": model, "agent": agent}
        saving = self._save(turn_id, call, request, get_run_secrets() or _NO_SECRETS)
        task = asyncio.create_task(saving, name=f"prompt of turn {turn_id}")
        self._tasks.setdefault(turn_id, set()).add(task)

    async def wait(self, turn_id: str) -> None:
        """Wait until all prompts of a run are stored, so that a later deletion finds them.

        Those that are not stored within `WAIT_SECONDS` are dropped.
        """
        await drain_tasks(self._tasks.pop(turn_id, ()), WAIT_SECONDS)

    async def _save(self, turn_id: str, call: Json, request: ModelRequest, secrets: RunSecrets) -> None:
        try:
            async with asyncio.timeout(STORE_SECONDS):
                ciphertext = await asyncio.to_thread(self._encrypt, turn_id, call, request, secrets)
                async with self._database.write() as connection:
                    if await _lock_running_turn(connection, turn_id):
                        row = {"turn": turn_id, "called_at": call["called_at"], "ciphertext": ciphertext}
                        await connection.execute(sa.insert(prompts).values(row))
            self._is_failing = False
        except Exception as error:
            if not self._is_failing:
                log.warning("prompts of model calls cannot be stored (turn %s): %s", turn_id, format_error(error))
            self._is_failing = True

    async def list(self, turn_id: str) -> list[StoredPrompt | None]:
        """Return the prompts of a turn, oldest first: None for each that is deleted.

        Raises:
            SettingsError: they were encrypted with another key, or for another turn.
        """
        query = sa.select(prompts.c.ciphertext).where(prompts.c.turn == turn_id)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(prompts.c.called_at, prompts.c.id))).scalars().all()
        return [None if row is None else self._decrypt(turn_id, row) for row in rows]

    def _encrypt(self, turn_id: str, call: Json, request: ModelRequest, secrets: RunSecrets) -> str:
        content = json.dumps([turn_id, {**call, **_to_json(request, secrets)}], ensure_ascii=False)
        return self._cipher.encrypt(clean_text(content))

    def _decrypt(self, turn_id: str, ciphertext: str) -> StoredPrompt:
        if not (text := self._cipher.decrypt(ciphertext)):
            raise SettingsError(
                f"SECRET_KEY: the prompts of turn {turn_id} were encrypted with another key; set that key again"
            )
        stored_turn, fields = json.loads(text)
        if stored_turn != turn_id:
            raise SettingsError(f"DATABASE_URL: a prompt of turn {turn_id} was stored for another turn")
        return _redact(StoredPrompt(**fields))


async def _lock_running_turn(connection: AsyncConnection, turn_id: str) -> bool:
    """Lock the session of a turn until the transaction ends, if the turn runs; return whether it does.

    A turn that is cancelled, or whose session was reset, does not: its prompts are deleted, or will be.
    """
    in_generation = (turns.c.session == sessions.c.id) & (turns.c.generation == sessions.c.generation)
    is_running = (turns.c.id == turn_id) & is_active(turns) & turns.c.cancel_reason.is_(None)
    query = sa.select(sessions.c.id).join(turns, in_generation).where(is_running)
    return (await connection.execute(query.with_for_update(of=sessions))).first() is not None


class _Budget:
    """Number of characters that may still be stored of a prompt."""

    def __init__(self) -> None:
        self._remaining = MAX_CHARACTERS
        self.cut = 0

    def cut_text(self, text: str) -> str:
        shown = text[: self._remaining]
        if self._remaining and shown != text:  # a part of a secret would not be found later
            shown = redact_secrets(text[: self._remaining + MAX_SECRET_CHARACTERS])[: self._remaining]
        self._remaining -= len(shown)
        self.cut += len(text) - len(shown)
        return shown


def _to_json(request: ModelRequest, secrets: RunSecrets) -> Json:
    """Return the messages and tools of a request as JSON, cut to `MAX_CHARACTERS`.

    The instruction comes first, then the messages from the newest to the oldest, then the tools.
    """
    budget = _Budget()
    indexes = [*range(len(request.messages))]
    has_instruction = bool(indexes) and request.messages[0].role == "system"
    first = indexes[:has_instruction]
    later = indexes[has_instruction:]
    messages = {index: _message_to_json(request.messages[index], secrets, budget) for index in (*first, *later[::-1])}
    tools = [_tool_to_json(tool, budget) for tool in request.tools]
    return {"messages": [messages[index] for index in indexes], "tools": tools, "cut_characters": budget.cut}


def _message_to_json(message: ModelMessage, secrets: RunSecrets, budget: _Budget) -> Json:
    parts = list[Json]()
    for part in _list_parts(message):
        kind, text = describe_part(_mask_part(part, secrets))
        cut_before = budget.cut
        shown: Json = {"kind": kind, "text": budget.cut_text(text)}
        parts.append(shown | ({"cut_characters": budget.cut - cut_before} if budget.cut > cut_before else {}))
    return {"role": message.role, "parts": parts}


def _list_parts(message: ModelMessage) -> Iterator[Part]:
    for part in message.parts:
        yield part
        if isinstance(part, ToolResult):
            yield from part.media


def _mask_part(part: Part, secrets: RunSecrets) -> Part:
    match part:
        case Text() | Thought():
            return replace(part, text=secrets.mask(part.text))
        case ToolCall():
            return replace(part, arguments=secrets.mask(part.arguments, secrets.paths.get(part.id, frozenset())))
        case ToolResult():
            return replace(part, result=secrets.mask(part.result, secrets.paths.get(part.id, frozenset())))
        case Media():
            return part


def _tool_to_json(tool: ToolSpec, budget: _Budget) -> Json:
    parameters = json.dumps(tool.parameters, ensure_ascii=False, default=str)
    description = budget.cut_text(tool.description)
    return {"name": tool.name, "description": description, "parameters": budget.cut_text(parameters)}


def _redact(prompt: StoredPrompt) -> StoredPrompt:
    """Return a prompt with known and probable secrets redacted; that takes too long for the running bot."""
    for part in (part for message in prompt.messages for part in message["parts"]):
        part["text"] = redact_secrets(part["text"])
    for tool in prompt.tools:
        tool["description"] = redact_secrets(tool["description"])
        tool["parameters"] = redact_secret_formats(tool["parameters"])  # a parameter may have the name `password`
    return prompt
