"""Listeners of the Bolt app: each payload of Slack is delivered once, to one of them."""

import functools
from pathlib import Path
from typing import Any

import pytest

from channels.slack.adapter import SlackAdapter
from channels.slack.events.agent_context import AgentContextStore
from channels.slack.interactions.handler import SlackIntakeHandler
from channels.slack.manifest import EVENTS
from chatrig.models import Pause, Say
from chatrig.slack import SlackSimulator
from tests.channels.slack.conftest import BOTH_MODES, WiredSlackBot, run_bot
from tests.channels.wiring import echo

#: The listeners of events, by their names in Slack's subscriptions.
LISTENERS = {
    "app_mention": "_receive_message",
    "message.channels": "_receive_message",
    "message.groups": "_receive_message",
    "message.im": "_receive_message",
    "message.mpim": "_receive_message",
    "app_context_changed": "save",
    "app_home_opened": "_suggest_prompts",
    "app_uninstalled": "_remove_workspace",
    "tokens_revoked": "_remove_workspace",
    "agent_session_stopped": "receive_stop",
    "user_change": "_delete_sign_ins",
}

#: Payloads that no listener takes.
UNKNOWN_PAYLOADS: list[Any] = [
    {"type": "event_callback", "event": {"type": "pin_added"}},
    {"type": "event_callback", "event": {}},
    {"type": "block_actions"},
    {"type": "block_suggestion", "action_id": "unknown", "value": ""},
    {"type": "interactive_message", "callback_id": "unknown", "actions": [{"name": "unknown"}]},
    {"type": "message_action", "callback_id": "unknown"},
    {"type": "shortcut", "callback_id": "unknown"},
    {"type": "view_submission", "view": {"type": "modal", "callback_id": "unknown"}},
    {"type": "view_closed", "view": {"type": "modal", "callback_id": "unknown"}},
    {"type": "unknown"},
]


def name_event(payload: dict[str, Any]) -> str:
    """Return the name of an event in Slack's subscriptions."""
    event = payload["event"]
    kinds = {"channel": "channels", "group": "groups"}
    kind = event.get("channel_type", "")
    return f"message.{kinds.get(kind, kind)}" if event["type"] == "message" else str(event["type"])


def record_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return a list that gets the name of each called listener of events, and the event's id."""
    calls = list[tuple[str, str]]()

    def record(owner: type, name: str) -> None:
        listener = getattr(owner, name)

        @functools.wraps(listener)
        async def call(self: Any, **arguments: Any) -> None:
            calls.append((name, arguments["body"]["event_id"]))
            await listener(self, **arguments)

        monkeypatch.setattr(owner, name, call)

    record(SlackAdapter, "_receive_message")
    record(SlackAdapter, "_remove_workspace")
    record(SlackAdapter, "_suggest_prompts")
    record(SlackAdapter, "_delete_sign_ins")
    record(AgentContextStore, "save")
    record(SlackIntakeHandler, "receive_stop")
    return calls


@BOTH_MODES
async def test_each_event_of_the_manifest_is_delivered_once_to_one_listener(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(monkeypatch)
    slack.add_channel("secret", private=True)
    async with run_bot(slack, tmp_path, [Say("Once upon a time"), Pause(60)], echo) as bot:
        story = await slack.post_message("ada", slack.open_dm("ada"), "a story")
        await bot.wait_for_texts(story, lambda texts: texts[-1].startswith("Once"))
        await slack.click_stop("ada", story)
        await bot.mention_bot("ada", "general", "hello")
        await slack.post_message("ada", "secret", "hello")
        await slack.open_home("ada")
        await slack.view_entities("ada")
        payload = next(e.payload for e in slack.envelopes if e.payload["event"]["type"] == "message")
        group = {"channel": "G1", "channel_type": "mpim"}
        slack._sender.deliver(
            "events_api", {**payload, "event_id": "E1", "event": {**payload["event"], **group}}
        )  # the simulator has no group DMs
        slack._sender.deliver("events_api", {**payload, "event_id": "E2", "event": {"type": "pin_added"}})
        await bot.wait_for_turns(2)
        slack.deactivate_user("grace")
        slack.uninstall()
        await slack.wait_for(lambda: {name_event(e.payload) for e in slack.envelopes} == {*EVENTS, "pin_added"})
        await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))
        assert LISTENERS.keys() == EVENTS
        assert not any(envelope.attempt for envelope in slack.envelopes)
        expected = [(LISTENERS.get(name_event(e.payload)), e.payload["event_id"]) for e in slack.envelopes]
        assert sorted(calls) == sorted((name, id_) for name, id_ in expected if name is not None)


@BOTH_MODES
async def test_a_payload_without_a_listener_is_acknowledged(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    for payload in UNKNOWN_PAYLOADS:
        slack._sender.deliver("events_api" if "event" in payload else "interactive", payload)
    await slack.wait_for(lambda: len(slack.envelopes) == len(UNKNOWN_PAYLOADS))
    await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))
    assert not any(envelope.attempt for envelope in slack.envelopes)
