"""Names and types of files that models and tools return, as artifacts."""

import pytest
import sqlalchemy as sa
from google.genai import types

from core.models.provider import Done, Media, ToolCall
from core.store.schema import artifacts
from tests.fixtures.conversation import Conversation, Converse, ScriptedProvider

WAV = b"RIFF\x04\0\0\0WAVE"


async def list_artifacts(conversation: Conversation) -> list[tuple[str, str, bytes]]:
    columns = (artifacts.c.name, artifacts.c.mime_type, artifacts.c.data)
    async with conversation.database.read() as connection:
        return [(*row,) for row in await connection.execute(sa.select(*columns).order_by(artifacts.c.id))]


@pytest.mark.parametrize(
    ("mime_type", "name"),
    [
        ("image/png", "image-1.png"),
        ("image/jpeg", "image-1.jpg"),
        ("image/jpg", "image-1.jpg"),
        ("image/gif", "image-1.gif"),
        ("image/webp", "image-1.webp"),
        ("image/svg+xml", "image-1.svg"),
        ("audio/wav", "audio-1.wav"),
        ("audio/x-wav", "audio-1.wav"),
        ("audio/vnd.wave", "audio-1.wav"),
        ("audio/mpeg", "audio-1.mp3"),
        ("audio/mp3", "audio-1.mp3"),
        ("audio/ogg; codecs=opus", "audio-1.ogg"),
        ("audio/flac", "audio-1.flac"),
        ("audio/mp4", "audio-1.m4a"),
        ("audio/webm", "audio-1.webm"),
        ("video/mp4", "video-1.mp4"),
        ("video/webm", "video-1.webm"),
        ("video/quicktime", "video-1.mov"),
        ("application/pdf", "file-1.pdf"),
        ("application/json", "file-1.json"),
        ("text/csv; charset=utf-8", "file-1.csv"),
        ("text/markdown", "file-1.md"),
        ("application/octet-stream", "file-1.bin"),
    ],
)
async def test_the_suffix_of_a_models_file_is_that_of_its_type(converse: Converse, mime_type: str, name: str) -> None:
    conversation = await converse(ScriptedProvider([Media(mime_type, b"bytes"), Done()]))
    await conversation.reply("make a file")
    assert [(file, data) for file, _, data in await list_artifacts(conversation)] == [(name, b"bytes")]


async def test_raw_sound_of_a_tool_becomes_a_wav_file(converse: Converse) -> None:
    def speak() -> types.Part:
        """Return raw sound."""
        return types.Part.from_bytes(data=b"\0\1\0\2", mime_type="audio/L16;codec=pcm;rate=16000")

    provider = ScriptedProvider([ToolCall("c1", "speak", {}), Done()], "There it is.")
    conversation = await converse(provider, tools=[speak])
    await conversation.reply("say it")
    [(name, mime_type, data)] = await list_artifacts(conversation)
    assert (name, mime_type) == ("audio-1.wav", "audio/wav")
    assert data.startswith(b"RIFF")
    assert data.endswith(b"\0\1\0\2")


async def test_bytes_that_a_tool_returns_get_the_suffix_of_their_type(converse: Converse) -> None:
    def speak() -> bytes:
        """Return WAV sound."""
        return WAV

    provider = ScriptedProvider([ToolCall("c1", "speak", {}), Done()], "There it is.")
    conversation = await converse(provider, tools=[speak])
    await conversation.reply("say it")
    assert [name for name, *_ in await list_artifacts(conversation)] == ["speak.wav"]
