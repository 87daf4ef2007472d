"""What the bot is told of Slack."""

from dataclasses import dataclass, field
from typing import Literal

#: How Slack reaches the app: by sockets that the app opens, or by requests.
Mode = Literal["socket", "http"]

#: Direct messages: each one that is in no thread begins a conversation (`thread`), or all of them are one (`single`).
Direct = Literal["thread", "single"]

#: `auto`: each reply as serves it best; `native`: by streams as long as Slack takes them; `edit`: by edits.
Streaming = Literal["auto", "native", "edit"]

#: What is suggested unless it is told otherwise.
PROMPTS = (
    "What can you help me with?",
    "Summarize a text for me",
    "Draft a reply for me",
    "Explain something to me step by step",
)

#: Slack: the most prompts that may be suggested.
MOST_PROMPTS = 4


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """How to reach a workspace, or several, and how to be there.

    Attributes:
        bot_token: of the one workspace; empty if there may be several, in which the app is installed by OAuth.
        app_token: opens sockets.
        prompts: what is suggested to say to the bot.
        signing_secret: what requests are signed with.
        sockets: how many are held.
        external: whether people from other workspaces are served, with whom a channel is shared.
        client_id, client_secret: the app's, by which it gets the tokens of several workspaces.
        answers_bots: whether other bots are answered.
        bot_loop_limit: how often in a row, without a person in between.
    """

    bot_token: str = field(repr=False)
    app_token: str = field(repr=False)
    api_url: str = "https://slack.com/api/"
    streaming: Streaming = "auto"
    direct: Direct = "thread"
    prompts: tuple[str, ...] = PROMPTS
    answers_bots: bool = False
    bot_loop_limit: int = 5
    mode: Mode = "socket"
    signing_secret: str = field(default="", repr=False)
    sockets: int = 1
    external: bool = False
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
