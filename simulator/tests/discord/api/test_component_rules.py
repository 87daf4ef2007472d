"""Components, embeds and files that Discord refuses with the error 50035."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from chatrig.discord import DiscordSimulator
from chatrig.discord.shapes import SHAPES, find_request_errors, find_response_errors
from tests.discord.conftest import call_route

Json = dict[str, Any]
V2 = 1 << 15


def create_button(**changes: Any) -> Json:
    return {"type": 2, "style": 1, "custom_id": "a", "label": "A"} | changes


def create_row(*components: Json) -> Json:
    return {"type": 1, "components": list(components)}


PICTURE = "https://a.example/a.png"
TEXT: Json = {"type": 10, "content": "text"}
MENU: Json = {"type": 3, "custom_id": "m", "options": [{"label": "a", "value": "a"}]}


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator(rate_limits=False) as simulator:
        yield simulator


async def post_message(server: DiscordSimulator, body: Json) -> tuple[int, Any]:
    return await call_route(server, "POST", f"/channels/{server.channels['general'].id}/messages", body)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"components": [create_row(*(create_button(custom_id=str(n)) for n in range(6)))]}, "components.0.components"),
        ({"components": [create_row(create_button(label="x" * 81))]}, "components.0.components.0.label"),
        ({"components": [create_row(create_button(style=9))]}, "components.0.components.0.style"),
        ({"components": [create_row(create_button(label=None))]}, "components.0.components.0.label"),
        ({"components": [create_row(create_button(style=5, custom_id=None))]}, "components.0.components.0.url"),
        ({"components": [create_row(create_button(url="https://a.example"))]}, "components.0.components.0"),
        ({"components": [create_row(create_button(custom_id=None))]}, "components.0.components.0.custom_id"),
        ({"components": [create_row(MENU, create_button())]}, "components.0.components.1"),
        ({"components": [create_row()]}, "components.0.components"),
        ({"components": [create_button()]}, "components.0.type"),
        ({"components": [{"type": 99}]}, "components.0.type"),
        ({"components": [create_row(create_button(custom_id=str(n))) for n in range(6)]}, "components"),
        ({"components": [TEXT]}, "components.0.type"),
        ({"components": [TEXT], "content": "x", "flags": V2}, "content"),
        ({"components": [TEXT | {"content": "x" * 2001}] * 2, "flags": V2}, "components"),
        ({"components": [TEXT] * 41, "flags": V2}, "components"),
        ({"components": [{"type": 13, "file": {"url": "attachment://a.txt"}}], "flags": V2}, "components.0.file.url"),
        ({"components": [{"type": 13, "file": {"url": PICTURE}}], "flags": V2}, "components.0.file.url"),
        (
            {"components": [{"type": 12, "items": [{"media": {"url": "attachment://a.png"}}]}], "flags": V2},
            "components.0.items.0.media.url",
        ),
        ({"components": [TEXT | {"id": 7}] * 2, "flags": V2}, "components"),
        (
            {
                "components": [
                    create_row({"type": 5, "custom_id": "u", "default_values": [{"id": "1", "type": "user"}] * 2})
                ]
            },
            "components.0.components.0.default_values",
        ),
        ({"embeds": [{"title": "t", "color": 0x1000000}]}, "embeds.0.color"),
        ({"embeds": [{"title": "t", "fields": [{"name": "n", "value": "v"}] * 26}]}, "embeds.0.fields"),
        ({"embeds": [{"footer": {"text": "x" * 2049}}]}, "embeds.0.footer.text"),
        ({"embeds": [{"title": "t", "url": "nonsense"}]}, "embeds.0.url"),
        ({"embeds": [{"title": "t", "fields": [{"name": "", "value": "v"}]}]}, "embeds.0.fields.0.name"),
        ({"embeds": [{}]}, "embeds.0.description"),
        ({"content": 1}, "content"),
        ({"content": "x", "nonce": "n" * 26}, "nonce"),
    ],
)
async def test_a_wrong_message_is_refused_at_its_field(body: Json, path: str, server: DiscordSimulator) -> None:
    status, reply = await post_message(server, body)
    assert (status, reply["code"]) == (400, 50035)
    errors = reply["errors"]
    for name in path.split("."):
        errors = errors[name]
    assert errors["_errors"][0]["code"]
    assert server.messages("general") == []


async def test_components_v2_return_with_ids_and_default_values(server: DiscordSimulator) -> None:
    section = {"type": 9, "components": [TEXT], "accessory": create_button()}
    container = {"type": 17, "components": [section, {"type": 14}, create_row(MENU)]}
    status, message = await post_message(server, {"components": [container], "flags": V2})
    assert status == 200
    (component,) = message["components"]
    assert (component["accent_color"], component["spoiler"]) == (None, False)
    section, separator, menu_row = component["components"]
    assert (separator["spacing"], separator["divider"]) == (1, True)
    assert (menu_row["components"][0]["min_values"], menu_row["components"][0]["max_values"]) == (1, 1)
    parts = [component, section, section["components"][0], section["accessory"], separator, menu_row]
    assert [part["id"] for part in (*parts, menu_row["components"][0])] == list(range(1, 8))
    path = f"/channels/{message['channel_id']}/messages/{message['id']}"
    status, reply = await call_route(server, "PATCH", path, {"content": "text", "flags": 0})
    assert (status, reply["code"]) == (400, 50035)


async def test_given_component_ids_are_not_given_again(server: DiscordSimulator) -> None:
    parts = [TEXT, TEXT | {"id": 2}, TEXT | {"id": 0}, create_row(create_button(id=1))]
    _, message = await post_message(server, {"components": parts, "flags": V2})
    *texts, row = message["components"]
    assert [part["id"] for part in (*texts, row, *row["components"])] == [3, 2, 4, 5, 1]


async def test_media_of_components_v2_are_resolved(server: DiscordSimulator) -> None:
    named = {"url": "attachment://_a_b.txt"}
    components = [
        {"type": 9, "components": [TEXT], "accessory": {"type": 11, "media": {"url": PICTURE}}},
        {"type": 12, "items": [{"media": named}, {"media": {"url": PICTURE}, "spoiler": True}]},
        {"type": 13, "file": named},
    ]
    message = await upload_file(server, {"components": components, "flags": V2}, "_a b.txt")
    section, gallery, file = message["components"]
    (attachment,) = message["attachments"]
    assert attachment["filename"] == file["name"] == "a_b.txt"
    assert (file["size"], file["spoiler"], file["file"]["attachment_id"]) == (4, False, attachment["id"])
    assert file["file"]["url"] == gallery["items"][0]["media"]["url"] == attachment["url"]
    assert [(item["description"], item["spoiler"]) for item in gallery["items"]] == [(None, False), (None, True)]
    thumbnail = section["accessory"]
    assert (thumbnail["description"], thumbnail["spoiler"], thumbnail["media"]["url"]) == (None, False, PICTURE)
    if SHAPES:
        assert [*find_request_errors(server.calls[-1]), *find_response_errors(server.calls[-1])] == []


async def upload_file(server: DiscordSimulator, body: Json, name: str) -> Json:
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("payload_json", json.dumps(body), content_type="application/json")
    form.add_field("files[0]", b"data", filename=name)
    headers = {"Authorization": f"Bot {server.bot_token}"}
    url = f"{server.api_url}/channels/{server.channels['general'].id}/messages"
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, data=form) as response:
        message: Json = await response.json()
        assert response.status == 200, message
        return message


async def test_an_edit_sets_and_removes_the_flag_that_hides_embeds(server: DiscordSimulator) -> None:
    _, message = await post_message(server, {"content": "x", "flags": 4})
    path = f"/channels/{message['channel_id']}/messages/{message['id']}"
    assert [(await call_route(server, "PATCH", path, {"flags": flags}))[1]["flags"] for flags in (0, 4, 4096)] == [
        0,
        4,
        0,
    ]


async def test_spaces_in_a_file_name_become_underscores(server: DiscordSimulator) -> None:
    message = await upload_file(server, {"content": "x"}, "a b.txt")
    assert [file["filename"] for file in message["attachments"]] == ["a_b.txt"]


async def test_a_thread_is_private_by_default_and_its_owner_renames_it(server: DiscordSimulator) -> None:
    path = f"/channels/{server.channels['general'].id}/threads"
    types = [
        (await call_route(server, "POST", path, {"name": "t"} | fields))[1]["type"] for fields in ({}, {"type": 11})
    ]
    assert types == [12, 11]
    _, reply = await call_route(server, "POST", path, {"name": "t", "type": 10})
    assert reply["code"] == 50024
    thread = server.threads("general")[-1]
    status, renamed = await call_route(server, "PATCH", f"/channels/{thread.id}", {"name": "new"})
    assert (status, renamed["name"], thread.name) == (200, "new", "new")
    for body, code in (({"locked": True}, 50013), ({"name": ""}, 50035)):
        assert (await call_route(server, "PATCH", f"/channels/{thread.id}", body))[1]["code"] == code


async def test_a_message_that_reopens_a_thread_updates_it(server: DiscordSimulator) -> None:
    headers = {"Authorization": f"Bot {server.bot_token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.ws_connect(server.gateway_url) as socket:
        await socket.send_json({"op": 2, "d": {"token": server.bot_token, "intents": 1 | 1 << 9, "properties": {}}})
        await server.wait_until_connected()
        root = await server.post_message("ada", "general", "root")
        thread = await server.start_thread("ada", root, "thread")
        await server.archive_thread(thread)
        await server.post_message("ada", thread, "again")
    updates = [event.data["thread_metadata"]["archived"] for event in server.events if event.name == "THREAD_UPDATE"]
    assert updates == [True, False]


async def test_a_first_dm_names_its_channel_type(server: DiscordSimulator) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(server.gateway_url) as socket:
        await socket.send_json({"op": 2, "d": {"token": server.bot_token, "intents": 1 << 12, "properties": {}}})
        await server.wait_until_connected()
        await server.post_message("ada", server.open_dm("ada"), "hello")
    (created,) = [event.data for event in server.events if event.name == "MESSAGE_CREATE"]
    assert created["channel_type"] == 1
