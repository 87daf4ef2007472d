"""Forms and menus of the simulator's client, on both platforms."""

import asyncio
from typing import Any

import discord
import pytest

from chatrig.client.discord import DiscordPlatform
from chatrig.client.forms import ClientField, ClientForm, ClientOption, format_form, parse_form_line
from chatrig.client.platform import ClientMessage, ClientPlatform
from chatrig.client.session import ChatSession
from chatrig.client.slack import SlackPlatform
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from tests.terminal.conftest import DiscordBot, SlackSdkBot

SIZES = (ClientOption("s", "Small"), ClientOption("l", "Large"))
FORM = ClientForm(
    "1",
    "Order",
    "What would you like?",
    (
        ClientField("name", "Name"),
        ClientField("size", "Size", options=SIZES),
        ClientField(
            "extra", "Extra: all", options=(ClientOption("m", "Milk"), ClientOption("i", "Ice")), takes_several=True
        ),
    ),
    "Submit",
    "Cancel",
)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("", {}),
        ("Ada; and Grace", {"name": ["Ada; and Grace"]}),
        ("Ada; size: l", {"name": ["Ada"], "size": ["l"]}),
        ("size:small;NAME: 1: Ada", {"size": ["s"], "name": ["1: Ada"]}),
        ("Extra: all: ice, Milk; Name:", {"extra": ["i", "m"], "name": []}),
    ],
)
def test_a_line_fills_in_fields_by_their_labels(line: str, values: dict[str, list[str]]) -> None:
    assert parse_form_line(FORM, line) == values


def test_an_unknown_option_is_refused_with_the_options() -> None:
    with pytest.raises(ValueError, match=r"Size has no option 'huge'\. Options: Small, Large\."):
        parse_form_line(FORM, "Size: huge")


def test_a_form_is_text_with_the_line_that_fills_it_in() -> None:
    assert format_form(FORM).splitlines() == [
        "Order",
        "What would you like?",
        "• Name",
        "• Size (options: Small, Large)",
        "• Extra: all (options: Milk, Ice)",
        "Fill it in: /submit Name: …; Size: …; Extra: all: …",
    ]


def create_plain_text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


def create_options(*labels: str) -> list[dict[str, Any]]:
    return [{"text": create_plain_text(label), "value": label[0].lower()} for label in labels]


#: Blocks with a button and a menu, and a modal with a text, a menu and several options.
BLOCKS = [
    {
        "type": "actions",
        "elements": [
            {"type": "button", "action_id": "order", "text": create_plain_text("Order")},
            {
                "type": "static_select",
                "action_id": "size",
                "placeholder": create_plain_text("Size"),
                "options": create_options("Small", "Large"),
            },
        ],
    }
]


