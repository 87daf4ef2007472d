"""Forged requests to the HTTP endpoint, and forged interactions."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
import sqlalchemy as sa

from channels.i18n import messages as words
from channels.slack.client.http_mode import EVENTS_PATH
from chatrig.models import Pause, Say
from chatrig.slack import SlackSimulator
from core.store.schema import feedback, human_requests, inbox, sessions, turns
from tests.channels.slack.conftest import WiredSlackBot, run_bot

Headers = dict[str, str]

SIGNATURES: Mapping[str, Callable[[Headers, Headers], Headers]] = {
    "none": lambda good, _old: {},
    "one of somebody else": lambda good, _old: {**good, "X-Slack-Signature": "v0=" + "0" * 64},
    "one of another version": lambda good, _old: {**good, "X-Slack-Signature": "v1" + good["X-Slack-Signature"][2:]},
    "one that is cut": lambda good, _old: {**good, "X-Slack-Signature": good["X-Slack-Signature"][:-1]},
    "an empty one": lambda good, _old: {**good, "X-Slack-Signature": ""},
    "one of six minutes ago": lambda _good, old: old,
    "the right one with another time": lambda good, old: {
        **good,
        "X-Slack-Request-Timestamp": old["X-Slack-Request-Timestamp"],
    },
    "the right one without a time": lambda good, _old: {"X-Slack-Signature": good["X-Slack-Signature"]},
}


def create_bodies(slack: SlackSimulator) -> dict[str, str]:
    """Return bodies of requests that Slack would send for Ada, by their kind."""
    ada, channel = slack.people["ada"].id, slack.channels["general"].id
    about = {"team": {"id": slack.team_id}, "user": {"id": ada, "team_id": slack.team_id}, "trigger_id": "1.2.3"}
    place = {"channel": {"id": channel}, "response_url": slack.api_url}
    event = {"type": "app_mention", "user": ada, "text": f"<@{slack.bot_user_id}> hi", "ts": "1.000001"}
    return {
        "a message": json.dumps(
            {
                "type": "event_callback",
                "team_id": slack.team_id,
                "event": {**event, "channel": channel},
                "authorizations": [{"team_id": slack.team_id, "user_id": slack.bot_user_id}],
            }
        ),
        "a command": urlencode({"command": "/reset", "team_id": slack.team_id, "channel_id": channel, "user_id": ada}),
        "a press": urlencode({"payload": json.dumps({"type": "block_actions", "actions": [], **about, **place})}),
        "a shortcut": urlencode({"payload": json.dumps({"type": "message_action", **about, **place})}),
        "a modal": urlencode({"payload": json.dumps({"type": "view_submission", "view": {}, **about})}),
        "an uninstalled app": json.dumps({"type": "event_callback", "event": {"type": "app_uninstalled"}}),
    }


async def list_rows(bot: WiredSlackBot) -> list[Any]:
    async with bot.database.read() as connection:
        return [
            tuple(row)
            for table in (sessions, inbox, turns, human_requests, feedback)
            for row in (await connection.execute(sa.select(table))).all()
        ]


@pytest.mark.parametrize("slack", ["http"], indirect=True)
@pytest.mark.parametrize("signature", SIGNATURES)
async def test_requests_without_a_slack_signature_are_rejected(
    slack: SlackSimulator, tmp_path: Path, signature: str
) -> None:
    async with run_bot(slack, tmp_path, "never said") as bot, aiohttp.ClientSession() as web:
        before = await list_rows(bot)
        for body in create_bodies(slack).values():
            good, old = slack.request_url.sign(body), slack.request_url.sign(body, at=time.time() - 360)
            headers = SIGNATURES[signature](good, old)
            async with web.post(bot.address + EVENTS_PATH, data=body, headers=headers) as answer:
                assert answer.status == 401
        assert await list_rows(bot) == before
        assert bot.model.requests == []


FORGED_IDS = ("0000000000", "' OR 1=1 --", "%", "../turns", "a" * 200, "", ":", "\0", "turn:TURN", "TURN ")
ACTIONS = (
    "stop",
    "retry",
    "regenerate",
    "revise",
    "good",
    "bad",
    "approve",
    "always",
    "deny",
    "attach",
    "unschedule",
    "schedule_confirm",
    "schedule_pause",
    "schedule_resume",
    "schedule_zone:Mars/Base",
    "pick",
    "nothing",
)


async def test_a_forged_button_does_nothing(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, [Say("Once"), Pause(60)], stop_timeout=0.1) as bot:
        question = await bot.mention_bot("ada", "general", "a story")
        await bot.wait_for_texts(question, lambda texts: "Once" in texts)
        before = await list_rows(bot)
        (turn,) = await bot.list_turns()
        identity = await bot.adapter._identities.resolve_interaction(*get_address(bot, "ada"))
        for action in ACTIONS:
            for forged in FORGED_IDS:
                button = f"{action}:{forged.replace('TURN', turn.id)}"
                answer = (await bot.adapter._intake.presses.handle(button, actor=identity[0], locale="")).text
                assert answer in (
                    words.UNKNOWN_BUTTON,
                    words.ALREADY_ENDED,
                    words.RETRY_EXPIRED,
                    words.ANSWER_NOT_STORED,
                    words.CONNECTION_UNKNOWN,
                ), button
        assert await list_rows(bot) == before


@pytest.mark.parametrize("action", ["stop", "retry", "regenerate", "revise"])
async def test_a_button_of_another_channel_obeys_only_its_author(
    slack: SlackSimulator, tmp_path: Path, action: str
) -> None:
    async with run_bot(slack, tmp_path, [Say("Once"), Pause(60)], stop_timeout=0.1) as bot:
        question = await bot.mention_bot("ada", "random", "a story")
        await bot.wait_for_texts(question, lambda texts: "Once" in texts)
        before = await list_rows(bot)
        (turn,) = await bot.list_turns()
        visitor, _location = await bot.adapter._identities.resolve_interaction(*get_address(bot, "grace"))
        answer = (await bot.adapter._intake.presses.handle(f"{action}:{turn.id}", actor=visitor, locale="")).text
        assert answer in (words.RETRY_NOT_ALLOWED, words.STOP_NOT_ALLOWED)
        assert await list_rows(bot) == before


@pytest.mark.parametrize(
    "command", ["reset", "export", "export json", "export ../..", "model", "info", "stop", "forget", "nothing"]
)
async def test_a_session_of_another_channel_cannot_be_chosen(
    slack: SlackSimulator, tmp_path: Path, command: str
) -> None:
    async with run_bot(slack, tmp_path, "well") as bot:
        dm_message = await slack.post_message("ada", slack.open_dm("ada"), "my secret")
        own_message = await bot.mention_bot("grace", "random", "one")
        await bot.wait_for_turns(2)
        before = await list_rows(bot)
        session, own_session = (
            f"slack:{slack.team_id}:{message.channel.id}:{message.ts}" for message in (dm_message, own_message)
        )
        body = {
            "type": "block_actions",
            "team": {"id": slack.team_id},
            "channel": {"id": slack.channels["general"].id},
            "user": {"id": slack.people["grace"].id},
            "trigger_id": "1.2.3",
            "response_url": "http://127.0.0.1:9/",
        }
        calls = len(slack.calls)
        general = f"slack:{slack.team_id}:{slack.channels['general'].id}"
        for forged in (session, f"{session}/../", own_session, general, ""):
            actions = [{"action_id": f"pick:{command}:{forged}"}]
            assert await bot.dispatch({**body, "actions": actions}) == 200
        assert await list_rows(bot) == before
        assert len(slack.calls) == calls


def get_address(bot: WiredSlackBot, user: str) -> tuple[str, str, str]:
    """Return the ids of the workspace, the channel `general` and the user."""
    return bot.slack.team_id, bot.slack.channels["general"].id, bot.slack.people[user].id
