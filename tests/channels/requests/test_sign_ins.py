"""Requests to sign in and connected accounts, through the clients of both platforms."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.openapi.models import APIKey, APIKeyIn
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.access import AccessPolicy, AccessRules
from channels.i18n import messages as words
from chatrig.discord.state.messages import GuildEvent
from chatrig.models import CallTool, ReceivedRequest
from core.errors import SignInLinkError
from core.messages.identity import Actor, User
from core.observability.secret_redaction import redact_secrets
from core.signin.target import Credential, CredentialKind, Person, SignInTarget
from core.store.schema import human_requests, sign_ins
from core.tools.human_requests import SignInRequest
from tests.channels.platforms import Chat, list_texts, run_conversation, wait_for_texts
from tests.channels.wiring import PUBLIC_URL, find_tables_with
from tests.scenarios.chat import list_buttons, run_command, wait_for_private_message

LINK_TEXT = words.SIGN_IN_LINK.format(service="GitHub", minutes=10)

CONFIG = AuthConfig(
    auth_scheme=APIKey.model_validate({"in": APIKeyIn.header, "name": "X-Key", "description": "GitHub"}),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY),
)


def list_issues(tool_context: ToolContext) -> Any:
    """List the issues of the person."""
    credential = tool_context.get_auth_response(CONFIG)
    if credential is None:
        tool_context.request_credential(CONFIG)
        return {"status": "pending"}
    return f"issues for {len(credential.api_key or '')} characters"


def script(request: ReceivedRequest) -> Any:
    if request.tool_results:
        return f"Result: {request.tool_results[-1].content}"
    return CallTool("list_issues") if "issues" in request.text else "heard"


@asynccontextmanager
async def run_chat(simulator: Any, folder: Path, **settings: Any) -> AsyncIterator[Chat]:
    core = {"tools": [FunctionTool(list_issues)]}
    async with run_conversation(simulator, folder, script, core=core, **settings) as chat:
        yield chat


async def ask_to_sign_in(chat: Chat, **changed: Any) -> SignInRequest:
    """Let Ada's question lead to a request, and return it.

    Args:
        changed: new column values of the request.
    """
    await chat.say("my issues?")
    await chat.simulator.wait_for(lambda: any(words.CONNECT in labels for labels in list_buttons(chat)))
    await chat.bot.wait_for_turns(1)
    assert list_texts(chat)[0] == words.NEEDS_SIGN_IN
    (turn,) = await chat.bot.list_turns()
    (request,) = await chat.bot.services.human_requests.list_of_turn(turn.id)
    assert isinstance(request, SignInRequest)
    if changed:
        async with chat.bot.database.write() as connection:
            await connection.execute(sa.update(human_requests).values(changed))
    return request


async def connect(chat: Chat, request: SignInRequest, secret: str) -> None:
    """Finish a sign-in, as a browser does."""
    services = chat.bot.services
    owner = request.owner
    user = User(owner.person, "Ada", platform=owner.platform, workspace=owner.workspace)
    target = SignInTarget(credential_key=request.credential_key, kind=CredentialKind.API_KEY, label="GitHub")

    async def save(connection: AsyncConnection) -> None:
        credential = Credential(secret=secret)
        await services.sign_ins.save(connection, Person.of(user), request.app_name, target, credential)

    assert (await services.human_requests.complete_sign_in(request.id, save, user)).is_first


async def store_verdict(chat: Chat, verdict: str) -> None:
    """Store the outcome of a sign-in in the browser."""
    async with chat.bot.database.write() as connection:
        values = {"decision": verdict, "decided_at": time.time()}
        await connection.execute(sa.update(human_requests).values(values))


async def add_sign_in(chat: Chat, id_: str, **values: Any) -> None:
    """Store a connected account of Ada."""
    row = {
        "id": id_,
        "platform": chat.bot.platform.name,
        "workspace": chat.simulator.team_id if chat.bot.platform.name == "slack" else "",
        "person": str(chat.simulator.people["ada"].id),
        "app": "parley",
        "credential_key": id_,
        "fingerprint": "",
        "kind": "oauth",
        "label": "GitHub",
        "account": "ada-l",
        "scopes": ["repo", "user"],
        "state": "active",
        "created_at": 1e9,
        "used_at": None,
    }
    async with chat.bot.database.write() as connection:
        await connection.execute(sa.insert(sign_ins).values({**row, **values}))


def list_urls(chat: Chat) -> list[str]:
    """Return the pages that the buttons of the bot's messages open."""
    return [url for message in chat.list_bot_messages() for url in _find_urls(_blocks_of(message))]


