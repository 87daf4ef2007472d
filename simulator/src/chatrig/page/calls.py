"""API calls of the bot and the use of its rate limits, for the page's inspector."""

import json
import time
from typing import Any

from chatrig.discord import DiscordSimulator
from chatrig.discord.state.activity_log import DiscordCallRecord as DiscordCall
from chatrig.observable import RateLimitUsage
from chatrig.slack import SlackCallRecord as SlackCall
from chatrig.slack import SlackSimulator

Json = dict[str, Any]

#: Limits of the page: number of calls, and characters of a request or response.
MAX_CALLS, MAX_JSON_LENGTH = 80, 4_000

#: Arguments that summarize a call, the best one first.
_SUMMARY_KEYS = ("text", "content", "markdown_text", "status", "title", "emoji", "name")


class ApiCallList:
    """API calls that both simulators have received, as JSON for the page's inspector."""

    def __init__(self, slack: SlackSimulator, discord: DiscordSimulator) -> None:
        self._slack = slack
        self._discord = discord
        self._monotonic_offset = time.time() - time.monotonic()

    def create_view(self) -> dict[str, Any]:
        """Return the newest API calls and the use of rate limits as JSON values by key.

        Returns:
            `calls`: the keys of the newest `MAX_CALLS` calls, newest first. `call_count`: the number of all calls.
            `rate_limits`: the rate-limit windows with calls: `platform`, `name`, `remaining` (calls), `limit` (calls
            per window) and `seconds` (length of the window).

            `call/S7` and so on: one of the newest calls (S for Slack, D for Discord, then its number). It has:

            - `platform`: `Slack` or `Discord`.
            - `name`: the method (Slack) or the route (Discord).
            - `summary`: an extract of the request.
            - `time`: the local time, `HH:MM:SS`.
            - `status`: the HTTP status; 0 before the response and for a lost one.
            - `error`: the error code; "" for none.
            - `rate_limited`: whether a rate limit refused the call.
            - `response_lost`: whether the response was lost.
            - `rate_limit`: remaining calls and limit; None without a limit.
        """
        slack = [(c.received_at, f"call/S{i}", self._create_slack_row(c)) for i, c in _newest_calls(self._slack.calls)]
        discord = [
            (c.received_at, f"call/D{i}", self._create_discord_row(c)) for i, c in _newest_calls(self._discord.calls)
        ]
        newest_calls = sorted([*slack, *discord], key=lambda call: call[0], reverse=True)[:MAX_CALLS]
        slack_usage, discord_usage = self._slack.rate_limit_usage(), self._discord.rate_limit_usage()
        usages_by_platform = {"Slack": slack_usage, "Discord": discord_usage}
        return {
            **{key: call for _, key, call in newest_calls},
            "calls": [key for _, key, _ in newest_calls],
            "call_count": len(self._slack.calls) + len(self._discord.calls),
            "rate_limits": [
                self._create_usage_row(platform, usage)
                for platform, usages in usages_by_platform.items()
                for usage in usages
            ],
        }

    def get_details(self, key: str) -> Json:
        """Return the `request` and the `response` of an API call.

        Both are indented JSON text, cut at `MAX_JSON_LENGTH` characters. Without a response, `response` is `null`.

        Args:
            key: the platform's letter and the number of the call, such as `S7`.

        Raises:
            ValueError: the call does not exist.
        """
        calls: list[Any] = self._slack.calls if key[:1] == "S" else self._discord.calls
        if not key[1:].isdecimal() or int(key[1:]) >= len(calls):
            raise ValueError("This call does not exist.")
        call = calls[int(key[1:])]
        request = call.arguments if key[0] == "S" else call.body
        return {"request": _format_json(request), "response": _format_json(call.response)}

    def _create_usage_row(self, platform: str, usage: RateLimitUsage) -> Json:
        names = {channel.id: f"#{channel.name}" for channel in self._slack.channels.values()}
        names |= {channel.id: f"#{channel.name}" for channel in self._discord.channels.values()}
        method, _, channel = usage.name.replace("/channels/{channel}", "…").rpartition(" ")
        is_named = channel in names or channel.isdecimal() or channel[:1] in "CDG"
        name = f"{method} in {names.get(channel, 'a DM')}" if method and is_named else usage.name or "all calls"
        return {
            "platform": platform,
            "name": name,
            "remaining": usage.remaining,
            "limit": usage.limit,
            "seconds": usage.seconds,
        }

    def _create_slack_row(self, call: SlackCall) -> Json:
        return self._create_row("Slack", call, call.method, call.arguments, call.error or "")

    def _create_discord_row(self, call: DiscordCall) -> Json:
        error = str(call.code) if call.code else ""
        return self._create_row("Discord", call, call.route, call.body, error)

    def _create_row(self, platform: str, call: SlackCall | DiscordCall, name: str, request: Any, error: str) -> Json:
        arguments = request if isinstance(request, dict) else {}
        summary = next((str(arguments[key]) for key in _SUMMARY_KEYS if arguments.get(key)), "")
        return {
            "platform": platform,
            "name": name,
            "summary": " ".join(summary.split())[:90],
            "time": time.strftime("%H:%M:%S", time.localtime(self._monotonic_offset + call.received_at)),
            "status": call.status,
            "error": error,
            "rate_limited": call.rate_limited,
            "response_lost": call.status == 0 and call.response is not None,
            "rate_limit": call.remaining,
        }


def _newest_calls(calls: list[Any]) -> list[tuple[int, Any]]:
    """Return (index in `calls`, call) for the newest `MAX_CALLS` calls, oldest first."""
    first = max(0, len(calls) - MAX_CALLS)
    return list(enumerate(calls[first:], first))


def _format_json(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return (
        text
        if len(text) <= MAX_JSON_LENGTH
        else f"{text[:MAX_JSON_LENGTH]}\n… {len(text) - MAX_JSON_LENGTH} more characters"
    )
