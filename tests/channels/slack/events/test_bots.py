"""Messages of other bots, which the access settings allow or ignore."""

from pathlib import Path

from chatrig.slack import SlackSimulator
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import echo


async def test_messages_of_other_bots_are_ignored(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await bot.mention_bot("ada", "general", "one")
    await bot.wait_for_texts(question, lambda texts: "heard: ada: one" in texts)
    await slack.post_as_other_bot("robot", "general", f"{bot.mention} hello")
    await slack.post_as_other_bot("robot", "general", "hello", thread_ts=question.ts)
    await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))
    assert len(await bot.list_inbox_messages()) == 1


async def test_a_mention_by_an_allowed_bot_is_answered_under_its_name(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo, answers_bots=True, streaming="native") as bot:
        alert = await slack.post_as_other_bot("pager", "general", f"{bot.mention} the disk is full")
        await bot.wait_for_texts(alert, lambda texts: texts[-1] == "heard: pager: the disk is full")
        await slack.post_as_other_bot("pager", "general", "it is empty again", thread_ts=alert.ts)
        await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))
        assert len(await bot.list_inbox_messages()) == 1
        assert not [call for call in slack.calls if call.error]


async def test_a_loop_of_two_bots_ends_until_a_person_writes(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo, answers_bots=True, bot_loop_limit=3) as bot:
        question = await bot.mention_bot("ada", "general", "say hello to pager")
        await bot.wait_for_turns(1)  # else the next messages would share this turn
        for n in range(5):
            await slack.post_as_other_bot("pager", "general", f"{bot.mention} hello {n}", thread_ts=question.ts)
            await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))
            await bot.wait_for_turns(min(n + 2, 4))
        assert [row.author.startswith("bot:") for row in await bot.list_inbox_messages()] == [False, True, True, True]
        await bot.mention_bot("ada", "general", "go on", thread_ts=question.ts)
        await bot.wait_for_turns(5)
        await slack.post_as_other_bot("pager", "general", f"{bot.mention} hello again", thread_ts=question.ts)
        await bot.wait_for_texts(question, lambda texts: "heard: pager: hello again" in texts)
