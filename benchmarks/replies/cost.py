"""CPU cost of a delta in the reply path: reply, planner, rate limiters and surface, without network."""

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from benchmarks.replies.contenders.parley import keep
from benchmarks.replies.load import TOKENS, Ending, Load, Model
from channels.replies.reactions import Address, QueuedReactions
from channels.replies.reply import Reply
from channels.slack.client.api import SlackApi
from channels.slack.replies.surface import SlackSurface

REPLIES, CHANNELS, SPEED = 50, 10, 4.0


class _Silent(AsyncWebClient):
    """Client whose calls succeed at once."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = count(1)

    async def api_call(self, api_method: str, **arguments: Any) -> AsyncSlackResponse:
        data = {"ok": True, "ts": f"1.{next(self._ids)}"}
        return AsyncSlackResponse(
            client=self, http_verb="POST", api_url="", req_args={}, data=data, headers={}, status_code=200
        )


async def _no_sign(_address: Address) -> None:
    """Ignore reactions: no message is queued here."""


async def delta_cost() -> float:
    """Return the CPU seconds per delta beyond the model's own, with 50 concurrent replies."""
    return (await _cpu(is_heard=True) - await _cpu(is_heard=False)) / (REPLIES * TOKENS)


async def _cpu(*, is_heard: bool) -> float:
    """Return the CPU seconds from the first word to the last."""
    load = Load(REPLIES, CHANNELS, Ending.TOGETHER, SPEED)
    model, api, receipts = Model(load), SlackApi(_Silent(), speed=SPEED), QueuedReactions(_no_sign, _no_sign)
    async with AsyncExitStack() as replies:
        for speech in model.speeches if is_heard else ():
            address = {"team": "T", "channel": load.channel(speech.number), "thread_ts": "1", "ts": "1"}
            reply = Reply(SlackSurface(api, receipts, address, str(speech.number)), save_ids=keep)
            await replies.enter_async_context(reply)
            speech.listen(reply.feed)
        await asyncio.sleep(0.5)
        begun = time.process_time()
        await model.run()
        return time.process_time() - begun
