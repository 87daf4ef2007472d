"""Fixtures that run the live check against the local platforms."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from bot.settings import Settings
from bot.setup.live import discord as discord_check
from bot.setup.live import slack as slack_check
from bot.setup.live.command import run_live_checks
from bot.setup.probes import CheckResult, CheckVerdict
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator

#: Factor by which the local platforms and the rate limits run faster.
SPEED = 20


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slack_check, discord_check):
        monkeypatch.setattr(module, "PAUSES", (0.01, 0.02))


class LiveRun:
    """Lines of a live check.

    Attributes:
        results: in order; also those before a cancellation.
    """

    def __init__(self) -> None:
        self.results: list[CheckResult] = []
        self.has_result = asyncio.Event()

    def report(self, result: CheckResult) -> None:
        self.results.append(result)
        self.has_result.set()

    def lines(self, *verdicts: CheckVerdict) -> list[str]:
        return [result.line for result in self.results if result.verdict in verdicts]

    @property
    def failures(self) -> list[str]:
        return self.lines(CheckVerdict.FAIL)

    @property
    def notes(self) -> list[str]:
        return self.lines(CheckVerdict.NOTE)


async def run_check(
    platform: SlackSimulator | DiscordSimulator,
    place: str,
    *,
    run: LiveRun | None = None,
    record: Path | None = None,
    seconds: float = 20.0,
    settings: Mapping[str, str | None] | None = None,
) -> LiveRun:
    """Check one platform, and return the lines.

    Args:
        run: collects the lines; None for a new one.
        seconds: the time limit of a step.
        settings: other settings than those of the simulator.
    """
    run = run or LiveRun()
    name = "slack" if isinstance(platform, SlackSimulator) else "discord"
    variables = {f"{name}_bot_token": platform.bot_token, f"{name}_api_url": platform.api_url, **(settings or {})}
    if isinstance(platform, SlackSimulator):
        variables["slack_app_token"] = platform.app_token
    parsed = Settings.model_validate(variables)
    await run_live_checks(parsed, {name: place}, run.report, record, speed=SPEED, seconds=seconds)
    return run


def pair_faults(calls: Iterable[str], kinds: Sequence[str], *, all_kinds_for: Collection[str]) -> list[tuple[str, str]]:
    """Return pairs of a call and a kind of fault: one kind for each call in turn, all for some."""
    return [
        (call, kind)
        for number, call in enumerate(calls)
        for turn, kind in enumerate(kinds)
        if call in all_kinds_for or number % len(kinds) == turn
    ]
