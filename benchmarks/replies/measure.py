"""Figures of one run: the shown texts, their times and ages, in platform seconds."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.replies.load import Speech, last_place
from benchmarks.replies.platforms import Question, Version


@dataclass(frozen=True, slots=True)
class Shown:
    """Measured reply, in real seconds.

    Attributes:
        age: the mean age of the shown text while the model streamed.
        ended: the time of the model's last word.
        final: the time from which exactly the complete text is shown; None if it is not.
        channel: the channel of the reply.
    """

    age: float
    ended: float
    final: float | None
    channel: int

    @property
    def wait(self) -> float | None:
        """Seconds from the model's last word to the final text."""
        return None if self.final is None else self.final - self.ended


def watch(questions: Sequence[Question], speeches: Sequence[Speech], versions: Iterable[Version]) -> list[Shown]:
    """Measure each reply in the recorded versions.

    A message belongs to the reply of its words. Without words, it belongs to the question or reply that it answers, so
    an extra placeholder is found, too.
    """
    versions = list(versions)
    asked = {question.message: question.number for question in questions}
    owners: dict[str, int] = {}
    for version in versions:
        if version.text is not None and (place := last_place(version.text)) is not None:
            owners.setdefault(version.message, place[0])
    for version in versions:
        owner = asked.get(version.answers or "", owners.get(version.answers or ""))
        if owner is not None:
            owners.setdefault(version.message, owner)
    seen: defaultdict[int, list[Version]] = defaultdict(list)
    for version in versions:
        if version.message in owners:
            seen[owners[version.message]].append(version)
    return [
        Shown(
            age_of(speech.spoken, newest_of(seen[question.number])),
            speech.spoken[-1],
            final_of(speech.text, speech.spoken[-1], seen[question.number]),
            question.channel,
        )
        for question, speech in zip(questions, speeches, strict=True)
    ]


def newest_of(versions: Iterable[Version]) -> list[tuple[float, int]]:
    """Return the times and positions of the newest shown word; -1 for none."""
    standing: dict[str, int] = {}
    newest = []
    for version in versions:
        place = None if version.text is None else last_place(version.text)
        standing[version.message] = -1 if place is None else place[1]
        newest.append((version.at, max(standing.values())))
    return newest


def age_of(spoken: Sequence[float], newest: Iterable[tuple[float, int]]) -> float:
    """Return the mean age of the newest shown word from the first word to the last.

    Before the first shown word, it is the time since the first spoken one.
    """
    begun, ended = spoken[0], spoken[-1]
    age, since, word = 0.0, begun, 0
    for at, position in [*newest, (ended, 0)]:
        until = min(max(at, begun), ended)
        age += (until - since) * ((since + until) / 2 - spoken[word])
        since, word = until, max(position, 0)
    return age / (ended - begun)


def final_of(text: str, ended: float, versions: Iterable[Version]) -> float | None:
    """Return the time after `ended` from which the messages show exactly `text`, without spaces."""
    whole = _letters(text)
    standing: dict[str, Version] = {}
    since: float | None = None
    is_final = False
    for version in versions:
        if version.text is None:
            standing.pop(version.message, None)
        else:
            standing[version.message] = version
        if version.at < ended:
            continue
        said = "".join(one.text or "" for one in sorted(standing.values(), key=lambda one: one.order))
        was_final, is_final = is_final, _letters(said) == whole
        if is_final and not was_final:
            since = version.at
    return since if is_final else None


def _letters(text: str) -> str:
    return "".join(text.split())


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def drain(shown: Sequence[Shown], rate: float, window: float, until: float) -> float | None:
    """Return the used share of a limit of `rate` final edits a second while some waited.

    Times without a waiting final edit, and those shorter than the limit's window with its bursts, do not count.

    Returns:
        None if there was no such time.
    """
    finals, seconds = 0, 0.0
    for begun, ended in _backlogs(shown, until):
        if ended - begun >= window:
            finals += sum(1 for one in shown if one.final is not None and begun < one.final <= ended)
            seconds += ended - begun
    return finals / (seconds * rate) if seconds else None


def _backlogs(shown: Sequence[Shown], until: float) -> list[tuple[float, float]]:
    """Return the times with at least one waiting final edit."""
    backlogs: list[tuple[float, float]] = []
    for begun, ended in sorted((one.ended, until if one.final is None else one.final) for one in shown):
        if backlogs and begun <= backlogs[-1][1]:
            backlogs[-1] = backlogs[-1][0], max(ended, backlogs[-1][1])
        else:
            backlogs.append((begun, ended))
    return backlogs


def mean_drain(groups: Mapping[int, Sequence[Shown]], rate: float, window: float, until: float) -> float | None:
    """Return the mean `drain` of groups without a shared limit."""
    drains = [one for shown in groups.values() if (one := drain(shown, rate, window, until)) is not None]
    return statistics.mean(drains) if drains else None
