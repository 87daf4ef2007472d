"""What is to be said about the evidence."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from channels import words
from tests.chaos.evidence import Evidence
from tests.chaos.scenario import FIRST, LONG, SECOND, SHORT, TOOLS

#: What became of a message. `unheard`: it was never accepted, so that nobody has promised an answer.
End = Literal["answered", "apology", "unheard", "wrong"]

#: Where what is not acknowledged comes again: there, nothing may be unheard.
REDELIVERS = {"slack"}


@dataclass(frozen=True)
class Verdict:
    """By platform and message, its end; and what is wrong."""

    ends: Mapping[tuple[str, str], End]
    findings: Sequence[str]


def is_whole(platform: str, shown: Sequence[str]) -> bool:
    """Whether both messages have had their ends, as far as one can see."""
    return _read(platform, shown, [FIRST, SECOND]) is not None


def judge(evidence: Evidence, *, crashed: bool = True) -> Verdict:
    """Judge what a scenario has left.

    Args:
        crashed: whether a process has died. If none has, all must be as if nothing could ever go wrong.
    """
    ends: dict[tuple[str, str], End] = {}
    findings: list[str] = [*evidence.unended, *evidence.breaches, *evidence.endings]
    for platform, shown in evidence.shown.items():
        heard = [said for said in (FIRST, SECOND) if _times(evidence.accepted, platform, said)]
        read = _read(platform, shown, heard)
        if read is None:
            findings.append(f"{platform}: to {heard} it shows {shown}")
        for said in (FIRST, SECOND):
            ends[platform, said] = "unheard" if said not in heard else read[said] if read else "wrong"
        findings += _doubles(evidence, platform)
        if platform in REDELIVERS or not crashed:
            findings += [f"{platform}: {said!r} is lost" for said in (FIRST, SECOND) if said not in heard]
        findings += _forgotten(evidence, platform, ends)
    if not crashed:
        findings += [f"{platform}: {said!r}: {end}" for (platform, said), end in ends.items() if end != "answered"]
        findings += [f"{tool} is not used" for tool in TOOLS if [used for _, used in evidence.uses].count(tool) != 2]
    return Verdict(ends, findings)


def _read(platform: str, shown: Sequence[str], heard: Sequence[str]) -> dict[str, End] | None:
    """The ends of what was heard, in order, if that is what is shown: nothing twice, cut, left over or missing."""
    answers = {FIRST: _squeezed(LONG[platform]), SECOND: _squeezed(SHORT)}
    pattern = "".join(f"(?:({re.escape(answers[said])})|([^⚠]*){_APOLOGY})" for said in heard)
    match = re.fullmatch(pattern, _squeezed("".join(shown)))
    if match is None:
        return None
    ends: dict[str, End] = {}
    for said, (answer, begun) in zip(heard, zip(*[iter(match.groups())] * 2, strict=True), strict=True):
        if not answer and (begun == answers[said] or not answers[said].startswith(begun)):
            return None
        ends[said] = "answered" if answer else "apology"
    return ends


def _doubles(evidence: Evidence, platform: str) -> Iterator[str]:
    """What is there more than once."""
    kept = Counter((role, _squeezed(text)) for session, role, text in evidence.stored if session.startswith(platform))
    for text in (LONG[platform], SHORT):
        if kept["assistant", _squeezed(text)] > 1:
            yield f"{platform}: an answer is stored twice"
    for said in (FIRST, SECOND):
        if sum(n for (role, text), n in kept.items() if role == "user" and _squeezed(said) in text) > 1:
            yield f"{platform}: {said!r} is stored twice"
        if _times(evidence.accepted, platform, said) > 1:
            yield f"{platform}: {said!r} is accepted twice"
    for (session, tool), times in Counter(evidence.uses).items():
        if session.startswith(platform) and times > 1:
            yield f"{platform}: {tool} is used {times} times"


def _forgotten(evidence: Evidence, platform: str, ends: Mapping[tuple[str, str], End]) -> Iterator[str]:
    """What was answered and is not stored."""
    kept = {_squeezed(text) for session, role, text in evidence.stored if session.startswith(platform)}
    for said, text in ((FIRST, LONG[platform]), (SECOND, SHORT)):
        if ends[platform, said] == "answered" and _squeezed(text) not in kept:
            yield f"{platform}: the answer to {said!r} is not stored"


def _times(accepted: Sequence[tuple[str, str]], platform: str, said: str) -> int:
    return sum(session.startswith(platform) and said in text for session, text in accepted)


def _squeezed(text: str) -> str:
    """Without what a cut may add or take."""
    return re.sub(r"\s+", "", text)


_APOLOGY = f"(?:{re.escape(_squeezed(words.INTERRUPTED))}|⚠️[^⚠(]*\\(turn`?\\w+`?\\))"
