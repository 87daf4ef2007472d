"""Verdict on the evidence of the crash scenario."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.chaos.evidence import Evidence
from tests.chaos.scenario import FIRST, LONG, SECOND, SHORT, TOOLS

#: Outcome of a message. `unreceived`: accepted neither by event nor by backfill.
MessageOutcome = Literal["answered", "apology", "unreceived", "wrong"]


@dataclass(frozen=True)
class CrashVerdict:
    """Verdict on one run of the crash scenario.

    Attributes:
        outcomes: the outcome by (platform, message).
        findings: descriptions of all faults; empty if the scenario passed.
    """

    outcomes: Mapping[tuple[str, str], MessageOutcome]
    findings: Sequence[str]


def is_complete(platform: str, visible_texts: Sequence[str]) -> bool:
    """Return whether the visible texts show an outcome of both user messages.

    The messages may be answered separately or together.
    """
    return any(
        _read_outcomes(platform, visible_texts, turns) is not None for turns in ([[FIRST], [SECOND]], [[FIRST, SECOND]])
    )


def judge(evidence: Evidence, *, crashed: bool = True) -> CrashVerdict:
    """Return the verdict on the evidence of a run.

    Args:
        crashed: whether a process crashed. Without a crash no apology is allowed.
    """
    outcomes: dict[tuple[str, str], MessageOutcome] = {}
    findings: list[str] = [*evidence.unfinished, *evidence.violations, *evidence.faults]
    for platform, visible_texts in evidence.visible_texts.items():
        turns = _group_by_turn(evidence, platform)
        accepted = [message for turn in turns for message in turn]
        outcomes_read = _read_outcomes(platform, visible_texts, turns)
        if outcomes_read is None:
            findings.append(f"{platform}: to {turns} the bot shows {[_shorten(text) for text in visible_texts]}")
        for message in (FIRST, SECOND):
            outcomes[platform, message] = (
                "unreceived" if message not in accepted else outcomes_read[message] if outcomes_read else "wrong"
            )
        findings += _find_duplicates(evidence, platform)
        findings += [f"{platform}: {message!r} is lost" for message in (FIRST, SECOND) if message not in accepted]
        findings += _find_unstored(evidence, platform, outcomes)
    if not crashed:
        findings += [
            f"{platform}: {message!r}: {outcome}"
            for (platform, message), outcome in outcomes.items()
            if outcome != "answered"
        ]
        findings += [
            f"{tool} is not called" for tool in TOOLS if [name for _, name in evidence.tool_calls].count(tool) != 2
        ]
    return CrashVerdict(outcomes, findings)


def _group_by_turn(evidence: Evidence, platform: str) -> list[list[str]]:
    """Return a platform's accepted messages in order, as a list for each turn."""
    accepted: dict[str, list[str]] = {}
    for message in (FIRST, SECOND):
        for turn in _find_turns(evidence, platform, message)[:1]:
            accepted.setdefault(turn, []).append(message)
    return list(accepted.values())


def _read_outcomes(
    platform: str, visible_texts: Sequence[str], turns: Sequence[Sequence[str]]
) -> dict[str, MessageOutcome] | None:
    """Return the outcome of each accepted message.

    Args:
        visible_texts: the bot's texts on the platform, in order.
        turns: see `_group_by_turn`.

    Returns:
        None if the texts show anything else.
    """
    answers = {FIRST: _normalize(LONG[platform]), SECOND: _normalize(SHORT)}
    expected_texts = ["".join(answers[message] for message in turn) for turn in turns]
    pattern = "".join(f"(?:({re.escape(answer)})|([^⚠]*){_APOLOGY})" for answer in expected_texts)
    match = re.fullmatch(pattern, _normalize("".join(visible_texts)))
    if match is None:
        return None
    outcomes: dict[str, MessageOutcome] = {}
    for turn, expected, answer, partial in zip(
        turns, expected_texts, match.groups()[::2], match.groups()[1::2], strict=True
    ):
        if not answer and (partial == expected or not expected.startswith(partial)):
            return None
        outcomes |= dict.fromkeys(turn, "answered" if answer else "apology")
    return outcomes


def _find_duplicates(evidence: Evidence, platform: str) -> Iterator[str]:
    """Yield a finding for each duplicate on a platform.

    Duplicates are messages that are stored or accepted twice, and repeated tool calls.
    """
    for role, text in (("user", FIRST), ("user", SECOND), ("assistant", LONG[platform]), ("assistant", SHORT)):
        if _count_stored(evidence, platform, role, text) > 1:
            yield f"{platform}: {text[:40]!r} is stored twice"
    for message in (FIRST, SECOND):
        if len(_find_turns(evidence, platform, message)) > 1:
            yield f"{platform}: {message!r} is accepted twice"
    for (session, tool), times in Counter(evidence.tool_calls).items():
        if session.startswith(platform) and times > 1:
            yield f"{platform}: {tool} is called {times} times"


def _find_unstored(
    evidence: Evidence, platform: str, outcomes: Mapping[tuple[str, str], MessageOutcome]
) -> Iterator[str]:
    """Yield a finding for each visible answer that is not in the session's history."""
    for message, text in ((FIRST, LONG[platform]), (SECOND, SHORT)):
        if outcomes[platform, message] == "answered" and not _count_stored(evidence, platform, "assistant", text):
            yield f"{platform}: the answer to {message!r} is not stored"


def _find_turns(evidence: Evidence, platform: str, message: str) -> list[str]:
    """Return the turn ids of the inbox rows whose text contains this message."""
    return [turn for session, text, turn in evidence.accepted if session.startswith(platform) and message in text]


def _count_stored(evidence: Evidence, platform: str, role: str, text: str) -> int:
    """Return the number of stored messages with this role that contain the text."""
    return sum(
        session.startswith(platform) and stored_role == role and _normalize(text) in _normalize(stored_text)
        for session, stored_role, stored_text in evidence.stored
    )


def _shorten(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:50]} [...] {text[-50:]}"


def _normalize(text: str) -> str:
    """Return a text without white space, which a split into chunks changes."""
    return re.sub(r"\s+", "", text)


_APOLOGY = r"⚠️[^⚠(]*\(turn`?\w+`?\)"