def create_field(name: str, element: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    return {
        "type": "input",
        "block_id": name,
        "label": create_plain_text(name),
        "element": {**element, "action_id": name},
        **kwargs,
    }


MODAL = {
    "type": "modal",
    "title": create_plain_text("Order"),
    "submit": create_plain_text("Submit"),
    "blocks": [
        {"type": "section", "text": create_plain_text("Hot or cold?")},
        create_field("Name", {"type": "plain_text_input"}, hint=create_plain_text("For the cup")),
        create_field("Size", {"type": "static_select", "options": create_options("Small", "Large")}),
        create_field(
            "Extras", {"type": "multi_static_select", "options": create_options("Milk", "Ice")}, optional=True
        ),
    ],
}


async def start_slack(slack: SlackSimulator, bot: SlackSdkBot) -> ChatSession:
    bot.modal = MODAL
    await bot.connect()
    await slack.wait_until_connected()
    session = ChatSession(SlackPlatform(slack))
    await bot.web.chat_postMessage(channel=slack.open_dm("ada").id, text="What?", blocks=BLOCKS)
    return session


async def test_a_form_of_slack_is_refused_corrected_and_accepted(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    session = await start_slack(slack, bot)
    bot.on_submit = {"response_action": "errors", "errors": {"Name": "Too short"}}
    assert await session.run_line("/press order") == ""
    notice = await session.run_line("/submit A; size: large; extras: ice")
    assert "• Name (For the cup) = A ⚠ Too short" in notice
    assert "• Extras (optional; options: Milk, Ice) = Ice" in notice
    bot.on_submit = {}
    assert await session.run_line("/submit name: Ada") == ""
    assert session.platform.find_form(session.user) is None
    submitted = [e.payload for e in slack.envelopes if e.payload.get("type") == "view_submission"][-1]
    values = {name: value[name] for name, value in submitted["view"]["state"]["values"].items()}
    assert values["Name"]["value"] == "Ada"
    assert values["Size"]["selected_option"]["value"] == "l"
    assert [option["value"] for option in values["Extras"]["selected_options"]] == ["i"]
    assert await session.run_line("/submit again") == "No form is open for ada."


async def test_an_option_of_slacks_menu_is_selected(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    session = await start_slack(slack, bot)
    bot.modal = {}
    [message] = session.platform.list_messages(session.place, session.user)
    assert (list(message.buttons), [menu.label for menu in message.menus]) == (["Order"], ["Size"])
    assert message.plain_text.endswith("[ Size ▾ Small, Large ]\n[ Order ]")
    assert await session.run_line("/press lar") == ""
    [action] = slack.envelopes[-1].payload["actions"]
    assert action["selected_option"]["value"] == "l"
    assert "Buttons: Order, Small, Large" in await session.run_line("/press huge")


async def test_a_date_and_several_users_are_typed_for_menus_of_slack(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    session = await start_slack(slack, bot)
    bot.modal = {}
    people = {"type": "multi_users_select", "action_id": "people", "placeholder": create_plain_text("People")}
    pickers = [{"type": kind, "action_id": kind} for kind in ("datepicker", "timepicker", "datetimepicker")]
    section = {"type": "section", "text": create_plain_text("?"), "accessory": people}
    blocks: list[dict[str, Any]] = [section, {"type": "actions", "elements": pickers}]
    await bot.web.chat_postMessage(channel=slack.open_dm("ada").id, text="When?", blocks=blocks)
    message = session.platform.list_messages(session.place, session.user)[-1]
    assert "[ People ▾ ada, grace, linus ]\n[ Select a date ▾ ]" in message.plain_text
    assert await session.run_line("/press select a date: 2026-01-31") == ""
    assert slack.envelopes[-1].payload["actions"][0]["selected_date"] == "2026-01-31"
    assert await session.run_line("/press people: grace, linus") == ""
    chosen = [slack.people[name].id for name in ("grace", "linus")]
    assert slack.envelopes[-1].payload["actions"][0]["selected_users"] == chosen
    assert "such as 2026-01-31 09:30" in await session.run_line("/press select a date and time: soon")
    message = session.platform.list_messages(session.place, session.user)[-1]
    assert [menu.values for menu in message.menus] == [tuple(chosen), ("2026-01-31",), (), ()]


async def start_discord(server: DiscordSimulator, discord_bot: DiscordBot) -> ChatSession:
    session = ChatSession(DiscordPlatform(server))
    await session.run_line("hello")
    view = discord.ui.View()
    view.add_item(discord.ui.Button(label="Order", custom_id="form"))
    sizes = [discord.SelectOption(label=size, value=size[0]) for size in ("Small", "Large")]
    view.add_item(discord.ui.Select(custom_id="sizes", placeholder="Size", options=sizes))
    view.stop()
    await (await discord_bot.next_message()).channel.send("What?", view=view)
    return session


async def wait_for_reply(platform: ClientPlatform, session: ChatSession, text: str) -> ClientMessage:
    async with asyncio.timeout(20):
        while True:
            for message in platform.list_messages(session.place, session.user):
                if message.plain_text.startswith(text):
                    return message
            await platform.wait_for_change()


async def test_a_form_of_discord_is_filled_in_and_submitted(server: DiscordSimulator, discord_bot: DiscordBot) -> None:
    session = await start_discord(server, discord_bot)
    assert await session.run_line("/press order") == ""
    assert "takes 0 to 5 characters" in await session.run_line("/submit Ada Lovelace; size: small")
    assert await session.run_line("/submit Ada; size: small") == ""
    await wait_for_reply(session.platform, session, "Received Ada; ['s']; ['m']")
    assert session.platform.find_form(session.user) is None


async def test_a_form_that_is_closed_cannot_be_submitted(server: DiscordSimulator, discord_bot: DiscordBot) -> None:
    session = await start_discord(server, discord_bot)
    await session.run_line("/press order")
    form = session.platform.find_form(session.user)
    assert form is not None
    assert [(field.label, field.description, field.values, field.is_required) for field in form.fields] == [
        ("Name", "For the cup", (), True),
        ("Size", "", (), True),
        ("Extras", "", ("m",), False),
    ]
    session.platform.close_form(session.user, form.id)
    assert await session.run_line("/submit Ada") == "No form is open for ada."


async def test_an_option_of_discords_menu_is_selected(server: DiscordSimulator, discord_bot: DiscordBot) -> None:
    session = await start_discord(server, discord_bot)
    message = await wait_for_reply(session.platform, session, "What?")
    assert message.plain_text.endswith("[ Size ▾ Small, Large ]\n[ Order ]")
    assert await session.run_line("/press lar") == ""
    await wait_for_reply(session.platform, session, "Selected L")
