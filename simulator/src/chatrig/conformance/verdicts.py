"""Verdict on the answer to a question, from the texts that people saw.

The right answer is numbered words: `c07w0 c07w1 ...`. Nothing else of the bot counts: not its calls, its log or its
exit code. A doubt is decided for the bot.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Outcome for the person who asked, the best first.

    `told`: an honest error text in place of the answer. `stray`: a leftover placeholder, or an answer that nobody asked
    for. `n/a`: the case does not apply to the bot.
    """

    NOT_APPLICABLE = "n/a"
    OK = "ok"
    LATE = "late"
    STRAY = "stray"
    TOLD = "told"
    DISORDERED = "disordered"
    DOUBLED = "doubled"
    CUT = "cut"
    LOST = "lost"


#: Outcomes that fail a run of the suite.
FAILURES = frozenset({Outcome.LOST, Outcome.DOUBLED, Outcome.CUT})

_SEVERITY = list(Outcome)
_PLACEHOLDER = re.compile(
    "thinking|typing|working|loading|generating|processing|writing|please wait|(?:one|a) moment|just a sec|hold on",
    re.IGNORECASE,
)
_ERROR = re.compile(r"error|wrong|fail|sorry|unable|cannot|could ?n.t|problem|interrupt|⚠|❌", re.IGNORECASE)
_MAX_PLACEHOLDER_CHARACTERS = 80
#: Letters after the last word of an answer that make a note, such as "interrupted": "(1/2)" is none.
_MIN_NOTE_LETTERS = 4


@dataclass(frozen=True, slots=True)
class Version:
    """State of one message of the bot, from its post or a change on.

    Attributes:
        at: seconds on the monotonic clock.
        message: the id of the message.
        channel: the id of the channel; a thread has that of its channel.
        root: the id of the message that this one replies to, or whose thread it is in; None for none.
        text: the visible text; None once the message is deleted.
        is_loading: whether people see that more is to come: a live stream, or "is thinking".
        file_text: the text of attached files.
    """

    at: float
    message: str
    channel: str
    root: str | None
    text: str | None
    is_loading: bool = False
    file_text: str = ""


@dataclass(slots=True)
class Question:
    """Question of a person, and the answer that they should see.

    Attributes:
        key: the beginning of each word of the answer, unique in the run: `c08b`.
        words: the number of words; 0 for a question that the bot must not answer.
        channel: the id of the channel.
        roots: the ids of the messages to which a reply can belong: the question, and the root of its thread.
        due: the monotonic time from which a delay counts: when it was asked, or when the obstacle was gone.
    """

    key: str
    words: int
    channel: str
    roots: tuple[str, ...]
    due: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome, with the reason in words.

    Attributes:
        seconds: for `late`: seconds from `Question.due` until the complete answer; None for others.
    """

    outcome: Outcome
    note: str = ""
    seconds: float | None = None

    def __str__(self) -> str:
        return f"late {self.seconds:.0f} s" if self.seconds is not None else self.outcome.value

    @property
    def severity(self) -> int:
        return _SEVERITY.index(self.outcome)


def judge(question: Question, versions: Sequence[Version], *, allowed_seconds: float) -> Verdict:
    """Return the verdict on the answer to a question.

    Args:
        versions: all states of the bot's messages, oldest first.
        allowed_seconds: the delay that is not late.
    """
    visible = list_visible(versions)
    own = [version for version in visible if _belongs_to(version, question)]
    numbers = read_numbers(question, visible)
    if question.words == 0:
        verdict = Verdict(Outcome.STRAY, "the bot answered without a mention") if own else Verdict(Outcome.OK)
    elif set(numbers) != set(range(question.words)):
        verdict = _judge_incomplete(question, numbers, own)
    else:
        seconds = _get_completion(question, versions) - question.due
        verdict = _judge_complete(question, numbers, own)
        if verdict.outcome is Outcome.OK and seconds > allowed_seconds:
            verdict = Verdict(Outcome.LATE, f"complete after {seconds:.1f} s", seconds)
    return verdict


def list_visible(versions: Iterable[Version]) -> list[Version]:
    """Return the newest state of each message that is visible, in the order of the posts."""
    newest: dict[str, Version] = {}
    for version in versions:
        newest[version.message] = version
    return [version for version in newest.values() if version.text is not None]


def read_numbers(question: Question, visible: Sequence[Version]) -> list[int]:
    """Return the numbers of the words of an answer, in the order in which people read them.

    A word may be split over two messages. Files count only if the texts are not complete without them.
    """
    expected = list(range(question.words))
    texts = [version.text or "" for version in visible]
    readings = [_find_numbers(question.key, "\n".join(texts)), _find_numbers(question.key, "".join(texts))]
    if set(readings[0]) != set(expected):
        with_files = "\n".join(f"{version.text or ''}\n{version.file_text}" for version in visible)
        files_only = "\n".join(version.file_text for version in visible)
        readings += [_find_numbers(question.key, with_files), _find_numbers(question.key, files_only)]
    return next((reading for reading in readings if reading == expected), readings[0])


def merge_runs(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on all runs of a case: the outcome of most of them, the mildest of equally many.

    `late` has the smallest of its delays: a busy machine makes a bot slower, never faster.
    """
    counts = Counter(verdict.outcome for verdict in verdicts)
    outcome = min(counts, key=lambda each: (-counts[each], _SEVERITY.index(each)))
    chosen = min((v for v in verdicts if v.outcome is outcome), key=lambda verdict: verdict.seconds or 0)
    others = [str(verdict) for verdict in verdicts if verdict.outcome is not outcome]
    if not others:
        return chosen
    note = f"{chosen.note}; " if chosen.note else ""
    return Verdict(outcome, f"{note}other runs: {', '.join(others)}", chosen.seconds)


