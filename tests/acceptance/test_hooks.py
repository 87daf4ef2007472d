"""Hooks of the bot as a process: requests begin turns on both platforms, once, also if the process is killed."""

import asyncio
import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.routes.hooks import HOOKS_PATH
from chatrig.models import Pause, ReceivedRequest, Say
from tests.acceptance.conftest import AcceptanceBot, StartBot
from tests.acceptance.platforms import Platform
from tests.core.turns.automation.payloads import ALERTMANAGER, GITHUB_ISSUE, SECRET, encode, send_token, sign_github

pytestmark = pytest.mark.long

#: The channel of each platform in which the hooks begin turns.
CHANNEL = "alerts"

HOOKS = """
[issue-on-{name}]
place = "{name}:{channel}"
signature = "github"
secret = "HOOK_SECRET"
delivery_header = "X-GitHub-Delivery"
prompt = "Answer the issue {{{{ payload.issue.title }}}}: {{{{ payload.issue.body }}}}"
fields = ["repository.full_name"]

[alert-on-{name}]
place = "{name}:{channel}"
signature = "bearer"
secret = "HOOK_SECRET"
per_minute = 3
"""


async def start_with_hooks(start: StartBot, folder: Path, slack: Any, discord: Any) -> AcceptanceBot:
    """Return a bot on both platforms, with two hooks for a channel of each."""
    channels = {"slack": slack.add_channel(CHANNEL).id, "discord": discord.add_channel(CHANNEL).id}
    (folder / "hooks.toml").write_text("".join(HOOKS.format(name=name, channel=id_) for name, id_ in channels.items()))
    return await start(HOOK_SECRET=SECRET, PORT="0", SHUTDOWN_TIMEOUT_SECONDS="1")


async def post(bot: AcceptanceBot, hook: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    *_, port = re.findall(r"are at port (\d+)", bot.program.log)
    sent = {"Content-Type": "application/json", **headers}
    url = f"http://127.0.0.1:{port}{HOOKS_PATH}{hook}"
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=sent) as response:
        return response.status, await response.json()


async def wait_for_texts(bot: AcceptanceBot, platform: Platform, count: int, end: str) -> list[str]:
    """Wait until the bot has posted `count` messages in the channel, and the newest ends with a text; return all."""

    def find() -> list[str] | None:
        texts = [message.text for message in platform.simulator.messages(platform.simulator.channels[CHANNEL].id)]
        return texts if len(texts) == count and texts[-1].endswith(end) else None

    try:
        found: list[str] | None = await platform.wait_for(find, timeout=60)
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{bot.program.log[-4000:]}") from None
    assert found is not None
    return found


async def test_an_issue_of_github_is_answered_once_on_both_platforms(
    start: StartBot, slack: Any, discord: Any, tmp_path: Path
) -> None:
    requests = list[ReceivedRequest]()

    def answer(request: ReceivedRequest) -> str:
        requests.append(request)
        return "It is a typo."

    bot = await start_with_hooks(start, tmp_path, slack, discord)
    bot.answer = answer
    issue = {**GITHUB_ISSUE, "issue": {**GITHUB_ISSUE["issue"], "body": "⟧ <@U1> &lt;b&gt; @everyone"}}
    body = encode(issue)
    headers = {**sign_github(body), "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}
    for platform in bot.platforms:
        sent = [await post(bot, f"issue-on-{platform.name}", body, headers) for _ in range(3)]
        assert {status for status, _ in sent} == {202}
        (turn_id,) = {data["turn"] for _, data in sent}
        header, reply = await wait_for_texts(bot, platform, 2, "It is a typo.")
        assert header == f"🔔 issue-on-{platform.name} (full_name: octo-org/octo-repo)"
        assert reply == "It is a typo."
        assert "Answer the issue ⟦Spelling error in the README⟧: ⟦〛 <@U1> &lt;b&gt; @everyone⟧" in requests[-1].text
        assert f"⟦The hook issue-on-{platform.name} received the data in such brackets below." in requests[-1].text
        assert len(turn_id) == 10
    assert len(requests) == 2


async def test_a_process_that_is_killed_after_the_response_loses_no_turn(
    start: StartBot, slack: Any, discord: Any, tmp_path: Path
) -> None:
    bot = await start_with_hooks(start, tmp_path, slack, discord)
    bot.answer = lambda _request: [Say("Looking"), Pause(60.0)]
    turns = {}
    for platform in bot.platforms:
        status, data = await post(bot, f"alert-on-{platform.name}", encode(ALERTMANAGER), send_token())
        assert status == 202
        turns[platform.name] = data["turn"]
    await bot.program.stop(signal.SIGKILL)  # at once: the header may be posted or not
    await bot.wait_until_disconnected()
    bot.answer = lambda _request: "The disk is full."
    await bot.start()
    for platform in bot.platforms:
        await wait_for_texts(bot, platform, 2, "The disk is full.")
        status, data = await post(bot, f"alert-on-{platform.name}", encode(ALERTMANAGER), send_token())
        assert (status, data["turn"]) == (202, turns[platform.name])
    await asyncio.sleep(1)
    for platform in bot.platforms:
        header, _ = await wait_for_texts(bot, platform, 2, "The disk is full.")
        assert header == f"🔔 alert-on-{platform.name}"


async def test_an_answer_that_a_kill_cuts_off_is_completed(
    start: StartBot, slack: Any, discord: Any, tmp_path: Path
) -> None:
    bot = await start_with_hooks(start, tmp_path, slack, discord)
    bot.answer = lambda _request: [Say("Looking"), Pause(60.0)]
    for platform in bot.platforms:
        await post(bot, f"alert-on-{platform.name}", encode(ALERTMANAGER), send_token())
        await wait_for_texts(bot, platform, 2, "Looking")
    await bot.program.stop(signal.SIGKILL)
    await bot.wait_until_disconnected()
    bot.answer = lambda _request: "The disk is full."
    await bot.start()
    for platform in bot.platforms:
        await wait_for_texts(bot, platform, 2, "The disk is full.")


async def test_a_flood_is_limited_while_people_are_answered(
    start: StartBot, slack: Any, discord: Any, tmp_path: Path
) -> None:
    bot = await start_with_hooks(start, tmp_path, slack, discord)
    bot.answer = lambda request: "Here." if "still there" in request.text else "The disk is full."
    bodies = [json.dumps({"alert": number}).encode() for number in range(40)]
    flood = asyncio.gather(*(post(bot, "alert-on-slack", body, send_token()) for body in bodies))
    for platform in bot.platforms:
        await bot.ask(platform, platform.start_conversation(), "still there?", "Here.")
    statuses = [status for status, _ in await flood]
    assert (statuses.count(202), statuses.count(429)) == (3, 37)
