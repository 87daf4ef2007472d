"""Attachments in a prompt: reads the files of a turn's messages for the model.

A file that cannot be read is named with the reason; it neither delays the turn for long nor ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from google.genai import types

from channels.base import Channel, FetchedFile, MessageText
from channels.intake.downloads import UnreadableFileError, too_large
from channels.settings import AttachmentLimits
from core.agents.run_record import FileRecord
from core.inbox_message import Attachment, InboxMessage, format_file_name, storable_text
from core.models import media
from core.models.provider import SupportedFiles
from core.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Tokens of text that the files of a turn may have together.
TEXT_TOKENS = 8_000

#: A text is left out, and not cut, if fewer tokens are left.
_MIN_TOKENS = 200


@dataclass(frozen=True, slots=True)
class AttachmentContent:
    """Content of one attached file in the prompt.

    Attributes:
        text: a line that names the file, followed by the text of a text file.
        part: the file itself, for a model that supports its type; None for a text file or an unreadable file.
        failure: the reason that the model cannot open the file; empty if it can.
    """

    text: str
    part: types.Part | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _ModelFileCheck:
    """Check of a file's size and type against the model's limits: see `FileCheck`.

    Attributes:
        supported: the types and sizes that the model supports.
        max_bytes: the most bytes of a file that the bot downloads.
    """

    supported: SupportedFiles
    max_bytes: int

    def __call__(self, file: Attachment) -> None:
        if file.size > self.max_bytes:
            raise too_large(self.max_bytes)
        if kind := media.guess_mime_type(file.name, file.mime_type):
            _check_kind(self.supported, kind, file.size)


def _check_kind(supported: SupportedFiles, kind: str, size: int) -> None:
    """Check that a model can read files of this type and size.

    Args:
        kind: the MIME type.
        size: bytes; 0 if unknown.

    Raises:
        UnreadableFileError: the model does not support the file.
    """
    if media.is_text_type(kind):
        return
    if kind not in supported.max_bytes:
        raise UnreadableFileError("I cannot read files of this type")
    if not supported.supports(kind, size):
        raise too_large(supported.max_bytes[kind])


class AttachmentReader:
    """Downloads the attachments of a turn's messages, and prepares them for the model.

    The model gets a text file as text in the message, and any other file as a part, with a line that names it. Of a
    file that cannot be used, it gets a line with the name and the reason.
    """

    def __init__(self, limits: AttachmentLimits) -> None:
        self._limits = limits

    async def read(
        self,
        channel: Channel,
        messages: Sequence[InboxMessage],
        texts: Sequence[MessageText],
        supported: SupportedFiles,
    ) -> tuple[list[MessageText], list[types.Part], list[FileRecord]]:
        """Download the attachments of a turn's messages.

        Downloads that take longer than `AttachmentLimits.seconds` are cancelled, and files above `max_files` of a
        message are skipped. Text files are truncated to `TEXT_TOKENS` tokens together. Instead of a file that cannot be
        read, the model gets its name and the reason.

        Args:
            channel: the adapter that downloads the files.
            messages: the messages of the turn.
            texts: the texts of the messages, in the same order.
            supported: the types and sizes that the model supports.

        Returns:
            The texts, each followed by a description of its files; the files for the model; a record of each file for
            the turn report.
        """
        check = _ModelFileCheck(supported, self._limits.max_bytes)
        fetching = {
            (i, j): asyncio.create_task(self._fetch(channel, message, file, check), name="file")
            for i, message in enumerate(messages)
            for j, file in enumerate(message.attachments[: self._limits.max_files])
        }
        if not any(message.attachments for message in messages):
            return list(texts), [], []
        try:
            if fetching:
                await asyncio.wait(fetching.values(), timeout=self._limits.seconds)
        finally:
            for task in fetching.values():
                task.cancel()
            await asyncio.gather(*fetching.values(), return_exceptions=True)
        return await asyncio.to_thread(
            self._combine, messages, texts, fetching, _AttachmentBudget(supported)
        )  # texts may be long

    def _combine(
        self,
        messages: Sequence[InboxMessage],
        texts: Sequence[MessageText],
        fetched: Mapping[tuple[int, int], asyncio.Task[FetchedFile]],
        budget: _AttachmentBudget,
    ) -> tuple[list[MessageText], list[types.Part], list[FileRecord]]:
        combined, parts, uses = [], [], []
        for i, (message, text) in enumerate(zip(messages, texts, strict=True)):
            lines = [text.text]
            for j, file in enumerate(message.attachments):
                read = self._describe(file, fetched.get((i, j)), budget, text.speaker)
                lines.append(read.text)
                parts += [read.part] if read.part else []
                uses.append(FileRecord(file.name, read.failure))
            combined.append(replace(text, text="\n".join(filter(None, lines))))
        return combined, parts, uses

    async def _fetch(
        self, channel: Channel, message: InboxMessage, file: Attachment, check: _ModelFileCheck
    ) -> FetchedFile:
        check(file)
        return await channel.fetch_file(message, file, check)

    def _describe(
        self, file: Attachment, task: asyncio.Task[FetchedFile] | None, budget: _AttachmentBudget, speaker: str
    ) -> AttachmentContent:
        intro = f"{speaker} sent a file"
        try:
            if task is None:
                raise UnreadableFileError(f"I read at most {self._limits.max_files} files of a message")
            if task.cancelled():
                raise UnreadableFileError("it did not download in time")
            return budget.add(task.result(), intro)
        except UnreadableFileError as error:
            failure = str(error)
        except Exception as error:  # no error of a platform may end the turn
            log.error("a file cannot be read: %s", format_error(error))
            failure = "it cannot be fetched right now"
        size = f" ({media.format_size(file.size)})" if file.size else ""
        return AttachmentContent(
            f"[{intro} that you cannot open: {format_file_name(file.name)}{size}: {failure}]", failure=failure
        )


class _AttachmentBudget:
    """Bytes and text tokens that are left for further files of a turn."""

    def __init__(self, supported: SupportedFiles) -> None:
        self._supported = supported
        self._bytes = supported.max_total_bytes
        self._tokens = TEXT_TOKENS

    def add(self, fetched: FetchedFile, intro: str) -> AttachmentContent:
        """Return a file's content for the prompt, and subtract its size from the budget.

        A text that is too long for the budget is truncated, if at least `_MIN_TOKENS` are left.

        Args:
            intro: the start of the line that names the file, such as "Ann sent a file".

        Raises:
            UnreadableFileError: the model cannot read the file, or the budget is too small for it.
        """
        file, data = fetched.file, fetched.data
        kind = media.detect_mime_type(data, media.guess_mime_type(file.name, file.mime_type))
        if kind is None:
            raise UnreadableFileError("I do not recognize its type")
        _check_kind(self._supported, kind, len(data))
        if media.is_text_type(kind):
            return AttachmentContent(self._text(file, data, intro))
        if len(data) > self._bytes:
            raise UnreadableFileError("the files are too large together")
        self._bytes -= len(data)
        return AttachmentContent(
            f"[{intro}, which you are shown: {format_file_name(file.name)}]", media.make_part(kind, data)
        )

    def _text(self, file: Attachment, data: bytes, intro: str) -> str:
        text = storable_text(media.decode_text(data) or "")
        excerpt = media.truncate_text(text, self._tokens)
        if excerpt != text and self._tokens < _MIN_TOKENS:
            raise UnreadableFileError("the files are too large together")
        self._tokens -= media.count_tokens(excerpt)
        note = "" if excerpt == text else f"\n[it is cut here: this is {len(excerpt)} of its {len(text)} characters]"
        return f"[{intro}: {format_file_name(file.name)}. Its text:]\n{media.format_file(excerpt, file.name)}{note}"
