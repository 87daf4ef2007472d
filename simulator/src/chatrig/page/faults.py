"""Switches on the page that inject faults into the platforms' APIs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from chatrig.discord import DiscordSimulator
from chatrig.discord.api.faults import DiscordFaults
from chatrig.slack import SlackSimulator
from chatrig.slack.api.faults import SlackFaults

RETRY_AFTER_SECONDS, SLOW_SECONDS = 4, 1.0

_SLACK_EDITS = ("chat.update", "chat.appendStream")
_SLACK_POSTS = ("chat.postMessage", "chat.startStream")
_DISCORD_EDIT = "PATCH /channels/{channel}/messages/{message}"
_DISCORD_POST = "POST /channels/{channel}/messages"

#: Faults that end with their first call, by the name of their switch.
_ONE_TIME_FAULTS: Mapping[str, Literal["rate_limit", "lose_response"]] = {
    "limit": "rate_limit",
    "lose": "lose_response",
}


@dataclass(frozen=True, slots=True)
class FaultSwitch:
    """Switch on the page for one fault of one platform.

    Attributes:
        name: unique on its platform; the same fault has the same name on both.
        platform: `slack` or `discord`.
        label: the text of the switch.
        description: the effect, for the user.
        activate: injects the fault.
    """

    name: str
    platform: str
    label: str
    description: str
    activate: Callable[[], Awaitable[None]]


class FaultSwitches:
    """Switches of the page that inject faults into both platforms and remove them."""

    def __init__(self, slack: SlackSimulator, discord: DiscordSimulator) -> None:
        self._slack = slack
        self._discord = discord
        retry = f"The next edit gets a 429 with Retry-After: {RETRY_AFTER_SECONDS}"
        lost = "The next post takes effect, but its response never arrives"
        drop = "Closes every connection without a close frame; the bot reconnects"
        slow = f"Delays each request and each response by {SLOW_SECONDS:g} s"
        self._switches = [
            FaultSwitch("limit", "slack", "429", retry, self._limit_slack),
            FaultSwitch("lose", "slack", "Lose a response", lost, self._lose_slack),
            FaultSwitch("drop", "slack", "Drop the connection", drop, slack.drop_sockets),
            FaultSwitch("slow", "slack", "Slow", slow, self._slow_slack),
            FaultSwitch("limit", "discord", "429", retry, self._limit_discord),
            FaultSwitch("lose", "discord", "Lose a response", lost, self._lose_discord),
            FaultSwitch("drop", "discord", "Drop the connection", drop, discord.drop_sockets),
            FaultSwitch("slow", "discord", "Slow", slow, self._slow_discord),
        ]

    async def toggle(self, platform: str, name: str) -> None:
        """Inject the fault of a switch; if it is active (see `create_view`), remove it.

        Removing a one-time fault cancels all pending faults of its kind on the platform. The switch `drop` aborts the
        connections each time.

        Args:
            platform: `slack` or `discord`.
            name: name of the switch.

        Raises:
            ValueError: the switch does not exist.
        """
        switch = next((switch for switch in self._switches if (switch.platform, switch.name) == (platform, name)), None)
        if switch is None:
            raise ValueError(f"there is no switch {name} for {platform}")
        if not self._is_active(switch):
            await switch.activate()
        elif kind := _ONE_TIME_FAULTS.get(name):
            self._get_faults(switch).cancel(kind)
        else:
            self._get_faults(switch).set_latency(0)

    def create_view(self) -> list[Mapping[str, Any]]:
        """Return the switches as JSON for the browser, in the order of display.

        Returns:
            For each switch: `name`, `platform`, `label`, `description`, and `active`: whether a one-time fault waits
            for its call, or calls are slow. A dropped connection is never active.
        """
        return [
            {
                "name": s.name,
                "platform": s.platform,
                "label": s.label,
                "description": s.description,
                "active": self._is_active(s),
            }
            for s in self._switches
        ]

    def _is_active(self, switch: FaultSwitch) -> bool:
        faults, kind = self._get_faults(switch), _ONE_TIME_FAULTS.get(switch.name)
        return faults.has_pending(kind) if kind else switch.name == "slow" and faults.latency > 0

    def _get_faults(self, switch: FaultSwitch) -> SlackFaults | DiscordFaults:
        return self._slack.faults if switch.platform == "slack" else self._discord.faults

    async def _limit_slack(self) -> None:
        self._slack.faults.rate_limit(_SLACK_EDITS, RETRY_AFTER_SECONDS)

    async def _lose_slack(self) -> None:
        self._slack.faults.lose_response(_SLACK_POSTS)

    async def _slow_slack(self) -> None:
        self._slack.faults.set_latency(SLOW_SECONDS)

    async def _limit_discord(self) -> None:
        self._discord.faults.rate_limit(_DISCORD_EDIT, RETRY_AFTER_SECONDS)

    async def _lose_discord(self) -> None:
        self._discord.faults.lose_response(_DISCORD_POST)

    async def _slow_discord(self) -> None:
        self._discord.faults.set_latency(SLOW_SECONDS)
