from pathlib import Path
from typing import Any

from chatrig.client.platform import ClientLocation, ClientMessage, PlatformUser
from chatrig.client.session import ChatSession
from chatrig.client.slack import SlackPlatform
from chatrig.slack import SlackSimulator
from tests.terminal.conftest import SlackSdkBot

#: Manifest of a bot with three shortcuts in the menu of a message.
MANIFEST = {
    "display_information": {"name": "Bot"},
    "features": {
        "shortcuts": [
            {"name": name, "type": "message", "callback_id": name, "description": name}
            for name in ("Ask about this", "Why this answer?", "Reset this conversation")
        ]
    },
    "oauth_config": {"scopes": {"bot": ["commands"]}},
}


async def test_the_author_sees_a_stream_and_its_tasks(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    platform, people = SlackPlatform(slack), slack.people
    question = await slack.post_message("ada", "general", "question")
    target: dict[str, Any] = {"channel": question.channel.id}
    task = {"type": "task_update", "id": "1", "title": "Looking…", "status": "in_progress"}
    to_ada = {"recipient_user_id": people["ada"].id, "recipient_team_id": slack.team_id}
    started = await bot.web.chat_startStream(**target, thread_ts=question.ts, chunks=[task], **to_ada)
    target["ts"] = started["ts"]

    def get_message_for(name: str) -> ClientMessage:
        place = ClientLocation(question.channel.id, question.ts)
        return platform.list_messages(place, PlatformUser(people[name].id, name))[-1]

    found = [task | {"title": "Looked", "status": "complete"}, {"type": "markdown_text", "text": "**Found** it."}]
    assert (get_message_for("ada").plain_text, get_message_for("ada").is_pending) == ("Looking…", True)
    await bot.web.chat_appendStream(**target, chunks=found)
    assert get_message_for("ada").plain_text == "✓ Looked\n**Found** it."
    assert get_message_for("ada").markdown == "_✓ Looked_\n\n**Found** it."
    assert get_message_for("grace").plain_text == "Looking…"
    await bot.web.chat_stopStream(**target)
    assert (get_message_for("grace").plain_text, get_message_for("grace").is_pending) == (
        "✓ Looked\n**Found** it.",
        False,
    )


async def test_a_link_button_shows_its_address(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    text = {"type": "plain_text", "text": "Read"}
    button = {"type": "button", "action_id": "read", "text": text, "url": "https://a.example/"}
    await bot.web.chat_postMessage(channel="general", text="Look", blocks=[{"type": "actions", "elements": [button]}])
    session = ChatSession(SlackPlatform(slack))
    place = next(place for place in session.platform.channels if "general" in place.name)
    (message,) = session.platform.list_messages(place, session.user)
    assert (message.links, message.buttons) == ({"Read": "https://a.example/"}, {"Read": "read"})
    assert message.plain_text.endswith("Read: https://a.example/\n[ Read ]")


async def test_a_shortcut_opens_and_submits_its_modal(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    session = ChatSession(SlackPlatform(slack))
    slack.shortcuts = {"Ask about this": "ask"}
    input_element = {"type": "plain_text_input", "action_id": "what"}
    label = {"type": "plain_text", "text": "Your question"}
    view = {
        "type": "modal",
        "title": label,
        "submit": label,
        "blocks": [{"type": "input", "block_id": "b", "label": label, "element": input_element}],
    }
    bot.modal = view
    await bot.connect()
    await slack.wait_until_connected()
    await slack.post_message("grace", "general", "it broke")
    assert await session.run_line("/channel general") == ""
    assert await session.run_line("/menu tell") == "There is no 'tell' in the menu. Entries: Ask about this."
    notice = await session.run_line("/menu ask")
    assert notice == "This shortcut asks for: Your question. Add the text after a colon: /menu Ask about this: ..."
    assert await session.run_line("/menu ask: why?") == ""
    *_, submitted = [e.payload for e in slack.envelopes if e.type == "interactive"]
    assert submitted["view"]["state"]["values"]["b"]["what"]["value"] == "why?"


async def test_own_messages_are_edited_deleted_and_sent_with_files(slack: SlackSimulator, tmp_path: Path) -> None:
    session = ChatSession(SlackPlatform(slack))
    (tmp_path / "a.csv").write_bytes(b"a;b")
    for line in ("/channel general", "one", "/edit two < @grace", f"/file {tmp_path}/a.csv what is it?"):
        assert await session.run_line(line) == ""
    first, second = slack.messages("general")
    assert (first.text, first.edited) == ("two < @grace", True)
    assert (second.text, [file.data for file in second.files]) == ("what is it?", [b"a;b"])
    assert await session.run_line("/delete") == ""
    assert slack.messages("general") == [first]


async def test_an_unknown_command_is_refused(slack: SlackSimulator) -> None:
    slack.install(MANIFEST)
    session = ChatSession(SlackPlatform(slack))
    assert await session.run_line("/nothing") == "the manifest has no /nothing"
    assert session.platform.menu_entries == ["Ask about this", "Why this answer?", "Reset this conversation"]


async def test_slacks_stop_button_stops_a_stream(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    session = ChatSession(SlackPlatform(slack))
    question = await slack.post_message("ada", slack.open_dm("ada"), "question")
    target: dict[str, Any] = {"channel": question.channel.id, "thread_ts": question.ts}
    to_ada: dict[str, Any] = {"recipient_user_id": slack.people["ada"].id, "recipient_team_id": slack.team_id}
    await bot.web.chat_startStream(**target, markdown_text="It", **to_ada)
    working = {"channel_id": question.channel.id, "thread_ts": question.ts, "status": "processing"}
    await bot.web.api_call("agents.sessions.setStatus", params=working)
    assert await session.run_line("/press stop") == ""
    (_, reply) = slack.messages(question.channel, thread_ts=question.ts)
    assert reply.stream is not None
    assert not reply.stream.is_live


async def test_attachments_and_broadcast_replies_are_shown(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    platform, ada = SlackPlatform(slack), PlatformUser(slack.people["ada"].id, "ada")
    question = await slack.post_message("ada", "general", "question")
    channel = question.channel.id
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "a *section*"}}
    attachments: list[dict[str, Any]] = [
        {"title": "Title", "text": "a <https://example.com|link>"},
        {"blocks": [section]},
    ]
    await bot.web.chat_postMessage(
        channel=channel, thread_ts=question.ts, text="answer", attachments=attachments, reply_broadcast=True
    )
    for place in (ClientLocation(channel), ClientLocation(channel, question.ts)):
        messages = platform.list_messages(place, ada)
        assert [message.plain_text for message in messages] == ["question", "answer\nTitle\na link\na *section*"]
        assert messages[1].markdown == "answer\n\n> Title\n>\n> a [link](https://example.com)\n\n> a **section**"
