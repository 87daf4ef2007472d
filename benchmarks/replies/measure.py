"""Figures of the replies of one run, from the versions of the bot's messages.

All times are real monotonic seconds.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.replies.load import TokenStream, last_position
from benchmarks.replies.platforms import MeasuredPrompt, Version


@dataclass(frozen=True, slots=True)
class MeasuredReply:
    """Age and final time of one reply, in real seconds.

    Attributes:
        age: the mean age of the shown text while the model streamed.
        ended: the monotonic time of the model's last word.
        final: the monotonic time from which exactly the complete text is shown; None if it is not.
        channel: the number of the reply's channel in the load.
    """

    age: float
    ended: float
    final: float | None
    channel: int

    @property
    def wait(self) -> float | None:
        """Seconds from the model's last word to the final text; None without a final text."""
        return None if self.final is None else self.final - self.ended


def measure_replies(
    prompts: Sequence[MeasuredPrompt], streams: Sequence[TokenStream], versions: Iterable[Version]
) -> list[MeasuredReply]:
    """Return the figures of the reply to each prompt, in the order of the prompts.

    A bot message belongs to the reply of its words. Without words, it belongs to the prompt or reply that it answers,
    so an extra placeholder is found, too.

    Args:
        streams: the words of the model for each prompt, in the order of the prompts.
        versions: all texts of the bot's messages over time, oldest first.
    """
    versions = list(versions)
    numbers = {prompt.message: prompt.number for prompt in prompts}
    owners: dict[str, int] = {}
    for version in versions:
        if version.text is not None and (position := last_position(version.text)) is not None:
            owners.setdefault(version.message, position[0])
    for version in versions:
        owner = numbers.get(version.reply_to or "", owners.get(version.reply_to or ""))
        if owner is not None:
            owners.setdefault(version.message, owner)
    versions_by_reply: defaultdict[int, list[Version]] = defaultdict(list)
    for version in versions:
        if version.message in owners:
            versions_by_reply[owners[version.message]].append(version)
    return [
        MeasuredReply(
            mean_age(stream.token_times, newest_positions(versions_by_reply[prompt.number])),
            stream.token_times[-1],
            final_time(stream.text, stream.token_times[-1], versions_by_reply[prompt.number]),
            prompt.channel,
        )
        for prompt, stream in zip(prompts, streams, strict=True)
    ]


def newest_positions(versions: Iterable[Version]) -> list[tuple[float, int]]:
    """Return (time, position of the newest visible word) after each version.

    The position is -1 while no word is visible.

    Args:
        versions: the versions of one reply's messages, oldest first.
    """
    current: dict[str, int] = {}
    newest = []
    for version in versions:
        position = None if version.text is None else last_position(version.text)
        current[version.message] = -1 if position is None else position[1]
        newest.append((version.at, max(current.values())))
    return newest


def mean_age(token_times: Sequence[float], newest: Iterable[tuple[float, int]]) -> float:
    """Return the newest visible word's mean age in seconds, while the model streams.

    Before the first visible word, the age is the time since the first emitted one.

    Args:
        token_times: the time of each emitted word.
        newest: see `newest_positions`.
    """
    start, ended = token_times[0], token_times[-1]
    age, since, word = 0.0, start, 0
    for at, position in [*newest, (ended, 0)]:
        until = min(max(at, start), ended)
        age += (until - since) * ((since + until) / 2 - token_times[word])
        since, word = until, max(position, 0)
    return age / (ended - start)


def final_time(text: str, ended: float, versions: Iterable[Version]) -> float | None:
    """Return the time after `ended` from which a reply's messages show exactly `text`.

    Spaces and line breaks do not count.

    Args:
        ended: the time of the model's last word.
        versions: the versions of the reply's messages, oldest first.

    Returns:
        Monotonic seconds, as in the versions; None if the last versions show another text, or none is from `ended` on.
    """
    stripped = _strip_whitespace(text)
    current: dict[str, Version] = {}
    since: float | None = None
    is_final = False
    for version in versions:
        if version.text is None:
            current.pop(version.message, None)
        else:
            current[version.message] = version
        if version.at < ended:
            continue
        visible_text = "".join(
            message.text or "" for message in sorted(current.values(), key=lambda message: message.order)
        )
        was_final, is_final = is_final, _strip_whitespace(visible_text) == stripped
        if is_final and not was_final:
            since = version.at
    return since if is_final else None


def _strip_whitespace(text: str) -> str:
    return "".join(text.split())


def percentile(values: Iterable[float], fraction: float) -> float:
    """Return a percentile of values.

    It is the smallest value that at least `fraction` (0 to 1) of the values does not exceed.

    Raises:
        IndexError: there are no values.
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-fraction * len(ordered) // 1) - 1)]


def drain(replies: Sequence[MeasuredReply], rate: float, window: float, until: float) -> float | None:
    """Return the used fraction of a limit for final edits while replies waited for it.

    Args:
        rate: the limit in final edits a second.
        window: the seconds of the limit's window; shorter queues do not count, because a burst ends them.
        until: the end of the queue of a reply without a final text.

    Returns:
        The final edits in these times, divided by those that the limit allows; None if no queue was long enough.
    """
    finals, seconds = 0, 0.0
    for start, ended in _backlogs(replies, until):
        if ended - start >= window:
            finals += sum(1 for reply in replies if reply.final is not None and start < reply.final <= ended)
            seconds += ended - start
    return finals / (seconds * rate) if seconds else None


def _backlogs(replies: Sequence[MeasuredReply], until: float) -> list[tuple[float, float]]:
    """Return start and end of each time in which a reply waited for its final edit.

    Overlapping times are merged; the earliest is first.

    Args:
        until: the end for replies without a final text.
    """
    backlogs: list[tuple[float, float]] = []
    for start, ended in sorted((reply.ended, until if reply.final is None else reply.final) for reply in replies):
        if backlogs and start <= backlogs[-1][1]:
            backlogs[-1] = backlogs[-1][0], max(ended, backlogs[-1][1])
        else:
            backlogs.append((start, ended))
    return backlogs


def mean_drain(groups: Mapping[int, Sequence[MeasuredReply]], rate: float, window: float, until: float) -> float | None:
    """Return the mean of `drain` over groups of replies; None if it is None for all.

    Args:
        groups: the replies that share a limit; each group has its own limit.
        rate, window, until: see `drain`.
    """
    drains = [value for replies in groups.values() if (value := drain(replies, rate, window, until)) is not None]
    return statistics.mean(drains) if drains else None
