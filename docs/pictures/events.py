"""Events of the scenes other than typed lines; each returns descriptive lines."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import aiohttp

from chatrig.client.session import ChatSession
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackMessage, SlackSimulator
from docs.pictures.stage import Bot

#: Limit of the wait for the effect of an event.
EVENT_TIMEOUT_SECONDS = 30.0

#: Base URL of the bot on the pages, and paths of its HTTP server.
ADDRESS = "https://your-bot.example.com"
EVENTS_PATH, INSTALL_PATH, REDIRECT_PATH = "/slack/events", "/slack/install", "/slack/oauth_redirect"


@dataclass(frozen=True)
class Environment:
    """The platforms and the bot of a scene.

    Attributes:
        partner: another workspace, for installations of the app.
    """

    slack: SlackSimulator
    partner: SlackSimulator
    discord: DiscordSimulator
    bot: Bot


def _list_finished_answers(slack: SlackSimulator, channel: str) -> list[SlackMessage]:
    """Return the bot's answers with buttons other than Stop, in a channel."""
    return [
        message
        for message in slack.messages(channel)
        if message.bot_id == slack.bot_id and message.buttons.keys() - {"Stop"}
    ]


async def _disable_intent(environment: Environment, channel: str, client: ChatSession) -> list[str]:
    environment.discord.privileged_intents.discard("message_content")
    return []


async def _enable_intent(environment: Environment, channel: str, client: ChatSession) -> list[str]:
    environment.discord.privileged_intents.add("message_content")
    return []


async def _verify_request_url(environment: Environment, channel: str, client: ChatSession) -> list[str]:
    await environment.slack.request_url.verify(environment.bot.address + EVENTS_PATH)
    return []


def _create_installation(name: str) -> Callable[[Environment, str, ChatSession], Awaitable[list[str]]]:
    """Return an event that installs the app in a workspace, as a browser does."""

    async def install(environment: Environment, channel: str, client: ChatSession) -> list[str]:
        workspace = environment.slack if name == "Simulator" else environment.partner
        async with aiohttp.ClientSession() as session:
            async with session.get(environment.bot.address + INSTALL_PATH, allow_redirects=False) as answer:
                location = answer.headers["Location"]
                (cookie,) = answer.cookies.values()
            scopes = parse_qs(urlsplit(location).query)["scope"][0].split(",")
            url = f"{environment.bot.address}{REDIRECT_PATH}?{workspace.authorize(location)}"
            async with session.get(url, headers={"Cookie": f"{cookie.key}={cookie.value}"}) as answer:
                status = f"{answer.status} {answer.reason}"
        return [
            f"ada opens {ADDRESS}{INSTALL_PATH}",
            f"  Slack asks for {scopes[0]}, {scopes[1]} and {len(scopes) - 2} more scopes in {name}",
            f"  ada allows them, and Slack redirects to {ADDRESS}{REDIRECT_PATH}: {status}",
        ]

    return install


async def _ask_in_partner(environment: Environment, channel: str, client: ChatSession) -> list[str]:
    partner = environment.partner
    question = await partner.post_message("ada", "general", f"<@{partner.bot_user_id}> who is on call?")

    def list_replies() -> list[str]:
        return [message.text for message in partner.messages("general", thread_ts=question.ts)]

    await partner.wait_for(lambda: _list_finished_answers(partner, "general"), timeout=EVENT_TIMEOUT_SECONDS)
    return ["", "in Partner:", "  ada: @parley who is on call?", f"      parley: {list_replies()[-1]}"]


async def _uninstall(environment: Environment, channel: str, client: ChatSession) -> list[str]:
    envelope_count = len(environment.slack.envelopes)
    environment.partner.uninstall()
    await environment.slack.wait_for(
        lambda: (
            len(environment.slack.envelopes) >= envelope_count + 2
            and all(e.acknowledged_at for e in environment.slack.envelopes)
        )
    )
    return ["", "in Partner, the app is removed"]


async def _ask_after_removal(environment: Environment, channel: str, client: ChatSession) -> list[str]:
    await environment.partner.post_message(
        "ada", "general", f"<@{environment.partner.bot_user_id}> are you still there?"
    )
    await environment.slack.wait_for(
        lambda: all(e.acknowledged_at for e in environment.slack.envelopes), timeout=EVENT_TIMEOUT_SECONDS
    )
    return ["  ada: @parley are you still there?"]


async def _add_external_user(environment: Environment, channel: str, client: ChatSession) -> list[str]:
    mira = environment.slack.add_user("mira", team_id="T0PARTNER")
    environment.slack.channels[channel].members.add(mira.id)
    return [f"mira of another organization joins #{channel}"]


EVENTS: dict[str, Callable[[Environment, str, ChatSession], Awaitable[list[str]]]] = {
    "disable the intent": _disable_intent,
    "enable the intent": _enable_intent,
    "verify the request URL": _verify_request_url,
    "install in Simulator": _create_installation("Simulator"),
    "install in Partner": _create_installation("Partner"),
    "ask in Partner": _ask_in_partner,
    "uninstall from Partner": _uninstall,
    "ask in Partner after the removal": _ask_after_removal,
    "add an external user": _add_external_user,
}
