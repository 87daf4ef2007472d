"""Settings of the Slack adapter."""

from dataclasses import dataclass, field
from typing import Literal

#: Socket Mode or HTTP mode.
Mode = Literal["socket", "http"]

#: Direct messages: each one outside a thread begins a session (`thread`), or all of them are one session (`single`).
DmSessions = Literal["thread", "single"]

#: `auto`: Slack's native streams if they show a reply at least as well as edits do; `native`: native streams if Slack
#: allows them; `edit`: edits only.
Streaming = Literal["auto", "native", "edit"]

#: Most messages of bots in a row that are answered in a session.
MAX_BOT_MESSAGES = 5

#: Suggested prompts by default.
DEFAULT_PROMPTS = (
    "What can you help me with?",
    "Summarize a text for me",
    "Draft a reply for me",
    "Explain something to me step by step",
)

#: Slack: most suggested prompts.
MAX_PROMPTS = 4


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """Settings of the Slack adapter.

    Attributes:
        bot_token: the bot's token in the only workspace; empty if the app is installed in several by OAuth.
        app_token: the token of Socket Mode; may be empty in HTTP mode.
        signing_secret: the key with which Slack signs requests in HTTP mode; may be empty in Socket Mode.
        client_id, client_secret: the credentials of the app for OAuth; empty without OAuth.
        command_prefix: the text between the slash and the name of each slash command.
    """

    bot_token: str = field(repr=False)
    app_token: str = field(repr=False)
    api_url: str = "https://slack.com/api/"
    streaming: Streaming = "auto"
    dm_sessions: DmSessions = "thread"
    prompts: tuple[str, ...] = DEFAULT_PROMPTS
    answers_bots: bool = False
    bot_loop_limit: int = MAX_BOT_MESSAGES
    mode: Mode = "socket"
    signing_secret: str = field(default="", repr=False)
    sockets: int = 1
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    command_prefix: str = ""
