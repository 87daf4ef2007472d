"""Authors of messages: people who post through an app, bots, and Slackbot."""

from pathlib import Path

from channels.access import AccessRules
from channels.i18n import messages as words
from channels.slack.interactions.shortcuts import ASK
from chatrig.slack import SlackMessage, SlackSimulator
from core.usage.user_rate_limits import RateLimit, UserRateLimiter
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import echo


async def wait_until_all_events_are_processed(slack: SlackSimulator) -> None:
    await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))


async def ask_through_app(bot: WiredSlackBot, text: str, **kwargs: str) -> SlackMessage:
    return await bot.mention_bot("ada", "general", text, app="Desk", **kwargs)


async def test_a_post_by_a_person_s_token_is_the_person_s(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await ask_through_app(bot, "one")
    await bot.wait_for_texts(question, lambda texts: texts[-1] == "heard: ada: one")
    await slack.post_message("ada", "general", "two", thread_ts=question.ts)
    await bot.wait_for_texts(question, lambda texts: texts[-1] == "heard: ada: two")
    await slack.post_message("ada", "general", "three", thread_ts=question.ts, app="Desk")
    await bot.wait_for_texts(question, lambda texts: texts[-1] == "heard: ada: three")
    ada = slack.people["ada"].id
    assert [(row.author, row.message["actor"]["author"]) for row in await bot.list_inbox_messages()] == [(ada, ada)] * 3


async def test_the_person_may_press_the_buttons_of_the_answer(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, "one", "two") as bot:
        question = await ask_through_app(bot, "one")
        await bot.wait_for_turns(1)
        answer = bot.list_thread(question)[-1]
        await slack.wait_for(lambda: words.REGENERATE in answer.buttons)
        assert await slack.click_button("ada", answer, answer.buttons[words.REGENERATE])
        await slack.wait_for(lambda: answer.text == "two")


async def test_access_to_a_post_through_an_app_is_the_person_s(slack: SlackSimulator, tmp_path: Path) -> None:
    rules = AccessRules(allow=frozenset({f"user:{slack.people['ada'].id}"}))
    async with run_bot(slack, tmp_path, echo, rules=rules) as bot:
        await bot.mention_bot("grace", "general", "one", app="Desk")
        question = await ask_through_app(bot, "two")
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "heard: ada: two")
        assert len(await bot.list_turns()) == 1


async def test_posts_through_an_app_count_for_the_person_s_limit(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo, core={"rates": UserRateLimiter(user=RateLimit(1, 3600))}) as bot:
        await ask_through_app(bot, "one")
        await bot.wait_for_turns(1)
        await bot.mention_bot("ada", "general", "two")
        await slack.wait_for(lambda: any(message.ephemeral_to for message in slack.messages("general")))
        assert len(await bot.list_turns()) == 1


async def test_an_edit_through_an_app_is_the_person_s(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await slack.post_message("ada", slack.open_dm("ada"), "tow", app="Desk")
    await bot.wait_for_turns(1)
    await slack.edit_message("ada", question, "two")
    answer = bot.list_thread(question)[-1]
    await slack.wait_for(lambda: words.ANSWER_EDITED in answer.buttons)


async def test_a_bot_user_is_never_taken_for_a_person(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await bot.mention_bot("ada", "general", "one")
    await bot.wait_for_turns(1)
    await slack.post_as_other_bot("robot", "general", f"{bot.mention} hello", has_user=True)
    await slack.post_as_other_bot("robot", "general", "hello", thread_ts=question.ts, has_user=True)
    await slack.post_message("ada", "general", "two", thread_ts=question.ts)
    await bot.wait_for_turns(2)
    assert {row.author for row in await bot.list_inbox_messages()} == {slack.people["ada"].id}


async def test_an_unknown_user_of_an_app_counts_as_a_bot(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    slack.scopes.discard("users:read")
    await ask_through_app(bot, "one")
    await wait_until_all_events_are_processed(slack)
    assert await bot.list_inbox_messages() == []


async def test_a_missed_post_by_a_person_s_token_is_the_person_s(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo) as bot:
        question = await ask_through_app(bot, "one")
        await bot.wait_for_turns(1)
    await slack.post_message("ada", "general", "two", thread_ts=question.ts, app="Desk")
    await slack.post_as_other_bot("robot", "general", f"{bot.mention} three", thread_ts=question.ts, has_user=True)
    await slack.discard_pending()
    async with run_bot(slack, tmp_path, echo) as bot:
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "heard: ada: two")
        assert {row.author for row in await bot.list_inbox_messages()} == {slack.people["ada"].id}


async def test_context_and_questions_name_the_person(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    root = await slack.post_message("grace", "general", "it is late", app="Desk")
    await bot.mention_bot("ada", "general", "is it?", thread_ts=root.ts)
    await bot.wait_for_turns(1)
    assert "> grace: it is late" in bot.model.received[-1].text
    assert await slack.use_shortcut("ada", root, ASK)
    (modal,) = await slack.wait_for(lambda: slack.modals("ada"))
    assert await slack.submit_modal(modal, prompt="why?")
    await bot.wait_for_turns(2)
    assert "> grace: it is late" in bot.model.received[-1].text


async def test_slackbot_counts_as_a_bot(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    await slack.post_message("USLACKBOT", "general", f"Reminder: {bot.mention} post the summary.")
    question = await bot.mention_bot("ada", "general", "one")
    await bot.wait_for_turns(1)
    await slack.post_message("USLACKBOT", "general", "Reminder: lunch", thread_ts=question.ts)
    await slack.post_message("ada", "general", "two", thread_ts=question.ts)
    await bot.wait_for_texts(question, lambda texts: texts[-1] == "heard: ada: two")
    assert {row.author for row in await bot.list_inbox_messages()} == {slack.people["ada"].id}


async def test_slackbot_is_answered_under_its_name_if_bots_are(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo, answers_bots=True) as bot:
        reminder = await slack.post_message("USLACKBOT", "general", f"Reminder: {bot.mention} post the summary.")
        await bot.wait_for_texts(reminder, lambda texts: texts[-1] == "heard: Slackbot: Reminder: post the summary.")


async def test_a_me_command_is_answered(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    direct = await slack.post_message("ada", slack.open_dm("ada"), "wonders", is_me=True)
    await bot.wait_for_texts(direct, lambda texts: texts[-1] == "heard: wonders")
    mention = await bot.mention_bot("ada", "general", "is asked", is_me=True)
    await bot.wait_for_texts(mention, lambda texts: texts[-1] == "heard: ada: is asked")
    await slack.post_message("ada", "general", "waits", thread_ts=mention.ts, is_me=True)
    await bot.wait_for_texts(mention, lambda texts: texts[-1] == "heard: ada: waits")
    await slack.edit_message("ada", direct, "wanders")
    answer = bot.list_thread(direct)[-1]
    await slack.wait_for(lambda: words.ANSWER_EDITED in answer.buttons)


async def test_a_missed_me_command_is_answered(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo) as bot:
        await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_turns(1)
    missed = await bot.mention_bot("ada", "general", "is asked", is_me=True)
    await slack.discard_pending()
    async with run_bot(slack, tmp_path, echo) as bot:
        await bot.wait_for_texts(missed, lambda texts: texts[-1] == "heard: ada: is asked")
