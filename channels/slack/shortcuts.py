"""The shortcuts in the menu of a message.

Slack: docs.slack.dev/interactivity/implementing-shortcuts.
"""

from collections.abc import Mapping

#: What people read in the menu, by what a use of it is known by.
SHORTCUTS: Mapping[str, str] = {"ask": "Ask about this", "reset": "Start over here"}

#: What Slack shows of each in its settings.
ABOUT: Mapping[str, str] = {
    "ask": "Asks a question about a message, in its thread",
    "reset": "Forgets the conversation in the thread of a message",
}
