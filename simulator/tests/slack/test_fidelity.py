"""Comparison of the simulator's payloads with samples of Slack's payloads.

`PLATFORM_SHAPES` names a folder with `slack/api/*.json`, `slack/events/*.json` and `slack/app-backend/`: samples
with all known fields. A field that a sample does not have, or of another JSON type, is a fault. A missing field is no
fault, and null is none. A method or event without a sample is not compared.

Samples are narrower than Slack. These rules extend them:

- All samples of one kind of object are merged: a channel of `conversations.info`, `.list` and `.open`, a message of
  `conversations.history` and `.replies`, a file of all methods with files.
- All elements of a sampled list have one shape, and so have all values of an object by channel id.
- A block is compared with all samples of its type, at any place in a message's blocks. There is no sample of `header`;
  `mrkdwn` is sampled as `plain_text`.
- An empty object or list in a sample may contain anything (`metadata.event_payload`, `team.icon`).
- `warning`, `response_metadata`, `needed` and `provided` may be in any response (Slack's Web API page). So may
  `errors`, which only some samples have.
- An action has `selected_options` if its element takes several.
- `unknown_method` is an error of no existing method, so there is no sample of it.

`agents.sessions.*`, `agent_session_stopped` and `context_actions` are newer than the samples. Their shapes here are
from Slack's own pages.
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cache, reduce
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import EnvelopeRecord, SlackFile, SlackSimulator
from chatrig.slack.events.dispatcher import EVENTS
from tests.slack.conftest import Connect, create_client

SHAPES = os.environ.get("PLATFORM_SHAPES")
pytestmark = pytest.mark.skipif(not SHAPES, reason="PLATFORM_SHAPES names no folder with the platforms' shapes")

_ANY_ANSWER = {
    "ok": False,
    "error": "",
    "errors": [""],
    "warning": "",
    "needed": "",
    "provided": "",
    "response_metadata": {"messages": [""], "warnings": [""]},
}
_EVENTS: dict[tuple[str, str | None], str] = {
    ("message", None): "Message",
    ("message", "bot_message"): "MessageBot",
    ("message", "file_share"): "MessageFileShare",
    ("message", "thread_broadcast"): "MessageThreadBroadcast",
    ("message", "me_message"): "MessageMe",
    ("message", "message_changed"): "MessageChanged",
    ("message", "message_deleted"): "MessageDeleted",
    ("app_mention", None): "AppMention",
    ("app_mention", "bot_message"): "AppMention",
    ("app_mention", "file_share"): "AppMention",
    ("app_mention", "thread_broadcast"): "AppMention",
    ("message", "assistant_app_thread"): "Message",
    ("message", "channel_join"): "MessageChannelJoin",
    ("message", "channel_leave"): "MessageChannelLeave",
    **{
        (event, None): "".join(word.title() for word in event.split("_"))
        for event in EVENTS
        if not event.startswith(("message.", "app_mention", "app_uninstalled", "tokens_revoked"))
    },
}
_THREAD = {"user_id": "", "context": {"channel_id": "", "team_id": "", "enterprise_id": ""}}
_ASSISTANT = {"type": "", "event_ts": "", "assistant_thread": _THREAD | {"channel_id": "", "thread_ts": ""}}
_METADATA: dict[str, Any] = dict.fromkeys(
    ("type", "app_id", "bot_id", "user_id", "team_id", "channel_id", "message_ts", "event_ts", "deleted_ts"), ""
) | {"metadata": {}, "previous_metadata": {}}
#: Events that the samples do not have, as Slack's pages and @slack/types show them.
_DOCUMENTED_EVENTS: dict[str, Any] = {
    "agent_session_stopped": {
        "type": "agent_session_stopped",
        "channel": "",
        "thread_ts": "",
        "user": "",
        "event_ts": "",
        "streaming_message_ts": [""],
    },
    "app_context_changed": {"type": "", "user": "", "channel": "", "context": {}, "event_ts": ""},
    "assistant_thread_started": _ASSISTANT,
    "assistant_thread_context_changed": _ASSISTANT,
    "message_metadata_posted": _METADATA,
    "message_metadata_updated": _METADATA,
    "message_metadata_deleted": _METADATA,
}
#: @slack/web-api: `ChatStopStreamResponse`.
_STOPPED_STREAM = {
    "channel": "",
    "ts": "",
    "message": dict.fromkeys(
        ("subtype", "text", "user", "streaming_state", "type", "ts", "bot_id", "thread_ts", "parent_user_id"), ""
    )
    | {"blocks": []},
}
_CHANNEL_ID = re.compile("[CD][A-Z0-9]{8,}")
_INTERACTIONS = {
    "block_actions": "interactive-components/BlockAction",
    "message_action": "interactive-components/MessageShortcut",
    "view_submission": "views/ViewSubmission",
    "view_closed": "views/ViewClosed",
}
_SESSION = {"status": "", "agent_status": "", "title": ""}
BLOCKS: list[dict[str, Any]] = [
    {"type": "header", "text": {"type": "plain_text", "text": "Title"}},
    {"type": "section", "text": {"type": "mrkdwn", "text": "*hi*"}},
    {"type": "divider"},
    {"type": "context", "elements": [{"type": "mrkdwn", "text": "small"}]},
]
PLAIN: dict[str, Any] = {"type": "plain_text", "text": "Yes"}
FEEDBACK = {
    "type": "feedback_buttons",
    "action_id": "feedback",
    "positive_button": {"text": PLAIN, "value": "good", "accessibility_label": "Good"},
    "negative_button": {"text": PLAIN, "value": "bad"},
}
SELECT = {
    "type": "static_select",
    "action_id": "which",
    "placeholder": PLAIN,
    "options": [{"text": PLAIN, "value": "one"}],
}
PRESSED: list[dict[str, Any]] = [
    {"type": "actions", "elements": [{"type": "button", "action_id": "yes", "value": "1", "text": PLAIN}, SELECT]},
    {"type": "context_actions", "elements": [FEEDBACK]},
]
ASKED = {"type": "plain_text_input", "action_id": "question", "multiline": True}
MODAL: dict[str, Any] = {
    "type": "modal",
    "callback_id": "asked",
    "title": PLAIN,
    "submit": PLAIN,
    "close": PLAIN,
    "private_metadata": "{}",
    "notify_on_close": True,
    "blocks": [BLOCKS[1], {"type": "input", "block_id": "asking", "label": PLAIN, "element": ASKED}],
}


def load_sample(name: str) -> Any:
    return json.loads((Path(SHAPES or "") / "slack" / f"{name}.json").read_text())


def has_sample(method: str) -> bool:
    return method.startswith("agents.sessions") or (Path(SHAPES or "") / "slack/api" / f"{method}.json").exists()


def merge_shapes(one: Any, other: Any) -> Any:
    """Return a shape that allows all values that either shape allows."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {name: merge_shapes(one[name], other[name]) for name in one.keys() & other.keys()}
        return one | other | both
    if isinstance(one, list) and isinstance(other, list):
        return one + other
    return other if one is None else one


