"""Events of the scenes besides typing; each returns the lines that describe it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import aiohttp

from docs.pictures.stage import Bot
from sandbox.client.session import ClientSession
from sandbox.discord import DiscordSandbox
from sandbox.slack import SlackMessage, SlackSandbox

#: Most seconds to wait for an event.
WITHIN = 30.0

#: The bot's address on the pages, and its paths.
ADDRESS = "https://your-bot.example.com"
EVENTS_PATH, INSTALL_PATH, BACK_PATH = "/slack/events", "/slack/install", "/slack/oauth_redirect"


@dataclass(frozen=True)
class World:
    """The platforms and the bot of a scene.

    Attributes:
        partner: another workspace, for installations of the app.
    """

    slack: SlackSandbox
    partner: SlackSandbox
    discord: DiscordSandbox
    bot: Bot


def _ended(slack: SlackSandbox, where: str) -> list[SlackMessage]:
    """Return the finished answers."""
    return [one for one in slack.messages(where) if one.bot_id == slack.bot_id and one.buttons.keys() - {"Stop"}]


async def _intent_off(world: World, where: str, client: ClientSession) -> list[str]:
    world.discord.privileged_intents.discard("message_content")
    return []


async def _intent_on(world: World, where: str, client: ClientSession) -> list[str]:
    world.discord.privileged_intents.add("message_content")
    return []


async def _renews_socket(world: World, where: str, client: ClientSession) -> list[str]:
    slack = world.slack
    stood = slack.connection_count
    await slack.refresh_sockets()
    await slack.wait_for(lambda: slack.connection_count == stood, timeout=WITHIN)
    return [f"Slack holds {stood} sockets to the bot, and has them made anew"]


async def _verifies(world: World, where: str, client: ClientSession) -> list[str]:
    await world.slack.request_url.verify(world.bot.address + EVENTS_PATH)
    return [f"Slack asks {ADDRESS}{EVENTS_PATH} for the value of challenge, gets it, and takes the address"]


async def _stranger_calls(world: World, where: str, client: ClientSession) -> list[str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(world.bot.address + EVENTS_PATH, json={"type": "event_callback"}) as answer,
    ):
        return ["", f"somebody else posts there, without Slack's signature, and gets {answer.status} {answer.reason}"]


def _installs(name: str) -> Callable[[World, str, ClientSession], Awaitable[list[str]]]:
    """Return an event that installs the app in a workspace, as a browser does."""

    async def install(world: World, where: str, client: ClientSession) -> list[str]:
        workspace = world.slack if name == "Sandbox" else world.partner
        async with aiohttp.ClientSession() as session:
            async with session.get(world.bot.address + INSTALL_PATH, allow_redirects=False) as answer:
                asked = answer.headers["Location"]
                (cookie,) = answer.cookies.values()
            scopes = parse_qs(urlsplit(asked).query)["scope"][0].split(",")
            url = f"{world.bot.address}{BACK_PATH}?{workspace.authorize(asked)}"
            async with session.get(url, headers={"Cookie": f"{cookie.key}={cookie.value}"}) as answer:
                status = f"{answer.status} {answer.reason}"
        return [
            f"ada opens {ADDRESS}{INSTALL_PATH}",
            f"  Slack asks her: may Parley have {scopes[0]}, {scopes[1]} and {len(scopes) - 2} more in {name}?",
            f"  she allows it, comes back to {ADDRESS}{BACK_PATH}, and is told that it is done ({status})",
        ]

    return install


async def _asks_in_partner(world: World, where: str, client: ClientSession) -> list[str]:
    partner = world.partner
    asked = await partner.post_message("ada", "general", f"<@{partner.bot_user_id}> who is on call?")

    def thread() -> list[str]:
        return [one.text for one in partner.messages("general", thread_ts=asked.ts)]

    await partner.wait_for(lambda: _ended(partner, "general"), timeout=WITHIN)
    return ["", "in Partner:", "  ada: @parley who is on call?", f"      parley: {thread()[-1]}"]


async def _uninstalls(world: World, where: str, client: ClientSession) -> list[str]:
    known = len(world.slack.envelopes)
    world.partner.uninstall()
    await world.slack.wait_for(
        lambda: len(world.slack.envelopes) >= known + 2 and all(e.acknowledged_at for e in world.slack.envelopes)
    )
    return ["", "in Partner, the app is removed"]


async def _asks_in_vain(world: World, where: str, client: ClientSession) -> list[str]:
    await world.partner.post_message("ada", "general", f"<@{world.partner.bot_user_id}> are you still there?")
    await world.slack.wait_for(lambda: all(e.acknowledged_at for e in world.slack.envelopes), timeout=WITHIN)
    return ["  ada: @parley are you still there?"]


async def _comes_from_outside(world: World, where: str, client: ClientSession) -> list[str]:
    mira = world.slack.add_user("mira", team_id="T0PARTNER")
    world.slack.channels[where].members.add(mira.id)
    return [f"#{where} is shared with another organisation, of which mira is"]


EVENTS: dict[str, Callable[[World, str, ClientSession], Awaitable[list[str]]]] = {
    "the intent is switched off": _intent_off,
    "the intent is switched on": _intent_on,
    "Slack renews the sockets": _renews_socket,
    "Slack verifies the address": _verifies,
    "a stranger calls": _stranger_calls,
    "ada installs it in Sandbox": _installs("Sandbox"),
    "ada installs it in Partner": _installs("Partner"),
    "ada asks in Partner": _asks_in_partner,
    "Partner removes it": _uninstalls,
    "ada asks in Partner in vain": _asks_in_vain,
    "mira comes from outside": _comes_from_outside,
}
