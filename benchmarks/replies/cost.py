"""CPU cost of one model delta in Parley's reply path.

The path has the reply, the planner, the rate limiters and Slack's surface, without network.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from benchmarks.replies.contenders.parley import ignore_ids
from benchmarks.replies.load import TOKENS, Ending, Load, TokenStreamer
from channels.replies.reactions import Address, QueuedReactions
from channels.replies.reply import Reply
from channels.slack.client.api import SlackApi
from channels.slack.replies.surface import SlackSurface

REPLIES, CHANNELS, SPEED = 50, 10, 4.0


class _InstantClient(AsyncWebClient):
    """Slack client whose calls succeed at once without network."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = count(1)

    async def api_call(self, api_method: str, **arguments: Any) -> AsyncSlackResponse:
        data = {"ok": True, "ts": f"1.{next(self._ids)}"}
        return AsyncSlackResponse(
            client=self, http_verb="POST", api_url="", req_args={}, data=data, headers={}, status_code=200
        )


async def _ignore_reaction(_address: Address) -> None:
    """Do nothing instead of adding or removing a reaction."""


async def measure_delta_cost() -> float:
    """Return the CPU seconds of Parley per delta, with 50 concurrent replies.

    The cost of the scripted model is subtracted.
    """
    return (await _measure_cpu_seconds(has_replies=True) - await _measure_cpu_seconds(has_replies=False)) / (
        REPLIES * TOKENS
    )


async def _measure_cpu_seconds(*, has_replies: bool) -> float:
    """Return the CPU seconds of the process from the model's first word to its last.

    Args:
        has_replies: False runs the scripted model alone.
    """
    load = Load(REPLIES, CHANNELS, Ending.SIMULTANEOUS, SPEED)
    model, api, queued_reactions = (
        TokenStreamer(load),
        SlackApi(_InstantClient(), speed=SPEED),
        QueuedReactions(_ignore_reaction, _ignore_reaction),
    )
    async with AsyncExitStack() as replies:
        for stream in model.streams if has_replies else ():
            address = {"team": "T", "channel": load.channel(stream.number), "thread_ts": "1", "ts": "1"}
            reply = Reply(SlackSurface(api, queued_reactions, address, str(stream.number)), save_ids=ignore_ids)
            await replies.enter_async_context(reply)
            stream.subscribe(reply.feed)
        await asyncio.sleep(0.5)
        start = time.process_time()
        await model.run()
        return time.process_time() - start
