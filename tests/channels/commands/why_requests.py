"""Commands and menus that return a turn report privately, on both platforms."""

from typing import Any

from channels.i18n import messages as words
from channels.slack.interactions.shortcuts import WHY
from tests.channels.platforms import SlackChat


async def run_why_command(chat: Any, user: str = "ada", turn: str = "") -> str:
    if isinstance(chat, SlackChat):
        responses = await chat.simulator.run_command(user, chat.channel, "/why", turn)
        await chat.simulator.wait_for(lambda: responses)
        assert responses[0].ephemeral_to == chat.simulator.people[user].id
    else:
        responses = await chat.simulator.run_command(user, chat.place, "/why", **({"turn": turn} if turn else {}))
        await chat.simulator.wait_for(lambda: responses and not responses[0].loading)
        assert responses[0].ephemeral_to is chat.simulator.people[user]
    return str(responses[0].text)


async def use_why_menu(chat: Any, message: Any, user: str = "ada") -> str:
    """Choose "Why?" in a message's menu, and return the text of the private answer."""
    if isinstance(chat, SlackChat):
        before = len(chat.list_private_messages(user))
        assert await chat.simulator.use_shortcut(user, message, WHY)
        await chat.simulator.wait_for(lambda: len(chat.list_private_messages(user)) > before)
        return chat.list_private_messages(user)[-1]
    (response,) = await chat.simulator.run_message_command(user, message, words.WHY_THIS)
    await chat.simulator.wait_for(lambda: not response.loading)
    assert response.ephemeral_to is chat.simulator.people[user]
    return str(response.text)
