"""Files at URLs in an agent's answer: fetched, or replaced by a sentence."""

from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.runners import InMemoryRunner
from google.genai import types

from core.agents.media import MAX_FILE_BYTES, MediaPlugin
from core.models.finish_reasons import FILE_TOO_LARGE_NOTE

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 50


class ImageAgent(BaseAgent):
    """ADK agent that answers with given parts."""

    parts: list[types.Part]

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        content = types.Content(role="model", parts=[part.model_copy(deep=True) for part in self.parts])
        yield Event(invocation_id=ctx.invocation_id, author=self.name, content=content)


@pytest.fixture
async def origin() -> AsyncIterator[str]:
    async def picture(_request: web.Request) -> web.Response:
        return web.Response(body=PNG, content_type="image/png")

    async def bytes_(_request: web.Request) -> web.Response:
        return web.Response(body=PNG)

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<h1>A picture</h1>", content_type="text/html")

    async def huge(_request: web.Request) -> web.Response:
        return web.Response(body=PNG + bytes(MAX_FILE_BYTES), content_type="image/png")

    async def inside(_request: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.2/secret")

    app = web.Application()
    app.add_routes(
        web.get(f"/{name}", handler)
        for name, handler in (
            ("picture", picture),
            ("bytes", bytes_),
            ("page", page),
            ("huge", huge),
            ("inside", inside),
        )
    )
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url("")).rstrip("/")


async def run(parts: list[types.Part], plugin: MediaPlugin) -> list[types.Part]:
    """Run an agent that answers with these parts, and return the parts of its event.

    Also checks that each file among them is stored as an artifact.
    """
    app = App(name="app", root_agent=ImageAgent(name="painter", parts=parts), plugins=[plugin])
    runner = InMemoryRunner(app=app)
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    message = types.Content(role="user", parts=[types.Part(text="draw")])
    events = [event async for event in runner.run_async(user_id="u", session_id="s", new_message=message)]
    assert runner.artifact_service is not None
    saved = await runner.artifact_service.list_artifact_keys(app_name="app", user_id="u", session_id="s")
    content = events[-1].content
    assert content is not None
    assert len(saved) == sum(part.inline_data is not None for part in content.parts or [])
    return content.parts or []


def file_part(uri: str, kind: str = "image/png") -> types.Part:
    return types.Part(file_data=types.FileData(file_uri=uri, mime_type=kind, display_name="a.png"))


@pytest.mark.parametrize(
    ("path", "kind"), [("picture", "image/png"), ("picture", "image/jpeg"), ("bytes", "image/png")]
)
async def test_the_file_at_an_address_is_a_file_of_the_agent(origin: str, path: str, kind: str) -> None:
    (part,) = await run([file_part(f"{origin}/{path}", kind)], MediaPlugin(lambda address: address.is_loopback))
    assert part.inline_data is not None
    assert (part.inline_data.data, part.inline_data.mime_type) == (PNG, "image/png")
    assert part.file_data is None


@pytest.mark.parametrize("path", ["page", "gone", "inside"])
async def test_an_address_without_the_file_stays(origin: str, path: str, caplog: pytest.LogCaptureFixture) -> None:
    plugin = MediaPlugin(lambda address: str(address) == "127.0.0.1")
    (part,) = await run([file_part(f"{origin}/{path}")], plugin)
    assert part.file_data is not None
    assert part.inline_data is None
    assert "address" in caplog.text


async def test_a_sentence_replaces_a_file_that_is_too_large(origin: str) -> None:
    (part,) = await run([file_part(f"{origin}/huge")], MediaPlugin(lambda address: address.is_loopback))
    assert part.text is not None
    assert part.text.strip() == FILE_TOO_LARGE_NOTE


@pytest.mark.parametrize("uri", ["gs://bucket/a.png", "files/abc", "http://127.0.0.1:1/a.png", "http://[::1]/a.png"])
async def test_only_public_web_addresses_are_fetched(uri: str) -> None:
    (part,) = await run([file_part(uri)], MediaPlugin())
    assert part.file_data is not None
    assert part.file_data.file_uri == uri


async def test_several_addresses_are_fetched_in_their_places(origin: str) -> None:
    parts = [types.Part(text="a"), file_part(f"{origin}/picture"), types.Part(text="b"), file_part(f"{origin}/gone")]
    found = await run(parts, MediaPlugin(lambda address: address.is_loopback))
    assert [part.inline_data is not None for part in found] == [False, True, False, False]