@cache
def get_block_kinds() -> dict[str, Any]:
    """Return the merged fields of each type of block, element and text in the samples."""
    kinds: dict[str, Any] = {}

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            if kind := node.get("type"):
                kinds[kind] = merge_shapes(kinds.get(kind), node)
            node = list(node.values())
        if isinstance(node, list):
            for inner in node:
                collect(inner)

    collect(load_sample("api/chat.postMessage")["message"]["blocks"])
    collect(load_sample("events/MessagePayload")["event"]["blocks"])
    collect(load_sample("api/views.open")["view"]["blocks"])
    kinds["feedback_button"] = kinds["button"]
    kinds["context_actions"] = {"type": "", "elements": [], "block_id": ""}
    kinds["feedback_buttons"] = {"type": "", "action_id": "", "positive_button": {}, "negative_button": {}}
    kinds["mrkdwn"] = kinds["plain_text"]
    kinds["header"] = {"type": "", "text": {}, "block_id": ""}
    return kinds


def find_block_differences(value: Any, path: str) -> Iterator[str]:
    shape = get_block_kinds().get(value["type"])
    if shape is None:
        yield f"{path}: no block is a {value['type']}"
        return
    for name, inner in value.items():
        here = f"{path}[{value['type']}].{name}"
        for part in inner if isinstance(inner, list) else [inner]:
            if isinstance(part, dict) and "type" in part:
                yield from find_block_differences(part, here)
            elif name not in shape:
                yield f"{here} is not known"
            else:
                yield from find_differences([part] if isinstance(inner, list) else part, shape[name], here)


