"""What is suggested to who opens the messages with the bot.

Slack: docs.slack.dev/reference/methods/assistant.threads.setSuggestedPrompts. An agent's prompts are for no thread.
"""

import logging
from collections.abc import Sequence

from channels.base import Priority
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_4
from core.errors import SurfaceError

log = logging.getLogger(__name__)

METHOD = "assistant.threads.setSuggestedPrompts"


async def suggest(api: SlackApi, team: str, channel: str, prompts: Sequence[str]) -> None:
    """Suggest to say these, in direct messages. What cannot be suggested now is so when they are opened again."""
    said = {"channel_id": channel, "prompts": [{"title": prompt, "message": prompt} for prompt in prompts]}
    try:
        await api.at(team).call(METHOD, said, api.budget((METHOD, team), TIER_4), priority=Priority.LOOK)
    except SurfaceError as error:
        log.warning("nothing is suggested to who opens the direct messages: %s", error)
