"""Prompt text of a turn: its messages, and the context messages as quotes.

No text in a quoted message can end its quote or imitate another one. Characters that could begin a line are removed
from names.
"""

import asyncio
import logging
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import disarm
import regex  # type: ignore[import-untyped]  # it comes without types

from channels.base import ContextKind, ContextMessage, MessageText, SurroundingMessages
from channels.intake.attachments import PromptFiles, ReferencedFile
from channels.platform import Platform
from channels.rate_limits.retries import deadline
from channels.settings import CONTEXT_MAX_TOKENS
from core.agents.run_record import ContextRecord
from core.concurrency.retry import retry_store
from core.conversations.history_state import HistoryState, get_history_state
from core.messages.identity import MAX_NAME_LENGTH, clean_name
from core.messages.inbox_message import ABOUT, InboxMessage, format_file_names, storable_text
from core.observability.messages import format_count
from core.observability.secret_redaction import format_error
from core.sessions.prompt_text import (
    LINE_PREFIX,
    QUOTE_CLOSE,
    QUOTE_OPEN,
    AttributedPrompt,
    attribute_text,
    build_quote,
    describe_local_time,
    escape_brackets,
    quote_message,
)
from core.store.database import Database
from core.turns.turn import Turn

log = logging.getLogger(__name__)

#: Seconds that a turn waits for the context messages.
FETCH_TIMEOUT_SECONDS = 4.0

_TITLES: Mapping[ContextKind, str] = {
    "before": "Earlier messages of other people",
    "quoted": "The message that the next message replies to",
    "forwarded": "The message that the next message forwards",
    "about": "The message that the next message is about",
}
#: The title of the quote of context messages' files.
_FILES_TITLE = "Files of the messages above"

_CUT_NOTE = f"{QUOTE_OPEN}the rest is left out{QUOTE_CLOSE}"

#: Characters that set apart the parts of a name: brackets and quotation marks, signs between spaces, and stops.
_NAME_SEPARATOR = regex.compile(r"[\p{Ps}\p{Pe}\p{Pi}\p{Pf}<>,;:]|\s[\p{P}\p{S}]+\s")
_BRACKETED = regex.compile(r"\p{Ps}[^\p{Pe}]*\p{Pe}?")

#: Punctuation, symbols and spaces, which do not distinguish two names.
_DECORATION = regex.compile(r"[\p{P}\p{S}\p{Z}\p{Me}]+")

#: Canonical combining classes of marks that are left out when names are compared: accents above, below and through a
#: letter. Marks of other classes distinguish words: vowel signs, and the Japanese voiced sound mark.
_OVERLAY_CLASS, _MIN_ACCENT_CLASS = 1, 200

CountTokens = Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class ContextQuotes:
    """Context messages of a turn as quotes, by the event key of the message that they precede."""

    quotes: Mapping[str, Sequence[str]]
    messages: Mapping[str, Sequence[ContextMessage]]
    record: ContextRecord


