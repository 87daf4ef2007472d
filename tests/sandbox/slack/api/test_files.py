"""File methods, through slack_sdk."""

import json

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from sandbox.slack import SlackFile, SlackSandbox
from tests.sandbox.slack.conftest import catch_error


async def test_an_uploaded_file_is_visible_in_its_thread(
    slack: SlackSandbox, client: AsyncWebClient, general: str
) -> None:
    asked = await slack.post_message("ada", "general", "the report?")
    sent = await client.files_upload_v2(channel=general, thread_ts=asked.ts, filename="a.md", content="# A", title="It")
    (message,) = slack.messages("general", thread_ts=asked.ts)[1:]
    (file,) = message.files
    assert (file.id, file.name, file.data, file.title) == (sent["files"][0]["id"], "a.md", b"# A", "It")
    found = (await client.conversations_replies(channel=general, ts=asked.ts))["messages"][1]
    assert [one["id"] for one in found["files"]] == [file.id]


async def test_an_incomplete_or_unshared_file_is_invisible(
    slack: SlackSandbox, client: AsyncWebClient, general: str
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


async def test_deleting_a_file_deletes_its_message(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    sent = await client.files_upload_v2(channel=general, filename="a.md", content="# A")
    await client.files_delete(file=sent["files"][0]["id"])
    assert slack.messages("general") == []
    assert (await catch_error(client.files_delete(file=sent["files"][0]["id"])))["error"] == "file_not_found"


async def test_files_require_their_scope(slack: SlackSandbox, client: AsyncWebClient) -> None:
    slack.scopes.discard("files:write")
    body = await catch_error(client.files_getUploadURLExternal(filename="a.md", length=3))
    assert (body["error"], body["needed"]) == ("missing_scope", "files:write")


async def test_a_download_without_a_valid_token_returns_the_login_page(
    slack: SlackSandbox, client: AsyncWebClient
) -> None:
    sent = await slack.post_message("ada", "general", "look", files=[SlackFile("F1", "plan.txt", b"first this")])
    told = (await client.files_info(file="F1"))["file"]
    assert (told["name"], told["size"], told["mimetype"]) == ("plan.txt", 10, "text/plain")
    assert sent.files[0].data == b"first this"

    async def fetch_file(token: str) -> tuple[str, bytes]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(told["url_private_download"], headers=headers) as got,
        ):
            return got.content_type, await got.read()

    assert await fetch_file(slack.bot_token) == ("text/plain", b"first this")
    assert (await fetch_file("xoxb-wrong"))[0] == "text/html"
    slack.scopes.discard("files:read")
    assert (await fetch_file(slack.bot_token))[1].startswith(b"<!DOCTYPE html>")
