"""File methods of the local Slack, through slack_sdk."""

import json
from typing import Any

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackFile, SlackSimulator
from tests.slack.conftest import catch_error


async def test_an_uploaded_file_is_visible_in_its_thread(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    question = await slack.post_message("ada", "general", "the report?")
    sent = await client.files_upload_v2(
        channel=general, thread_ts=question.ts, filename="a.md", content="# A", title="It"
    )
    (message,) = slack.messages("general", thread_ts=question.ts)[1:]
    (file,) = message.files
    assert (file.id, file.name, file.data, file.title) == (sent["files"][0]["id"], "a.md", b"# A", "It")
    found = (await client.conversations_replies(channel=general, ts=question.ts))["messages"][1]
    assert [file["id"] for file in found["files"]] == [file.id]


async def test_an_incomplete_or_unshared_file_is_invisible(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    place = await client.files_getUploadURLExternal(filename="a.md", length=3)
    files = json.dumps([{"id": place["file_id"]}])
    body = await catch_error(
        client.api_call("files.completeUploadExternal", data={"files": files, "channel_id": general})
    )
    assert body["error"] == "file_not_found"
    async with aiohttp.ClientSession() as session:
        async with session.post(place["upload_url"], data=b"more than three") as answer:
            assert answer.status == 400
        async with session.post(place["upload_url"], data=b"abc") as answer:
            assert answer.status == 200
    await client.api_call("files.completeUploadExternal", data={"files": files})
    assert slack.messages("general") == []


async def test_deleting_a_file_deletes_its_message(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    sent = await client.files_upload_v2(channel=general, filename="a.md", content="# A")
    await client.files_delete(file=sent["files"][0]["id"])
    assert slack.messages("general") == []
    assert (await catch_error(client.files_delete(file=sent["files"][0]["id"])))["error"] == "file_not_found"


async def test_files_require_their_scope(slack: SlackSimulator, client: AsyncWebClient) -> None:
    slack.scopes.discard("files:write")
    body = await catch_error(client.files_getUploadURLExternal(filename="a.md", length=3))
    assert (body["error"], body["needed"]) == ("missing_scope", "files:write")


async def test_a_download_without_a_valid_token_returns_the_login_page(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    sent = await slack.post_message("ada", "general", "look", files=[SlackFile("F1", "plan.txt", b"first this")])
    file = (await client.files_info(file="F1"))["file"]
    assert (file["name"], file["size"], file["mimetype"]) == ("plan.txt", 10, "text/plain")
    assert sent.files[0].data == b"first this"

    async def fetch_file(token: str) -> tuple[str, bytes]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(file["url_private_download"], headers=headers) as got,
        ):
            return got.content_type, await got.read()

    assert await fetch_file(slack.bot_token) == ("text/plain", b"first this")
    assert (await fetch_file("xoxb-wrong"))[0] == "text/html"
    slack.scopes.discard("files:read")
    assert (await fetch_file(slack.bot_token))[1].startswith(b"<!DOCTYPE html>")
    slack.faults.fail("download", status=503)
    await fetch_file(slack.bot_token)
    assert [call.status for call in slack.calls if call.method == "download"] == [200, 200, 200, 503]


async def test_a_file_lists_the_messages_that_share_it(slack: SlackSimulator, client: AsyncWebClient) -> None:
    file, secret = SlackFile("F0PICTURE00", "A b.png", b"png"), slack.add_channel("secret", private=True)
    root = await slack.post_message("ada", "general", "look", files=[file])
    await slack.post_message("grace", "general", "nice", thread_ts=root.ts)
    second = await slack.post_message("ada", secret, "look", files=[file])
    described = (await client.files_info(file=file.id))["file"]
    general = slack.channels["general"].id
    assert (described["channels"], described["groups"], described["ims"]) == ([general], [secret.id], [])
    (share,) = described["shares"]["public"][general]
    assert (share["ts"], share["channel_name"], share["reply_count"]) == (root.ts, "general", 1)
    assert described["shares"]["private"][secret.id][0]["ts"] == second.ts
    assert described["permalink"].endswith(f"/files/{slack.people['ada'].id}/{file.id}/a%20b.png")


async def test_files_are_listed_by_channel_user_time_and_type(slack: SlackSimulator, client: AsyncWebClient) -> None:
    ada, random = slack.people["ada"], slack.channels["random"]
    for user, channel, name in (
        ("ada", "general", "a.png"),
        ("grace", "general", "b.pdf"),
        ("ada", "random", "c.zip"),
        ("ada", "random", "d.txt"),
    ):
        await slack.post_message(user, channel, "look", files=[name])
    left = slack.add_channel("left")
    hidden = await slack.post_message("ada", left, "look", files=["e.png"])
    left.members.discard(slack.bot_user_id)
    deleted = await slack.post_message("ada", "general", "oops", files=["f.png"])
    await slack.delete_message("ada", deleted)

    async def list_names(**arguments: Any) -> set[str]:
        return {file["name"] for file in (await client.files_list(**arguments))["files"]}

    assert await list_names() == {"a.png", "b.pdf", "c.zip", "d.txt"}
    assert await list_names(channel=random.id) == {"c.zip", "d.txt"}
    assert await list_names(user=ada.id, types="images,pdfs") == {"a.png"}
    assert await list_names(types="zips,all") == {"a.png", "b.pdf", "c.zip", "d.txt"}
    assert await list_names(ts_from=str(int(float(hidden.ts)) + 60)) == set()
    assert await list_names(ts_to=str(int(float(hidden.ts)) - 60)) == set()
    page = await client.files_list(count=3, page=2)
    assert (len(page["files"]), page["paging"]) == (1, {"count": 3, "total": 4, "page": 2, "pages": 2})
    assert (await catch_error(client.files_list(types="movies")))["error"] == "unknown_type"
    assert (await catch_error(client.files_list(user="U0NOBODY")))["error"] == "user_not_found"
    assert (await catch_error(client.files_list(channel="C0NOTHING")))["error"] == "channel_not_found"
