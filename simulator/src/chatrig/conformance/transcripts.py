"""Transcript of a run: the visible messages over time, and the end of the bot's output."""

from collections.abc import Iterable, Sequence

from chatrig.conformance.platforms import CasePlatform
from chatrig.conformance.verdicts import Version, list_visible

_MAX_CHARACTERS = 200
_OUTPUT_LINES = 40


def write_transcript(
    title: str, platform: CasePlatform, *, log: Iterable[tuple[float, str]], output: str, started_at: float
) -> str:
    """Return the lines of a transcript: messages, their changes and the life of the bot, by time.

    Texts are shortened, except in the last part: all that is visible in the end.

    Args:
        title: the first line: the case and its verdict.
        log: what happened to the bot, with monotonic times.
        output: what the bot printed, of which the end is included.
        started_at: the monotonic time from which the transcript counts.
    """
    events = [(at, f"* {text}") for at, text in log]
    for at, user, channel, text in platform.posts:
        events.append((at, f"{user} in {platform.names[channel]}: {_shorten(text)}"))
    seen: set[str] = set()
    for version in platform.versions:
        events.append((version.at, f"bot {_describe(version, platform, is_new=version.message not in seen)}"))
        seen.add(version.message)
    lines = [f"{at - started_at:7.1f} s  {text}" for at, text in sorted(events, key=lambda event: event[0])]
    visible = list_visible(platform.versions)
    return "\n".join(
        [
            title,
            "",
            *lines,
            "",
            f"Visible in the end, {len(visible)} messages of the bot:",
            *(f"--- {_locate(version, platform)}\n{version.text}" for version in visible),
            "",
            "The end of the bot's output:",
            *_get_last_lines(output),
            "",
        ]
    )


def _describe(version: Version, platform: CasePlatform, *, is_new: bool) -> str:
    place = _locate(version, platform)
    if version.text is None:
        return f"deletes {version.message} in {place}"
    loading = " (more to come)" if version.is_loading else ""
    files = " (with files)" if version.file_text else ""
    return f"{'posts' if is_new else 'changes'} {version.message} in {place}{loading}{files}: {_shorten(version.text)}"


def _locate(version: Version, platform: CasePlatform) -> str:
    channel = platform.names.get(version.channel, version.channel)
    return channel if version.root is None else f"{channel}, to {version.root}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:120]} [... {len(text)} characters ...] {line[-60:]}"


def _get_last_lines(text: str) -> Sequence[str]:
    return text.strip().splitlines()[-_OUTPUT_LINES:]
