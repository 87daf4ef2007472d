"""Attachments in a prompt: reads the files of a turn's messages for the model.

A file that cannot be read is named with the reason; it neither delays the turn for long nor ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from google.genai import types

from channels.base import ContextMessage, MessageText
from channels.intake.encodings import read_legacy_text
from channels.platform import FetchedFile, FileCheck, Platform, UnreadableFileError
from channels.settings import AttachmentLimits
from core.agents.run_record import FileRecord
from core.messages.inbox_message import Attachment, InboxMessage, format_file_name, storable_text
from core.models import media
from core.models.provider import SupportedFiles
from core.observability.messages import format_count
from core.observability.secret_redaction import format_error
from core.sessions.prompt_text import PromptFile

log = logging.getLogger(__name__)

#: Tokens of text that the files of a turn may have together.
TEXT_TOKENS = 8_000

#: Why a file is not read that the session's history has.
ALREADY_GIVEN = "the conversation has it already"

#: A text is left out, and not cut, if fewer tokens are left.
_MIN_TOKENS = 200


@dataclass(frozen=True, slots=True)
class AttachmentContent:
    """Content of one attached file in the prompt.

    Attributes:
        text: a line that names the file, followed by the text of a text file.
        part: the file itself; None for a text file, or one that the model cannot open for the reason `failure`.
    """

    text: str
    part: types.Part | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """File of a context message in the prompt; `file` is None if the model does not get it."""

    message: ContextMessage
    text: str
    file: PromptFile | None

    @property
    def is_text(self) -> bool:
        return self.file is not None and self.file.media is None


@dataclass(slots=True)
class PromptFiles:
    """Files of a turn's messages and of their context, in the prompt.

    Attributes:
        media: the files that the model gets as they are, in the order of the prompt.
        own: the files of the turn's messages that the model gets.
        references: the files of the context messages, also those that the model does not get.
    """

    media: list[types.Part] = field(default_factory=list)
    own: list[PromptFile] = field(default_factory=list)
    references: list[ReferencedFile] = field(default_factory=list)
    records: list[FileRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _File:
    """File to read, unless it has an `omission_reason`.

    Attributes:
        inbound: the message of the turn with the file, or with the context.
        message: the context message with the file; None for a file of the turn's message.
    """

    file: Attachment
    inbound: InboxMessage
    message: ContextMessage | None = None
    omission_reason: str = ""

    @property
    def id(self) -> str:
        return str(self.file.source.get("id", ""))


class AttachmentReader:
    """Downloads the files of a turn's messages and of their context, and prepares them for the model.

    The model gets a text file as text in the message, and any other file as a part, with a line that names it. Of a
    file that cannot be used, it gets a line with the name and the reason.
    """

    def __init__(self, limits: AttachmentLimits) -> None:
        self._limits = limits

    async def read(
        self,
        platform: Platform,
        messages: Sequence[InboxMessage],
        texts: Sequence[MessageText],
        supported: SupportedFiles,
        *,
        context: Iterable[ContextMessage] = (),
        given: Collection[str] = (),
    ) -> tuple[list[MessageText], PromptFiles]:
        """Download the files of a turn's messages and context; return the texts, each with its files below.

        Downloads that take longer than `AttachmentLimits.seconds` are cancelled. Of each message of the turn, at most
        `max_files` are read, and as many of all context messages together: see `_list_referenced`. Files of context
        messages are not read if the session's history has their ids (`given`). Text files are truncated to
        `TEXT_TOKENS` tokens together. Instead of a file that cannot be read, the model gets its name and the reason.
        """
        check = FileCheck(supported, self._limits.max_bytes)
        files = [*self._list_own(messages), *self._list_referenced(messages[-1], context, given)]
        if not files:
            return list(texts), PromptFiles()
        fetching = {
            i: asyncio.create_task(self._fetch(platform, file, check), name="file")
            for i, file in enumerate(files)
            if not file.omission_reason
        }
        try:
            if fetching:
                await asyncio.wait(fetching.values(), timeout=self._limits.seconds)
        finally:
            for task in fetching.values():
                task.cancel()
            await asyncio.gather(*fetching.values(), return_exceptions=True)
        fetched = [(file, fetching.get(i)) for i, file in enumerate(files)]
        budget = _AttachmentBudget(check, texts)
        return await asyncio.to_thread(self._combine, messages, texts, fetched, budget)  # texts may be long

    def _list_own(self, messages: Sequence[InboxMessage]) -> Iterator[_File]:
        reason = f"I read at most {format_count(self._limits.max_files, 'file')} of a message"
        for message in messages:
            for number, file in enumerate(message.attachments):
                yield _File(file, message, omission_reason=reason if number >= self._limits.max_files else "")

    def _list_referenced(
        self, newest: InboxMessage, context: Iterable[ContextMessage], given: Collection[str]
    ) -> Iterator[_File]:
        """Yield the files of context messages, each once: of those that a message refers to, then the newest."""
        seen = set[str]()
        count = 0
        for message in sorted(context, key=lambda message: (bool(message.event_key), message.sent_at), reverse=True):
            for attachment in message.attachments:
                file = _File(attachment, newest, message)
                if file.id and file.id in seen:
                    continue
                seen.add(file.id)
                if file.id in given:
                    yield replace(file, omission_reason=ALREADY_GIVEN)
                    continue
                count += 1
                reason = f"I read at most {format_count(self._limits.max_files, 'file')} of earlier messages"
                yield replace(file, omission_reason=reason if count > self._limits.max_files else "")

    def _combine(
        self,
        messages: Sequence[InboxMessage],
        texts: Sequence[MessageText],
        fetched: Sequence[tuple[_File, asyncio.Task[FetchedFile] | None]],
        budget: _AttachmentBudget,
    ) -> tuple[list[MessageText], PromptFiles]:
        found = PromptFiles()
        lines = {message.event_key: [text.text] for message, text in zip(messages, texts, strict=True)}
        speakers = {message.event_key: text.speaker for message, text in zip(messages, texts, strict=True)}
        for file, task in fetched:
            is_own = file.message is None and file.inbound.subject is None
            speaker = speakers[file.inbound.event_key] if is_own else ""
            content = self._describe(file, task, budget, f"{speaker} sent a file" if speaker else "a file")
            media = len(found.media) if content.part else None
            found.media += [content.part] if content.part else []
            found.records.append(FileRecord(file.file.name, content.failure))
            prompt_file = None if content.failure else PromptFile(file.id, *_get_owner(file), media=media)
            if file.message is not None:
                found.references.append(ReferencedFile(file.message, content.text, prompt_file))
            else:
                lines[file.inbound.event_key].append(content.text)
                found.own += [prompt_file] if prompt_file else []
        return [
            replace(text, text="\n".join(filter(None, lines[message.event_key])))
            for message, text in zip(messages, texts, strict=True)
        ], found

    async def _fetch(self, platform: Platform, file: _File, check: FileCheck) -> FetchedFile:
        check(file.file)
        return await platform.fetch_file(file.inbound, file.file, check)

    def _describe(
        self, file: _File, task: asyncio.Task[FetchedFile] | None, budget: _AttachmentBudget, intro: str
    ) -> AttachmentContent:
        name = format_file_name(file.file.name)
        if file.omission_reason == ALREADY_GIVEN:
            return AttachmentContent(f"[{intro} that you were given before: {name}]", failure=ALREADY_GIVEN)
        try:
            if task is None:
                raise UnreadableFileError(file.omission_reason)
            if task.cancelled():
                raise UnreadableFileError("it did not download in time")
            return budget.add(task.result(), intro)
        except UnreadableFileError as error:
            failure = str(error)
        except Exception as error:  # no error of a platform may end the turn
            log.error("a file cannot be read: %s", format_error(error))
            failure = "it cannot be fetched right now"
        size = f" ({media.format_size(file.file.size)})" if file.file.size else ""
        return AttachmentContent(f"[{intro} that you cannot open: {name}{size}: {failure}]", failure=failure)


def _get_owner(file: _File) -> tuple[str, str]:
    if file.message is not None:
        return file.message.author, file.message.key
    if (subject := file.inbound.subject) is not None:
        return str(subject["author"]), str(subject.get("key", ""))
    return file.inbound.author, file.inbound.event_key


class _AttachmentBudget:
    """Bytes and text tokens that are left for further files of a turn."""

    def __init__(self, check: FileCheck, texts: Sequence[MessageText]) -> None:
        self._check = check
        self._bytes = check.supported.max_total_bytes
        self._tokens = TEXT_TOKENS
        self._locales = {text.locale for text in texts} - {""}
        self._conversation = "\n".join(text.text for text in texts)

    def add(self, fetched: FetchedFile, intro: str) -> AttachmentContent:
        """Return a file's content for the prompt, and subtract its size from the budget.

        A text that is too long for the budget is truncated, if at least `_MIN_TOKENS` are left. The line that names the
        file begins with `intro`, such as "Ann sent a file".

        Raises:
            UnreadableFileError: the model cannot read the file, or the budget is too small for it.
        """
        file = fetched.file
        data = fetched.data
        kind = media.detect_mime_type(data, media.guess_mime_type(file.name, file.mime_type))
        if kind is None:
            raise UnreadableFileError("I do not recognize its type")
        self._check.check_type(kind, len(data))
        if media.is_text_type(kind):
            return AttachmentContent(self._text(file, data, intro))
        if len(data) > self._bytes:
            raise UnreadableFileError("the files are too large together")
        self._bytes -= len(data)
        return AttachmentContent(
            f"[{intro}, which you are shown: {format_file_name(file.name)}]", media.make_part(kind, data)
        )

    def _text(self, file: Attachment, data: bytes, intro: str) -> str:
        text = media.decode_text(data, allow_legacy=False)
        if text is not None:
            return f"[{intro}: {format_file_name(file.name)}. Its text:]\n{self._excerpt(file, text, self._tokens)}"
        readings = read_legacy_text(data, self._locales, self._conversation)
        share = self._tokens // len(readings)
        excerpts = [self._excerpt(file, reading.text, share) for reading in readings]
        names = [f"read as {reading.encoding}; if it looks wrong, send it as UTF-8" for reading in readings]
        lines = [f"[{intro}: {format_file_name(file.name)}. Its text, {names[0]}:]\n{excerpts[0]}"]
        lines += [f"[The encoding is not certain. The same file, {names[1]}:]\n{excerpts[1]}"] if names[1:] else []
        return "\n".join(lines)

    def _excerpt(self, file: Attachment, text: str, max_tokens: int) -> str:
        text = storable_text(text)
        excerpt = media.truncate_text(text, max_tokens)
        if excerpt != text and max_tokens < _MIN_TOKENS:
            raise UnreadableFileError("the files are too large together")
        self._tokens -= media.count_tokens(excerpt)
        note = "" if excerpt == text else f"\n[it is cut here: this is {len(excerpt)} of its {len(text)} characters]"
        return f"{media.format_file(excerpt, file.name)}{note}"
