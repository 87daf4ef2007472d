"""Benchmark of many schedules that are due in the same minute: `make bench-schedules [SCHEDULES=1000]`.

The schedules belong to 50 channels of Slack, with its rate limits. A person writes to the bot every two seconds
meanwhile. The table has the seconds from the time at which a schedule was due to its header and to the end of its
answer, and from a person's message to the end of its answer. The last line has the end of the whole burst.
"""

import asyncio
import logging
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import quantiles

import sqlalchemy as sa
from pydantic import SecretStr

from bot.app import run_bot
from bot.settings import Settings
from channels.slack.session_ids import location_of, place_id
from chatrig.models import ReceivedRequest, ScriptedOpenAI
from chatrig.slack import SlackMessage, SlackSimulator
from core.messages.inbox_message import InboxMessage
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import schedules

CHANNELS = 50

#: The seconds in which all schedules are due, from so many seconds after their creation.
DUE_SECONDS, START_SECONDS = 60.0, 15.0

#: Seconds between two messages of people.
PERSON_SECONDS = 2.0

#: The difference of Unix time and the monotonic clock, by which the local Slack notes its messages.
WALL_OFFSET = time.time() - time.monotonic()

#: Seconds after which the benchmark gives up.
LIMIT_SECONDS = 900.0


def answer(request: ReceivedRequest) -> str:
    """Return the number in the newest message of a request."""
    return f"answer {re.findall(r'number ([0-9]+)', request.text)[-1]}"


async def insert_schedules(database: Database, slack: SlackSimulator, count: int) -> dict[int, float]:
    """Store schedules of a user, and return the time at which each is due, by its number."""
    begin = time.time() + START_SECONDS
    due = {number: begin + DUE_SECONDS * number / count for number in range(count)}
    author = slack.people["ada"].id
    rows = []
    for number, at in due.items():
        channel = slack.channels[f"channel-{number % CHANNELS}"].id
        address = {"team": slack.team_id, "channel": channel, "thread_ts": "", "ts": "", "user": author}
        place = place_id(slack.team_id, channel)
        location = location_of(slack.team_id, channel)
        text = f"number {number}"
        message = InboxMessage(str(number), f"{place}:0", place, "slack", address, author, text, at, location=location)
        rows.append(
            {
                "id": f"{number:010x}",
                "session": message.session_id,
                "place": place,
                "platform": "slack",
                "author": author,
                "message": message.to_json(),
                "is_plain": False,
                "is_direct": False,
                "starts_at": "2026-01-01T00:00+00:00",
                "next_at": at,
                "state": "active",
                "turn": "",
                "created_at": begin,
            }
        )
    async with database.write() as connection:
        await connection.execute(sa.insert(schedules), rows)
    return due


def list_own(slack: SlackSimulator) -> list[SlackMessage]:
    channels = [slack.channels[f"channel-{number}"] for number in range(CHANNELS)]
    return [m for channel in channels for m in slack.messages(channel) if m.user == slack.bot_user_id]


def find_times(messages: Sequence[SlackMessage], pattern: str) -> dict[int, float]:
    """Return the time of the last version of each message that matches, by its number."""
    found = {}
    for message in messages:
        if (match := re.search(pattern, message.text)) is not None:
            found[int(match[1])] = message.versions[-1].shown_at + WALL_OFFSET
    return found


async def measure(count: int) -> Mapping[str, Sequence[float]]:
    """Run the bot until all schedules and people are answered, and return the waits in seconds by kind."""
    async with SlackSimulator() as slack, ScriptedOpenAI(answer) as model:
        for number in range(CHANNELS):
            slack.add_channel(f"channel-{number}")
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite+aiosqlite:///{Path(folder, 'parley.db')}"
            database = Database(url)
            await migrate(database)
            due = await insert_schedules(database, slack, count)
            await database.aclose()
            settings = Settings(
                slack_bot_token=SecretStr(slack.bot_token),
                slack_app_token=SecretStr(slack.app_token),
                slack_api_url=slack.api_url,
                slack_streaming="edit",
                model="openai/scripted",
                openai_api_key=SecretStr("sk-benchmark"),
                openai_base_url=model.base_url,
                database_url=url,
                port=0,
            )
            stop = asyncio.Event()
            running = asyncio.create_task(run_bot(settings, stop))
            await slack.wait_until_connected(30)
            sent = dict[int, float]()
            async with asyncio.timeout(LIMIT_SECONDS):
                while len(answered := find_times(list_own(slack), r"^answer (\d+)$")) < count + len(sent) or not sent:
                    if time.time() < max(due.values()):
                        number = 1_000_000 + len(sent)
                        channel = f"channel-{len(sent) % CHANNELS}"
                        sent[number] = time.time()
                        await slack.post_message("grace", channel, f"<@{slack.bot_user_id}> number {number}")
                    await asyncio.sleep(PERSON_SECONDS)
            headers = find_times(list_own(slack), r"⏰ number (\d+)")
            stop.set()
            await running
    return {
        "header of a schedule": [headers[n] - at for n, at in due.items()],
        "answer of a schedule": [answered[n] - at for n, at in due.items()],
        "answer to a person": [answered[n] - at for n, at in sent.items()],
        "end of all schedules": [max(answered[n] for n in due) - min(due.values())],
    }


def main(count: int) -> None:
    waits = asyncio.run(measure(count))
    print(f"{'seconds':24}{'count':>8}{'median':>10}{'95 %':>10}{'longest':>10}")
    for kind, seconds in waits.items():
        cuts = quantiles(seconds, n=20) if len(seconds) > 1 else [seconds[0]] * 19
        print(f"{kind:24}{len(seconds):8}{cuts[9]:10.2f}{cuts[18]:10.2f}{max(seconds):10.2f}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
