"""Files to upload, in discord.py's form, and their size limit."""

import io
from collections.abc import Sequence

import discord

from channels.base import File, FileRefusedError

#: Discord: most bytes of a file outside of boosted servers.
MAX_FILE_BYTES = 10 * 2**20

#: Discord: most characters of an alternative text.
_MAX_ALT_CHARACTERS = 1_024


def to_discord_files(files: Sequence[File]) -> list[discord.File]:
    """Return files as discord.py's `File` objects, each of which can be sent once."""
    return [
        discord.File(io.BytesIO(file.data), file.name, description=file.alt[:_MAX_ALT_CHARACTERS] or None)
        for file in files
    ]


def check_file_sizes(files: Sequence[File], max_bytes: int = MAX_FILE_BYTES) -> None:
    """Raise `FileRefusedError` with the names of the files that are larger than `max_bytes`."""
    if heavy := [file.name for file in files if len(file.data) > max_bytes]:
        raise FileRefusedError(f"a file may have {max_bytes} bytes here", heavy)
