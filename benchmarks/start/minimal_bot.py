"""Minimal ADK bot as a baseline: `minimal_bot.py slack|discord|both`.

It imports the same libraries, opens a database, and warms up its agent like Parley (one run, and the token vocabulary).
It connects, and answers each mention with one model call. It has no storage, no streaming and no recovery. With
`SLACK_RUNNER` set, ADK's own `SlackRunner` answers in Slack.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import openai
import tiktoken
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

#: Message of the warm-up run.
_WARM_UP_TEXT = "."


class MinimalModel(BaseLlm):
    """ADK model that answers by a call of an OpenAI-compatible server.

    It answers the message of the warm-up run (`_WARM_UP_TEXT`) without a call, with the same text.
    """

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        text = (llm_request.contents[-1].parts or [types.Part()])[0].text or ""
        answer = text
        if text != _WARM_UP_TEXT:
            completion = await create_client().chat.completions.create(
                model="scripted", messages=[{"role": "user", "content": text}]
            )
            answer = completion.choices[0].message.content or ""
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=answer)]))


def create_client() -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url=os.environ["OPENAI_BASE_URL"])


async def ask(runner: Runner, text: str) -> str:
    answer = ""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    async for event in runner.run_async(user_id="somebody", session_id="bench", new_message=message):
        if event.is_final_response() and event.content and event.content.parts:
            answer = event.content.parts[0].text or ""
    return answer


async def connect_slack(runner: Runner, stack: AsyncExitStack) -> None:
    from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler  # noqa: PLC0415
    from slack_bolt.async_app import AsyncApp  # noqa: PLC0415
    from slack_sdk.web.async_client import AsyncWebClient  # noqa: PLC0415

    web = AsyncWebClient(os.environ["SLACK_BOT_TOKEN"], base_url=os.environ["SLACK_API_URL"])
    app = AsyncApp(client=web)
    if "SLACK_RUNNER" in os.environ:
        from google.adk.integrations.slack import SlackRunner  # noqa: PLC0415

        SlackRunner(runner, app)
    else:

        @app.event("app_mention")
        async def handle_mention(event: dict[str, Any], say: Any) -> None:
            await say(await ask(runner, event["text"]), thread_ts=event["ts"])

    handler = AsyncSocketModeHandler(app, os.environ["SLACK_APP_TOKEN"])
    await handler.connect_async()
    stack.push_async_callback(handler.close_async)


async def connect_discord(runner: Runner, stack: AsyncExitStack) -> None:
    import discord  # noqa: PLC0415
    import yarl  # noqa: PLC0415

    # discord.py has no setting for Discord's address
    discord.http.Route.BASE = os.environ["DISCORD_API_URL"]
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(os.environ["DISCORD_GATEWAY_URL"])
    ready = asyncio.Event()

    class MinimalBot(discord.Client):
        async def on_ready(self) -> None:
            ready.set()

        async def on_message(self, message: discord.Message) -> None:
            if not message.author.bot:
                await message.reply(await ask(runner, message.content))

    bot = MinimalBot(intents=discord.Intents(guilds=True, guild_messages=True, message_content=True))
    stack.push_async_callback(bot.close)
    running = asyncio.create_task(bot.start(os.environ["DISCORD_BOT_TOKEN"]))
    stack.callback(running.cancel)
    await ready.wait()


async def main(platform: str) -> None:
    async with AsyncExitStack() as stack:
        engine = create_async_engine("sqlite+aiosqlite:///minimal.db")
        stack.push_async_callback(engine.dispose)
        async with engine.connect() as connection:
            await connection.execute(text("select 1"))
        if os.environ.get("TIKTOKEN_CACHE_DIR"):
            tiktoken.get_encoding("o200k_base")
        app = App(name="minimal", root_agent=LlmAgent(name="minimal", model=MinimalModel(model="scripted")))
        sessions = InMemorySessionService()
        runner = Runner(app=app, session_service=sessions, auto_create_session=True)
        await ask(runner, _WARM_UP_TEXT)
        await asyncio.gather(
            *(
                connect(runner, stack)
                for name, connect in (("slack", connect_slack), ("discord", connect_discord))
                if platform in (name, "both")
            )
        )
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
