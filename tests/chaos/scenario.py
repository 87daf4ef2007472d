"""Scenario of the crash tests: users' messages, model answers and tool calls.

On each platform a user sends a message with a file whose answer takes three tools. During the turn another user posts
an unrelated message, and the first user sends and edits a second message. The model calls the first tool, then the
other two in parallel, and answers in more than one chunk. At the end the user regenerates the second answer.

With `WHILE_RUNNING=steer`, the tools end after the second message, so that the running turn reads it: one answer has
both. With `queue`, the second message waits.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from channels.discord.replies import surface as discord
from channels.i18n import messages as words
from channels.slack.replies import surface as slack
from chatrig.models import CallTool, Fail, Pause, ReceivedRequest, Say, ScriptedResponse
from tests.acceptance.platforms import CONTENT, BotConversation, Platform
from tests.core.models import wire_rules as rules

FIRST, SECOND = "pay, then ring and mail", "what else"

#: Text of SECOND after its edit.
EDITED = f"{SECOND} is there"

#: Maximum number of clicks on the button under the second answer.
MAX_CLICKS = 3

TOOLS = ("pay", "ring", "mail")

#: Limit for the first sign that the bot accepted a message, in seconds.
ACCEPT_TIMEOUT_SECONDS = 3.0

#: Limit for the connection of the bot, in seconds.
CONNECT_TIMEOUT_SECONDS = 30.0


def settings(platforms: Iterable[Platform], model_url: str) -> dict[str, str]:
    """Return the bot's settings (environment variables) for the scenario without steering."""
    platform_settings = {name: value for platform in platforms for name, value in platform.settings.items()}
    tools = ",".join(f"tests.chaos.recorded_tools:{tool}" for tool in TOOLS)
    model = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model_url}
    return {**platform_settings, **model, "TOOLS": tools, "WHILE_RUNNING": "queue"}


def _build_long_text(size: int) -> str:
    """Return text of unique paragraphs, with at least `size` characters."""
    paragraphs = (f"This paragraph is part {number} of the first answer." for number in range(size))
    text = ""
    while len(text) < size:
        text += f"{next(paragraphs)}\n\n"
    return text.strip()


#: First answer by platform; it needs two chunks.
LONG: Mapping[str, str] = {
    "slack": _build_long_text(slack.LIMITS.chunk_size + 200),
    "discord": _build_long_text(discord.LIMITS.chunk_size + 200),
}
SHORT = "The second answer."


class ScenarioModel:
    """Script of a model that derives its next step from the request's history alone.

    Args:
        is_steered: whether the first answer is to read the second message.

    Attributes:
        violations: breaches of the model APIs' rules in the requests.
        may_finish: by platform, the event after which the first answer ends.
    """

    def __init__(self, *, is_steered: bool = False) -> None:
        self._is_steered = is_steered
        self.violations: list[str] = []
        self.may_finish = {platform: asyncio.Event() for platform in LONG}

    def answer(self, request: ReceivedRequest) -> ScriptedResponse:
        try:
            rules.check_request("openai", request.body)
        except AssertionError as error:
            self.violations.append(f"a request breaks a rule of the model API: {error or request.body['messages']}")
            return Fail(400, "invalid history")
        prompts = [number for number, (_, text) in enumerate(request.messages) if FIRST in text]
        turn = request.messages[prompts[-1] :] if prompts else ()
        is_answered = any(role == "assistant" and text for role, text in turn)
        if FIRST not in request.text and (is_answered or not (self._is_steered and turn)):
            return SHORT
        prompt = turn[0][1]
        if CONTENT.decode() not in prompt:
            self.violations.append(f"a request lacks the text of the file: {prompt}")
        platform = next(name for name in LONG if name in prompt)
        match [role for role, _ in turn].count("tool"):
            case 0:
                return [CallTool("pay", id="call_pay")]
            case 1:
                pauses = [Pause(self.may_finish[platform])] if self._is_steered else []
                return [*pauses, CallTool("ring", id="call_ring"), CallTool("mail", id="call_mail")]
        return self._build_long_answer(platform, has_second=any(SECOND in text for _, text in turn))

    def _build_long_answer(self, platform: str, *, has_second: bool) -> Sequence[Say | Pause]:
        text, cut = LONG[platform], len(LONG[platform]) // 2
        ending = f"{text[cut:]}\n\n{SHORT}" if has_second else text[cut:]
        return [
            Say(text[:cut], pieces=4, pace=0.02),
            Pause(self.may_finish[platform]),
            Say(ending, pieces=4, pace=0.02),
        ]


async def send_messages(
    platform: Platform, conversation: BotConversation, may_finish: asyncio.Event, is_answered: Callable[[], bool]
) -> None:
    """Post both messages as a user, edit the second, and regenerate its answer.

    It posts the second message after the first sign of acceptance, or a timeout.

    Args:
        may_finish: the event that lets the first answer end.
        is_answered: returns whether both messages have an outcome.
    """
    try:
        await platform.wait_for(lambda: platform.is_connected, timeout=CONNECT_TIMEOUT_SECONDS)
        await conversation.say(f"{FIRST} on {platform.name}", files=["notes.txt"])
        with suppress(TimeoutError):
            await platform.wait_for(
                lambda: platform.is_connected and conversation.replies(), timeout=ACCEPT_TIMEOUT_SECONDS
            )
        await conversation.say("lunch?", user="grace", mentions_bot=False)
        second = await conversation.say(SECOND)
        with suppress(TimeoutError):
            await platform.wait_for(
                lambda: conversation.count_reactions() or not platform.is_connected, timeout=ACCEPT_TIMEOUT_SECONDS
            )
        await conversation.edit(second, EDITED)
    finally:
        may_finish.set()
    with suppress(TimeoutError):
        await platform.wait_for(is_answered, timeout=CONNECT_TIMEOUT_SECONDS)
        if conversation.replies()[-1].text == SHORT:  # one turn for both messages would run the tools again
            await _regenerate(platform, conversation)


def _find_regenerate_buttons(conversation: BotConversation) -> list[str]:
    """Return the labels of the buttons that regenerate the newest answer."""
    return [label for label in conversation.button_labels() if label in (words.REGENERATE, words.ANSWER_EDITED)]


async def _regenerate(platform: Platform, conversation: BotConversation) -> None:
    """Click Regenerate until the answer changes.

    Platforms do not redeliver a click, so a click during a crash has no effect.
    """
    version_count = len(conversation.replies()[-1].versions)
    for _ in range(MAX_CLICKS):
        await platform.wait_for(
            lambda: platform.is_connected and _find_regenerate_buttons(conversation), timeout=CONNECT_TIMEOUT_SECONDS
        )
        if len(conversation.replies()[-1].versions) > version_count:
            return
        await conversation.press(_find_regenerate_buttons(conversation)[0])
        with suppress(TimeoutError):
            await platform.wait_for(
                lambda: len(conversation.replies()[-1].versions) > version_count, timeout=ACCEPT_TIMEOUT_SECONDS
            )
