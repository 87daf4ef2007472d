"""Deploys, and sleeping dynos of Heroku, during conversations."""

import asyncio
import re
from pathlib import Path

from bot.server import LIVENESS_PATH, READINESS_PATH
from channels.slack.client.http_mode import EVENTS_PATH
from chatrig.discord import DiscordSimulator
from chatrig.models import ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse
from chatrig.slack import EnvelopeRecord, SlackSimulator
from tests.acceptance.conftest import MakeProgram, Program
from tests.acceptance.platforms import Discord, Platform, Slack
from tests.processes.procfile import Dyno, Foreman, find_free_port

ROOT = Path(__file__).parents[3]


def answer_slowly(request: ReceivedRequest) -> ScriptedResponse:
    """Stream an answer that quotes the newest word for over a second.

    A restart of the bot interrupts the answer.
    """
    return Say(f"You said {re.findall(r'word-[a-z]+-[0-9]+-[0-9]+', request.text)[-1]} to me.", pieces=8, pace=0.15)


async def test_two_deploys_under_load_lose_and_double_no_message(
    slack: SlackSimulator, discord: DiscordSimulator, postgres: str, python: Path, tmp_path: Path
) -> None:
    platforms: list[Platform] = [Slack(slack), Discord(discord)]
    async with ScriptedOpenAI(answer_slowly) as model:
        settings = {
            **{name: value for platform in platforms for name, value in platform.settings.items()},
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model.base_url,
            "DATABASE_URL": postgres,
            "DATABASE_POOL_SIZE": "5",
            "SHUTDOWN_TIMEOUT_SECONDS": "1",
            "PYTHONPATH": str(ROOT),
        }
        foreman = Foreman(ROOT / "Procfile", tmp_path, settings, path=python.parent)
        release = await foreman.start("release")
        assert await release.wait_for_exit() == 0, foreman.log.read_text()
        dyno = await _start(foreman)
        try:
            senders: list[asyncio.Task[None]] = []
            for platform in platforms:
                for number in range(3):
                    senders.append(asyncio.create_task(_send_messages(platform, number)))
            for _ in range(2):
                await asyncio.sleep(2.0)  # during running answers
                assert await dyno.terminate() == 0, foreman.log.read_text()[-4000:]
                dyno = await _start(foreman)
            try:
                await asyncio.wait_for(asyncio.gather(*senders), 45)
            except TimeoutError:
                raise TimeoutError(foreman.log.read_text()[-6000:]) from None
            assert await dyno.terminate() == 0
        finally:
            await dyno.kill()


async def _start(foreman: Foreman) -> Dyno:
    """Start a web process, check its health pages, and wait until it is ready.

    Heroku requires that it listens within 60 seconds.
    """
    dyno = await foreman.start("web")
    await dyno.wait_until_ready(LIVENESS_PATH)
    assert await dyno.probe(READINESS_PATH) in ((503, "starting\n"), (200, "ready\n"))
    await dyno.wait_until_ready(READINESS_PATH)
    return dyno


async def _send_messages(platform: Platform, number: int) -> None:
    """Post three messages, each after the answer to the former one.

    Checks that each message gets one answer.

    Args:
        number: the number of the conversation in the messages.
    """
    conversation, expected = platform.start_conversation(), list[str]()
    for question in range(3):
        word = f"word-{platform.name}-{number}-{question}"
        await conversation.say(word)
        expected.append(f"You said {word} to me.")
        await platform.wait_for(lambda: [reply.text for reply in conversation.replies()] == expected, timeout=90)


async def test_a_sleeping_web_dyno_answers_all_messages_sent_while_it_starts(
    program: MakeProgram,
) -> None:
    """Check that a sleeping web process misses no message.

    On Heroku, an eco dyno sleeps after 30 minutes without a request; the next request starts it.
    """
    async with ScriptedOpenAI(answer_slowly) as model, SlackSimulator(speed=10) as slack:
        port = find_free_port()
        slack.socket_mode = False
        slack.request_url.url = f"http://127.0.0.1:{port}{EVENTS_PATH}"
        settings = {
            "SLACK_API_URL": slack.api_url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_MODE": "http",
            "SLACK_SIGNING_SECRET": slack.signing_secret,
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model.base_url,
            "PORT": str(port),
        }
        bot = program(settings)
        for number in range(2):
            await _wake_bot(bot, slack, f"word-slack-0-{number}")


async def _wake_bot(bot: Program, slack: SlackSimulator, word: str) -> None:
    """Post a message to a stopped bot, and check that a started one answers it once.

    Starts the bot after Slack's first failed delivery, and stops it after the acknowledgement.
    """
    question = await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> {word}")

    def is_answered() -> bool:
        thread = slack.messages("general", thread_ts=question.ts)
        return [message.text for message in thread[1:]] == [f"You said {word} to me."]

    def list_envelopes() -> list[EnvelopeRecord]:
        return [envelope for envelope in slack.envelopes if envelope.payload["event"].get("ts") == question.ts]

    await slack.wait_for(lambda: any(envelope.reason == "connection_failed" for envelope in list_envelopes()))
    await bot.start()
    try:
        await bot.wait_until_ready()
        await slack.wait_for(is_answered, timeout=30)
        await slack.wait_for(lambda: any(envelope.acknowledged_at for envelope in list_envelopes()), timeout=30)
        assert await bot.stop() == 0
    finally:
        await bot.aclose()
    assert is_answered()
