"""Verdict about the evidence of a scenario."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.chaos.evidence import Evidence
from tests.chaos.scenario import FIRST, LONG, SECOND, SHORT, TOOLS

#: Outcome of a message. `unheard`: accepted neither by event nor by backfill.
MessageOutcome = Literal["answered", "apology", "unheard", "wrong"]


@dataclass(frozen=True)
class CrashVerdict:
    """Outcome of each message by platform, and the faults."""

    outcomes: Mapping[tuple[str, str], MessageOutcome]
    findings: Sequence[str]


def is_complete(platform: str, shown: Sequence[str]) -> bool:
    """Return whether both messages have a visible outcome, separately or together."""
    return any(_read_outcomes(platform, shown, turns) is not None for turns in ([[FIRST], [SECOND]], [[FIRST, SECOND]]))


def judge(evidence: Evidence, *, crashed: bool = True) -> CrashVerdict:
    """Judge the evidence of a scenario.

    Args:
        crashed: whether a process crashed. Without a crash no apology is allowed.
    """
    ends: dict[tuple[str, str], MessageOutcome] = {}
    findings: list[str] = [*evidence.unfinished, *evidence.violations, *evidence.exit_codes]
    for platform, shown in evidence.shown.items():
        turns = _turns(evidence, platform)
        heard = [said for turn in turns for said in turn]
        read = _read_outcomes(platform, shown, turns)
        if read is None:
            findings.append(f"{platform}: to {turns} it shows {[_shorten(text) for text in shown]}")
        for said in (FIRST, SECOND):
            ends[platform, said] = "unheard" if said not in heard else read[said] if read else "wrong"
        findings += _find_duplicates(evidence, platform)
        findings += [f"{platform}: {said!r} is lost" for said in (FIRST, SECOND) if said not in heard]
        findings += _find_unstored(evidence, platform, ends)
    if not crashed:
        findings += [f"{platform}: {said!r}: {end}" for (platform, said), end in ends.items() if end != "answered"]
        findings += [
            f"{tool} is not used" for tool in TOOLS if [used for _, used in evidence.tool_calls].count(tool) != 2
        ]
    return CrashVerdict(ends, findings)


def _turns(evidence: Evidence, platform: str) -> list[list[str]]:
    """Return the accepted messages in order, grouped by turn."""
    heard: dict[str, list[str]] = {}
    for said in (FIRST, SECOND):
        for turn in _accepted(evidence, platform, said)[:1]:
            heard.setdefault(turn, []).append(said)
    return list(heard.values())


def _read_outcomes(
    platform: str, shown: Sequence[str], turns: Sequence[Sequence[str]]
) -> dict[str, MessageOutcome] | None:
    """Return the outcomes that the visible messages show exactly; None if there are none."""
    answers = {FIRST: _normalize(LONG[platform]), SECOND: _normalize(SHORT)}
    wanted = ["".join(answers[said] for said in turn) for turn in turns]
    pattern = "".join(f"(?:({re.escape(answer)})|([^⚠]*){_APOLOGY})" for answer in wanted)
    match = re.fullmatch(pattern, _normalize("".join(shown)))
    if match is None:
        return None
    ends: dict[str, MessageOutcome] = {}
    for turn, wants, answer, begun in zip(turns, wanted, match.groups()[::2], match.groups()[1::2], strict=True):
        if not answer and (begun == wants or not wants.startswith(begun)):
            return None
        ends |= dict.fromkeys(turn, "answered" if answer else "apology")
    return ends


def _find_duplicates(evidence: Evidence, platform: str) -> Iterator[str]:
    """Return the duplicates."""
    for role, text in (("user", FIRST), ("user", SECOND), ("assistant", LONG[platform]), ("assistant", SHORT)):
        if _stored(evidence, platform, role, text) > 1:
            yield f"{platform}: {text[:40]!r} is stored twice"
    for said in (FIRST, SECOND):
        if len(_accepted(evidence, platform, said)) > 1:
            yield f"{platform}: {said!r} is accepted twice"
    for (session, tool), times in Counter(evidence.tool_calls).items():
        if session.startswith(platform) and times > 1:
            yield f"{platform}: {tool} is used {times} times"


def _find_unstored(evidence: Evidence, platform: str, ends: Mapping[tuple[str, str], MessageOutcome]) -> Iterator[str]:
    """Return the answered messages that are not stored."""
    for said, text in ((FIRST, LONG[platform]), (SECOND, SHORT)):
        if ends[platform, said] == "answered" and not _stored(evidence, platform, "assistant", text):
            yield f"{platform}: the answer to {said!r} is not stored"


def _accepted(evidence: Evidence, platform: str, said: str) -> list[str]:
    """Return the turns of the inbox rows with this text."""
    return [turn for session, text, turn in evidence.accepted if session.startswith(platform) and said in text]


def _stored(evidence: Evidence, platform: str, role: str, text: str) -> int:
    """Return the number of messages of the role that contain the text."""
    return sum(
        session.startswith(platform) and of == role and _normalize(text) in _normalize(words)
        for session, of, words in evidence.stored
    )


def _shorten(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:50]} [...] {text[-50:]}"


def _normalize(text: str) -> str:
    """Return a text without the white space and marks that a split adds or removes."""
    return re.sub(r"\s+", "", text)


_APOLOGY = r"⚠️[^⚠(]*\(turn`?\w+`?\)"
