"""Several Slack workspaces: installation by OAuth, and a token for each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
import sqlalchemy as sa

from channels.slack.client import oauth, workspaces
from channels.slack.client.oauth import INSTALL_PATH, REDIRECT_PATH
from channels.slack.manifest import manifest
from channels.slack.settings import DEFAULT_PROMPTS
from chatrig.slack import SlackMessage, SlackSimulator
from core.errors import SettingsError, StoreError
from core.privacy.vault import Vault
from core.store.schema import vault
from tests.channels.slack.conftest import BOTH_MODES, WiredSlackBot, create_settings, run_bot
from tests.channels.wiring import echo


@pytest.fixture
async def other_workspace(slack: SlackSimulator) -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(name="Other", primary=slack) as other:
        other.install(manifest(prompts=DEFAULT_PROMPTS, address="" if slack.socket_mode else "https://bot.example"))
        yield other


@asynccontextmanager
async def run_installable_bot(slack: SlackSimulator, tmp_path: Path, **kwargs: Any) -> AsyncIterator[WiredSlackBot]:
    """Run a bot that any workspace may install, before its first installation."""
    keys: dict[str, Any] = {"client_id": slack.oauth.client_id, "client_secret": slack.oauth.client_secret}
    async with run_bot(slack, tmp_path, echo, bot_token="", **keys, **kwargs) as bot:
        yield bot


class Browser:
    """Browser of a user who installs the Slack app in a workspace.

    Attributes:
        cookie: the cookie with the OAuth state.
        page: the text of the last page.
    """

    def __init__(self, bot: WiredSlackBot) -> None:
        self._bot = bot
        self.cookie = ""
        self.page = ""

    async def open_install_page(self) -> str:
        """Open the installation page, and return the Slack address of its redirect."""
        url = self._bot.address + INSTALL_PATH
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as answer:
            assert answer.status == 302
            (cookie,) = answer.cookies.values()
            assert (cookie["secure"], cookie["httponly"]) == (True, True)
            self.cookie = f"{cookie.key}={cookie.value}"
            return answer.headers["Location"]

    async def return_from_slack(self, query: str) -> int:
        """Open the redirect page with Slack's query, and return the HTTP status.

        The page's text is stored in `page`.
        """
        url = f"{self._bot.address}{REDIRECT_PATH}?{query}"
        headers = {"Cookie": self.cookie} if self.cookie else {}
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
            self.page = await answer.text()
            return answer.status


async def install(bot: WiredSlackBot, workspace: SlackSimulator) -> None:
    browser = Browser(bot)
    assert await browser.return_from_slack(workspace.authorize(await browser.open_install_page())) == 200, browser.page


async def uninstall(slack: SlackSimulator, workspace: SlackSimulator) -> None:
    """Uninstall the app in a workspace, and wait until the bot acknowledges it."""
    known = len(slack.envelopes)
    workspace.uninstall()
    await slack.wait_for(lambda: len(slack.envelopes) >= known + 2 and all(e.acknowledged_at for e in slack.envelopes))


async def check_bot_answers(bot: WiredSlackBot, workspace: SlackSimulator, text: str) -> SlackMessage:
    question = await workspace.post_message("ada", "general", f"<@{workspace.bot_user_id}> {text}")
    await workspace.wait_for(lambda: f"heard: ada: {text}" in list_texts(workspace, question))
    return question


def list_texts(workspace: SlackSimulator, question: SlackMessage) -> list[str]:
    return [message.text for message in workspace.messages(question.channel, thread_ts=question.ts)]


async def list_stored(bot: WiredSlackBot) -> list[str]:
    """Return name and ciphertext of each stored secret that does not expire.

    OAuth states expire, so they are not in the list.
    """
    rows = sa.select(vault.c.name, vault.c.ciphertext).where(vault.c.expires_at.is_(None))
    async with bot.database.read() as connection:
        return [f"{name} {sealed}" for name, sealed in (await connection.execute(rows))]


async def count_stored(bot: WiredSlackBot) -> int:
    async with bot.database.read() as connection:
        return await connection.scalar(sa.select(sa.func.count()).select_from(vault)) or 0


@BOTH_MODES
async def test_each_workspace_has_its_own_token_until_the_app_is_uninstalled(
    slack: SlackSimulator, other_workspace: SlackSimulator, tmp_path: Path
) -> None:
    async with run_installable_bot(slack, tmp_path) as bot:
        early = await other_workspace.post_message("ada", "general", f"<@{other_workspace.bot_user_id}> too early")
        await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))
        await install(bot, slack)
        await install(bot, other_workspace)
        question = await check_bot_answers(bot, slack, "one")
        theirs = await check_bot_answers(bot, other_workspace, "two")
        assert list_texts(other_workspace, early)[1:] == []
        first, second = (row.session for row in await bot.list_turns())
        assert (first.split(":")[1], second.split(":")[1]) == (slack.team_id, other_workspace.team_id)
        responses = await other_workspace.run_command("ada", "general", "/reset")
        assert (await other_workspace.wait_for(lambda: responses))[0].channel is theirs.channel
        rows = await list_stored(bot)
        assert [row.partition(" ")[0] for row in sorted(rows)] == sorted(
            f"slack:installation:{workspace.team_id}" for workspace in (slack, other_workspace)
        )
        assert not any(word in row for row in rows for word in ("xoxb", "ada", slack.bot_token[5:]))

        await uninstall(slack, other_workspace)
        assert [row.partition(" ")[0] for row in await list_stored(bot)] == [f"slack:installation:{slack.team_id}"]
        calls = len(other_workspace.calls)
        deleted = await other_workspace.post_message("ada", "general", f"<@{other_workspace.bot_user_id}> three")
        await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))
        await check_bot_answers(bot, slack, "four")
        assert (list_texts(other_workspace, deleted)[1:], len(other_workspace.calls)) == ([], calls)

        await install(bot, other_workspace)
        await check_bot_answers(bot, other_workspace, "five")
        assert len(list_texts(slack, question)) == 2


async def test_an_oauth_state_is_valid_once_and_for_its_browser(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_installable_bot(slack, tmp_path) as bot:
        browser, stranger = Browser(bot), Browser(bot)
        query = slack.authorize(await browser.open_install_page())
        assert await stranger.return_from_slack(query) == 400
        state = parse_qs(query)["state"][0]
        forged = Browser(bot)
        forged.cookie = browser.cookie.partition("=")[0] + "=made-up"
        assert await forged.return_from_slack(query.replace(state, "made-up")) == 401
        assert await browser.return_from_slack("error=access_denied&state=" + state) == 200
        assert await count_stored(bot) == 0  # opening the page stores nothing
        assert await browser.return_from_slack(query) == 200
        second_query = slack.authorize(f"https://slack.com/?client_id={slack.oauth.client_id}&scope=x&state={state}")
        assert await browser.return_from_slack(second_query) == 401
        browser = Browser(bot)
        url = await browser.open_install_page()
        assert await browser.return_from_slack(f"code=made-up&state={parse_qs(urlsplit(url).query)['state'][0]}") == 401
        assert await browser.return_from_slack("") == 400
        assert [row.partition(" ")[0] for row in await list_stored(bot)] == [f"slack:installation:{slack.team_id}"]
        url = await browser.open_install_page()
        monkeypatch.setattr(oauth, "STATE_SECONDS", -1)
        assert await browser.return_from_slack(slack.authorize(url)) == 401


async def test_a_wrong_secret_key_ends_the_start_and_loses_nothing(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_installable_bot(slack, tmp_path) as bot:
        await install(bot, slack)
    with pytest.raises(SettingsError, match="SECRET_KEY: the tokens in the database were encrypted with another key"):
        async with run_installable_bot(slack, tmp_path, secret_key="another key of thirty-two characters"):
            pass
    async with run_installable_bot(slack, tmp_path) as bot:
        await check_bot_answers(bot, slack, "one")


async def test_a_revoked_token_is_deleted_unless_it_was_replaced(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "TOKEN_SECONDS", 0.0)
    async with run_installable_bot(slack, tmp_path) as bot:
        await install(bot, slack)
        known = bot.platform.tokens
        assert known is not None
        token, second = slack.bot_token, workspaces.WorkspaceTokenStore(known.vault)
        assert await second.is_installed(slack.team_id)
        await uninstall(slack, slack)
        assert not await second.is_installed(slack.team_id)
        assert slack.bot_token != token
        (row,) = [e for e in slack.envelopes if e.payload["event"]["type"] == "app_uninstalled"]
        row.payload["event_time"] -= 60
        await install(bot, slack)
        await slack.redeliver(row)
        await slack.wait_for(lambda: slack.envelopes[-1].attempt and slack.envelopes[-1].acknowledged_at)
        await check_bot_answers(bot, slack, "still there")


async def test_an_event_comes_again_if_the_installation_cannot_be_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_installed, failures = workspaces.WorkspaceTokenStore.is_installed, iter([StoreError("out of reach")] * 2)

    async def fail_at_first(self: workspaces.WorkspaceTokenStore, team: str) -> bool:
        if error := next(failures, None):
            raise error
        return await is_installed(self, team)

    async with SlackSimulator(speed=4) as slack:
        slack.install(manifest(prompts=DEFAULT_PROMPTS))
        async with run_installable_bot(slack, tmp_path) as bot:
            await install(bot, slack)
            monkeypatch.setattr(workspaces.WorkspaceTokenStore, "is_installed", fail_at_first)
            question = await check_bot_answers(bot, slack, "one")
            assert any(envelope.attempt for envelope in slack.envelopes)
            assert len(list_texts(slack, question)) == 2


async def test_an_installation_by_another_process_is_found_at_once(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_installable_bot(slack, tmp_path) as bot:
        first = bot.platform.tokens
        assert first is not None
        second = workspaces.WorkspaceTokenStore(first.vault)
        assert not await second.is_installed(slack.team_id)
        await first.add(slack.team_id, {}, slack.bot_token)
        assert await second.is_installed(slack.team_id)


async def test_a_sign_in_of_another_key_does_not_stop_the_start(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_installable_bot(slack, tmp_path) as bot:
        other = Vault(bot.database, "another key of thirty-two characters")
        await other.put("sign-in:slack/T1/U0ADA/1", {})
    async with run_installable_bot(slack, tmp_path) as bot:
        await install(bot, slack)
        await check_bot_answers(bot, slack, "one")


async def test_a_workspace_with_a_failing_backfill_delays_no_other(
    slack: SlackSimulator, other_workspace: SlackSimulator, tmp_path: Path
) -> None:
    async with run_installable_bot(slack, tmp_path) as bot:
        await install(bot, slack)
        await install(bot, other_workspace)
        await check_bot_answers(bot, other_workspace, "one")
        mine = await check_bot_answers(bot, slack, "two")
    other_workspace.subscriptions.clear()
    other_workspace.uninstall()
    missed = await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> missed", thread_ts=mine.ts)
    await slack.discard_pending()
    async with run_installable_bot(slack, tmp_path) as bot:
        await slack.wait_for(lambda: "heard: ada: missed" in list_texts(slack, mine))
        assert missed.ts


def test_the_repr_of_the_settings_contains_no_secret(slack: SlackSimulator) -> None:
    settings = replace(create_settings(slack), client_secret="client-secret")
    assert not any(word in repr(settings) for word in ("client-secret", slack.signing_secret, slack.bot_token))
