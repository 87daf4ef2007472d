from dataclasses import replace
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.api import SlackApi
from channels.slack.directory import WorkspaceDirectory
from chatrig.slack import SlackSimulator
from tests.channels.slack.conftest import run_bot


@pytest.fixture
def directory(web: AsyncWebClient) -> WorkspaceDirectory:
    return WorkspaceDirectory(SlackApi(web, pauses=(0.01,)), timeout=0.3)


async def test_users_have_their_display_names(slack: SlackSimulator, directory: WorkspaceDirectory) -> None:
    ada, grace = slack.people["ada"].id, slack.people["grace"].id
    assert await directory.get_names(slack.team_id, [ada, grace]) == {ada: "ada", grace: "grace"}


async def test_a_name_is_fetched_once(slack: SlackSimulator, directory: WorkspaceDirectory) -> None:
    ada = slack.people["ada"].id
    for _ in range(3):
        await directory.get_names(slack.team_id, [ada])
    assert len(slack.calls) == 1


async def test_a_user_without_a_fetched_name_has_their_id(slack: SlackSimulator, directory: WorkspaceDirectory) -> None:
    ada = slack.people["ada"].id
    slack.faults.fail("users.info", 2)
    assert await directory.get_names(slack.team_id, [ada]) == {ada: ada}
    assert await directory.get_names(slack.team_id, ["UNKNOWN"]) == {"UNKNOWN": "UNKNOWN"}
    assert (await directory.get_names(slack.team_id, [ada]))[ada] == "ada"


async def test_a_slow_name_lookup_is_not_awaited(slack: SlackSimulator, directory: WorkspaceDirectory) -> None:
    ada = slack.people["ada"].id
    slack.faults.delay("users.info", 2.0)
    assert await directory.get_names(slack.team_id, [ada]) == {ada: ada}


async def test_a_user_group_has_its_handle_or_without_the_scope_its_id(slack: SlackSimulator, tmp_path: Path) -> None:
    group = slack.add_user_group("oncall", ["ada", "grace"])
    async with run_bot(slack, tmp_path, lambda request: request.text) as bot:
        question = await bot.mention_bot("ada", "general", f"who is in <!subteam^{group.id}>?")
        await bot.wait_for_texts(question, lambda texts: "ada: who is in @oncall?" in texts)
        await bot.mention_bot("ada", "general", f"and in <!subteam^{group.id}|@ops>?", thread_ts=question.ts)
        await bot.wait_for_texts(question, lambda texts: "ada: and in @ops?" in texts)
        assert sum(call.method == "usergroups.list" for call in slack.calls) == 1
    slack.scopes.discard("usergroups:read")
    async with run_bot(slack, tmp_path, lambda request: request.text) as bot:
        for _ in range(2):
            question = await bot.mention_bot("ada", "general", f"who is in <!subteam^{group.id}>?")
            await bot.wait_for_texts(question, lambda texts: f"ada: who is in @{group.id}?" in texts)
        assert sum(call.method == "usergroups.list" for call in slack.calls) == 3


async def test_the_prompt_has_the_display_name_of_the_bot_in_slack(slack: SlackSimulator, tmp_path: Path) -> None:
    bot_user = slack._workspace.bot
    slack._workspace.users[bot_user.id] = replace(bot_user, name="robby")
    async with run_bot(slack, tmp_path, lambda _: "ok") as bot:
        await bot.mention_bot("ada", "general", "Who are you?")
        await bot.wait_for_turns(1)
        assert bot.model.requests[-1]["messages"][0]["content"].startswith("You are robby,")
