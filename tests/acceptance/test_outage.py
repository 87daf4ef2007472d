"""What a team member sees of a database that is away: nothing, but that it takes longer.

`make test ARGS="tests/acceptance/test_outage.py --outage 60"` has it away for a whole minute.
"""

import asyncio
import signal
from time import monotonic

import pytest
import sqlalchemy as sa

from core.store.database import Database
from core.store.schema import inbox, messages, turns
from sandbox.models import Asked, Say
from sandbox.postgres import PostgresSandbox
from sandbox.slack import SlackSandbox
from tests.acceptance.conftest import Start, With
from tests.acceptance.platforms import Platform, Slack
from tests.acceptance.test_life import talks

STORY = " ".join(f"word-{number}" for number in range(200))

#: Seconds after which all is as it was: what could not be kept is tried again every 30 s at the latest.
SETTLED = 60.0

pytestmark = pytest.mark.timeout(300)


async def test_a_database_that_is_away_costs_nothing_but_time(
    start: Start, slack: SlackSandbox, postgres_server: PostgresSandbox, postgres: str, outage: float
) -> None:
    def answer(asked: Asked) -> Say:
        said = [text for role, text in asked.messages if role == "user"][-1]
        heard = [word for word in ("second", "third", "elsewhere") if word in said]
        return Say(f"Heard: {' '.join(heard)}") if heard else Say(STORY, pieces=100, pace=(outage + 3) / 100)

    bot = await start(DATABASE_URL=postgres)
    bot.answer = answer
    here = {platform: await platform.thread() for platform in bot.platforms}
    elsewhere = talks(bot)

    async def before(platform: Platform) -> None:
        await here[platform].say("tell me a story")
        await bot.reply(platform, here[platform], lambda text: text.startswith("word-0"))
        await here[platform].say("second")
        await platform.wait_for(lambda: here[platform].receipts() == 1)

    async def meanwhile(platform: Platform) -> None:
        await here[platform].say("third", called=False)
        await elsewhere[platform].say("elsewhere")
        shown = here[platform].replies()[-1]
        await bot.reply(platform, here[platform], lambda text: len(text) > len(shown.text))

    async def after(platform: Platform) -> None:
        def heard() -> list[str]:
            replies = [reply.text for reply in here[platform].replies()]
            answers = " ".join(text.removeprefix("Heard: ") for text in replies[1:]).split()
            return [*replies[:1], *answers]

        await platform.wait_for(lambda: heard() == [STORY, "second", "third"], timeout=outage + SETTLED)
        await platform.wait_for(lambda: [reply.text for reply in elsewhere[platform].replies()] == ["Heard: elsewhere"])
        await platform.wait_for(lambda: here[platform].receipts() == 0)

    await bot.everywhere(before)
    told = len(slack.envelopes)
    await asyncio.to_thread(postgres_server.stop)
    until = monotonic() + outage
    try:
        await bot.everywhere(meanwhile)
        await asyncio.sleep(until - monotonic())
        assert not any(envelope.acknowledged_at for envelope in slack.envelopes[told:])
    finally:
        await asyncio.to_thread(postgres_server.start)
    await bot.everywhere(after)
    async with asyncio.timeout(SETTLED):
        while "ready again" not in bot.program.log:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.1)
    assert "not ready: the database cannot be used" in bot.program.log
    assert await bot.program.end(signal.SIGTERM) == 0
    assert await ends(postgres) == (8, {"done"}, 2)


async def ends(url: str) -> tuple[int, set[str], int]:
    """How many messages there were, what became of their turns, and how often the story is stored."""
    database = Database(url)
    ended = sa.select(turns.c.state).join(inbox, inbox.c.turn == turns.c.id)
    async with database.read() as connection:
        states = (await connection.execute(ended)).scalars().all()
        told = (await connection.execute(sa.select(sa.func.count()).where(messages.c.content == STORY))).scalar_one()
    await database.aclose()
    return len(states), set(states), told


async def test_who_starts_while_the_database_does_waits_for_it(
    program: With, slack: SlackSandbox, postgres_server: PostgresSandbox, postgres: str
) -> None:
    platform = Slack(slack)
    addresses = {"DATABASE_URL": postgres, "MODEL": "openai/m", "OPENAI_BASE_URL": "http://127.0.0.1:1"}
    bot = program({**platform.settings, **addresses})
    await asyncio.to_thread(postgres_server.stop)
    try:
        await bot.start()
        async with asyncio.timeout(30):
            while "trying again" not in bot.log:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.02)
    finally:
        await asyncio.to_thread(postgres_server.start)
    try:
        await platform.wait_for(lambda: platform.is_connected, timeout=60)
        assert await bot.end() == 0
    finally:
        await bot.aclose()
