"""Command `parley check --live`: one private place of each platform, and the output."""

import asyncio
import re
import secrets
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from bot import output as tables
from bot.settings import Settings, load_settings
from bot.setup.live import discord, slack
from bot.setup.live.recorder import ExchangeRecorder, open_recording
from bot.setup.live.steps import STEP_SECONDS, FindRemedy, Report, StepRunner
from bot.setup.probes import CheckResult, CheckVerdict
from core.errors import SettingsError

_PLACE = re.compile(r"slack:[CGDUW][A-Z0-9]{5,20}|discord:\d{15,20}")

_HINTS = {
    "slack": "--in slack:ID: a private channel with the bot (its details show the id, C...) or a user, for the DM with "
    "them (their profile, More, Copy member ID, U...)",
    "discord": "--in discord:ID: a channel that @everyone cannot view, or a user, for the DM with them (switch on "
    "Developer Mode in Discord's settings, under Advanced; then right-click the channel or user, Copy ID)",
}


#: By platform: the function that makes the calls, and the remedies for refusals.
_CHECKS: Mapping[str, tuple[Callable[..., Awaitable[None]], FindRemedy]] = {
    "slack": (slack.check_slack, slack.find_remedy),
    "discord": (discord.check_discord, discord.find_remedy),
}


def parse_places(places: Collection[str]) -> dict[str, str]:
    """Return the ids in the options `--in PLATFORM:ID` by platform.

    Raises:
        SettingsError: an option is not of this form, no place is named, or two of one platform.
    """
    found: dict[str, str] = {}
    for place in places:
        platform, _, key = place.partition(":")
        if _PLACE.fullmatch(place) is None:
            hints = [_HINTS[platform]] if platform in _HINTS else _HINTS.values()
            raise SettingsError(f"--in {place}: it names no place. Write", *hints)
        if platform in found:
            raise SettingsError(f"--in {place}: the check uses one place on a platform")
        found[platform] = key
    if not found:
        raise SettingsError(
            "--live posts in one private place of each platform and deletes it. Name it by", *_HINTS.values()
        )
    return found


async def run_live_checks(
    settings: Settings,
    places: Mapping[str, str],
    report: Report,
    record: Path | None = None,
    *,
    speed: float = 1.0,
    seconds: float = STEP_SECONDS,
) -> None:
    """Check each platform that has a place, and report the results; delete everything that the check wrote.

    No call is made if the file `record`, for the shapes of the exchanges, cannot be created.

    Args:
        speed: how many times faster than the platforms' the rate limits run; more than 1 only for a simulator.
    """
    marker = f"Parley check {secrets.token_hex(4)}"
    with open_recording(record) as recorders:
        for name, (check, find_remedy) in _CHECKS.items():
            login = getattr(settings, name)
            place = places.get(name)
            title = name.title()
            if login is None and place is not None:
                line = f"{title}: no token is set, so that --in {name}:{place} cannot be used"
                report(CheckResult(CheckVerdict.FAIL, line))
            elif login is not None and place is None:
                report(CheckResult(CheckVerdict.NOTE, f"{title}: not checked. Add {_HINTS[name]}"))
            elif login is not None:
                recorders[name] = ExchangeRecorder(login.api_url)
                runner = StepRunner(title, recorders[name], report, find_remedy, seconds=seconds)
                await check(login, place, marker, runner, speed=speed)


def print_live_checks(places: Collection[str], record: Path | None, *, as_json: bool) -> int:
    """Run the live checks, print a line for each result, and return the exit code.

    Ctrl-C and SIGTERM end the check once everything that it wrote is deleted; the exit code is then 130.
    """
    named = parse_places(places)
    found = list[CheckResult]()

    def report(result: CheckResult) -> None:
        found.append(result)
        if not as_json:
            tables.print_verdict(result.verdict.value, result.line)

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio.run makes a task"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await run_live_checks(load_settings(), named, report, record)

    is_interrupted = False
    try:
        asyncio.run(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        is_interrupted = True
    if as_json:
        tables.print_json([result.to_json() for result in found])
    return 130 if is_interrupted else int(any(result.verdict is CheckVerdict.FAIL for result in found))