def _find_numbers(key: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(rf"(?<![a-z]){key}w(\d+)", text)]


def _belongs_to(version: Version, question: Question) -> bool:
    return version.channel == question.channel and (version.root is None or version.root in question.roots)


def _judge_incomplete(question: Question, numbers: Sequence[int], own: Sequence[Version]) -> Verdict:
    notes = [note for version in own if (note := _find_note(version))]
    if notes:
        return Verdict(Outcome.TOLD, _shorten(notes[-1]))
    if numbers:
        return Verdict(Outcome.CUT, f"{len(set(numbers))} of {question.words} words are visible, and no note about it")
    return Verdict(Outcome.LOST, "no word and no note is visible")


def _judge_complete(question: Question, numbers: Sequence[int], own: Sequence[Version]) -> Verdict:
    leftovers = [version for version in own if _is_leftover(version, question)]
    if len(numbers) > question.words:
        twice = sum(count > 1 for count in Counter(numbers).values())
        return Verdict(Outcome.DOUBLED, f"{twice} of {question.words} words are there more than once")
    if list(numbers) != list(range(question.words)):
        return Verdict(Outcome.DISORDERED, "the words are not in their order")
    if leftovers:
        return Verdict(Outcome.STRAY, f"left over: {_shorten(leftovers[0].text or '')!r}")
    return Verdict(Outcome.OK)


def _find_note(version: Version) -> str:
    """Return what a message says beside an answer: all of a text without words, or what follows the last word."""
    text = version.text or ""
    end = max((match.end() for match in _WORD.finditer(text)), default=None)
    note = text if end is None else text[end:]
    if sum(letter.isalpha() for letter in note) < _MIN_NOTE_LETTERS or (end is None and _is_placeholder(text)):
        return ""
    return note.strip()


def _is_placeholder(text: str) -> bool:
    if _ERROR.search(text) or len(text) > _MAX_PLACEHOLDER_CHARACTERS:
        return False
    bare = re.sub(r"[*_`~\s]+$", "", text)
    has_words = any(letter.isalnum() for letter in re.sub(r":\w+:", "", text))
    return not has_words or bare.endswith(("…", "...")) or _PLACEHOLDER.search(text) is not None


def _is_leftover(version: Version, question: Question) -> bool:
    """Return whether a complete answer leaves this message over: a placeholder, a live stream, or an error."""
    text = version.text or ""
    if _find_numbers(question.key, text):
        return version.is_loading
    if _WORD.search(text):
        return False  # the answer to another question in the channel
    is_empty = not text.strip() and not version.file_text
    return version.is_loading or (not is_empty and (_is_placeholder(text) or _ERROR.search(text) is not None))


def _get_completion(question: Question, versions: Sequence[Version]) -> float:
    """Return the time from which all words of the answer are visible until the end."""
    expected = set(range(question.words))
    newest: dict[str, Version] = {}
    since: float | None = None
    for version in versions:
        newest[version.message] = version
        visible = [each for each in newest.values() if each.text is not None]
        is_complete = set(read_numbers(question, visible)) == expected
        since = (version.at if since is None else since) if is_complete else None
    assert since is not None  # the last state is complete
    return since


def find_missing(questions: Iterable[Question], visible: Sequence[Version]) -> list[str]:
    """Return the keys of the questions whose answers are not complete."""
    return [q.key for q in questions if q.words and not set(range(q.words)) <= set(read_numbers(q, visible))]


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:60]} [...] {line[-50:]}"


#: Word of any answer.
_WORD = re.compile(r"(?<![a-z])c\d\d[a-z]?w\d+")