def load_method_sample(method: str) -> Any:
    if method.startswith("agents.sessions"):
        return _SESSION | _ANY_ANSWER
    shape = merge_shapes(load_sample(f"api/{method}"), _ANY_ANSWER)
    if method in ("conversations.info", "conversations.open"):
        known = [*load_sample("api/conversations.list")["channels"], load_sample("api/conversations.info")["channel"]]
        shape["channel"] = reduce(merge_shapes, known, shape["channel"])
    if method == "conversations.list":
        shape["channels"].append(load_sample("api/conversations.info")["channel"])
    if method == "conversations.replies":
        shape["messages"] += load_sample("api/conversations.history")["messages"]
    if method == "chat.stopStream":
        shape |= _STOPPED_STREAM
    root = load_sample("events/MessageThreadBroadcastPayload")["event"]["root"]
    for message in (*shape.get("messages", ()), shape.get("message") or {}):
        message["root"] = merge_shapes(message.get("root"), root)
    return shape


def load_event_sample(event: dict[str, Any]) -> Any:
    if (documented := _DOCUMENTED_EVENTS.get(event["type"])) is not None:
        return load_sample("events/AppHomeOpenedPayload") | {"event": documented}
    name = f"events/{_EVENTS[event['type'], event.get('subtype')]}Payload"
    if not (Path(SHAPES or "") / "slack" / f"{name}.json").exists():
        return None
    shape = load_sample(name)
    if "metadata" in shape["event"]:
        shape["event"] |= {"subtype": "", "metadata": {}}
    if "root" in shape["event"]:
        shape = merge_shapes(
            load_sample("events/MessagePayload"), merge_shapes(load_sample("events/MessageBotPayload"), shape)
        )
        shape["event"]["root"] |= {"reply_users": [""]}
    return shape


def find_differences(value: Any, shape: Any, path: str) -> Iterator[str]:
    """Yield a line for each difference of `value` from the shape of a sample.

    Args:
        path: the path of `value` in the payload.
    """
    if value is None or shape is None or shape in ({}, []):
        return
    if isinstance(value, dict) and isinstance(shape, dict):
        for name, inner in value.items():
            if name == "blocks":
                for block in inner:
                    yield from find_block_differences(block, f"{path}.blocks")
            elif name in shape:
                yield from find_differences(inner, shape[name], f"{path}.{name}")
            elif _CHANNEL_ID.fullmatch(name) and all(map(_CHANNEL_ID.match, shape)):
                yield from find_differences(inner, next(iter(shape.values())), f"{path}.ID")
            else:
                yield f"{path}.{name} is not known"
    elif isinstance(value, list) and isinstance(shape, list):
        element = reduce(merge_shapes, shape)
        for inner in value:
            yield from find_differences(inner, element, f"{path}[]")
    elif type(value) is not type(shape):
        yield f"{path} is {type(value).__name__}, not {type(shape).__name__}"


def find_envelope_differences(envelope: EnvelopeRecord) -> Iterator[str]:
    if envelope.type == "slash_commands":
        shape = load_sample("app-backend/slash-commands/SlashCommandPayload")
        yield from find_differences(envelope.payload, shape, "slash command")
    elif envelope.type == "interactive":
        shape = load_sample(f"app-backend/{_INTERACTIONS[envelope.payload['type']]}Payload")
        if "actions" in shape:
            shape["actions"][0]["selected_options"] = [shape["actions"][0]["selected_option"]]
        if "message" in shape:
            shape["message"] = merge_shapes(shape["message"], load_sample("events/MessagePayload")["event"])
        if "view" in shape:
            shape["view"] = merge_shapes(shape["view"], load_sample("api/views.open")["view"])
        yield from find_differences(envelope.payload, shape, envelope.payload["type"])
    else:
        event = envelope.payload["event"]
        yield from find_differences(
            envelope.payload, load_event_sample(event), f"{event['type']}/{event.get('subtype')}"
        )


async def check_rejection(call: Any) -> None:
    with pytest.raises(SlackApiError):
        await call


