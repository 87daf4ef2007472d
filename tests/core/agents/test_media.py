"""Names and types of files that models and tools return, as artifacts."""

import pytest
import sqlalchemy as sa
from google.genai import types

from core.models.provider import Done, Media, ToolCall
from core.store.schema import artifacts
from tests.fixtures.conversation import Conversation, Converse, ScriptedProvider

WAV = b"RIFF\x04\0\0\0WAVE"
PNG = b"\x89PNG\r\n\x1a\n"
OGG = b"OggS\0\x02"
MP4 = b"\0\0\0\x18ftypisom\0"
WEBM = b"\x1a\x45\xdf\xa3"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


async def list_artifacts(conversation: Conversation) -> list[tuple[str, str, bytes]]:
    columns = (artifacts.c.name, artifacts.c.mime_type, artifacts.c.data)
    async with conversation.database.read() as connection:
        return [(*row,) for row in await connection.execute(sa.select(*columns).order_by(artifacts.c.id))]


@pytest.mark.parametrize(
    ("mime_type", "data", "name"),
    [
        ("image/png", PNG, "image-1.png"),
        ("image/jpeg", b"\xff\xd8\xff\xe0", "image-1.jpg"),
        ("image/jpg", b"\xff\xd8\xff\xe0", "image-1.jpg"),
        ("image/gif", b"GIF89a\x01\0", "image-1.gif"),
        ("image/webp", b"RIFF\x04\0\0\0WEBP", "image-1.webp"),
        ("image/svg+xml", SVG, "image-1.svg"),
        ("audio/wav", WAV, "audio-1.wav"),
        ("audio/x-wav", WAV, "audio-1.wav"),
        ("audio/vnd.wave", WAV, "audio-1.wav"),
        ("audio/mpeg", b"\xff\xfb\x90", "audio-1.mp3"),
        ("audio/mp3", b"\xff\xf2\x90", "audio-1.mp3"),
        ("audio/ogg; codecs=opus", OGG, "audio-1.ogg"),
        ("audio/flac", b"fLaC\0", "audio-1.flac"),
        ("audio/mp4", MP4, "audio-1.m4a"),
        ("audio/webm", WEBM, "audio-1.webm"),
        ("video/mp4", MP4, "video-1.mp4"),
        ("video/webm", WEBM, "video-1.webm"),
        ("video/quicktime", b"\0\0\0\x14ftypqt  ", "video-1.mov"),
        ("application/pdf", b"%PDF-1.7", "file-1.pdf"),
        ("application/json", b"{}", "file-1.json"),
        ("text/csv; charset=utf-8", b"a,b", "file-1.csv"),
        ("text/markdown", b"ID3 is a *tag*", "file-1.md"),
        ("application/octet-stream", b"\0\1", "file-1.bin"),
    ],
)
async def test_the_suffix_of_a_models_file_is_that_of_its_type(
    converse: Converse, mime_type: str, data: bytes, name: str
) -> None:
    conversation = await converse(ScriptedProvider([Media(mime_type, data), Done()]))
    await conversation.reply("make a file")
    assert [(file, saved) for file, _, saved in await list_artifacts(conversation)] == [(name, data)]


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
