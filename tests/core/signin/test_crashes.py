"""A process is killed at an await of a sign-in: each person gets the data of their own account, and gets it once."""

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import sqlalchemy as sa

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest
from chatrig.oauth import OAuthServer
from core.store.schema import human_requests, sign_ins, vault
from tests.acceptance.platforms import BotConversation
from tests.chaos.crashing_process import LOG, Crash
from tests.chaos.runner import DatabaseProvider
from tests.core.signin.calendar_tool import CLIENT, SERVICE
from tests.fixtures.buttons import wait_for_button
from tests.processes.crash_runs import (
    SETTLE_SECONDS,
    CrashRun,
    check_crashes,
    fork_server,
    list_texts,
    provide_database,
)
from tests.processes.fork_server import ForkServer
from tests.processes.procfile import find_free_port
from tests.scenarios.requests.test_sign_in import Browser, list_urls

__all__ = ["fork_server", "provide_database"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PEOPLE = ("ada", "grace")

#: Seconds until a person presses a button again: the press may be lost with the process.
PATIENCE_SECONDS = 4.0


def answer(request: ReceivedRequest) -> Any:
    if request.messages[-1][0] != "tool":
        return CallTool("list_events", {"people": " and ".join(re.findall(r"events of (\w+)\?", request.text))})
    calls = [call for message in request.body["messages"] for call in message.get("tool_calls") or ()]
    people = json.loads(calls[-1]["function"]["arguments"])["people"]
    return f"For {people}: {request.tool_results[-1].content}"


class SignInRun(CrashRun):
    """One run: two people ask in one thread, connect their accounts, ask again, and one disconnects hers.

    Each of them starts a step anew when it fails. Between the questions, their access tokens expire.
    """

    modules = (
        "bot/routes/sign_in.py",
        "channels/commands/answers.py",
        "channels/commands/presses.py",
        "channels/commands/sign_ins.py",
        "channels/discord/client/identity.py",
        "channels/requests/request_message.py",
        "channels/slack/client/openid.py",
        "core/agents/plugins.py",
        "core/agents/runner.py",
        "core/agents/runtime.py",
        "core/privacy/vault.py",
        "core/signin/adk.py",
        "core/signin/browser.py",
        "core/signin/credentials.py",
        "core/signin/oauth.py",
        "core/signin/pending.py",
        "core/tools/call_log.py",
        "core/tools/human_request_service.py",
        "core/tools/human_requests.py",
    )
    tool = "tests.core.signin.calendar_tool:list_events"
    respond = staticmethod(answer)

    async def run(self, crash: Crash | None, *, workers: int = 1) -> tuple[bool, Mapping[str, int], list[str]]:
        self._addresses = [f"http://127.0.0.1:{find_free_port()}" for _ in range(workers)]
        self._balancer = cycle(self._addresses)
        self._is_done = False
        async with OAuthServer() as self.service:
            simulator, public_url = self.platform.simulator, self._addresses[0]
            client = self.service.register_client(f"{public_url}/sign-in/callback")
            simulator.oauth.redirect_urls.add(f"{public_url}/sign-in/identity")
            self.settings |= {
                "PUBLIC_URL": public_url,
                "SECRET_KEY": "0123456789abcdef" * 4,
                "SIGN_IN_CLIENT_SECRETS": json.dumps({client.id: client.secret}),
                "SLACK_SIGN_IN_CLIENT_ID": simulator.oauth.client_id,
                "SLACK_SIGN_IN_CLIENT_SECRET": simulator.oauth.client_secret,
                "DISCORD_CLIENT_SECRET": simulator.oauth.client_secret,
                SERVICE: self.service.url,
                CLIENT: client.id,
            }
            return await super().run(crash, workers=workers)

    def get_settings(self, worker: int) -> Mapping[str, str]:
        return {**self.settings, "PORT": self._addresses[worker].rpartition(":")[2]}

    async def _ask(self, conversation: BotConversation) -> None:
        try:
            await self.platform.wait_for(lambda: self.platform.is_connected, timeout=SETTLE_SECONDS)
            async with asyncio.TaskGroup() as tasks:
                for user in PEOPLE:  # messages that wait together would be one turn, which acts as nobody
                    tasks.create_task(self._get_events(conversation, user))
                    await self.platform.wait_for(partial(has_reply, conversation, user), timeout=SETTLE_SECONDS)
            self.service.faults.set_token_lifetime(30)  # so that the next one is refreshed before its use, too
            self.service.faults.expire_access_tokens()
            for user in PEOPLE:
                await self._get_events(conversation, user)
            await self._disconnect(conversation, "ada")
        finally:
            self._is_done = True

    async def _get_events(self, conversation: BotConversation, user: str) -> None:
        """Ask until the bot shows events: an answer can be that the sign-in is lost."""
        outcome = ""
        while "Meeting" not in outcome:
            seen = len(list_outcomes(conversation, user))
            await conversation.say(f"events of {user}?", user=user)
            outcome = await self._wait_for_outcome(conversation, user, seen)

    async def _wait_for_outcome(self, conversation: BotConversation, user: str, seen: int) -> str:
        """Return a person's next outcome; connect their account when the bot asks for it."""

        def find_outcome() -> str | None:
            return next(iter(list_outcomes(conversation, user)[seen:]), None)

        while True:
            await self.platform.wait_for(
                lambda: find_outcome() or list_requests(conversation, user), timeout=SETTLE_SECONDS
            )
            if outcome := find_outcome():
                return outcome
            with suppress(TimeoutError):
                await self._connect(conversation, user)
                await self.platform.wait_for(find_outcome, timeout=PATIENCE_SECONDS)

    async def _connect(self, conversation: BotConversation, user: str) -> None:
        simulator, known = self.platform.simulator, list_links(conversation, user)
        message, action = await wait_for_button(simulator, words.CONNECT, lambda: list_requests(conversation, user))
        await simulator.click_button(user, message, action)
        link = await self.platform.wait_for(
            lambda: next((url for url in list_links(conversation, user) if url not in known), None),
            timeout=PATIENCE_SECONDS,
        )
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            browser = Browser(session)
            status, _ = await self._open(browser, link)
            if status == 200:
                status, url = await self._open(browser, link, "POST")
            if status == 303:
                status, url = await self._open(browser, await simulator.sign_in(user, url))
            if status == 303:
                callback = await self.service.sign_in(user, url)
                status, page = await self._open(browser, callback)
                is_connected = status == 200 or words.ALREADY_CONNECTED in page
                status, page = await self._open(browser, callback)
                assert (status, words.ALREADY_CONNECTED in page) == (410, is_connected), page

    async def _open(self, browser: Browser, url: str, method: str = "GET") -> tuple[int, str]:
        """Open a page at the next worker; load it again until a worker can answer."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                with suppress(aiohttp.ClientError):
                    status, page = await browser.open(url.replace(self._addresses[0], next(self._balancer)), method)
                    if status != 503:  # the worker starts or stops
                        return status, page
                await asyncio.sleep(0.1)

    async def _disconnect(self, conversation: BotConversation, user: str) -> None:
        simulator = self.platform.simulator
        while len(await self._list_owners()) == len(PEOPLE):
            with suppress(TimeoutError, ValueError):
                await conversation.chat.run_command("connections", user=user)
                message, action = await simulator.wait_for(
                    lambda: find_disconnect_button(conversation, user), timeout=PATIENCE_SECONDS
                )
                await simulator.click_button(user, message, action)

    async def _list_owners(self) -> list[str]:
        async with self.database.read() as connection:
            return list((await connection.execute(sa.select(sign_ins.c.person))).scalars())

    async def _is_settled(self, conversation: BotConversation) -> bool:
        return self._is_done and await super()._is_settled(conversation)

    async def _find_faults(self, conversation: BotConversation) -> list[str]:
        faults = list[str]()
        for user in PEOPLE:
            shown = [text for text in list_outcomes(conversation, user) if "error" not in text]
            if len(shown) != 2 or any(f"Meeting of {user}" not in text for text in shown):
                faults.append(f"{user} gets {shown}")
        async with self.database.read() as connection:
            c = human_requests.c
            decisions = (await connection.execute(sa.select(c.decision, c.decided_by, c.deciders))).all()
            names = (await connection.execute(sa.select(vault.c.name))).scalars().all()
        owners = await self._list_owners()
        stored = [name for name in names if name.startswith("sign-in:")]
        is_only_grace = owners == [get_id(conversation, "grace")] and len(stored) == 1 and owners[0] in stored[0]
        if not is_only_grace:
            faults.append(f"the sign-ins are those of {owners}, with the secrets {stored}")
        if any(decision != "connected" or [person] != deciders for decision, person, deciders in decisions):
            faults.append(f"the decisions are {decisions}")
        if words.CONNECT in conversation.all_button_labels():
            faults.append("a request that is decided still has a button")
        log = (self.folder / LOG).read_text(errors="replace")
        secrets = {
            token
            for grant in self.service.grants
            for token in (*grant.access_tokens, *grant.used_refresh_tokens, grant.refresh_token)
            if token
        }
        return [*faults, *(f"the log has the token {token}" for token in secrets if token in log)]


def has_reply(conversation: BotConversation, user: str) -> bool:
    return bool(list_outcomes(conversation, user) or list_requests(conversation, user))


def get_id(conversation: BotConversation, user: str) -> str:
    person = conversation.chat.simulator.people[user]
    return str(person.id)


def list_outcomes(conversation: BotConversation, user: str) -> list[str]:
    """Return the answers to a person's questions: their events, or the reason why the tool was not called."""
    return [text for text in list_texts(conversation) if text.startswith("For ") and user in text.partition(":")[0]]


def list_requests(conversation: BotConversation, user: str) -> list[Any]:
    """Return the open requests to a person."""
    replies = conversation.chat.list_replies()
    return [reply for reply in replies if words.CONNECT in reply.buttons and user in reply.text.lower()]


def list_private_messages(conversation: BotConversation, user: str) -> list[Any]:
    owner = get_id(conversation, user)
    messages = conversation.chat.list_bot_messages()
    return [
        m
        for m in messages
        if m.ephemeral_to is not None and str(getattr(m.ephemeral_to, "id", m.ephemeral_to)) == owner
    ]


def list_links(conversation: BotConversation, user: str) -> list[str]:
    messages = list_private_messages(conversation, user)
    return list_urls([getattr(message, "blocks", None) or message.content.components for message in messages])


def find_disconnect_button(conversation: BotConversation, user: str) -> tuple[Any, str] | None:
    buttons = [
        (message, action)
        for message in list_private_messages(conversation, user)
        for label, action in message.buttons.items()
        if label.startswith(words.DISCONNECT)
    ]
    return buttons[-1] if buttons else None


@pytest.mark.parametrize("workers", [1, 2])
async def test_each_person_gets_their_own_data_once_whenever_a_process_is_killed(
    fork_server: ForkServer, provide_database: DatabaseProvider, tmp_path: Path, workers: int, request: Any
) -> None:
    if workers == 2 and "sqlite" in request.node.callspec.id:
        pytest.skip("SQLite has one process")
    await check_crashes(SignInRun, fork_server, provide_database, tmp_path, workers=workers)
