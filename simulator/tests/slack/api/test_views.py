"""Modals and home tabs of the local Slack, through Bolt."""

from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp

from chatrig.slack import SlackSimulator, SlackView
from tests.slack.conftest import Connect, catch_error, create_client

PLAIN: dict[str, Any] = {"type": "plain_text", "text": "Deploy"}
BUTTON = {"type": "button", "action_id": "more", "value": "1", "text": PLAIN}
START: dict[str, Any] = {"type": "actions", "elements": [{"type": "button", "action_id": "start", "text": PLAIN}]}
OPTIONS = [{"text": {"type": "plain_text", "text": name.title()}, "value": name} for name in ("blue", "green")]
SELECT = {"type": "static_select", "action_id": "colour", "options": OPTIONS}
NAME = {"type": "plain_text_input", "action_id": "name", "max_length": 20}


def create_field(block_id: str, element: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    return {"type": "input", "block_id": block_id, "label": PLAIN, "element": element} | kwargs


def create_view(*blocks: dict[str, Any], title: str = "Deploy", **kwargs: Any) -> dict[str, Any]:
    view = {"type": "modal", "callback_id": "form", "title": PLAIN | {"text": title}, "submit": PLAIN, "close": PLAIN}
    return view | {"blocks": list(blocks)} | kwargs


FORM = create_view(
    create_field("b-name", NAME), {"type": "section", "block_id": "b-more", "text": PLAIN, "accessory": BUTTON}
)


async def open_form(
    slack: SlackSimulator, connect: Connect, view: dict[str, Any], app: AsyncApp | None = None
) -> SlackView:
    """Open a modal for Ada by a button of an app, and return the modal's view.

    Args:
        view: the modal.
        app: the app; by default a new one.
    """
    app = app or AsyncApp(client=create_client(slack))

    @app.action("start")
    async def open_view(ack: Any, body: dict[str, Any], client: Any) -> None:
        await client.views_open(trigger_id=body["trigger_id"], view=view)
        await ack()

    await connect(slack, app)
    await create_client(slack).chat_postMessage(channel=slack.channels["general"].id, text="x", blocks=[START])
    assert await slack.click_button("ada", slack.messages("general")[-1], "start")
    return slack.modals("ada")[-1]


async def test_a_submission_has_the_values_of_all_inputs(slack: SlackSimulator, connect: Connect) -> None:
    app, bodies = AsyncApp(client=create_client(slack)), list[dict[str, Any]]()

    @app.view("form")
    async def record_submission(ack: Any, body: dict[str, Any]) -> None:
        await ack()
        bodies.append(body)

    elements: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
        "name": (NAME, "Tea", {"value": "Tea"}),
        "colour": (SELECT, "green", {"selected_option": OPTIONS[1]}),
        "many": ({"type": "multi_static_select", "options": OPTIONS}, ["blue"], {"selected_options": OPTIONS[:1]}),
        "radio": ({"type": "radio_buttons", "options": OPTIONS}, "blue", {"selected_option": OPTIONS[0]}),
        "boxes": ({"type": "checkboxes", "options": OPTIONS}, ["blue", "green"], {"selected_options": OPTIONS}),
        "day": ({"type": "datepicker"}, "2026-02-28", {"selected_date": "2026-02-28"}),
        "at": ({"type": "timepicker"}, "09:30", {"selected_time": "09:30"}),
        "number": ({"type": "number_input", "is_decimal_allowed": False}, "7", {"value": "7"}),
        "owner": ({"type": "users_select"}, "grace", {"selected_user": slack.people["grace"].id}),
        "where": (
            {"type": "multi_conversations_select"},
            ["general"],
            {"selected_conversations": [slack.channels["general"].id]},
        ),
    }
    blocks = [create_field(f"b-{name}", element | {"action_id": name}) for name, (element, _, _) in elements.items()]
    modal = await open_form(slack, connect, create_view(*blocks, private_metadata="kept"), app)
    assert await slack.submit_modal(modal, **{name: value for name, (_, value, _) in elements.items()})
    (body,) = bodies
    values = body["view"]["state"]["values"]
    for name, (element, _, expected) in elements.items():
        given = values[f"b-{name}"][name]
        assert given.pop("type") == element["type"]
        for option in given.get("selected_options") or filter(None, [given.get("selected_option")]):
            assert option["text"].pop("emoji")
        assert given == expected
    assert body["view"]["private_metadata"] == "kept"
    assert slack.modals("ada") == []


