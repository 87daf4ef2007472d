"""Files of quoted messages, from the people who posted them to the model, on both platforms."""

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from channels.base import ContextMessage, MessageText
from channels.i18n import messages as words
from channels.intake.attachments import AttachmentReader
from channels.platform import FetchedFile, FileCheck, Platform
from channels.settings import AttachmentLimits
from chatrig.slack import SlackFile, SlackSimulator
from core.messages.inbox_message import Attachment, InboxMessage
from core.models.provider import DEFAULT_FILES
from core.privacy.deletion import DeletionRequest, DeletionService
from core.store.schema import blobs, messages
from core.usage.prices import Prices
from tests.channels.platforms import Chat, run_conversation, wait_for_answer, wait_for_texts
from tests.channels.slack.conftest import short_ping_interval
from tests.fixtures.inbox_messages import inbound

__all__ = ["short_ping_interval"]

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 340  # the same in all base64 alphabets
B64 = base64.b64encode(PNG).decode()


async def post(simulator: Any, user: str, text: str, files: Mapping[str, bytes]) -> Any:
    """Post a message with files in #general that does not mention the bot."""
    if isinstance(simulator, SlackSimulator):
        slack_files = [SlackFile(f"F{name}", name, data) for name, data in files.items()]
        return await simulator.post_message(user, "general", text, files=slack_files)
    return await simulator.post_message(user, "general", text, files=files)


async def ask(chat: Chat, quoted: Any, text: str) -> None:
    """Ask the bot about a message: on Slack in its thread, on Discord with a reply."""
    if isinstance(chat.simulator, SlackSimulator):
        await chat.bot.mention_bot("ada", quoted.channel.id, text, thread_ts=quoted.ts)
    else:
        await chat.answer(quoted, text, user="ada")


async def forward(simulator: Any, user: str, message: Any) -> None:
    """Forward a message to the bot in a direct message, without a comment."""
    if isinstance(simulator, SlackSimulator):
        await simulator.share_message(user, message, simulator.open_dm(user))
    else:
        await simulator.forward_message(user, message, simulator.open_dm(user))