@dataclass(frozen=True, slots=True)
class PromptContext:
    """Context of a turn's messages, for its prompt.

    Attributes:
        names: the names for the prompt, by the platform's user ids.
        people: the names of the authors of the turn's messages and of the context messages.
    """

    quotes: ContextQuotes
    names: Mapping[str, str]
    people: Mapping[str, str]

    def list_messages(self) -> list[ContextMessage]:
        return [message for quoted in self.quotes.messages.values() for message in quoted]

    def build_prompt(
        self, messages: Sequence[InboxMessage], texts: Sequence[MessageText], files: PromptFiles
    ) -> AttributedPrompt:
        """Return the prompt text: each message follows its context, and the files of its context.

        The newest message also follows the local time of its author, if that is known. Authors are named if more than
        one person can write.
        """
        parts = list[tuple[str, str]]()
        prompt_files = list(files.own)
        for message, message_text in zip(messages, texts, strict=True):
            quoted = self.quotes.messages[message.event_key]
            references = [reference for reference in files.references if reference.message in quoted]
            parts += [("", quote) for quote in self.quotes.quotes[message.event_key]]
            if lines := [self._quote_file(reference) for reference in references if not reference.is_text]:
                parts.append(("", build_quote(_FILES_TITLE, lines)))
            prompt_files += [reference.file for reference in references if reference.file and not reference.is_text]
            for reference in references:
                if reference.file is not None and reference.is_text:
                    prompt_files.append(replace(reference.file, part=len(parts)))
                    parts.append(("", build_quote(_FILES_TITLE, [self._quote_file(reference)])))
            text = message_text.text if message.is_prompt else escape_brackets(message_text.text)
            if not message_text.is_one_to_one:
                text = attribute_text(self.names[message.author], text)
            if message is messages[-1] and (time := describe_local_time(message_text.time_zone, message.sent_at)):
                parts.append(("", time))
            parts += [(message.author, text)] if text else []
        return AttributedPrompt(tuple(parts), self.people, tuple(prompt_files))

    def _quote_file(self, reference: ReferencedFile) -> str:
        return quote_message(self.names[reference.message.author], escape_brackets(reference.text))


class ContextBuilder:
    """Builds the prompt text of a turn from its messages and their context messages.

    Context messages are quoted in the prompt, and not answered: see `ContextMessage`. They have at most `max_tokens`
    tokens (0 for none), and are left out if they do not come within `timeout` seconds.
    """

    def __init__(
        self,
        database: Database,
        count: CountTokens,
        *,
        max_tokens: int = CONTEXT_MAX_TOKENS,
        timeout: float = FETCH_TIMEOUT_SECONDS,
    ) -> None:
        self._database = database
        self._count = count
        self._max_tokens = max_tokens
        self._timeout = timeout

    async def fetch(
        self,
        turn: Turn,
        platform: Platform,
        texts: Sequence[MessageText],
        left_out: Sequence[InboxMessage] = (),
        history: HistoryState | None = None,
    ) -> PromptContext:
        """Fetch the context messages of a turn, unless its run has stored the prompt.

        Context messages that cannot be fetched are left out, and the failure is logged. Messages in `left_out` are not
        quoted as the conversation before either.

        Args:
            history: the end of the history, if the messages of `turn` are further ones, which its run is to read.
        """
        is_one_to_one = all(message.is_one_to_one for message in texts)
        surrounding = await self._fetch_context(turn, platform, history, is_one_to_one=is_one_to_one)
        subjects = [
            ContextMessage(**subject, kind="about", event_key=message.event_key)
            for message in turn.messages
            if (subject := message.subject) is not None
        ]
        known = {(subject.author, subject.sent_at) for subject in subjects}
        unwanted = {(message.author, message.sent_at) for message in left_out}
        context = [
            *subjects,
            *(
                message
                for message in surrounding.messages
                if (message.author, message.sent_at) not in (known if message.event_key else known | unwanted)
            ),
        ]
        authors = [message.author for message in turn.messages]
        speakers = dict(zip(authors, (message.speaker for message in texts), strict=True))
        names = label_names({message.author: message.name for message in context} | dict(surrounding.names) | speakers)
        quotes = await build_context_quotes(
            turn.messages, context, names, count=self._count, max_tokens=self._max_tokens
        )
        mentioned = {message.author for message in context} | set(authors)
        return PromptContext(quotes, names, {id_: name for id_, name in names.items() if id_ in mentioned})

    async def _fetch_context(
        self, turn: Turn, platform: Platform, history: HistoryState | None, *, is_one_to_one: bool
    ) -> SurroundingMessages:
        """Return the context messages of a turn; none after an error or a timeout, which is logged."""
        if not self._max_tokens:
            return SurroundingMessages()
        if history is None and (not is_one_to_one or turn.is_resumed or turn.kind != "message"):
            history = await retry_store(lambda: get_history_state(self._database, turn), operation=f"turn {turn.id}")
            if history is None:
                return SurroundingMessages()
        try:
            async with asyncio.timeout(self._timeout):
                with deadline(self._timeout):
                    return await platform.fetch_context(turn.messages, None if is_one_to_one else history)
        except Exception as error:  # the turn is answered without context
            log.warning("turn %s: its context cannot be fetched: %s", turn.id, format_error(error))
            return SurroundingMessages()