async def call_every_method(slack: SlackSimulator, client: AsyncWebClient) -> None:
    ada, general = slack.people["ada"], slack.channels["general"].id
    await client.auth_test()
    await AsyncWebClient(slack.app_token, base_url=slack.api_url).auth_test()
    await client.apps_connections_open(app_token=slack.app_token)
    keys = {"client_id": slack.oauth.client_id, "client_secret": slack.oauth.client_secret}
    allowed = parse_qs(slack.authorize(f"https://slack.com/?client_id={keys['client_id']}&scope=chat:write"))
    await AsyncWebClient(base_url=slack.api_url).oauth_v2_access(code=allowed["code"][0], **keys)
    await client.team_info()
    await client.users_list(limit=1)
    for user in (ada.id, slack.bot_user_id):
        await client.users_info(user=user)
    await client.conversations_open(users=ada.id)
    await client.conversations_open(users=ada.id, return_im=True)
    await client.conversations_list(types="public_channel,private_channel,im", limit=2)
    for channel in (general, slack.open_dm(ada).id):
        await client.conversations_info(channel=channel, include_num_members=True)

    await client.api_test(foo="bar")
    await client.bots_info(bot=slack.bot_id)
    await client.emoji_list()
    await client.users_profile_get(user=ada.id)
    await client.users_lookupByEmail(email=ada.email)
    await client.users_conversations(types="public_channel,private_channel,im")
    await client.conversations_members(channel=general, limit=2)
    await client.conversations_join(channel=general)

    question = await slack.post_message("ada", "general", "hello")
    target: dict[str, Any] = {"channel": general, "timestamp": question.ts}
    await client.reactions_add(name="wave", **target)
    await client.reactions_get(**target)
    await client.reactions_list()
    await client.pins_add(**target)
    await client.pins_list(channel=general)
    await client.pins_remove(**target)
    await client.chat_meMessage(channel=general, text="waves")
    later: dict[str, Any] = {"channel": general, "post_at": int(time()) + 3_600, "text": "later"}
    scheduled = await client.chat_scheduleMessage(**later)
    await client.chat_scheduledMessages_list()
    id_ = scheduled["scheduled_message_id"]
    await client.chat_deleteScheduledMessage(channel=general, scheduled_message_id=id_)
    metadata = {"event_type": "x", "event_payload": {"a": [1]}}
    posted = await client.chat_postMessage(channel=general, thread_ts=question.ts, text="hi <@U1>", metadata=metadata)
    ts = posted["ts"]
    await client.chat_postMessage(channel=general, text="x", blocks=BLOCKS)
    await client.chat_postMessage(channel=general, markdown_text="**x**")
    attachments: list[dict[str, Any]] = [{"title": "x", "text": "y", "color": "good"}, {"blocks": BLOCKS}]
    named: dict[str, Any] = {"username": "Robot", "icon_emoji": ":robot_face:", "thread_ts": question.ts}
    await client.chat_postMessage(channel=general, text="x", attachments=attachments, reply_broadcast=True, **named)
    await client.chat_postMessage(channel=general, text="a" * 40_001)
    await client.chat_update(channel=general, ts=ts, text="bye", metadata=metadata | {"event_payload": {}})
    await client.chat_update(channel=general, ts=ts, text="bye", blocks=BLOCKS)
    await client.chat_postEphemeral(channel=general, user=ada.id, text="psst")
    await client.chat_getPermalink(channel=general, message_ts=ts)
    await client.reactions_add(channel=general, timestamp=ts, name="eyes")
    await slack.post_as_other_bot("robot", "general", "beep", thread_ts=question.ts)
    await slack.post_message("grace", "general", "a file", thread_ts=question.ts, files=["a.png"])
    await client.conversations_replies(channel=general, ts=question.ts, include_all_metadata=True)
    await client.conversations_history(channel=general, limit=1, include_all_metadata=True)
    await client.conversations_history(channel=general)
    await client.reactions_remove(channel=general, timestamp=ts, name="eyes")
    await client.users_info(user=ada.id, include_locale=True)
    direct = slack.open_dm("ada")
    prompts = [{"title": "Hello", "message": "Say hello"}]
    await client.assistant_threads_setSuggestedPrompts(channel_id=direct.id, title="Try", prompts=prompts)
    await client.agents_sessions_setStatus(channel_id=general, thread_ts=question.ts, status="processing", title="Hi")
    await client.assistant_threads_setStatus(channel_id=general, thread_ts=question.ts, status="is thinking...")
    await client.assistant_threads_setTitle(channel_id=general, thread_ts=question.ts, title="Hello")
    await client.agents_sessions_rename(channel_id=general, thread_ts=question.ts, title="Hello")
    shared = await slack.post_message("ada", "general", "a file", files=[SlackFile("F1", "a.png", b"png")])
    await client.files_info(file=shared.files[0].id)
    await client.files_list()
    await check_rejection(client.views_open(trigger_id="1.2.3", view=MODAL))
    await check_rejection(client.views_push(trigger_id="1.2.3", view=MODAL))
    home: dict[str, Any] = {"type": "home", "blocks": [BLOCKS[1]]}
    published = await client.views_publish(user_id=ada.id, view=home)
    await client.views_update(view_id=published["view"]["id"], view=home)
    await slack.open_home("ada", "home")
    await client.chat_delete(channel=general, ts=ts)

    uploaded = await client.files_upload_v2(channel=general, thread_ts=question.ts, filename="a.md", content="# A")
    await client.conversations_replies(channel=general, ts=question.ts)
    await client.files_delete(file=uploaded["file"]["id"])
    slack.add_user_group("oncall", ["ada"])
    await client.usergroups_list(include_users=True)
    to_ada: dict[str, Any] = {"recipient_user_id": ada.id, "recipient_team_id": slack.team_id}
    task = {"type": "task_update", "id": "1", "title": "Looking", "status": "in_progress"}
    stream = await client.chat_startStream(channel=general, thread_ts=question.ts, chunks=[task], **to_ada)
    await client.chat_appendStream(
        channel=general, ts=stream["ts"], chunks=[{"type": "markdown_text", "text": "**x**"}]
    )
    await client.conversations_replies(channel=general, ts=question.ts)
    await check_rejection(client.chat_update(channel=general, ts=stream["ts"], text="too early"))
    await client.chat_stopStream(channel=general, ts=stream["ts"], blocks=BLOCKS, metadata=metadata)
    await check_rejection(client.chat_stopStream(channel=general, ts=stream["ts"]))
    await check_rejection(client.chat_appendStream(channel=general, ts=stream["ts"], markdown_text="too late"))
    await check_rejection(client.chat_startStream(channel=general, thread_ts=question.ts))
    await client.conversations_replies(channel=general, ts=question.ts, include_all_metadata=True)

    await check_rejection(client.chat_postMessage(channel=general, text=""))
    await check_rejection(client.chat_postMessage(channel=general, blocks=BLOCKS * 20))
    await check_rejection(client.chat_update(channel=general, ts=ts, text="gone"))
    await check_rejection(client.conversations_info(channel="C0NOTHING"))
    slack.scopes.discard("users:read")
    await check_rejection(client.users_info(user=ada.id))
    slack.faults.rate_limit("chat.delete", 1)
    await check_rejection(client.chat_delete(channel=general, ts=ts))


