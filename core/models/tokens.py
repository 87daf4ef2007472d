"""Token counts of texts, estimates of requests, and the download of the vocabulary that the counts need."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from core.errors import StoreError
from core.models.provider import Media, ModelMessage, Part, Text, Thought, ToolCall, ToolResult, ToolSpec
from core.store.atomic_write import write_atomically
from core.usage.file_estimates import estimate_files

logger = logging.getLogger(__name__)

VOCABULARY_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"

#: tiktoken names a vocabulary's file after the SHA-1 of its URL.
VOCABULARY_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

#: A package that contains the vocabulary, for machines that reach a package index but not the URL.
WHEEL = "litellm==1.109.1"

_MAX_INLINE_CHARACTERS = 8_000  # below a millisecond; the longest that is counted on the event loop
_SLICE_CHARACTERS = 50_000


class TokenCounter:
    """Counter of tokens by the vocabulary `o200k_base`, or an estimate without it.

    The constructor reads the vocabulary, which takes half a second: create the counter before the event loop is busy.
    If the file in `folder` is missing or damaged, a warning is logged; it is not downloaded.
    """

    def __init__(self, folder: Path) -> None:
        self._encode: Callable[[str], list[int]] | None = None
        if has_vocabulary(folder):
            from tiktoken import Encoding  # noqa: PLC0415 - of no use without a vocabulary
            from tiktoken_ext import openai_public  # type: ignore[import-untyped] # noqa: PLC0415

            os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
            parts = openai_public.o200k_base()
            self._encode = Encoding(**parts).encode_ordinary
            parts["mergeable_ranks"].clear()  # `Encoding` has a copy in Rust, and this one takes 30 MB
        else:
            logger.warning("no valid token vocabulary in %s: tokens are estimated; `parley warm` downloads it", folder)

    async def count(self, text: str) -> int:
        """Return the number of tokens of a text; a long text is counted in a thread."""
        if self._encode is None or len(text) <= _MAX_INLINE_CHARACTERS:
            return self._count(text)
        return await asyncio.to_thread(self._count, text)

    def _count(self, text: str) -> int:
        if self._encode is None:
            return estimate_tokens(text)
        slices = (text[start : start + _SLICE_CHARACTERS] for start in range(0, len(text), _SLICE_CHARACTERS))
        return sum(len(self._encode(piece)) for piece in slices)


def has_vocabulary(folder: Path) -> bool:
    return _has_valid_file(folder / VOCABULARY_FILE)


def estimate_tokens(text: str) -> int:
    """Return an estimate of a text's tokens: a quarter of its UTF-8 bytes, rounded up.

    It is within a few per cent for English and Korean prose, and 40 % too low for JSON.
    """
    return -(-len(text.encode("utf-8", "replace")) // 4)


def estimate_text_tokens(messages: Iterable[ModelMessage], tools: Iterable[ToolSpec] = ()) -> int:
    """Return an estimate of the tokens of a request without its files."""
    texts = sum(_estimate_part(part) for message in messages for part in message.parts)
    return texts + sum(estimate_tokens(f"{tool.name} {tool.description} {tool.parameters}") for tool in tools)


async def estimate_media_tokens(messages: Iterable[ModelMessage]) -> int:
    """Return an estimate of the tokens of all files, also of those in tool results: see `estimate_files`."""
    files = [file for message in messages for part in message.parts for file in _list_files(part)]
    return await estimate_files([(file.mime_type, file.data) for file in files])


def _estimate_part(part: Part) -> int:
    match part:
        case Text() | Thought():
            return estimate_tokens(part.text)
        case ToolCall():
            return estimate_tokens(f"{part.name} {part.arguments}")
        case ToolResult():
            return estimate_tokens(f"{part.name} {part.result}")
        case Media():
            return 0


def _list_files(part: Part) -> Sequence[Media]:
    if isinstance(part, ToolResult):
        return part.media
    return (part,) if isinstance(part, Media) else ()


def fetch_vocabulary(folder: Path) -> Path:
    """Download the vocabulary unless the folder has it, and return its path; this blocks for up to a few minutes.

    Raises:
        StoreError: the vocabulary cannot be downloaded or written. The message says what to do.
    """
    target = folder / VOCABULARY_FILE
    if _has_valid_file(target):
        return target
    try:
        data = _download() or _install_wheel()
        if data is None:
            raise StoreError(
                f"the token vocabulary cannot be downloaded from {VOCABULARY_URL} or from {WHEEL} of the package "
                f"index: allow one of them, or save the file as {target}"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, data, mode=0o644)
    except OSError as error:
        raise StoreError(f"the token vocabulary cannot be written to {target}: {error.strerror}") from error
    return target


def _download() -> bytes | None:
    try:
        with urllib.request.urlopen(VOCABULARY_URL, timeout=10) as response:
            data: bytes = response.read()
    except (OSError, http.client.HTTPException) as error:
        logger.info("the token vocabulary cannot be downloaded from its URL (%s)", type(error).__name__)
        return None
    return data if _is_vocabulary(data) else None


def _install_wheel() -> bytes | None:
    """Return the vocabulary from a wheel, which uv or pip installs with the user's index settings."""
    with tempfile.TemporaryDirectory() as folder:
        for installer in _list_installers():
            command = [*installer, "--quiet", "--no-deps", "--target", folder, WHEEL]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=240)  # noqa: S603 - constants
            except (OSError, subprocess.SubprocessError) as error:
                logger.info("%s could not install %s (%s)", installer[0], WHEEL, type(error).__name__)
                continue
            with contextlib.suppress(FileNotFoundError):
                data = Path(folder, "litellm", "litellm_core_utils", "tokenizers", VOCABULARY_FILE).read_bytes()
                return data if _is_vocabulary(data) else None
    return None


def _list_installers() -> list[list[str]]:
    installers = []
    if uv := shutil.which("uv"):
        installers.append([uv, "pip", "install", "--python", sys.executable])
    if importlib.util.find_spec("pip"):
        installers.append([sys.executable, "-m", "pip", "install"])
    return installers


def _has_valid_file(path: Path) -> bool:
    try:
        return _is_vocabulary(path.read_bytes())
    except OSError:
        return False


def _is_vocabulary(data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == SHA256
