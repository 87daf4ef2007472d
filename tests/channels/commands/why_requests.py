"""Interactions that return a turn report privately, on both platforms."""

from typing import Any

from channels.i18n import messages as words
from channels.slack.interactions.shortcuts import WHY
from tests.channels.platforms import SlackTalk


async def run_why_command(talk: Any, user: str = "ada", turn: str = "") -> str:
    if isinstance(talk, SlackTalk):
        seen = await talk.sandbox.run_command(user, talk.channel, "/why", turn)
        await talk.sandbox.wait_for(lambda: seen)
        assert seen[0].ephemeral_to == talk.sandbox.people[user].id
    else:
        seen = await talk.sandbox.run_command(user, talk.place, "/why", **({"turn": turn} if turn else {}))
        await talk.sandbox.wait_for(lambda: seen and not seen[0].loading)
        assert seen[0].ephemeral_to is talk.sandbox.people[user]
    return str(seen[0].text)


async def use_why_menu(talk: Any, message: Any, user: str = "ada") -> str:
    """Use the menu of a message, and return the private answer."""
    if isinstance(talk, SlackTalk):
        before = len(talk.private_messages(user))
        assert await talk.sandbox.use_shortcut(user, message, WHY)
        await talk.sandbox.wait_for(lambda: len(talk.private_messages(user)) > before)
        return talk.private_messages(user)[-1]
    (seen,) = await talk.sandbox.run_message_command(user, message, words.WHY_THIS)
    await talk.sandbox.wait_for(lambda: not seen.loading)
    assert seen.ephemeral_to is talk.sandbox.people[user]
    return str(seen.text)
