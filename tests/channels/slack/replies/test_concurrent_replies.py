"""Fifty concurrent replies within Slack's published rate limits, on a fast clock."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from channels.replies.reactions import Address, QueuedReactions
from channels.replies.reply import Reply
from channels.slack.client.api import SlackApi
from channels.slack.replies.streaming import StreamPolicy
from channels.slack.replies.surface import SlackSurface
from chatrig.slack.api.limits import RATES
from tests.channels.rate_limits.test_limiter import now, run

ONE_WAY_SECONDS = 0.05

#: Two words a second for 30 seconds; the text needs two messages.
WORDS = [f"{number:02} {'word ' * 19}" for number in range(60)]


class CountingSlackClient(AsyncWebClient):
    """Slack client in memory that accepts all calls, and counts those over a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0
        self.texts: dict[str, str] = {}
        self.threads: defaultdict[str, list[str]] = defaultdict(list)
        self.changed: dict[str, float] = {}
        self._ids = count(1)
        self._calls: defaultdict[tuple[Any, ...], list[float]] = defaultdict(list)

    async def api_call(self, api_method: str, **sent: Any) -> AsyncSlackResponse:
        arguments = sent["json"]
        await asyncio.sleep(ONE_WAY_SECONDS)
        for rate in RATES[api_method]:
            calls = self._calls[api_method, rate, arguments["channel"] if rate.per_channel else ""]
            calls[:] = [at for at in calls if at > now() - rate.seconds]
            self.refused += len(calls) >= rate.max_calls
            calls.append(now())
        ts = self._show(arguments)
        await asyncio.sleep(ONE_WAY_SECONDS)
        data = {"ok": True, "ts": ts}
        return AsyncSlackResponse(
            client=self, http_verb="POST", api_url="", req_args={}, data=data, headers={}, status_code=200
        )

    def _show(self, arguments: Mapping[str, Any]) -> str:
        ts = str(arguments.get("ts") or f"1.{next(self._ids)}")
        if "ts" not in arguments:
            self.threads[arguments["thread_ts"]].append(ts)
        if "blocks" in arguments:
            self.texts[ts] = arguments["blocks"][0]["text"]
        else:
            text = "".join(chunk.get("text", "") for chunk in arguments.get("chunks", ()))
            self.texts[ts] = self.texts.get(ts, "") + text
        self.changed[arguments["thread_ts"] if "ts" not in arguments else self._thread(ts)] = now()
        return ts

    def _thread(self, ts: str) -> str:
        return next(thread for thread, messages in self.threads.items() if ts in messages)

    def text(self, thread: str) -> str:
        return "".join(self.texts[ts] for ts in self.threads[thread])


async def ignore_reaction(_address: Address) -> None:
    """Do nothing instead of adding or removing a reaction."""


@pytest.mark.parametrize("step", [0.0, 0.6], ids=["together", "in turn"])
def test_fifty_concurrent_replies_end_within_a_second_and_get_no_429(step: float) -> None:
    async def run_replies() -> tuple[CountingSlackClient, list[float]]:
        web = CountingSlackClient()
        api, reactions, streams = SlackApi(web), QueuedReactions(ignore_reaction, ignore_reaction), StreamPolicy()

        async def reply(number: int) -> float:
            await asyncio.sleep(number * step + number * 0.618 % 1)
            thread = f"{number}.0"
            address = {"team": "T", "user": "U", "user_team": "T", "bot": "B", "thread_ts": thread, "ts": thread}
            place = {**address, "channel": f"C{number % 10}"}
            surface = SlackSurface(api, reactions, place, thread, stream_policy=streams)

            async def ignore_ids(_ids: object) -> None:
                """Do nothing with the message ids of a reply."""

            async with Reply(surface, save_ids=ignore_ids) as writer:
                for word in WORDS:
                    await asyncio.sleep(0.5)
                    writer.feed(word)
                ended = now()
                await writer.close("".join(WORDS))
            assert "".join(web.text(thread).split()) == "".join("".join(WORDS).split())
            return web.changed[thread] - ended

        return web, await asyncio.gather(*map(reply, range(50)))

    web, waits = run(run_replies)
    assert web.refused == 0
    assert max(waits) < 1.0
