"""Files that go out: as discord.py sends them, and as large as they may be."""

import io
from collections.abc import Sequence

import discord

from channels.base import File, FileRefusedError

#: Discord: of how many bytes a file may be everywhere; in servers that have been boosted it may be of more.
FILE_SIZE = 10 * 2**20

#: Discord: the most characters that say what a picture shows.
_ALT_SIZE = 1_024


def sent(files: Sequence[File]) -> list[discord.File]:
    """Anew for each attempt: what was sent once is closed."""
    return [discord.File(io.BytesIO(file.data), file.name, description=file.alt[:_ALT_SIZE] or None) for file in files]


def check(files: Sequence[File], most: int = FILE_SIZE) -> None:
    """Let files pass of at most so many bytes each.

    Raises:
        FileRefusedError: some are of more.
    """
    if heavy := [file.name for file in files if len(file.data) > most]:
        raise FileRefusedError(f"a file may have {most} bytes here", heavy)
