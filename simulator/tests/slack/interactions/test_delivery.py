"""Buttons, shortcuts and modals of the local Slack, through Bolt."""

from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp

from chatrig.client.platform import ClientLocation
from chatrig.client.slack import SlackPlatform
from chatrig.slack import SlackMessage, SlackSimulator
from tests.slack.conftest import Connect, catch_error, create_client

BUTTON = {"type": "button", "action_id": "again", "value": "7", "text": {"type": "plain_text", "text": "Again"}}


async def post_buttons(slack: SlackSimulator) -> SlackMessage:
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": "It failed."}},
        {"type": "actions", "elements": [BUTTON]},
    ]
    await create_client(slack).chat_postMessage(channel=slack.channels["general"].id, text="x", blocks=blocks)
    return slack.messages("general")[-1]


async def test_a_click_has_user_message_and_button(slack: SlackSimulator, connect: Connect) -> None:
    app, presses = AsyncApp(client=create_client(slack)), list[dict[str, Any]]()

    @app.action("again")
    async def handle_press(ack: Any, body: dict[str, Any], respond: Any) -> None:
        await ack()
        presses.append(body)
        await respond("On it.", replace_original=False)

    await connect(slack, app)
    message = await post_buttons(slack)
    assert (message.text, message.buttons) == ("It failed.", {"Again": "again"})
    assert await slack.click_button("ada", message, "again")
    await slack.wait_for(lambda: len(slack.messages("general")) == 2)
    (body,) = presses
    assert (body["user"]["name"], body["container"]["message_ts"]) == ("ada", message.ts)
    assert (body["actions"][0]["action_id"], body["actions"][0]["value"]) == ("again", "7")
    assert slack.messages("general")[-1].ephemeral_to == slack.people["ada"].id


async def test_an_unacknowledged_click_is_reported(fast_slack: SlackSimulator, connect: Connect) -> None:
    message = await post_buttons(fast_slack)
    assert not await fast_slack.click_button("ada", message, "again")
    await connect(fast_slack, AsyncApp(client=create_client(fast_slack)))
    assert not await fast_slack.click_button("ada", message, "again")
    assert [e.type for e in fast_slack.envelopes].count("interactive") == 1  # Slack does not redeliver a click


async def test_only_existing_buttons_can_be_clicked(slack: SlackSimulator) -> None:
    message = await post_buttons(slack)
    with pytest.raises(ValueError, match="no button"):
        await slack.click_button("ada", message, "other")


PLAIN: dict[str, Any] = {"type": "plain_text", "text": "👍"}
BOTH = {"positive_button": {"text": PLAIN, "value": "good"}, "negative_button": {"text": PLAIN, "value": "bad"}}
FEEDBACK = {"type": "feedback_buttons", "action_id": "feedback", **BOTH}
SELECT = {
    "type": "static_select",
    "action_id": "which",
    "options": [{"text": {"type": "plain_text", "text": name}, "value": name} for name in ("one", "two")],
}


async def test_feedback_buttons_and_options_are_chosen_by_value(slack: SlackSimulator, connect: Connect) -> None:
    app, pressed = AsyncApp(client=create_client(slack)), list[dict[str, Any]]()

    async def record_press(ack: Any, action: dict[str, Any]) -> None:
        await ack()
        pressed.append(action)

    for name in ("feedback", "which"):
        app.action(name)(record_press)
    await connect(slack, app)
    blocks = [{"type": "context_actions", "elements": [FEEDBACK]}, {"type": "actions", "elements": [SELECT]}]
    await create_client(slack).chat_postMessage(channel=slack.channels["general"].id, text="x", blocks=blocks)
    for id_ in ("bad", "two"):
        assert await slack.click_button("ada", slack.messages("general")[-1], id_)
    await slack.wait_for(lambda: len(pressed) == 2)
    feedback, chosen = pressed
    assert (feedback["type"], feedback["action_id"], feedback["value"]) == ("feedback_buttons", "feedback", "bad")
    assert (chosen["type"], chosen["selected_option"]["value"]) == ("static_select", "two")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "context_actions", "elements": [BUTTON]},
        {"type": "actions", "elements": [FEEDBACK]},
        {"type": "actions", "elements": [BUTTON, BUTTON]},
        {"type": "actions", "elements": []},
        {"type": "actions", "elements": [{**BUTTON, "accessibility_label": "x" * 76}]},
        {"type": "context_actions", "elements": [{"type": "icon_button", "icon": "refresh", "text": PLAIN}]},
    ],
)
async def test_invalid_controls_are_rejected(slack: SlackSimulator, block: dict[str, Any]) -> None:
    general = slack.channels["general"].id
    body = await catch_error(create_client(slack).chat_postMessage(channel=general, text="x", blocks=[block]))
    assert body["error"] == "invalid_blocks"