def about_reference(author: str, name: str, text: str, sent_at: float, key: str) -> dict[str, Any]:
    """Return the message that a user asks about, as JSON with the key `about`, for `InboxMessage.references`.

    The user chose the bot's entry in the menu of this message; its author may be anybody.
    """
    return {ABOUT: {"author": author, "name": name, "text": storable_text(text), "sent_at": sent_at, "key": key}}


def label_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names for the prompt by the platform's user ids.

    A name is put on one line without colons, and truncated; a blank name becomes the user id. Names that look alike are
    all followed by their user ids. So is a name that only adds something to another one, in brackets or after a sign
    (`Grace (admin)`), and a name that has one of the ids in brackets.
    """
    cleaned = {id_: _clean_name(name) or _clean_name(id_) for id_, name in names.items()}
    skeletons = Counter(_skeleton(name) for name in cleaned.values())
    ids = {_skeleton(id_) for id_ in names}

    def is_mistakable(id_: str, name: str) -> bool:
        whole = _skeleton(name)
        parts = _list_part_skeletons(clean_name(names[id_]))
        return skeletons[whole] > 1 or not parts.isdisjoint(ids | (skeletons.keys() - {whole}))

    return {id_: f"{name} ({id_})" if is_mistakable(id_, name) else name for id_, name in cleaned.items()}


def _clean_name(name: str) -> str:
    return clean_name(escape_brackets(storable_text(name)).replace(":", " "))


def _skeleton(name: str) -> str:
    """Return a form of a name that is the same for all names that look alike.

    Letters that look like Latin ones become these, by Unicode's confusables (UTS #39). Case, accents, spaces,
    punctuation and symbols are left out.
    """
    letters = (
        char
        for char in unicodedata.normalize("NFKD", name)
        if _OVERLAY_CLASS != unicodedata.combining(char) < _MIN_ACCENT_CLASS
    )
    key = disarm.skeleton_key("".join(letters), digit_policy="tr39")
    key = key.replace("i", "l").replace("rn", "m")  # it has l for I, and leaves out UTS #39's rn for m
    return _DECORATION.sub("", key) or key


def _list_part_skeletons(name: str) -> set[str]:
    """Return the skeletons of a name's parts, and of the name without its parts in brackets; empty for one part."""
    compatible = unicodedata.normalize("NFKD", name)
    parts = _NAME_SEPARATOR.split(compatible)
    if len(parts) == 1:
        return set()
    return {_skeleton(part) for part in (*parts, _BRACKETED.sub(" ", compatible)) if part.strip()}


@dataclass(frozen=True, slots=True)
class _RenderedMessage:
    message: ContextMessage
    lines: str


