"""HTTP server of the simulator's page: access checks, static files and WebSockets.

Only browsers on this machine are served, and only at the page's own address. Requests under another host name (DNS
rebinding) or from another page are refused. The Content-Security-Policy prevents that message content runs as a script.
"""

import asyncio
import errno
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler

from chatrig.discord import DiscordSimulator
from chatrig.managed_bot import ManagedBot
from chatrig.page.calls import ApiCallList
from chatrig.page.discord import DiscordPane
from chatrig.page.faults import FaultSwitches
from chatrig.page.inspector import InspectorStore
from chatrig.page.pane import PlatformPane, find_displayable_type
from chatrig.page.session import PageSession
from chatrig.page.slack import SlackPane
from chatrig.slack import SlackSimulator

log = logging.getLogger(__name__)

STATIC_FOLDER = Path(__file__).with_name("static")

#: Limit of a message from the browser; it may contain a file in base64.
MAX_MESSAGE_BYTES = 16 * 2**20

#: Scripts and styles are the page's own; nothing is loaded from elsewhere.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class PageServer:
    """HTTP server of the web page for two local platforms and a bot.

    Attributes:
        inspector: the turns and calls that the bot has sent.
        address: the URL of the page; "" before `serve`.
        inspector_address: the WebSocket URL to which the bot sends turns and calls, with a secret token; "" before
            `serve`.
    """

    def __init__(self, slack: SlackSimulator, discord: DiscordSimulator) -> None:
        self.inspector = InspectorStore()
        self.address = self.inspector_address = ""
        self._slack = slack
        self._discord = discord
        self._panes: dict[str, PlatformPane] = {"slack": SlackPane(slack), "discord": DiscordPane(discord)}
        self._calls = ApiCallList(slack, discord)
        self._switches = FaultSwitches(slack, discord)
        self._token = secrets.token_urlsafe()
        self._hosts: set[str] = set()
        self._bot: ManagedBot | None = None
        self._sockets: set[web.WebSocketResponse] = set()

    def set_bot(self, bot: ManagedBot) -> None:
        """Set the bot of the page; before that, browsers' WebSockets get HTTP 403."""
        self._bot = bot

    @asynccontextmanager
    async def serve(self, port: int) -> AsyncIterator[None]:
        """Serve the page while the block runs; at its end, close all WebSockets.

        `address` and `inspector_address` are set when the block begins.

        Args:
            port: the port on 127.0.0.1; if it is in use, a free one.
        """
        app = web.Application(middlewares=[self._check_origin])
        app.router.add_get("/", self._serve_index)
        app.router.add_get("/socket", self._serve_page_socket)
        app.router.add_get("/files/{platform}/{key}", self._serve_file)
        app.router.add_get(f"/inspector/{self._token}", self._serve_inspector_socket)
        app.router.add_static("/static/", STATIC_FOLDER)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, "127.0.0.1", port).start()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                await web.TCPSite(runner, "127.0.0.1", 0).start()
            port = runner.addresses[0][1]
            self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
            self.address = f"http://127.0.0.1:{port}/"
            self.inspector_address = f"{self.address}inspector/{self._token}"
            yield
        finally:
            for socket in set(self._sockets):
                await socket.close()
            await runner.cleanup()

    @web.middleware
    async def _check_origin(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests from another page or with another host name: a middleware.

        The security headers are added to the response.

        Raises:
            web.HTTPForbidden: the request is refused.
        """
        origin = request.headers.get("Origin")
        if request.host not in self._hosts or (
            origin is not None and origin.removeprefix("http://") not in self._hosts
        ):
            raise web.HTTPForbidden(text="This page is only available on this machine, at its own address.")
        response = await handler(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    async def _serve_index(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(STATIC_FOLDER / "index.html")

    async def _serve_file(self, request: web.Request) -> web.Response:
        """Respond with a file of a message, or with the requested range of its bytes.

        Browsers display images and play sound; all other files are downloads.

        Raises:
            web.HTTPNotFound: the platform or the file does not exist.
            web.HTTPRequestRangeNotSatisfiable: the header `Range` is invalid.
        """
        try:
            name, data = self._panes[request.match_info["platform"]].get_file(request.match_info["key"])
        except (KeyError, ValueError):
            raise web.HTTPNotFound from None
        kind = find_displayable_type(name)
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Disposition": f"{'inline' if kind else 'attachment'}; filename*=UTF-8''{quote(name)}",
        }
        try:
            part, status = request.http_range, 200
        except ValueError:
            raise web.HTTPRequestRangeNotSatisfiable from None
        if part.start is not None or part.stop is not None:  # a player requests the range that it plays
            start, stop, _ = part.indices(len(data))
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            data, status = data[start:stop], 206
        return web.Response(body=data, status=status, content_type=kind or "application/octet-stream", headers=headers)

    async def _serve_page_socket(self, request: web.Request) -> web.StreamResponse:
        """Run the session of a browser over a WebSocket until it disconnects.

        Raises:
            web.HTTPForbidden: the request has no `Origin`, or the page has no bot yet.
        """
        if request.headers.get("Origin") is None or self._bot is None:  # browsers always send it
            raise web.HTTPForbidden
        session = PageSession(self._panes, self._bot, self.inspector, self._calls, self._switches)
        async with self._open_socket(request) as socket:
            await session.serve(socket, self._wait_for_change)
        return socket

    async def _serve_inspector_socket(self, request: web.Request) -> web.StreamResponse:
        """Serve the WebSocket of the bot until it disconnects.

        The bot sends turns, calls and its models, which are stored in `inspector`, and receives the delay of model
        calls. Its models are unknown again at the end.
        """

        async def send_model_delay() -> None:
            sent_delay = 0.0
            while True:
                if self.inspector.model_delay != sent_delay:
                    sent_delay = self.inspector.model_delay
                    await socket.send_json({"model_delay": sent_delay})
                await self.inspector.wait_for_change()

        async with self._open_socket(request) as socket:
            sending = asyncio.create_task(send_model_delay(), name="model delay")
            try:
                async for message in socket:
                    if message.type is WSMsgType.TEXT:
                        self.inspector.apply_updates(message.json())
            finally:
                self.inspector.agent_models = None
                sending.cancel()
                await asyncio.wait([sending])
        return socket

    @asynccontextmanager
    async def _open_socket(self, request: web.Request) -> AsyncIterator[web.WebSocketResponse]:
        socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE_BYTES, heartbeat=20)
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            yield socket
        finally:
            self._sockets.discard(socket)

    async def _wait_for_change(self) -> None:
        """Wait until a local platform, the bot's turns and calls, or its process changes."""
        assert self._bot is not None
        waits = (
            self._slack.wait_for_change,
            self._discord.wait_for_change,
            self.inspector.wait_for_change,
            self._bot.wait_for_change,
        )
        tasks = [asyncio.create_task(wait(), name="a change") for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
