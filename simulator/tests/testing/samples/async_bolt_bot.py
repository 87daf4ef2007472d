import asyncio
import os

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp

app = AsyncApp(token=os.environ["SLACK_BOT_TOKEN"])


@app.event("app_mention")
async def answer(event, say):
    await say(f"hello <@{event['user']}>", thread_ts=event["ts"])


async def main():
    await AsyncSocketModeHandler(app, os.environ["SLACK_APP_TOKEN"]).start_async()


asyncio.run(main())
