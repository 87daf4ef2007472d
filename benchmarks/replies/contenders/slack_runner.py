"""google-adk's own `SlackRunner` as a contender, with Bolt over Socket Mode."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from google.adk.agents import Agent
from google.adk.integrations.slack import SlackRunner
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from pydantic import PrivateAttr
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from benchmarks.replies.contenders.base import RunningContender
from benchmarks.replies.load import TokenStream
from benchmarks.replies.platforms import MeasuredPrompt, SlackCellPlatform
from core.agents.runtime import warm_up

NAME = "google-adk's SlackRunner"


class TokenStreamModel(BaseLlm):
    """ADK model that answers a prompt with the whole text of its `TokenStream`.

    It waits until `add_stream` has stored the prompt's stream, and until the stream has ended.
    """

    _streams: dict[int, TokenStream] = PrivateAttr(default_factory=dict)
    _stream_added: asyncio.Condition = PrivateAttr(default_factory=asyncio.Condition)

    async def add_stream(self, stream: TokenStream) -> None:
        """Store a stream, so that waiting and later runs for its prompt answer with it."""
        async with self._stream_added:
            self._streams[stream.number] = stream
            self._stream_added.notify_all()

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        number = _parse_prompt_number(str(llm_request.contents[-1]))
        async with self._stream_added:
            await self._stream_added.wait_for(lambda: number in self._streams)
        answer = self._streams[number]
        await answer.ended.wait()
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=answer.text)]))


class ObservedSlackRunner(SlackRunner):
    """`SlackRunner` that sets an asyncio event for each handled message."""

    def __init__(self, runner: Runner, slack_app: AsyncApp) -> None:
        super().__init__(runner, slack_app)
        self._handled: dict[int, asyncio.Event] = {}

    def handled_event(self, number: int) -> asyncio.Event:
        """Return the asyncio event that is set once a prompt is handled, or has failed.

        Args:
            number: the number of the prompt.
        """
        return self._handled.setdefault(number, asyncio.Event())

    async def _handle_message(self, event: dict[str, Any], say: Any) -> None:
        try:
            await super()._handle_message(event, say)
        finally:
            self.handled_event(_parse_prompt_number(event.get("text", ""))).set()


class _SlackRunnerContender(RunningContender):
    """Running `SlackRunner` whose model answers with the streams of the load."""

    def __init__(self, slack_runner: ObservedSlackRunner, model: TokenStreamModel) -> None:
        self._runner = slack_runner
        self._model = model

    async def answer(self, prompt: MeasuredPrompt, stream: TokenStream) -> None:
        await self._model.add_stream(stream)
        await self._runner.handled_event(prompt.number).wait()


@asynccontextmanager
async def start_on_slack(platform: SlackCellPlatform) -> AsyncIterator[RunningContender]:
    await warm_up()
    simulator = platform.simulator
    model = TokenStreamModel(model="scripted")
    runner = Runner(
        app_name="bench",
        agent=Agent(name="bench", model=model),
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    web = AsyncWebClient(simulator.bot_token, base_url=simulator.api_url)
    app = AsyncApp(client=web)
    slack_runner = ObservedSlackRunner(runner, app)
    handler = AsyncSocketModeHandler(app, simulator.app_token)
    await handler.connect_async()
    await platform.run(simulator.wait_until_connected())
    try:
        yield _SlackRunnerContender(slack_runner, model)
    finally:
        await handler.close_async()


def _parse_prompt_number(text: str) -> int:
    return int(re.findall(r"prompt (\d+)", text)[-1])