async def test_a_value_that_slacks_form_refuses_is_an_error(slack: SlackSimulator, connect: Connect) -> None:
    number = {"type": "number_input", "action_id": "number", "is_decimal_allowed": False, "min_value": "2"}
    mail = {"type": "email_text_input", "action_id": "mail"}
    day = {"type": "datepicker", "action_id": "day"}
    modal = await open_form(
        slack,
        connect,
        create_view(*(create_field(str(e["action_id"]), e) for e in (NAME, SELECT, number, mail, day))),
    )
    for values in (
        {"name": "x" * 21},
        {"colour": "red"},
        {"number": "1"},
        {"number": "2.5"},
        {"number": "two"},
        {"mail": "ada"},
        {"day": "tomorrow"},
        {"other": "x"},
    ):
        with pytest.raises(ValueError, match=r".+"):
            await slack.submit_modal(modal, **values)
    assert slack.modals("ada") == [modal]
    assert [e.payload["type"] for e in slack.envelopes if e.type == "interactive"] == ["block_actions"]


async def test_a_response_updates_pushes_and_clears_views(slack: SlackSimulator, connect: Connect) -> None:
    app = AsyncApp(client=create_client(slack))
    answers: list[dict[str, Any]] = [
        {"response_action": "update", "view": create_view(create_field("b-name", NAME), title="Sure?")},
        {
            "response_action": "push",
            "view": create_view(create_field("b-colour", SELECT), title="Colour", callback_id="form"),
        },
        {"response_action": "clear"},
    ]

    @app.view("form")
    async def answer_submission(ack: Any) -> None:
        await ack(**answers.pop(0))

    modal = await open_form(slack, connect, FORM, app)
    before = modal.hash
    assert await slack.submit_modal(modal, name="Tea")
    assert (modal.title, slack.modals("ada")) == ("Sure?", [modal])
    assert modal.hash != before
    assert await slack.submit_modal(modal)  # the value stays with its block and action
    below, above = slack.modals("ada")
    assert (above.title, above.previous, above.root) == ("Colour", below, below)
    with pytest.raises(ValueError, match="covers"):
        await slack.submit_modal(below)
    assert await slack.submit_modal(above, colour="blue")
    assert slack.modals("ada") == []


@pytest.mark.parametrize(
    "answer",
    [
        {"response_action": "errors", "errors": {"other": "no such block"}},
        {"response_action": "update", "view": {"type": "modal"}},
        {"response_action": "jump"},
    ],
)
async def test_an_invalid_response_leaves_the_modal_open(
    slack: SlackSimulator, connect: Connect, answer: dict[str, Any]
) -> None:
    app = AsyncApp(client=create_client(slack))

    @app.view("form")
    async def answer_submission(ack: Any) -> None:
        await ack(**answer)

    modal = await open_form(slack, connect, FORM, app)
    assert not await slack.submit_modal(modal, name="Tea")
    assert (slack.modals("ada"), modal.title, modal.errors) == ([modal], "Deploy", {})


async def test_the_app_hears_of_a_closed_view_if_it_wants_to(slack: SlackSimulator, connect: Connect) -> None:
    app, closed = AsyncApp(client=create_client(slack)), list[tuple[str, bool]]()

    @app.action("more")
    async def push_view(ack: Any, body: dict[str, Any], client: Any) -> None:
        view = create_view(create_field("b-name", NAME), title="More", notify_on_close=True)
        await client.views_push(trigger_id=body["trigger_id"], view=view)
        await ack()

    @app.view_closed("form")
    async def record_close(ack: Any, body: dict[str, Any]) -> None:
        await ack()
        closed.append((body["view"]["title"]["text"], body["is_cleared"]))

    modal = await open_form(slack, connect, FORM | {"notify_on_close": True}, app)
    assert await slack.click_button("ada", modal, "more")
    slack.close_modal(slack.modals("ada")[-1])
    await slack.wait_for(lambda: closed == [("More", False)])
    assert slack.modals("ada") == [modal]
    assert await slack.click_button("ada", modal, "more")
    slack.close_modal(slack.modals("ada")[-1], whole_stack=True)
    await slack.wait_for(lambda: closed[1:] == [("More", True), ("Deploy", True)])
    assert slack.modals("ada") == []
    silent = await open_form(slack, connect, FORM)
    slack.close_modal(silent)
    with pytest.raises(ValueError, match="not open"):
        slack.close_modal(silent)
    assert [e.payload["type"] for e in slack.envelopes].count("view_closed") == 3


