import json

from chatrig.slack import SlackFile, SlackSimulator
from tests.slack.conftest import create_client

BUTTON = {"type": "button", "action_id": "go", "text": {"type": "plain_text", "text": "Go"}}


async def test_a_later_simulator_continues_from_a_saved_state(slack: SlackSimulator) -> None:
    client = create_client(slack)
    general, direct = slack.channels["general"], slack.open_dm("ada")
    files = [SlackFile("F1", "a.txt", b"content")]
    question = await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> hi", files=files)
    blocks = [{"type": "actions", "elements": [BUTTON]}]
    reply = await client.chat_postMessage(channel=general.id, thread_ts=question.ts, text="…", blocks=blocks)
    await client.reactions_add(channel=general.id, timestamp=question.ts, name="wave")
    gone = await slack.post_message("ada", direct, "gone")
    await slack.delete_message("ada", gone)
    live = await client.chat_startStream(
        channel=direct.id,
        thread_ts=(await slack.post_message("ada", direct, "stream")).ts,
        markdown_text="live",
        recipient_user_id=slack.people["ada"].id,
        recipient_team_id=slack.team_id,
    )
    state = slack.save_state()

    async with SlackSimulator(state=json.loads(json.dumps(state))) as later:
        assert later.save_state() == state
        assert later.bot_token == slack.bot_token
        assert later.people == slack.people
        asked, answered = later.messages("general")
        assert (asked.files[0].data, asked.reactions) == (b"content", {"wave": [later.bot_user_id]})
        assert answered.buttons == {"Go": "go"}
        assert [message.text for message in later.messages(later.open_dm("ada"))] == ["stream", "live"]
        client = create_client(later)
        await client.chat_update(channel=general.id, ts=reply["ts"], text="done")
        await client.chat_update(channel=direct.id, ts=live["ts"], text="over")
        assert later.messages("general")[1].text == "done"
        new = await later.post_message("grace", "random", "new")
        assert new.ts > live["ts"]