def _blocks_of(message: Any) -> Any:
    return message.blocks if hasattr(message, "blocks") else message.content.components


def _find_urls(part: Any) -> list[str]:
    if isinstance(part, list | tuple):
        return [url for each in part for url in _find_urls(each)]
    if isinstance(part, dict):
        return [part["url"]] if part.get("url") else [url for each in part.values() for url in _find_urls(each)]
    return []


async def test_a_request_has_no_link_and_only_its_person_gets_one(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        request = await ask_to_sign_in(chat)
        shown = chat.list_replies()[-1].text
        assert "connect GitHub so that I can go on" in shown
        assert list_buttons(chat)[-1] == [words.CONNECT, words.NOT_NOW]
        assert list_urls(chat) == []
        await chat.press(words.CONNECT, user="grace")
        await wait_for_private_message(chat, words.SIGN_IN_NOT_YOURS, user="grace")
        assert list_urls(chat) == []
        await chat.press(words.CONNECT)
        await wait_for_private_message(chat, LINK_TEXT)
        (url,) = list_urls(chat)
        assert url.startswith(f"{PUBLIC_URL}/sign-in/{request.id}-")
        assert url not in str([m.text for m in chat.list_bot_messages()])
        assert url not in redact_secrets(f"a library sends {url}")
        assert chat.list_replies()[-1].text == shown


async def test_each_press_makes_a_new_link_and_voids_the_earlier_one(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await ask_to_sign_in(chat)
        for count in (1, 2):
            await chat.press(words.CONNECT)
            await chat.simulator.wait_for(lambda: len(chat.list_private_messages()) == count)  # noqa: B023
        first, second = (url.rpartition("/")[2] for url in list_urls(chat))
        flow = chat.bot.adapter._intake.presses._services.sign_in_flow
        with pytest.raises(SignInLinkError):
            await flow.get_confirmation(first)
        assert (await flow.get_confirmation(second)).service == "GitHub"


async def test_a_bot_without_sign_in_says_so(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await ask_to_sign_in(chat)
        presses = chat.bot.adapter._intake.presses
        presses._services = replace(presses._services, sign_in_flow=None)
        await chat.press(words.CONNECT)
        await wait_for_private_message(chat, words.SIGN_IN_NOT_SET_UP)


async def test_a_run_goes_on_with_the_account_of_its_person(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        request = await ask_to_sign_in(chat)
        await connect(chat, request, "key-of-ada")
        await wait_for_texts(chat, lambda texts: "issues for 10 characters" in texts[-1])
        await wait_for_texts(chat, lambda texts: "✅ Connected by" in texts[1])
        assert list_buttons(chat)[1] == []
        listed = await run_command(chat, "connections")
        assert "**GitHub**" in listed
        assert "last used" in listed
        assert not [table for table in await find_tables_with(chat.bot, "key-of-ada") if table != "vault"]


async def test_a_press_of_the_link_button_has_no_answer(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await ask_to_sign_in(chat)
        await chat.press(words.CONNECT)
        await wait_for_private_message(chat, LINK_TEXT)
        if chat.bot.platform.name == "slack":  # Discord: it is no interaction
            link = next(m for m in chat.list_bot_messages() if words.OPEN_SIGN_IN in m.buttons)
            assert await chat.simulator.click_button("ada", link, link.buttons[words.OPEN_SIGN_IN])
        await chat.press(words.CONNECT, user="grace")
        await wait_for_private_message(chat, words.SIGN_IN_NOT_YOURS, user="grace")
        assert chat.list_private_messages() == [LINK_TEXT]


async def test_a_declined_request_says_so(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await ask_to_sign_in(chat)
        await chat.press(words.NOT_NOW, user="grace")
        await wait_for_private_message(chat, words.SIGN_IN_NOT_YOURS, user="grace")
        await chat.press(words.NOT_NOW)
        await wait_for_texts(chat, lambda texts: "⛔ Declined by" in texts[1] and "Result" in texts[-1])
        assert list_buttons(chat)[1] == []


@pytest.mark.parametrize(("verdict", "sign"), [("connected", "✅ Connected by"), ("expired", words.SIGN_IN_EXPIRED)])
async def test_a_closed_request_says_so(simulator: Any, tmp_path: Path, verdict: str, sign: str) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        request = await ask_to_sign_in(chat)
        await store_verdict(chat, verdict)
        await chat.bot.services.request_messages.update(request)
        await wait_for_texts(chat, lambda texts: sign in texts[1])
        assert list_buttons(chat)[1] == []


@pytest.mark.parametrize(
    ("label", "answer"), [(words.CONNECT, words.ALREADY_ENDED), (words.NOT_NOW, words.ALREADY_DECIDED)]
)
async def test_a_press_after_the_decision_makes_no_link(
    simulator: Any, tmp_path: Path, label: str, answer: str
) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await ask_to_sign_in(chat)
        await store_verdict(chat, "connected")
        await chat.press(label)
        await wait_for_private_message(chat, answer)
        await wait_for_texts(chat, lambda texts: "✅ Connected by" in texts[1])
        assert (list_buttons(chat)[1], list_urls(chat)) == ([], [])


async def test_a_press_after_the_time_limit_makes_no_link(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await ask_to_sign_in(chat, expires_at=1.0)
        await chat.press(words.CONNECT)
        await wait_for_private_message(chat, words.ALREADY_ENDED)
        assert list_urls(chat) == []
        await chat.press(words.NOT_NOW)
        await wait_for_texts(chat, lambda texts: words.SIGN_IN_EXPIRED in texts[1])


async def test_a_reset_closes_a_request(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        request = await ask_to_sign_in(chat)
        assert await run_command(chat, "reset") == words.RESET_DONE
        await wait_for_texts(chat, lambda texts: words.SIGN_IN_VOID in texts[1])
        assert list_buttons(chat)[1] == []
        late = Actor(chat.bot.platform.name, request.owner.person)
        presses = chat.bot.adapter._intake.presses
        result = await presses.handle(f"connect:{request.id}", actor=late, locale="", workspace=request.owner.workspace)
        assert (result.text, result.buttons) == (words.ALREADY_ENDED, ())


async def test_a_person_without_access_gets_no_link(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        request = await ask_to_sign_in(chat)
        blocked = AccessRules(block=frozenset({f"user:{request.inbox_message.author}"}))
        intake = chat.bot.adapter._intake
        intake._services = replace(intake._services, access_policy=AccessPolicy({chat.bot.platform.name: blocked}))
        await chat.press(words.CONNECT)
        await wait_for_private_message(chat, words.USER_NOT_ALLOWED)
        assert list_urls(chat) == []


async def test_a_person_who_lost_access_while_the_run_waits_uses_no_account(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        request = await ask_to_sign_in(chat)
        blocked = AccessRules(block=frozenset({f"user:{request.inbox_message.author}"}))
        chat.bot.services.access_policy._rules = {chat.bot.platform.name: blocked}
        await connect(chat, request, "key-of-ada")
        await wait_for_texts(chat, lambda texts: words.ACCESS_REVOKED in texts)
        assert not any("issues for" in text for text in list_texts(chat))


async def test_the_name_of_a_service_has_no_markup_and_mentions_nobody(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        label = "[Git](https://evil.example)\n@everyone <!channel> **x**" + "y" * 500
        request = await ask_to_sign_in(chat)
        arguments = {**asdict(replace(request.owner, label=label)), "credential_key": request.credential_key}
        async with chat.bot.database.write() as connection:
            await connection.execute(sa.update(human_requests).values(arguments=arguments))
        await chat.bot.services.request_messages.update(request)
        shown = chat.list_replies()[-1].text
        assert "](" not in shown
        assert "<!channel>" not in shown
        assert len(shown) < 500
        await chat.press(words.CONNECT)
        await chat.simulator.wait_for(chat.list_private_messages)
        assert "](" not in chat.list_private_messages()[0]


async def test_people_see_and_disconnect_only_their_own_accounts(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        assert await run_command(chat, "connections") == words.NO_CONNECTIONS
        await add_sign_in(chat, "a1", used_at=2e9)
        await add_sign_in(chat, "a2", label="Jira", account="", scopes=[], state="lost")
        listed = await run_command(chat, "connections")
        assert "1. **GitHub**; ada-l; repo, user; since" in listed
        assert "last used" in listed
        assert "2. **Jira**; since" in listed
        assert words.CONNECTION_LOST in listed
        assert await run_command(chat, "connections", user="grace") == words.NO_CONNECTIONS
        message = next(m for m in chat.list_bot_messages() if f"{words.DISCONNECT} 1" in m.buttons)
        await chat.simulator.click_button("ada", message, message.buttons[f"{words.DISCONNECT} 1"])
        await chat.simulator.wait_for(
            lambda: words.DISCONNECTED.format(service="GitHub") in chat.list_private_messages()
        )
        assert "GitHub" not in await run_command(chat, "connections")
        grace = Actor(chat.bot.platform.name, "U0GRACE")
        result = await chat.bot.adapter._intake.presses.handle("disconnect:a2", actor=grace, locale="")
        assert result.text == words.CONNECTION_UNKNOWN
        assert len(await chat.bot.services.sign_ins.list_all()) == 1


async def test_many_accounts_are_disconnected_by_a_menu(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        for number in range(30):
            await add_sign_in(chat, f"a{number}", label="x" * 200, scopes=["y" * 50] * 10)
        listed = await run_command(chat, "connections")
        assert listed.endswith("…")
        assert 5 < listed.count("\n") < 20
        message = next(m for m in chat.list_bot_messages() if m.text == listed)
        assert str(_blocks_of(message)).count("disconnect:") == 25


async def test_a_message_names_the_private_command(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await add_sign_in(chat, "a1")
        await chat.say("/connections")
        hint = words.USAGE_PRIVATELY.format(command="/connections")
        await wait_for_texts(chat, lambda texts: texts == [hint])


async def wait_for_sign_ins(chat: Chat, *ids: str) -> None:
    """Wait until exactly these accounts are connected."""
    list_all = chat.bot.services.sign_ins.list_all
    await chat.bot.database.wait_until(list_all, lambda found: [sign_in.id for sign_in in found] == [*ids])


async def test_a_person_who_leaves_loses_their_accounts(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await add_sign_in(chat, "a1")
        await add_sign_in(chat, "a2", person=str(simulator.people["grace"].id))
        leave = simulator.deactivate_user if chat.bot.platform.name == "slack" else simulator.leave_guild
        leave("ada")
        await wait_for_sign_ins(chat, "a2")


async def test_a_change_of_a_person_who_stays_deletes_nothing(simulator: Any, tmp_path: Path) -> None:
    async with run_chat(simulator, tmp_path) as chat:
        await add_sign_in(chat, "a1")
        await add_sign_in(chat, "a2", person=str(simulator.people["grace"].id))
        if chat.bot.platform.name == "slack":
            simulator._events.dispatch_user_changed(simulator.people["ada"])
            simulator.deactivate_user("grace")
        else:  # Ada leaves another server of the bot
            simulator._guild.emit(GuildEvent("GUILD_MEMBER_REMOVE", user=simulator.people["ada"]))
            simulator.leave_guild("grace")
            lookup = "GET /guilds/{guild}/members/{user}"
            await simulator.wait_for(lambda: sum(call.route == lookup for call in simulator.calls) == 2)
        await wait_for_sign_ins(chat, "a1")