async def trigger_every_event(slack: SlackSimulator) -> None:
    slack.add_channel("secret", private=True)
    for channel in (slack.channels["general"], slack.channels["secret"], slack.open_dm("ada")):
        for text in (f"<@{slack.bot_user_id}> see <https://a.example|this>, <!here> in <#C1>", "hello"):
            root = await slack.post_message("ada", channel, text)
            reply = await slack.post_message("ada", channel, text, thread_ts=root.ts)
            await slack.edit_message("ada", reply, f"{text} <@{slack.bot_user_id}>")
            await slack.delete_message("ada", reply)
            await slack.post_message("ada", channel, text, thread_ts=root.ts, is_broadcast=True)
            with_file = await slack.post_message("ada", channel, text, thread_ts=root.ts, files=["a.png"])
            await slack.delete_message("ada", with_file)
            await slack.delete_message("ada", root)
            await slack.post_as_other_bot("robot", channel, text)
            answered = await slack.post_message("ada", channel, text)
            await slack.post_as_other_bot("robot", channel, text, thread_ts=answered.ts)
            await slack.delete_message("ada", answered)
    await slack.open_home("ada")
    await slack.open_home("ada", "home")
    slack.add_user("eve")
    await slack.join_channel("eve", "random", inviter="ada")
    await slack.leave_channel("eve", "random")
    slack.deactivate_user("eve")
    for author in (await slack.post_message("ada", "random", "hello"), slack.messages("random")[-1]):
        await slack.add_reaction("ada", author, "wave")
        await slack.remove_reaction("ada", author, "wave")
        await slack.pin_message("ada", author)
        await slack.unpin_message("ada", author)
    root = await slack.start_assistant_thread("ada", "general")
    await slack.change_assistant_context("ada", root, "random")
    entity = {"type": "slack#/types/channel_id", "value": root.channel.id, "team_id": slack.team_id}
    await slack.view_entities("ada", entity)