class PlatformWithFiles:
    """Platform whose files all have one text."""

    async def fetch_file(self, message: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        return FetchedFile(file, b"text")


def get_prompt(chat: Chat) -> str:
    """Return the newest message of the newest model request as JSON."""
    return json.dumps(chat.bot.model.requests[-1]["messages"][-1], ensure_ascii=False)


async def list_stored(chat: Chat) -> str:
    """Return the stored prompts and files as one text."""
    async with chat.bot.database.read() as connection:
        rows = (await connection.execute(sa.select(messages.c.content, messages.c.event))).all()
        data = (await connection.execute(sa.select(blobs.c.data))).scalars().all()
    return "\n".join([str(rows), *(base64.b64encode(part).decode() for part in data)])


async def test_the_model_reads_the_files_of_a_quoted_message(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "A cat and a plan.") as chat:
        quoted = await post(simulator, "grace", "nightly", {"plan.csv": b"day;task\nMon;write\n", "cat.png": PNG})
        await ask(chat, quoted, "what is in the files?")
        await wait_for_answer(chat, "A cat and a plan.")
        prompt = get_prompt(chat)
        assert "[files: plan.csv, cat.png]" in prompt
        assert "day;task" in prompt
        assert "[a file, which you are shown: cat.png]" in prompt
        assert prompt.count(B64) == 1


async def test_the_model_reads_the_files_of_a_forwarded_message(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "A plan.") as chat:
        await forward(simulator, "ada", await post(simulator, "grace", "see", {"plan.csv": b"Mon;write\n"}))
        dm = simulator.open_dm("ada")
        await simulator.wait_for(lambda: "A plan." in [message.text for message in simulator.messages(dm)])
        assert "Mon;write" in get_prompt(chat)
        assert "[ada forwarded a message to you]" in get_prompt(chat).replace("Ada Lovelace", "ada")


async def test_a_file_in_the_history_is_named_and_not_given_again(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "A cat.", "Still a cat.") as chat:
        quoted = await post(simulator, "grace", "look", {"cat.png": PNG})
        await ask(chat, quoted, "what is this?")
        await wait_for_answer(chat, "A cat.")
        await ask(chat, quoted, "and now?")
        await wait_for_texts(chat, lambda found: found[-1] == "Still a cat.")
        assert json.dumps(chat.bot.model.requests[-1]).count(B64) == 1
        assert chat.count_downloads() == 1
        if not isinstance(simulator, SlackSimulator):  # a Slack thread quotes a message only once
            assert "[a file that you were given before: cat.png]" in get_prompt(chat)


async def test_quoted_files_have_the_limits_of_attachments(simulator: Any, tmp_path: Path) -> None:
    names = [f"{number}.txt" for number in range(7)]
    async with run_conversation(simulator, tmp_path, "I see.") as chat:
        quoted = await post(simulator, "grace", "look", {name: name.encode() for name in names})
        await ask(chat, quoted, "what is this?")
        await wait_for_answer(chat, "I see.")
        prompt = get_prompt(chat)
        assert prompt.count("Its text:]") == chat.count_downloads() == AttachmentLimits().max_files
        assert "6.txt (5 bytes): I read at most 5 files of earlier messages]" in prompt


async def test_the_file_of_a_reply_comes_before_newer_files() -> None:
    def create_message(name: str, sent_at: float, **relation: Any) -> ContextMessage:
        return ContextMessage(
            "U1", "Ada", "", sent_at, attachments=(Attachment(name, None, 1, {"id": name}),), **relation
        )

    newer = [create_message(f"{number}.txt", 10.0 + number) for number in range(9)]
    quoted = create_message("quoted.txt", 1.0, kind="quoted", event_key="k")
    _, files = await AttachmentReader(AttachmentLimits()).read(
        cast("Platform", PlatformWithFiles()),
        [inbound("look")],
        [MessageText("look", "ada")],
        DEFAULT_FILES,
        context=[*newer, quoted],
    )
    given = [reference.message.attachments[0].name for reference in files.references if reference.file]
    assert given == ["quoted.txt", "8.txt", "7.txt", "6.txt", "5.txt"]


async def test_a_quoted_file_that_cannot_be_read_is_named_with_the_reason(simulator: Any, tmp_path: Path) -> None:
    files = {"big.png": PNG + bytes(30 * 2**20), "liar.png": b"no picture", "plan.zip": b"PK\x03\x04", "none.txt": b""}
    async with run_conversation(simulator, tmp_path, "I see.") as chat:
        quoted = await post(simulator, "grace", "look", files)
        await ask(chat, quoted, "what is this?")
        await wait_for_answer(chat, "I see.")
        prompt = get_prompt(chat)
        assert "that you cannot open: big.png (30.0 MB): it is larger than my limit of 10.0 MB]" in prompt
        assert "that you cannot open: liar.png (10 bytes): I do not recognize its type]" in prompt
        assert "that you cannot open: plan.zip (4 bytes): I cannot read files of this type]" in prompt
        assert "[a file: none.txt. Its text:]" in prompt


async def test_a_quoted_file_that_is_gone_does_not_end_the_turn(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "I see.") as chat:

        async def fail(*_: Any) -> Any:
            raise OSError("the host is gone")

        chat.bot.platform.fetch_file = fail
        quoted = await post(simulator, "grace", "look", {"cat.png": PNG})
        await ask(chat, quoted, "what is this?")
        await wait_for_answer(chat, "I see.")
        assert "cat.png (2 kB): it cannot be fetched right now]" in get_prompt(chat)


async def test_a_link_to_a_file_is_not_fetched(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "I see.") as chat:
        hidden = await post(simulator, "grace", "secret", {"secret.txt": b"the code is 7"})
        is_slack = isinstance(simulator, SlackSimulator)
        name = "files/Fsecret.txt" if is_slack else f"attachments/1/{hidden.content.attachments[0].id}/secret.txt"
        url = f"{simulator.api_url}{name}"
        quoted = await post(simulator, "grace", f"see {url}", {})
        await ask(chat, quoted, f"read {url}")
        await wait_for_answer(chat, "I see.")
        assert chat.count_downloads() == 0
        assert "the code is 7" not in get_prompt(chat)


@pytest.mark.parametrize("way", ["deletion of the message", "forget"])
async def test_a_quoted_file_is_deleted_with_its_message_or_its_author(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with run_conversation(simulator, tmp_path, "A cat.", "Gone.") as chat:
        quoted = await post(simulator, "grace", "look", {"plan.csv": b"Mon;write\n", "cat.png": PNG})
        await ask(chat, quoted, "what is this?")
        await wait_for_answer(chat, "A cat.")
        await chat.bot.wait_for_turns(1)
        before = await list_stored(chat)
        assert ("Mon;write" in before, B64 in before) == (True, True)
        if way == "forget":
            grace = simulator.people["grace"]
            request = DeletionRequest(user_id=str(getattr(grace, "id", grace)))
            await DeletionService(chat.bot.database, Prices()).delete(request)
        else:
            deleted, inbox = asyncio.Event(), chat.bot.services.inbox
            delete_message = inbox.delete_message

            async def delete(event_key: str) -> Any:
                result = await delete_message(event_key)
                deleted.set()
                return result

            monkeypatch.setattr(inbox, "delete_message", delete)
            await simulator.delete_message("grace", quoted)
            await asyncio.wait_for(deleted.wait(), 10)
        after = await list_stored(chat)
        assert ("Mon;write" in after, B64 in after) == (False, False)
        assert "what is this?" in after
        await chat.say("and now?")
        await wait_for_texts(chat, lambda found: found[-1] == "Gone.")
        sent = json.dumps(chat.bot.model.requests[-1])
        assert ("Mon;write" in sent, B64 in sent) == (False, False)
        assert words.STOPPED_BY_DELETION not in str([message.text for message in chat.list_replies()])