async def build_context_quotes(
    messages: Sequence[InboxMessage],
    context: Sequence[ContextMessage],
    names: Mapping[str, str],
    *,
    count: CountTokens,
    max_tokens: int,
) -> ContextQuotes:
    """Return the context messages as quotes, to insert before each message of a turn.

    The messages that a prompt is about are not truncated. The others share `max_tokens`: first quoted and forwarded
    messages and the start of the thread, then the newest messages of the conversation. A note replaces older messages
    that do not fit. Blank messages are left out, and so are messages of the conversation that were sent after the
    turn's newest message. `messages` has at least one, oldest first.
    """
    newest_at = messages[-1].sent_at
    relevant = [
        message for message in context if _plain_text(message) and (message.event_key or message.sent_at <= newest_at)
    ]
    subjects = [message for message in relevant if message.kind == "about"]
    related = [
        message for message in relevant if (message.event_key or message.is_thread_start) and message not in subjects
    ]
    conversation = [message for message in relevant if not (message.event_key or message.is_thread_start)]
    rendered = [_RenderedMessage(subject, _render_lines(subject, names)) for subject in subjects]
    tokens_left = max_tokens
    for related_message in related:
        text_lines, cost = await _truncate(_render_lines(related_message, names), tokens_left // 2, count)
        rendered += [_RenderedMessage(related_message, text_lines)] if text_lines else []
        tokens_left -= cost
    newest = list[_RenderedMessage]()
    for newest_message in reversed(conversation):
        text_lines = _render_lines(newest_message, names)
        cost = await count(text_lines)
        if cost > tokens_left and not newest:
            text_lines, cost = await _truncate(text_lines, tokens_left, count)
        if cost > tokens_left or not text_lines:
            break
        newest.append(_RenderedMessage(newest_message, text_lines))
        tokens_left -= cost
    others = ContextRecord(
        len(rendered) + len(newest), max_tokens - tokens_left, len(relevant) - len(rendered) - len(newest)
    )
    missing = len(conversation) - len(newest)
    if missing and newest:
        verb = "is" if missing == 1 else "are"
        note = f"{QUOTE_OPEN}{format_count(missing, 'older message')} {verb} left out{QUOTE_CLOSE}"
        newest[-1] = replace(newest[-1], lines=f"{note}\n{newest[-1].lines}")
    rendered += reversed(newest)
    quotes = dict[str, list[str]]()
    quoted = dict[str, list[ContextMessage]]()
    for inbound, groups in _group_messages(messages, rendered):
        quotes[inbound.event_key] = [
            build_quote(_TITLES[kind], (quote.lines for quote in group)) for kind, group in groups.items() if group
        ]
        quoted[inbound.event_key] = [quote.message for group in groups.values() for quote in group]
    return ContextQuotes(quotes, quoted, others)


def _group_messages(
    messages: Sequence[InboxMessage], rendered: Sequence[_RenderedMessage]
) -> Iterator[tuple[InboxMessage, Mapping[ContextKind, list[_RenderedMessage]]]]:
    begin = float("-inf")
    for message in messages:
        end = message.sent_at if message is not messages[-1] else float("inf")
        before = [quote for quote in rendered if not quote.message.event_key and begin <= quote.message.sent_at < end]
        quotes = [quote for quote in rendered if quote.message.event_key == message.event_key]
        yield (
            message,
            {
                "before": before,
                "quoted": [quote for quote in quotes if quote.message.kind == "quoted"],
                "forwarded": [quote for quote in quotes if quote.message.kind == "forwarded"],
                "about": [quote for quote in quotes if quote.message.kind == "about"],
            },
        )
        begin = end


def _plain_text(message: ContextMessage) -> str:
    text = "\n".join(filter(None, [message.text.rstrip(), format_file_names(message.attachments)]))
    return escape_brackets(storable_text(text)).strip()


def _render_lines(message: ContextMessage, names: Mapping[str, str]) -> str:
    return quote_message(names[message.author], _plain_text(message))


async def _truncate(text_lines: str, max_tokens: int, count: CountTokens) -> tuple[str, int]:
    """Truncate the quoted lines of a message, with a note whose tokens are not counted.

    The text is empty if hardly more than a name would fit.
    """
    cost = await count(text_lines)
    text = text_lines
    while cost > max_tokens:
        text = text[: min(len(text) * max_tokens // cost, len(text) - 1)]
        if len(text) < len(LINE_PREFIX) + 2 * MAX_NAME_LENGTH:  # hardly more than the author's name
            return "", 0
        cost = await count(text)
    if text == text_lines:
        return text_lines, cost
    return f"{text.rstrip()} {_CUT_NOTE}", cost
