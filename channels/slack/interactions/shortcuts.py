"""Message shortcuts, and the modal that asks a question about a message.

Slack: docs.slack.dev/interactivity/implementing-shortcuts and docs.slack.dev/surfaces/modals.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from channels.commands.handlers import CommandSyntax
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.slack.events.content import said
from channels.slack.events.parser import attachment, name_of
from channels.slack.interactions.commands import COMMANDS
from channels.slack.interactions.responses import ResponseTarget
from core.identity import BOT_PREFIX

ASK, WHY, RESET = "ask", "why", "reset"

#: Names of the shortcuts in the menu, by their callback ids.
SHORTCUTS: Mapping[str, str] = {ASK: words.ASK_ABOUT, WHY: words.WHY_THIS, RESET: "Start over here"}

#: Descriptions of the shortcuts in Slack's settings.
ABOUT: Mapping[str, str] = {
    ASK: "Asks a question about a message, in its thread",
    WHY: "Tells you alone what an answer was made of",
    RESET: "Forgets the conversation in the thread of a message",
}

#: How commands are given. Slack: its menus have one language.
WAYS = CommandSyntax({name: written for written, name in COMMANDS.items()}, "", lambda _: list(SHORTCUTS.values()))

#: The callback id of the modal, and the id of its input.
ASKED, QUESTION = "asked", "question"

#: Most characters of a message that a question about it quotes, and of the modal's metadata. Slack: 3,000.
QUOTED, KEPT = 2_000, 3_000


def modal(say: MessageCatalog, metadata: str) -> dict[str, Any]:
    """Return the modal that asks a question about a message."""
    asked = {"type": "plain_text_input", "action_id": QUESTION, "multiline": True}
    label = _plain(say(words.YOUR_QUESTION))
    return {
        "type": "modal",
        "callback_id": ASKED,
        "private_metadata": metadata,
        "title": _plain(say(words.ASK_ABOUT)),
        "submit": _plain(say(words.ASK)),
        "close": _plain(say(words.CANCEL)),
        "blocks": [{"type": "input", "block_id": QUESTION, "label": label, "element": asked}],
    }


def metadata_of(target: ResponseTarget, message: Mapping[str, Any]) -> str:
    """Return what the modal keeps of the message that it is about (JSON); of a long message, the beginning."""
    bot = str(message.get("bot_id") or "")
    kept = {
        "channel": target.channel,
        "root": target.thread_ts or str(message["ts"]),
        "author": f"{BOT_PREFIX}{bot}" if bot else str(message.get("user") or ""),
        "name": name_of(message, bot) if bot else "",
        "ts": str(message["ts"]),
        "url": target.response_url,
        "text": said({**message, "files": ()})[:QUOTED],
        "files": [asdict(attachment(file)) for file in message.get("files") or ()],
    }
    while len(written := json.dumps(kept, ensure_ascii=False)) > KEPT and (kept["files"] or kept["text"]):
        longest = "files" if kept["files"] else "text"
        kept[longest] = kept[longest][: len(kept[longest]) // 2]
    return written


def _plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}