async def test_an_ephemeral_button_is_for_its_user_and_a_response_can_replace_it(
    slack: SlackSimulator, connect: Connect
) -> None:
    app = AsyncApp(client=create_client(slack))

    @app.action("again")
    async def handle_press(ack: Any, body: dict[str, Any], respond: Any) -> None:
        await ack()
        assert "message" not in body
        await respond("Chosen.", replace_original=True)

    await connect(slack, app)
    general = slack.channels["general"].id
    about: dict[str, Any] = {"channel": general, "user": slack.people["ada"].id}
    await create_client(slack).chat_postEphemeral(**about, text="?", blocks=[{"type": "actions", "elements": [BUTTON]}])
    message = slack.messages("general")[-1]
    with pytest.raises(ValueError, match="no button"):
        await slack.click_button("grace", message, "again")
    assert await slack.click_button("ada", message, "again")
    await slack.wait_for(lambda: message.text == "Chosen.")


async def test_a_shortcut_opens_a_modal_and_its_inputs_are_submitted(slack: SlackSimulator, connect: Connect) -> None:
    app, filled = AsyncApp(client=create_client(slack)), list[dict[str, Any]]()
    input_element = {"type": "plain_text_input", "action_id": "question"}
    view: dict[str, Any] = {
        "type": "modal",
        "callback_id": "asked",
        "title": PLAIN,
        "submit": PLAIN,
        "private_metadata": "kept",
        "blocks": [{"type": "input", "block_id": "asking", "label": PLAIN, "element": input_element}],
    }

    @app.shortcut("ask")
    async def open_view(ack: Any, body: dict[str, Any], client: Any) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=view | {"private_metadata": body["message_ts"]})
        second = await catch_error(client.views_open(trigger_id=body["trigger_id"], view=view))
        assert second["error"] == "exchanged_trigger_id"

    @app.view("asked")
    async def handle_submission(ack: Any, body: dict[str, Any]) -> None:
        answer = body["view"]["state"]["values"]["asking"]["question"]["value"]
        filled.append(body)
        await (ack() if answer != "well" else ack(response_action="errors", errors={"asking": "Ask something."}))

    await connect(slack, app)
    message = await slack.post_message("grace", "general", "the report")
    assert await slack.use_shortcut("ada", message, "ask")
    (modal,) = await slack.wait_for(lambda: slack.modals("ada"))
    assert not await slack.submit_modal(modal, question="")
    assert modal.errors == {"asking": "Please complete this required field."}
    assert filled == []  # Slack does not submit an incomplete form
    assert not await slack.submit_modal(modal, question="well")
    assert modal.errors == {"asking": "Ask something."}
    assert await slack.submit_modal(modal, question="why?")
    assert slack.modals("ada") == []
    assert filled[-1]["view"]["private_metadata"] == message.ts


async def test_an_action_id_is_unique_in_its_block_only(slack: SlackSimulator, connect: Connect) -> None:
    app, pressed = AsyncApp(client=create_client(slack)), list[dict[str, Any]]()

    async def record_press(ack: Any, action: dict[str, Any]) -> None:
        await ack()
        pressed.append(action)

    for name in ("again", "which"):
        app.action(name)(record_press)
    await connect(slack, app)
    blocks = [{"type": "actions", "block_id": name, "elements": [BUTTON | {"value": name}, SELECT]} for name in "ab"]
    await create_client(slack).chat_postMessage(channel=slack.channels["general"].id, text="x", blocks=blocks)
    message = slack.messages("general")[-1]
    for id_ in ("again", "b/again"):
        assert await slack.click_button("ada", message, id_)
    for id_ in ("which", "b/which"):
        assert await slack.set_input("ada", message, id_, "one")
    await slack.wait_for(lambda: len(pressed) == 4)
    assert [action["block_id"] for action in pressed] == ["a", "b", "a", "b"]
    assert [action["value"] for action in pressed[:2]] == ["a", "b"]
    platform = SlackPlatform(slack)
    listed = platform.list_messages(ClientLocation(message.channel.id), platform.people[0])[-1]
    assert (listed.buttons, [menu.id for menu in listed.menus]) == ({"Again": "b/again"}, ["a/which", "b/which"])
