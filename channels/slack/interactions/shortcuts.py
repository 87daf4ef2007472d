"""Message shortcuts, and the modal for a prompt about a message.

Slack: docs.slack.dev/interactivity/implementing-shortcuts and docs.slack.dev/surfaces/modals.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from channels.commands.syntax import CommandSyntax
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.slack.events.content import read_message
from channels.slack.interactions.commands import SLASH_COMMANDS
from channels.slack.interactions.responses import ResponseTarget

ASK, WHY, RESET = "ask", "why", "reset"

#: Names of the shortcuts in the menu, by their callback ids.
SHORTCUTS: Mapping[str, str] = {ASK: words.ASK_ABOUT, WHY: words.WHY_THIS, RESET: "Reset this conversation"}

#: Descriptions of the shortcuts in Slack's settings.
SHORTCUT_DESCRIPTIONS: Mapping[str, str] = {
    ASK: "Asks a question about a message, in its thread",
    WHY: "Shows how an answer was made, visible only to you",
    RESET: "Deletes the history of the message's thread",
}

#: The callback id of the modal, and the id of its input.
ASK_MODAL, ASK_INPUT = "ask", "prompt"

#: Most characters of a message that a prompt about it quotes, and of the modal's metadata. Slack: 3,000.
MAX_QUOTED_CHARS, MAX_METADATA_CHARS = 2_000, 3_000


def make_command_syntax(prefix: str) -> CommandSyntax:
    """Return the syntax of the commands. Slack: its menus have one language."""
    return CommandSyntax(prefix, list(SLASH_COMMANDS.values()), lambda _: list(SHORTCUTS.values()))


def ask_modal(say: MessageCatalog, metadata: str) -> dict[str, Any]:
    """Return the view object of the modal for a user's prompt about a message."""
    element = {"type": "plain_text_input", "action_id": ASK_INPUT, "multiline": True}
    label = _plain_text(say(words.YOUR_QUESTION))
    return {
        "type": "modal",
        "callback_id": ASK_MODAL,
        "private_metadata": metadata,
        "title": _plain_text(say(words.ASK_ABOUT)),
        "submit": _plain_text(say(words.ASK)),
        "close": _plain_text(say(words.CANCEL)),
        "blocks": [{"type": "input", "block_id": ASK_INPUT, "label": label, "element": element}],
    }


def modal_metadata(target: ResponseTarget, message: Mapping[str, Any]) -> str:
    """Return a message object of Slack as JSON for a modal's `private_metadata`.

    Of the message's text and files, as much is left out as needed for `MAX_METADATA_CHARS`.
    """
    content = read_message(message)
    metadata = {
        "channel": target.channel,
        "root": target.thread_ts or str(message["ts"]),
        "author": content.author,
        "name": content.name,
        "ts": str(message["ts"]),
        "url": target.response_url,
        "text": content.quotable_text[:MAX_QUOTED_CHARS],
        "files": [asdict(file) for file in content.all_files],
    }
    while len(encoded := json.dumps(metadata, ensure_ascii=False)) > MAX_METADATA_CHARS and (
        metadata["files"] or metadata["text"]
    ):
        longest = "files" if metadata["files"] else "text"
        metadata[longest] = metadata[longest][: len(metadata[longest]) // 2]
    return encoded


def _plain_text(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}
