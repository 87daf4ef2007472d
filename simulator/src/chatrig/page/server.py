"""HTTP server of the simulator's page: access checks, static files and WebSockets.

Only browsers on this machine are served, and only at the page's own address. Requests under another host name (DNS
rebinding) or from another page are refused. The Content-Security-Policy prevents that message content runs as a script.
"""

import asyncio
import errno
import html
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from string import Template
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler

from chatrig.client.extension import SimulatorExtension
from chatrig.discord import DiscordSimulator
from chatrig.page.calls import ApiCallList
from chatrig.page.discord import DiscordPane
from chatrig.page.faults import FaultSwitches
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
        address: the URL of the page; "" before `serve`.
    """

    def __init__(
        self, slack: SlackSimulator, discord: DiscordSimulator, extension: SimulatorExtension | None = None
    ) -> None:
        self.address = ""
        self._extension = extension or SimulatorExtension()
        self._slack = slack
        self._discord = discord
        self._panes: dict[str, PlatformPane] = {"slack": SlackPane(slack), "discord": DiscordPane(discord)}
        self._calls = ApiCallList(slack, discord)
        self._switches = FaultSwitches(slack, discord)
        self._hosts: set[str] = set()
        self._index = _create_index(self._extension)
        self._sockets: set[web.WebSocketResponse] = set()

    @asynccontextmanager
    async def serve(self, port: int) -> AsyncIterator[None]:
        """Serve the page while the block runs; at its end, close all WebSockets.

        `address` is set when the block begins.

        Args:
            port: the port on 127.0.0.1; if it is in use, a free one.
        """
        app = web.Application(middlewares=[self._check_origin])
        app.router.add_get("/", self._serve_index)
        app.router.add_get("/socket", self._serve_page_socket)
        app.router.add_get("/files/{platform}/{key}", self._serve_file)
        app.router.add_static("/static/", STATIC_FOLDER)
        if self._extension.static_folder is not None:
            app.router.add_static("/extension/", self._extension.static_folder)
        self._extension.set_up(app)
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

    async def _serve_index(self, _: web.Request) -> web.Response:
        return web.Response(text=self._index, content_type="text/html")

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
            web.HTTPForbidden: the request has no `Origin`.
        """
        if request.headers.get("Origin") is None:  # browsers always send it
            raise web.HTTPForbidden
        session = PageSession(self._panes, self._calls, self._switches, self._extension)
        async with self._open_socket(request) as socket:
            await session.serve(socket, self._wait_for_change)
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
        """Wait until a local platform, the extension or the bot's process changes."""
        sources = self._slack, self._discord, self._extension, self._extension.bot
        tasks = [asyncio.create_task(source.wait_for_change(), name="a change") for source in sources if source]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


def _create_index(extension: SimulatorExtension) -> str:
    """Return the HTML of the page with the extension's title, style sheet and script."""
    page = Template((STATIC_FOLDER / "index.html").read_text())
    tags = '<link rel="stylesheet" href="/extension/extension.css">\n'
    tags += '<script type="module" src="/extension/extension.js"></script>\n'
    return page.substitute(title=html.escape(extension.title), extension=tags if extension.static_folder else "")
