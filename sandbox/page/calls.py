"""Each call that the bot made, and what is left of its rate limits."""

import json
import time
from typing import Any

from sandbox.discord import DiscordSandbox
from sandbox.discord.state.activity_log import DiscordCallRecord as DiscordCall
from sandbox.rate_limit import RateLimitUsage
from sandbox.slack import SlackCallRecord as SlackCall
from sandbox.slack import SlackSandbox

Json = dict[str, Any]

#: Calls that are on the page, the newest ones, and the letters of what each was made with and got.
SHOWN, LETTERS = 80, 4_000

#: Of the arguments of a call, what tells most in one line.
_TELLING = ("text", "content", "markdown_text", "status", "title", "emoji", "name")


class ApiCallList:
    def __init__(self, slack: SlackSandbox, discord: DiscordSandbox) -> None:
        self._slack = slack
        self._discord = discord
        self._clock = time.time() - time.monotonic()

    def view(self) -> dict[str, Any]:
        """Return the newest calls by key, their order, the number of all calls, and the budgets."""
        slack = [(c.received_at, f"call/S{i}", self._of_slack(c)) for i, c in _newest(self._slack.calls)]
        discord = [(c.received_at, f"call/D{i}", self._of_discord(c)) for i, c in _newest(self._discord.calls)]
        shown = sorted([*slack, *discord], key=lambda call: call[0], reverse=True)[:SHOWN]
        slacks, discords = self._slack.rate_limit_usage(), self._discord.rate_limit_usage()
        budgets = {"Slack": slacks, "Discord": discords}
        return {
            **{key: call for _, key, call in shown},
            "calls": [key for _, key, _ in shown],
            "calls_total": len(self._slack.calls) + len(self._discord.calls),
            "budgets": [self._budget(name, budget) for name, found in budgets.items() for budget in found],
        }

    def whole(self, key: str) -> Json:
        """All of a call.

        Raises:
            ValueError: there is none.
        """
        calls: list[Any] = self._slack.calls if key[:1] == "S" else self._discord.calls
        if not key[1:].isdecimal() or int(key[1:]) >= len(calls):
            raise ValueError("there is no such call")
        call = calls[int(key[1:])]
        sent = call.arguments if key[0] == "S" else call.body
        return {"sent": _cut(sent), "got": _cut(call.response)}

    def _budget(self, platform: str, budget: RateLimitUsage) -> Json:
        names = {channel.id: f"#{channel.name}" for channel in self._slack.channels.values()}
        names |= {channel.id: f"#{channel.name}" for channel in self._discord.channels.values()}
        method, _, channel = budget.name.replace("/channels/{channel}", "…").rpartition(" ")
        is_named = channel in names or channel.isdecimal() or channel[:1] in "CDG"
        name = f"{method} in {names.get(channel, 'a DM')}" if method and is_named else budget.name or "all calls"
        return {
            "on": platform,
            "name": name,
            "left": budget.remaining,
            "of": budget.limit,
            "seconds": budget.seconds,
        }

    def _of_slack(self, call: SlackCall) -> Json:
        return self._row("Slack", call, call.method, call.arguments, call.error or "")

    def _of_discord(self, call: DiscordCall) -> Json:
        error = str(call.code) if call.code else ""
        return self._row("Discord", call, call.route, call.body, error)

    def _row(self, platform: str, call: SlackCall | DiscordCall, name: str, sent: Any, error: str) -> Json:
        about = sent if isinstance(sent, dict) else {}
        words = next((str(about[key]) for key in _TELLING if about.get(key)), "")
        return {
            "on": platform,
            "name": name,
            "words": " ".join(words.split())[:90],
            "time": time.strftime("%H:%M:%S", time.localtime(self._clock + call.received_at)),
            "status": call.status,
            "error": error,
            "limited": call.rate_limited,
            "lost": call.status == 0 and call.response is not None,
            "budget": call.remaining,
        }


def _newest(calls: list[Any]) -> list[tuple[int, Any]]:
    first = max(0, len(calls) - SHOWN)
    return list(enumerate(calls[first:], first))


def _cut(about: Any) -> str:
    text = json.dumps(about, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= LETTERS else f"{text[:LETTERS]}\n… {len(text) - LETTERS} more characters"
