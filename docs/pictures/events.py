"""What else happens in a scene than that somebody types: each event happens, and is told in the lines that it gives."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import parse_qs, urlsplit

import aiohttp

from docs.pictures.stage import Bot
from sandbox.client.session import ClientSession
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.slack import SlackMessage, SlackSandbox

#: Seconds within which what a scene waits for has to be seen.
WITHIN = 30.0

#: Messages of other bots in a row that are answered.
LOOP_LIMIT = 3

#: Discord: the flag of a message of which nobody is notified.
SILENT = 1 << 12

#: How the pages call the bot's address, and where it is under it.
ADDRESS = "https://your-bot.example.com"
EVENTS_PATH, INSTALL_PATH, BACK_PATH = "/slack/events", "/slack/install", "/slack/oauth_redirect"


@dataclass(frozen=True)
class World:
    """All that there is.

    Attributes:
        partner: another workspace, in which the app can be installed.
        held: lets a model go on that waits.
    """

    slack: SlackSandbox
    partner: SlackSandbox
    discord: DiscordSandbox
    model: ScriptedOpenAI
    held: asyncio.Event
    bot: Bot


async def _opens_direct(world: World, where: str, client: ClientSession) -> list[str]:
    client.switch_user(next(person for person in client.platform.people if person.name == "grace"))
    await world.slack.open_home("grace")
    channel = world.slack.open_dm("grace")
    await world.slack.wait_for(lambda: channel.prompts, timeout=WITHIN)
    prompts = [f"    [ {title} ]" for title, _ in channel.prompts]
    return ["grace opens the direct messages; Slack suggests:", *prompts]


async def _asks_about_names(world: World, where: str, client: ClientSession) -> list[str]:
    slack = world.slack
    group, channel = slack.add_user_group("oncall", ["ada", "grace"]), slack.channels["launch"]
    text = (
        f"<@{slack.bot_user_id}> who is in <!subteam^{group.id}>? <@{slack.people['grace'].id}> asks in <#{channel.id}>"
    )
    await slack.post_message("ada", where, text)
    return ["ada types  @parley who is in @oncall? @grace asks in #launch"]


async def _robot_calls(world: World, where: str, client: ClientSession) -> list[str]:
    await world.slack.post_as_bot("robot", where, f"<@{world.slack.bot_user_id}> hello?")
    return ["a robot calls the bot:  @parley hello?"]


async def _robot_answers(world: World, where: str, client: ClientSession) -> list[str]:
    slack, said = world.slack, client.last_sent
    assert said is not None
    for answers in [*range(2, LOOP_LIMIT + 2), LOOP_LIMIT + 1]:
        await slack.post_as_bot("robot", where, f"<@{slack.bot_user_id}> hello!", thread_ts=said.id)
        await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes), timeout=WITHIN)
        await slack.wait_for(partial(_have_ended, slack, where, answers), timeout=WITHIN)
    return ["the robot answers each time:  @parley hello!"]


def _have_ended(slack: SlackSandbox, where: str, count: int) -> bool:
    return len(_ended(slack, where)) == count


def _ended(slack: SlackSandbox, where: str) -> list[SlackMessage]:
    """The answers that stand whole."""
    return [one for one in slack.messages(where) if one.bot_id == slack.bot_id and one.buttons.keys() - {"Stop"}]


async def _tells_session(world: World, where: str, client: ClientSession) -> list[str]:
    said = client.last_sent
    assert said is not None
    found = next(m for m in world.slack.messages(said.channel) if m.ts == said.id)
    await world.slack.wait_for(lambda: (s := world.slack.find_session(found)) and s.status == "active")
    session = world.slack.find_session(found)
    assert session is not None
    return [f"Slack calls the conversation “{session.title}”; it was {session.statuses[0]}."]


async def _goes_on(world: World, where: str, client: ClientSession) -> list[str]:
    world.held.set()
    return []


async def _model_read(world: World, where: str, client: ClientSession) -> list[str]:
    read = [text for role, text in world.model.received[-1].messages if role == "user"]
    return ["what the model reads:", *(f"    {line}" for line in "\n".join(read).splitlines())]


async def _replies(world: World, where: str, client: ClientSession) -> list[str]:
    (said,) = world.discord.messages(where)
    await world.discord.post_message("ada", where, f"<@{world.discord.bot_id}> is that bad?", reply_to=said)
    return ["ada replies to that:  @parley is that bad?"]


async def _forwards(world: World, where: str, client: ClientSession) -> list[str]:
    said = world.discord.messages(where)[-1]
    await world.discord.forward_message("ada", said, world.discord.open_dm("ada"))
    client.switch_user(next(person for person in client.platform.people if person.name == "ada"))
    return ["ada forwards that to the bot"]


async def _file_holds(world: World, where: str, client: ClientSession) -> list[str]:
    data = world.discord.messages(where)[-1].content.attachments[0].data
    return ["", "what is in the file:", *(f"    {line}" for line in data.decode().splitlines()), ""]


async def _completes(world: World, where: str, client: ClientSession) -> list[str]:
    offers = await world.discord.autocomplete_option("ada", where, "model", "name", "openai")
    return [f"ada begins to type  /model openai, and is offered: {', '.join(offers)}"]


async def _opens_group(world: World, where: str, client: ClientSession) -> list[str]:
    world.discord.channels["weekend"] = world.discord.open_group_dm("weekend", "ada", "grace")
    await client.run_line("/channel weekend")
    return ["ada and grace write to each other, where no bot can be; ada has installed the app for herself"]


async def _may_not_write(world: World, where: str, client: ClientSession) -> list[str]:
    world.discord.permissions.discard("send_messages")
    return ["somebody takes from the bot that it may write"]


async def _may_write(world: World, where: str, client: ClientSession) -> list[str]:
    world.discord.permissions.add("send_messages")
    return []


async def _notifies(world: World, where: str, client: ClientSession) -> list[str]:
    names = {person.id: name for name, person in world.discord.people.items()}
    lines = []
    for message in world.discord.messages(where):
        if message.author.id == world.discord.bot_id:
            pinged = ", ".join(sorted(names[key] for key in message.pings)) or "nobody by name"
            how = ", and silently" if message.flags & SILENT else ""
            lines.append(f"  “{message.text}” calls {pinged}{how}")
    return ["whom Discord notifies:", *lines]


async def _intent_off(world: World, where: str, client: ClientSession) -> list[str]:
    world.discord.privileged_intents.discard("message_content")
    return []


async def _intent_on(world: World, where: str, client: ClientSession) -> list[str]:
    world.discord.privileged_intents.add("message_content")
    return []


async def _stops(world: World, where: str, client: ClientSession) -> list[str]:
    await world.bot.stop()
    await world.discord.wait_for(lambda: not world.discord.is_online, timeout=WITHIN)
    return ["the bot is stopped; Discord shows it offline"]


async def _starts(world: World, where: str, client: ClientSession) -> list[str]:
    await world.bot.start()
    return ["the bot is started again"]


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
    """Install the app in a workspace, as one does with a browser."""

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
    "grace opens the direct messages": _opens_direct,
    "ada asks about names": _asks_about_names,
    "a robot calls the bot": _robot_calls,
    "the robot answers each time": _robot_answers,
    "session": _tells_session,
    "let the model go on": _goes_on,
    "what the model read": _model_read,
    "ada replies to that": _replies,
    "ada forwards that": _forwards,
    "what is in the file": _file_holds,
    "ada begins to type /model": _completes,
    "ada opens a group": _opens_group,
    "the bot may not write": _may_not_write,
    "the bot may write": _may_write,
    "whom that notifies": _notifies,
    "the intent is switched off": _intent_off,
    "the intent is switched on": _intent_on,
    "the bot is stopped": _stops,
    "the bot is started": _starts,
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
