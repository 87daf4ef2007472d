"""Events of the scenes beside typed lines; each returns the lines that describe it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import aiohttp

from docs.pictures.stage import Bot
from sandbox.client.session import ChatSession
from sandbox.discord import DiscordSandbox
from sandbox.slack import SlackMessage, SlackSandbox

#: Most seconds to wait for an event.
EVENT_TIMEOUT_SECONDS = 30.0

#: The bot's address on the pages, and its paths.
ADDRESS = "https://your-bot.example.com"
EVENTS_PATH, INSTALL_PATH, BACK_PATH = "/slack/events", "/slack/install", "/slack/oauth_redirect"


@dataclass(frozen=True)
class Environment:
    """The platforms and the bot of a scene.

    Attributes:
        partner: another workspace, for installations of the app.
    """

    slack: SlackSandbox
    partner: SlackSandbox
    discord: DiscordSandbox
    bot: Bot


def _list_finished_answers(slack: SlackSandbox, where: str) -> list[SlackMessage]:
    """Return the finished answers."""
    return [
        message
        for message in slack.messages(where)
        if message.bot_id == slack.bot_id and message.buttons.keys() - {"Stop"}
    ]


async def _disable_intent(environment: Environment, where: str, client: ChatSession) -> list[str]:
    environment.discord.privileged_intents.discard("message_content")
    return []


async def _enable_intent(environment: Environment, where: str, client: ChatSession) -> list[str]:
    environment.discord.privileged_intents.add("message_content")
    return []


async def _verify_address(environment: Environment, where: str, client: ChatSession) -> list[str]:
    await environment.slack.request_url.verify(environment.bot.address + EVENTS_PATH)
    return []


def _make_installation(name: str) -> Callable[[Environment, str, ChatSession], Awaitable[list[str]]]:
    """Return an event that installs the app in a workspace, as a browser does."""

    async def install(environment: Environment, where: str, client: ChatSession) -> list[str]:
        workspace = environment.slack if name == "Sandbox" else environment.partner
        async with aiohttp.ClientSession() as session:
            async with session.get(environment.bot.address + INSTALL_PATH, allow_redirects=False) as answer:
                location = answer.headers["Location"]
                (cookie,) = answer.cookies.values()
            scopes = parse_qs(urlsplit(location).query)["scope"][0].split(",")
            url = f"{environment.bot.address}{BACK_PATH}?{workspace.authorize(location)}"
            async with session.get(url, headers={"Cookie": f"{cookie.key}={cookie.value}"}) as answer:
                status = f"{answer.status} {answer.reason}"
        return [
            f"ada opens {ADDRESS}{INSTALL_PATH}",
            f"  Slack asks for {scopes[0]}, {scopes[1]} and {len(scopes) - 2} more scopes in {name}",
            f"  ada allows them, and Slack redirects to {ADDRESS}{BACK_PATH}: {status}",
        ]

    return install


async def _ask_in_partner(environment: Environment, where: str, client: ChatSession) -> list[str]:
    partner = environment.partner
    question = await partner.post_message("ada", "general", f"<@{partner.bot_user_id}> who is on call?")

    def list_replies() -> list[str]:
        return [message.text for message in partner.messages("general", thread_ts=question.ts)]

    await partner.wait_for(lambda: _list_finished_answers(partner, "general"), timeout=EVENT_TIMEOUT_SECONDS)
    return ["", "in Partner:", "  ada: @parley who is on call?", f"      parley: {list_replies()[-1]}"]


async def _uninstall(environment: Environment, where: str, client: ChatSession) -> list[str]:
    known = len(environment.slack.envelopes)
    environment.partner.uninstall()
    await environment.slack.wait_for(
        lambda: (
            len(environment.slack.envelopes) >= known + 2
            and all(e.acknowledged_at for e in environment.slack.envelopes)
        )
    )
    return ["", "in Partner, the app is removed"]


async def _ask_after_removal(environment: Environment, where: str, client: ChatSession) -> list[str]:
    await environment.partner.post_message(
        "ada", "general", f"<@{environment.partner.bot_user_id}> are you still there?"
    )
    await environment.slack.wait_for(
        lambda: all(e.acknowledged_at for e in environment.slack.envelopes), timeout=EVENT_TIMEOUT_SECONDS
    )
    return ["  ada: @parley are you still there?"]


async def _add_external_user(environment: Environment, where: str, client: ChatSession) -> list[str]:
    mira = environment.slack.add_user("mira", team_id="T0PARTNER")
    environment.slack.channels[where].members.add(mira.id)
    return [f"#{where} is shared with another organisation, of which mira is"]


EVENTS: dict[str, Callable[[Environment, str, ChatSession], Awaitable[list[str]]]] = {
    "the intent is switched off": _disable_intent,
    "the intent is switched on": _enable_intent,
    "Slack verifies the address": _verify_address,
    "ada installs it in Sandbox": _make_installation("Sandbox"),
    "ada installs it in Partner": _make_installation("Partner"),
    "ada asks in Partner": _ask_in_partner,
    "Partner removes it": _uninstall,
    "ada asks in Partner in vain": _ask_after_removal,
    "mira comes from outside": _add_external_user,
}
