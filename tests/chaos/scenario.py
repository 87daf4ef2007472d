"""What happens while a process dies: what people say, what the model answers, and what it has the tools do.

On each platform somebody asks for something that takes three tools, and while that is under way for something else. The
model has the first tool used, then the other two side by side, and tells of it in more than one message.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from channels.discord import surface as discord
from channels.slack import surface as slack
from sandbox.models import Asked, Call, Fail, Pause, Say, Turn
from tests.acceptance.platforms import Platform, Talk
from tests.core.models import rules

FIRST, SECOND = "pay, then ring and mail", "what else"

TOOLS = ("pay", "ring", "mail")

#: Seconds that people wait for a sign that they were heard.
HEARD_TIMEOUT = 3.0

#: Seconds for which people wait until the bot is there.
PATIENCE = 30.0


def _long(size: int) -> str:
    """A text of paragraphs, no two of them the same, of at least `size` characters."""
    paragraphs = (f"This is what is to be said in part {number} of the first answer." for number in range(size))
    text = ""
    while len(text) < size:
        text += f"{next(paragraphs)}\n\n"
    return text.strip()


#: By platform: what is answered to the first message takes two of the platform's.
LONG: Mapping[str, str] = {
    "slack": _long(slack.LIMITS.chunk_size + 200),
    "discord": _long(discord.LIMITS.chunk_size + 200),
}
SHORT = "The second answer."


class Model:
    """A model that knows from the history alone how far it has come.

    Attributes:
        breaches: what no model would take of what it was sent.
    """

    def __init__(self) -> None:
        self.breaches: list[str] = []
        self.heard = {platform: asyncio.Event() for platform in LONG}

    def answer(self, asked: Asked) -> Turn:
        try:
            rules.hold("openai", asked.body)
        except AssertionError as breach:
            self.breaches.append(f"a request breaks a rule of the model: {breach or asked.body['messages']}")
            return Fail(400, "no such history is taken")
        if FIRST not in asked.text:
            return SHORT
        roles = [role for role, _ in asked.messages]
        newest = len(roles) - roles[::-1].index("user")
        match roles[newest:].count("tool"):
            case 0:
                return [Call("pay", id="call_pay")]
            case 1:
                return [Call("ring", id="call_ring"), Call("mail", id="call_mail")]
        return self._long(asked)

    def _long(self, asked: Asked) -> Sequence[Say | Pause]:
        platform = next(name for name in LONG if name in asked.text)
        text, cut = LONG[platform], len(LONG[platform]) // 2
        told = f"{text[cut:]}\n\n{SHORT}" if SECOND in asked.text else text[cut:]
        return [Say(text[:cut], pieces=4, pace=0.02), Pause(self.heard[platform]), Say(told, pieces=4, pace=0.02)]


async def converse(platform: Platform, talk: Talk, heard: asyncio.Event) -> None:
    """Say both messages: the second when the bot shows that it has heard the first one, or when that takes too long.

    Args:
        heard: set when the first answer may be ended.
    """
    try:
        await platform.wait_for(lambda: platform.is_connected, timeout=PATIENCE)
        await talk.say(f"{FIRST} on {platform.name}")
        with suppress(TimeoutError):
            await platform.wait_for(lambda: platform.is_connected and talk.replies(), timeout=HEARD_TIMEOUT)
        await talk.say(SECOND)
        with suppress(TimeoutError):
            await platform.wait_for(lambda: talk.receipts() or not platform.is_connected, timeout=HEARD_TIMEOUT)
    finally:
        heard.set()
