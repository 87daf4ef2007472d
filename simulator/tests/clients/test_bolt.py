"""Bolt for JavaScript in the local Slack: a scripted bot, and its capabilities.

The bot runs in Socket Mode and with a request URL. Socket Mode has more rows, for its connection.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from chatrig.slack import EnvelopeRecord, SlackConversation, SlackFile, SlackMessage, SlackSimulator, SlackView
from tests.clients.client_script import CapabilityTable, ClientScript, Line, find_command, run_script
from tests.slack.test_fidelity import (
    SHAPES,
    find_differences,
    find_envelope_differences,
    has_sample,
    load_method_sample,
)

TABLE = CapabilityTable["BoltRun"]()
#: Events to which the test subscribes the bot.
EVENTS = {
    *("assistant_thread_started", "assistant_thread_context_changed", "file_shared", "member_joined_channel"),
    *("pin_added", "reaction_added", "reaction_removed"),
}
SOCKET_MODE_TABLE = CapabilityTable["BoltRun"]()


@dataclass(frozen=True, slots=True)
class BoltRun:
    """Local Slack with the user Ada and the Bolt script as its bot."""

    slack: SlackSimulator
    bolt: ClientScript

    async def mention(self, step: str, **details: Any) -> tuple[SlackConversation, SlackMessage]:
        """Post a message of Ada that mentions the bot with a step, in a new channel.

        A channel of its own has its own rate limits.

        Args:
            details: more arguments of `SlackSimulator.post_message`.

        Returns:
            The channel and the message.
        """
        channel = self.slack.add_channel(step.lower())
        text = f"<@{self.slack.bot_user_id}> {step}"
        return channel, await self.slack.post_message("ada", channel, text, **details)

    async def run_step(self, step: str) -> tuple[list[SlackMessage], Line]:
        """Mention the bot with a step, and wait for the script's JSON line.

        Returns:
            The later messages in the channel, and the line.
        """
        channel, mention = await self.mention(step)
        line = await self.bolt.read_step(step)
        return [message for message in self.slack.messages(channel) if message is not mention], line

    def count_connections(self) -> int:
        return sum(call.method == "apps.connections.open" for call in self.slack.calls)

    async def wait_for_modal(self, title: str) -> SlackView:
        """Wait until Ada's top modal has this title, and return the modal's view."""

        def find() -> SlackView | None:
            view = next(iter(self.slack.modals("ada")[::-1]), None)
            return view if view is not None and view.title == title else None

        view = await self.slack.wait_for(find)
        assert view is not None
        return view


async def check_start(run: BoltRun) -> Line:
    line = await run.bolt.read_step("start")
    assert (line["user_id"], line["bot_id"]) == (run.slack.bot_user_id, run.slack.bot_id)
    assert (line["team_id"], line["rejected"]) == (run.slack.team_id, "invalid_auth")
    return line


async def start_socket_mode(run: BoltRun) -> None:
    await check_start(run)
    await run.slack.wait_until_connected()


async def start_http_mode(run: BoltRun) -> None:
    """Verify the request URL in Slack, and check that Bolt refuses a wrong signature."""
    url = f"http://127.0.0.1:{(await check_start(run))['port']}/slack/events"
    await run.slack.request_url.verify(url)
    body = '{"type": "url_verification", "challenge": "x"}'
    headers = run.slack.request_url.sign(body) | {"X-Slack-Signature": "v0=0", "Content-Type": "application/json"}
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as response:
        assert response.status == 401


@TABLE.row("mention: the event, and a reply in its thread")
async def mention(run: BoltRun) -> None:
    (reply,), line = await run.run_step("mention")
    event = line["event"]
    assert (event["user"], event["type"]) == (run.slack.people["ada"].id, "app_mention")
    assert line["isMe"] == run.slack.bot_user_id
    assert line["blocks"] == ["rich_text"]
    assert (reply.text, reply.thread_ts) == ("hello @ada", event["ts"])


@TABLE.row("metadata: posted, and read on request")
async def metadata(run: BoltRun) -> None:
    _, line = await run.run_step("metadata")
    assert (line["complete"], line["short"]) == (True, None)


@TABLE.row("attachments: alone, then removed by an edit")
async def attachments(run: BoltRun) -> None:
    (message,), line = await run.run_step("attachments")
    assert [version.text for version in message.versions] == ["Build\npassed\nBranch\nmain", "Build 2"]
    assert (line["fallback"], line["broken"]) == ("passed", "no_text")


@TABLE.row("authors: another name and icon")
async def authors(run: BoltRun) -> None:
    (message,), line = await run.run_step("authors")
    assert (message.username, line["username"]) == ("Robot", "Robot")
    assert line["icons"]["emoji"] == ":robot_face:"


@TABLE.row("threads: a reply that is also in the channel")
async def broadcast(run: BoltRun) -> None:
    _, line = await run.run_step("broadcast")
    assert line["texts"][0] == "loud"
    assert "quiet" not in line["texts"]
    assert line["subtype"] == "thread_broadcast"


@TABLE.row("edits: a placeholder, five edits, the final message with blocks")
async def edits(run: BoltRun) -> None:
    (reply,), line = await run.run_step("edits")
    texts = [version.content.text for version in reply.versions]
    assert texts == [":hourglass:", *(f"so far {count}" for count in range(1, 6)), "done"]
    assert line["types"] == ["header", "section", "divider", "context", "image"]


@TABLE.row("delete: the bot's message, once")
async def delete(run: BoltRun) -> None:
    replies, line = await run.run_step("delete")
    assert (replies, line["deletedTwice"]) == ([], "message_not_found")


@TABLE.row("stream: sayStream with tasks, text, and feedback buttons at the stop")
async def stream(run: BoltRun) -> None:
    (reply,), line = await run.run_step("stream")
    assert "and done" in reply.text
    assert [(task.title, task.status) for task in reply.tasks] == [("Search", "complete")]
    assert reply.buttons == {"Good": "good", "Bad": "bad"}
    assert (line["stopped"]["ts"], line["stopped"]["message"]["text"]) == (reply.ts, reply.content.text)
    assert "completed" in line["late"]
    assert await run.slack.click_button("ada", reply, "good")
    assert (await run.bolt.read_step("feedback"))["value"] == "good"


@TABLE.row("stream: an update while it lives, an append after it, no recipient")
async def stream_errors(run: BoltRun) -> None:
    _, line = await run.run_step("streamErrors")
    assert line["tooEarly"] == "streaming_state_conflict"
    assert line["tooLate"] == "message_not_in_streaming_state"
    assert line["noRecipient"] == "missing_recipient_user_id"


@TABLE.row("buttons: replace, add an ephemeral message, delete by response_url")
async def buttons(run: BoltRun) -> None:
    channel, _ = await run.mention("buttons")
    (message,) = await run.slack.wait_for(lambda: run.slack.messages(channel)[1:])
    assert await run.slack.click_button("ada", message, "replace")
    assert (await run.bolt.read_step("replace"))["value"] == "replace"
    assert message.content.text == "replaced"
    assert await run.slack.click_button("ada", message, "whisper")
    await run.bolt.read_step("whisper")
    whisper = run.slack.messages(channel)[-1]
    assert (whisper.text, whisper.ephemeral_to) == ("psst", run.slack.people["ada"].id)
    assert await run.slack.click_button("ada", message, "vanish")
    await run.bolt.read_step("vanish")
    assert message.deleted


@TABLE.row("selects: options, users, channels, dates, checkboxes, with the state")
async def selects(run: BoltRun) -> None:
    channel, _ = await run.mention("selects")
    (message,) = await run.slack.wait_for(lambda: run.slack.messages(channel)[1:])
    grace, general = run.slack.people["grace"].id, run.slack.channels["general"].id
    for action_id, value, field, expected in (
        ("static", "blue", "selected_option", "blue"),
        ("user", "grace", "selected_user", grace),
        ("conversation", "general", "selected_conversation", general),
        ("date", "2026-01-31", "selected_date", "2026-01-31"),
        ("multi", ["one", "two"], "selected_options", ["one", "two"]),
        ("checks", ["b"], "selected_options", ["b"]),
        ("radio", "y", "selected_option", "y"),
    ):
        assert await run.slack.set_input("ada", message, action_id, value)
        line = await run.bolt.read_step(action_id)
        assert _read_value(line["action"][field]) == expected, action_id
    assert await run.slack.click_button("ada", message, "less")
    line = await run.bolt.read_step("overflow")
    assert _read_value(line["action"]["selected_option"]) == "less"
    entered = {name: element for block in line["values"].values() for name, element in block.items()}
    assert _read_value(entered["static"]["selected_option"]) == "blue"
    assert entered["user"]["selected_user"] == grace


def _read_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_read_value(each) for each in value]
    return value["value"] if isinstance(value, dict) else value


async def open_modal(run: BoltRun, message: SlackMessage) -> tuple[SlackView, Line]:
    assert await run.slack.click_button("ada", message, "open")
    line = await run.bolt.read_step("open")
    return await run.wait_for_modal("ask"), line


@TABLE.row("modals: open, update with a hash, push, errors, update, clear, close")
async def modals(run: BoltRun) -> None:
    channel, _ = await run.mention("modals")
    (message,) = await run.slack.wait_for(lambda: run.slack.messages(channel)[1:])
    view, line = await open_modal(run, message)
    assert (line["root"], line["openedTwice"]) == (True, "exchanged_trigger_id")

    assert await run.slack.click_button("ada", view, "refresh")
    assert (await run.bolt.read_step("refresh"))["stale"] == "hash_conflict"
    assert view.content["blocks"][0]["text"]["text"] == "refreshed"

    assert await run.slack.click_button("ada", view, "push")
    assert await run.bolt.read_step("push") == {"step": "push", "previous": True, "root": True}
    run.slack.close_modal(await run.wait_for_modal("details"))
    assert (await run.bolt.read_step("close"))["view"] == "details"

    assert not await run.slack.submit_modal(view, text="bad", colour="red")
    line = await run.bolt.read_step("submit")
    assert (line["colour"], line["metadata"], line["user"]) == ("red", "some data", run.slack.people["ada"].id)
    assert view.errors == {"question": "Ask nicely"}

    assert await run.slack.submit_modal(view, text="update")
    assert view.title == "sure"
    assert await run.slack.submit_modal(view)
    assert (await run.bolt.read_step("sure"))["title"] == "sure"
    assert run.slack.modals("ada") == []

    view, _ = await open_modal(run, message)
    assert await run.slack.submit_modal(view, text="push", colour="blue")
    assert [open_view.title for open_view in run.slack.modals("ada")] == ["ask", "sure"]
    assert await run.slack.submit_modal(await run.wait_for_modal("sure"))
    assert await run.slack.submit_modal(view, text="clear", colour="blue")
    assert run.slack.modals("ada") == []

    view, _ = await open_modal(run, message)
    run.slack.close_modal(view, whole_stack=True)
    assert await run.bolt.read_step("close") == {"step": "close", "view": "ask", "isCleared": True}


@TABLE.row("home tab: views.publish at app_home_opened, a button in it")
async def home(run: BoltRun) -> None:
    await run.slack.open_home("ada", "home")
    assert await run.bolt.read_step("home") == {"step": "home", "type": "home", "wasPublished": False}
    view = run.slack.find_home("ada")
    assert view is not None
    assert await run.slack.click_button("ada", view, "greet")
    assert await run.bolt.read_step("greet") == {"step": "greet", "container": "view", "viewType": "home"}
    await run.slack.open_home("ada", "home")
    assert (await run.bolt.read_step("home"))["wasPublished"]


@TABLE.row("slash command: ack with a text")
async def command(run: BoltRun) -> None:
    (answer,) = await run.slack.run_command("ada", "general", "/now", "what time")
    assert (answer.text, answer.ephemeral_to) == ("now: what time", run.slack.people["ada"].id)
    sent = (await run.bolt.read_step("/now"))["command"]
    assert (sent["command"], sent["text"], sent["user_name"]) == ("/now", "what time", "ada")


@TABLE.row("slash command: five responses, the sixth refused")
async def responses(run: BoltRun) -> None:
    visible = await run.slack.run_command("ada", "general", "/later")
    line = await run.bolt.read_step("/later")
    assert [message.text for message in visible] == [*(f"whisper {count}" for count in range(1, 5)), "ada asked"]
    assert [message.ephemeral_to is None for message in visible] == [False] * 4 + [True]
    assert line["sixth"] != "accepted"


@TABLE.row("message shortcut: the message, and a response")
async def shortcut(run: BoltRun) -> None:
    channel = run.slack.add_channel("shortcut")
    message = await run.slack.post_message("ada", channel, "this")
    assert await run.slack.use_shortcut("ada", message, "ask_about")
    line = await run.bolt.read_step("shortcut")
    assert (line["type"], line["text"], line["channel"]) == ("message_action", "this", channel.id)
    answer = await run.slack.wait_for(lambda: run.slack.messages(channel)[1:])
    assert answer[0].text == "about this"


@TABLE.row("ephemeral: only its user sees it")
async def ephemeral(run: BoltRun) -> None:
    (message,), line = await run.run_step("ephemeral")
    assert (message.ephemeral_to, message.ts) == (run.slack.people["ada"].id, line["message_ts"])
    assert line["unknown"] == "user_not_in_channel"


@TABLE.row("files up: uploadV2, files.info, files.list, download, files.delete")
async def upload(run: BoltRun) -> None:
    messages, line = await run.run_step("upload")
    assert line["names"] == ["a.md", "b.bin"]
    assert line["bytes"] == [0, 255, 10]
    assert line["anonymous"].startswith("text/html")
    assert line["deleted"] == "file_not_found"
    assert (line["listed"], line["shared"]) == (["a.md", "b.bin"], [run.slack.channels["upload"].id])
    assert messages == []


@TABLE.row("files down: a person's file with a message")
async def file_share(run: BoltRun) -> None:
    file = SlackFile("F0NOTES0000", "notes.txt", b"a note")
    await run.slack.post_message("ada", run.slack.add_channel("files"), "read this", files=[file])
    line = await run.bolt.read_step("fileShare")
    assert line == {"step": "fileShare", "name": "notes.txt", "mimetype": "text/plain", "text": "a note"}


@TABLE.row("direct messages: in, and out by conversations.open")
async def direct(run: BoltRun) -> None:
    dm = run.slack.open_dm("ada")
    await run.slack.post_message("ada", dm, "hello")
    message = (await run.bolt.read_step("directMessage"))["message"]
    assert (message["channel"], message["channel_type"]) == (dm.id, "im")
    _, line = await run.run_step("direct")
    assert (line["about"]["is_im"], line["about"]["user"]) == (True, run.slack.people["ada"].id)
    assert [message.text for message in run.slack.messages(dm)] == ["hello", "you wrote hello", "in private"]


@TABLE.row("assistant: a thread, its context, prompts, status and title")
async def assistant(run: BoltRun) -> None:
    dm = run.slack.open_dm("linus")
    root = await run.slack.start_assistant_thread("linus", "general")
    assert (await run.bolt.read_step("threadStarted"))["context"] == run.slack.channels["general"].id
    assert dm.prompts == (("Hello", "Say hello"),)
    await run.slack.change_assistant_context("linus", root, "random")
    random = run.slack.channels["random"].id
    assert (await run.bolt.read_step("contextChanged"))["context"] == random
    await run.slack.post_message("linus", dm, "wait", thread_ts=root.ts)
    assert await run.bolt.read_step("userMessage") == {"step": "userMessage", "text": "wait", "context": random}
    assert (run.slack.get_loading_text(root), run.slack.get_thread_title(root)) == ("is thinking...", "Reasons")
    await run.slack.post_message("linus", dm, "why?", thread_ts=root.ts)
    await run.bolt.read_step("userMessage")
    assert (run.slack.messages(dm)[-1].text, run.slack.get_loading_text(root)) == ("Because.", "")


@TABLE.row("events: reactions, pins, files, members")
async def events(run: BoltRun) -> None:
    channel = run.slack.add_channel("events", members=["ada"])
    file = SlackFile("F0PICTURE00", "a.png")
    message = await run.slack.post_message("ada", channel, "look", files=[file])
    await run.bolt.read_step(f"file_shared {file.id}")
    await run.slack.add_reaction("grace", message, "wave")
    await run.slack.remove_reaction("grace", message, "wave")
    for type_ in ("reaction_added", "reaction_removed"):
        assert (await run.bolt.read_step(f"{type_} {message.ts}"))["event"]["reaction"] == "wave"
    await run.slack.pin_message("ada", message)
    await run.bolt.read_step(f"pin_added {message.ts}")
    await run.slack.join_channel("grace", channel, inviter="ada")
    event = (await run.bolt.read_step(f"member_joined_channel {channel.id}"))["event"]
    assert (event["user"], event["inviter"]) == (run.slack.people["grace"].id, run.slack.people["ada"].id)


@TABLE.row("threads: replies by pages, permalinks, errors")
async def threads(run: BoltRun) -> None:
    _, line = await run.run_step("threads")
    texts = [text for page in line["pages"] for text in page if "threads" not in text]
    assert texts == ["1", "2", "3"]
    assert "thread_ts=" in line["permalink"]
    assert (line["nowhere"], line["deeper"]) == ("thread_not_found", "cannot_reply_to_message")


@TABLE.row("history: pages, and one message by its timestamp")
async def history(run: BoltRun) -> None:
    channel = run.slack.add_channel("history")
    for count in range(7):
        await run.slack.post_message("ada", channel, f"{count}")
    await run.slack.post_message("ada", channel, f"<@{run.slack.bot_user_id}> history")
    line = await run.bolt.read_step("history")
    assert [len(page) for page in line["pages"]] == [3, 3, 2]
    assert [text for page in line["pages"] for text in page][1:] == [f"{count}" for count in range(6, -1, -1)]
    assert line["latest"]


@TABLE.row("reactions: add, remove, both twice, get, list, an unknown emoji")
async def reactions(run: BoltRun) -> None:
    _, mention = await run.mention("reactions")
    line = await run.bolt.read_step("reactions")
    assert (line["addedTwice"], line["removedTwice"], line["unknown"]) == (
        "already_reacted",
        "no_reaction",
        "invalid_name",
    )
    assert (line["names"], line["listed"], line["badTimestamp"]) == (["thumbsup"], True, "bad_timestamp")
    assert list(mention.reactions) == ["thumbsup"]


@TABLE.row("pins: add, list, remove, both twice")
async def pins(run: BoltRun) -> None:
    _, mention = await run.mention("pins")
    line = await run.bolt.read_step("pins")
    assert line == {"step": "pins", "addedTwice": "already_pinned", "removedTwice": "no_pin", "pinned": [mention.ts]}


@TABLE.row("scheduled messages: schedule, list, delete, one that is posted")
async def schedule(run: BoltRun) -> None:
    channel, _ = await run.mention("schedule")
    line = await run.bolt.read_step("schedule")
    assert (line["listed"], line["deletedTwice"]) == (["soon", "never"], "invalid_scheduled_message_id")
    assert line["past"] == "time_in_past"
    (message,) = await run.slack.wait_for(lambda: run.slack.messages(channel)[1:])
    assert message.text == "soon"


@TABLE.row("me message")
async def me_message(run: BoltRun) -> None:
    (message,), line = await run.run_step("meMessage")
    assert (message.text, message.subtype, message.ts) == ("waves", "me_message", line["ts"])


@TABLE.row("edits and deletions by people: message_changed, message_deleted")
async def changes(run: BoltRun) -> None:
    message = await run.slack.post_message("ada", run.slack.add_channel("changes"), "before")
    await run.slack.edit_message("ada", message, "after")
    assert await run.bolt.read_step("changed") == {"step": "changed", "text": "after", "before": "before"}
    await run.slack.delete_message("ada", message)
    assert await run.bolt.read_step("deleted") == {"step": "deleted", "ts": message.ts, "before": "after"}


@TABLE.row("messages of other apps: bot_message")
async def bot_message(run: BoltRun) -> None:
    message = await run.slack.post_as_other_bot("Robot", run.slack.add_channel("robots"), "beep")
    line = await run.bolt.read_step("botMessage")
    assert line == {"step": "botMessage", "text": "beep", "username": "Robot", "bot": message.bot_id}


@TABLE.row("directory: users, channels, team")
async def people(run: BoltRun) -> None:
    _, line = await run.run_step("people")
    assert (line["name"], line["team"]) == ("ada", run.slack.team_id)
    assert {"ada", "grace", "linus"} <= set(line["names"])
    assert {"general", "random"} <= set(line["channels"])


@TABLE.row("directory: members, memberships, emails, profiles, bots, emoji")
async def lookups(run: BoltRun) -> None:
    ada, channel = run.slack.people["ada"].id, run.slack.add_channel("lookups")
    await run.slack.post_message("ada", channel, f"<@{run.slack.bot_user_id}> lookups")
    line = await run.bolt.read_step("lookups")
    assert (line["bot"], line["byEmail"], line["isMember"]) == (run.slack.bot_user_id, ada, True)
    assert line["picture"].startswith("https://")
    assert (line["warning"], line["emoji"], line["args"]["foo"]) == ("already_in_channel", {}, "bar")
    assert [len(page) for page in line["pages"]] == [3, 1]
    assert {member for page in line["pages"] for member in page} == channel.members
    assert (line["noUser"], line["noBot"]) == ("users_not_found", "bot_not_found")


@TABLE.row("headers: scopes, request id and error; JSON for a method that takes forms")
async def headers(run: BoltRun) -> None:
    _, line = await run.run_step("headers")
    assert set(line["scopes"]) == run.slack.scopes
    assert (line["code"], line["failure"], len(line["id"])) == ("invalid_arguments", "invalid_arguments", 32)


@TABLE.row("refusals: each with Slack's error code")
async def errors(run: BoltRun) -> None:
    _, line = await run.run_step("errors")
    blocks = ("unknownBlock", "unknownText", "unknownKey", "mrkdwnButton", "noAltText", "sameIds", "sameActions")
    assert line == {
        "step": "errors",
        "foreign": "cant_update_message",
        "nowhere": "channel_not_found",
        "nobody": "user_not_found",
        "longUpdate": "msg_too_long",
        "empty": "no_text",
        **dict.fromkeys((*blocks, "tooLong", "tooMany"), "invalid_blocks"),
        "truncated": "message_truncated",
        "unknownMethod": "unknown_method",
    }


@TABLE.row("agent sessions: status, title")
async def session(run: BoltRun) -> None:
    _, mention = await run.mention("session")
    assert (await run.bolt.read_step("session"))["title"] == "Done"
    agent_session = run.slack.find_session(mention)
    assert agent_session is not None
    assert (agent_session.statuses, agent_session.title) == (["processing", "closed"], "Done")


@TABLE.row("slash command without a listener: an error of Slackbot")
async def unknown_command(run: BoltRun) -> None:
    (message,) = await run.slack.run_command("ada", "general", "/nobody")
    assert "operation_timeout" in message.text


@TABLE.row("an event that is sent again: the number and the reason of the retry")
async def retried_event(run: BoltRun) -> None:
    message = await run.slack.post_message("ada", run.slack.add_channel("retried"), "look")

    def find_envelope() -> EnvelopeRecord | None:
        acknowledged = (envelope for envelope in run.slack.envelopes[::-1] if envelope.acknowledged_at)
        return next((e for e in acknowledged if e.payload.get("event", {}).get("ts") == message.ts), None)

    await run.slack.wait_for(find_envelope)
    await run.slack.redeliver(message)
    line = await run.bolt.read_step("retry of event")
    assert (line["type"], line["count"]) == ("message", 1)
    assert line["reason"] in ("timeout", "http_timeout")


@SOCKET_MODE_TABLE.row("rate limit: the client waits as Retry-After says")
async def slow_down(run: BoltRun) -> None:
    run.slack.faults.rate_limit("chat.postMessage", retry_after=1)
    (message,), line = await run.run_step("slowDown")
    assert (message.text, line["seconds"]) == ("at last", [1])


@SOCKET_MODE_TABLE.row("server error: the client tries again")
async def retry(run: BoltRun) -> None:
    run.slack.faults.fail("chat.postMessage")
    (message,), _ = await run.run_step("retry")
    assert message.text == "again"


@SOCKET_MODE_TABLE.row("Socket Mode: a cut connection is opened again, and no event is lost")
async def reconnect(run: BoltRun) -> None:
    await run.slack.drop_sockets()
    await run.mention("reconnected")
    await run.bolt.read_step("reconnected")


@SOCKET_MODE_TABLE.row("Socket Mode: a frozen connection is noticed, and opened again")
async def thaw(run: BoltRun) -> None:
    before = run.count_connections()
    await run.slack.freeze_sockets()
    await run.slack.wait_for(lambda: run.count_connections() > before and run.slack.connection_count)
    await run.mention("thawed")
    await run.bolt.read_step("thawed")


@SOCKET_MODE_TABLE.row("Socket Mode: opens another connection when Slack asks for it")
async def refresh(run: BoltRun) -> None:
    before = run.count_connections()
    await run.slack.refresh_sockets()
    await run.slack.wait_for(lambda: run.count_connections() > before and run.slack.connection_count)
    await run.mention("refreshed")
    await run.bolt.read_step("refreshed")


def find_all_differences(slack: SlackSimulator) -> Iterator[str]:
    """Yield each difference of the simulator's replies and events from Slack's samples."""
    for call in slack.calls:
        if has_sample(call.method) and call.response is not None:
            yield from find_differences(call.response, load_method_sample(call.method), call.method)
    for envelope in slack.envelopes:
        yield from find_envelope_differences(envelope)


@pytest.mark.long
@pytest.mark.parametrize("is_socket_mode", [True, False], ids=["socket-mode", "request-url"])
async def test_bolt_for_javascript_works(is_socket_mode: bool, subtests: pytest.Subtests, tmp_path: Path) -> None:
    command = find_command("bolt.mjs")
    start = start_socket_mode if is_socket_mode else start_http_mode
    async with SlackSimulator() as slack:
        slack.subscriptions.update(EVENTS)
        environment = {"SLACK_API_URL": slack.api_url, "SLACK_BOT_TOKEN": slack.bot_token} | (
            {"SLACK_APP_TOKEN": slack.app_token} if is_socket_mode else {"SLACK_SIGNING_SECRET": slack.signing_secret}
        )
        async with run_script(command, environment, tmp_path / "bolt.log") as bolt:
            run = BoltRun(slack, bolt)
            with subtests.test("start: auth.test, the connection, a wrong token or signature refused"):
                await start(run)
            await TABLE.check(subtests, run)
            if is_socket_mode:
                await SOCKET_MODE_TABLE.check(subtests, run)
        with subtests.test("replies and events have the shapes of Slack's samples"):
            if not SHAPES:
                pytest.skip("PLATFORM_SHAPES names no folder with the platforms' shapes")
            assert sorted(set(find_all_differences(slack))) == []