async def test_an_app_updates_and_pushes_open_views(slack: SlackSimulator, connect: Connect) -> None:
    app, client = AsyncApp(client=create_client(slack)), create_client(slack)
    triggers: list[str] = []

    @app.action("more")
    async def record_trigger(ack: Any, body: dict[str, Any]) -> None:
        triggers.append(body["trigger_id"])
        assert body["container"] == {"type": "view", "view_id": body["view"]["id"]}
        await ack()

    modal = await open_form(slack, connect, FORM | {"external_id": "form-1"}, app)
    changed = create_view(create_field("b-name", NAME), title="Changed", external_id="form-1")
    old = modal.hash
    await client.views_update(external_id="form-1", view=changed, hash=old)
    assert modal.title == "Changed"
    assert (await catch_error(client.views_update(view_id=modal.id, view=changed, hash=old)))[
        "error"
    ] == "hash_conflict"
    assert (await catch_error(client.views_update(view_id="V0", view=changed)))["error"] == "not_found"
    assert (await catch_error(client.api_call("views.update", json={"view": changed})))["error"] == "invalid_arguments"
    await client.views_update(view_id=modal.id, view=FORM)
    assert (await catch_error(client.views_push(trigger_id="1.2.3", view=FORM)))["error"] == "invalid_trigger_id"
    for _ in range(3):
        await slack.click_button("ada", modal, "more")
    for trigger in triggers[:2]:
        await client.views_push(trigger_id=trigger, view=FORM)
    assert len(slack.modals("ada")) == 3
    assert (await catch_error(client.views_push(trigger_id=triggers[0], view=FORM)))["error"] == "exchanged_trigger_id"
    assert (await catch_error(client.views_push(trigger_id=triggers[2], view=FORM)))["error"] == "push_limit_reached"


async def test_a_home_tab_is_published_and_its_button_pressed(slack: SlackSimulator, connect: Connect) -> None:
    app, pressed, opened = AsyncApp(client=create_client(slack)), list[dict[str, Any]](), list[dict[str, Any]]()

    @app.event("app_home_opened")
    async def record_open(event: dict[str, Any]) -> None:
        opened.append(event)

    @app.action("more")
    async def record_press(ack: Any, body: dict[str, Any]) -> None:
        await ack()
        pressed.append(body)

    await connect(slack, app)
    client, ada = create_client(slack), slack.people["ada"].id
    home: dict[str, Any] = {"type": "home", "blocks": [{"type": "actions", "elements": [BUTTON]}]}
    first = await client.views_publish(user_id=ada, view=home)
    assert (await catch_error(client.views_publish(user_id=ada, view=home, hash="0")))["error"] == "hash_conflict"
    assert (await catch_error(client.views_publish(user_id=ada, view=FORM)))["error"] == "invalid_arguments"
    second = await client.views_publish(user_id=ada, view=home, hash=first["view"]["hash"])
    assert second["view"]["id"] == first["view"]["id"]
    await slack.open_home("ada", "home")
    await slack.wait_for(lambda: opened)
    assert opened[0]["view"]["id"] == first["view"]["id"]
    view = slack.find_home("ada")
    assert view is not None
    assert await slack.click_button("ada", view, "more")
    assert pressed[0]["view"]["type"] == "home"


async def test_an_action_has_the_state_of_all_inputs_of_a_message(slack: SlackSimulator, connect: Connect) -> None:
    app, bodies = AsyncApp(client=create_client(slack)), list[dict[str, Any]]()

    async def record_submission(ack: Any, body: dict[str, Any]) -> None:
        await ack()
        bodies.append(body)

    for action in ("colour", "more"):
        app.action(action)(record_submission)
    await connect(slack, app)
    blocks = [
        create_field("b-name", NAME),
        {"type": "actions", "block_id": "b-actions", "elements": [SELECT | {"initial_option": OPTIONS[0]}, BUTTON]},
    ]
    await create_client(slack).chat_postMessage(channel=slack.channels["general"].id, text="x", blocks=blocks)
    message = slack.messages("general")[-1]
    assert await slack.set_input("ada", message, "name", "Tea")  # an input block sends no action
    assert await slack.click_button("ada", message, "more")
    assert await slack.set_input("ada", message, "colour", "green")
    first, second = (body["state"]["values"] for body in bodies)
    assert first["b-name"]["name"] == {"type": "plain_text_input", "value": "Tea"}
    assert first["b-actions"]["colour"]["selected_option"]["value"] == "blue"
    assert second["b-actions"]["colour"]["selected_option"]["value"] == "green"
    assert bodies[1]["actions"][0]["selected_option"]["value"] == "green"
    with pytest.raises(ValueError, match="the inputs are name, colour"):
        await slack.set_input("ada", message, "other", "x")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"title": None}, "invalid_arguments"),
        ({"submit": None}, "invalid_arguments"),
        ({"title": PLAIN | {"text": "x" * 25}}, "invalid_arguments"),
        ({"private_metadata": "x" * 3_001}, "invalid_arguments"),
        ({"type": "dialog"}, "invalid_arguments"),
        ({"private_metadata": "x" * 250_000}, "view_too_large"),
    ],
)
async def test_invalid_views_are_refused(slack: SlackSimulator, change: dict[str, Any], error: str) -> None:
    body = await catch_error(create_client(slack).views_open(trigger_id="1.2.3", view=FORM | change))
    assert body["error"] == error