async def trigger_every_interaction(slack: SlackSimulator, client: AsyncWebClient) -> None:
    for place in (slack.channels["general"], slack.open_dm("ada")):
        root = await slack.post_message("ada", place, "hello")
        for thread in (None, root.ts):
            await client.chat_postMessage(channel=place.id, text="?", blocks=PRESSED, thread_ts=thread)
            for id_ in ("yes", "good", "one"):
                assert await slack.click_button("ada", slack.messages(place)[-1], id_)
        arguments: dict[str, Any] = {
            "channel": place.id,
            "user": slack.people["ada"].id,
            "text": "?",
            "blocks": PRESSED,
        }
        await client.chat_postEphemeral(**arguments)
        assert await slack.click_button("ada", slack.messages(place)[-1], "yes")
        assert await slack.use_shortcut("ada", root, "open")
        await slack.wait_for(lambda: slack.modals("ada"))
        assert await slack.submit_modal(slack.modals("ada")[0], question="why?")
        assert await slack.use_shortcut("ada", root, "open")
        slack.close_modal((await slack.wait_for(lambda: slack.modals("ada")))[0])
        await client.agents_sessions_setStatus(channel_id=place.id, thread_ts=root.ts, status="processing")
        await slack.click_stop("ada", root)


async def test_responses_events_and_commands_have_slacks_shape(connect: Connect) -> None:
    async with SlackSimulator(rate_limits=False) as slack:
        app, client = AsyncApp(client=create_client(slack)), create_client(slack)

        async def ignore_event() -> None: ...

        for kind in {event.partition(".")[0] for event in EVENTS}:
            app.event(kind)(ignore_event)
        slack.subscriptions.update(EVENTS)
        slack.metadata_subscriptions.add(("*", "x"))

        @app.command("/reset")
        async def reset(ack: Any) -> None:
            await ack("ok")

        await connect(slack, app)
        await trigger_every_event(slack)
        await slack.run_command("ada", "general", "/reset", "now")
        await slack.run_command("ada", slack.open_dm("ada"), "/reset")
        for action in ("yes", "feedback", "which"):
            app.action(action)(reset)

        @app.shortcut("open")
        async def open_view(ack: Any, client: AsyncWebClient, body: dict[str, Any]) -> None:
            await ack()
            await client.views_open(trigger_id=body["trigger_id"], view=MODAL)

        app.view("asked")(reset)
        app.view_closed("asked")(reset)
        await trigger_every_interaction(slack, client)
        await call_every_method(slack, client)
        await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))

        found = {
            fault
            for call in slack.calls
            if has_sample(call.method)
            for fault in find_differences(call.response, load_method_sample(call.method), call.method)
        } | {fault for envelope in slack.envelopes for fault in find_envelope_differences(envelope)}
        assert sorted(found) == []
        subscribed = {
            (e.payload["event"]["type"], e.payload["event"].get("subtype"))
            for e in slack.envelopes
            if e.type == "events_api"
        }
        assert subscribed == set(_EVENTS)


async def test_every_method_is_called() -> None:
    async with SlackSimulator(rate_limits=False) as slack:
        await call_every_method(slack, create_client(slack))
        called = {call.method for call in slack.calls}
        async with aiohttp.ClientSession() as session:
            for path in (Path(SHAPES or "") / "slack" / "api").glob("*.json"):
                async with session.post(slack.api_url + path.stem) as response:
                    known = (await response.json()).get("error") != "unknown_method"
                assert known == (path.stem in called), path.stem
