"""HTTP server of the control API: access checks, and a route for each action.

Only clients on this machine that know the token are served. A request under another host name (DNS rebinding) or from
a web page is refused.
"""

import json
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, getdoc, getmembers, ismethod, signature
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Handler

from chatrig.control.arguments import read_arguments
from chatrig.control.models import ModelControl
from chatrig.control.platforms import DiscordControl, SlackControl
from chatrig.discord import DiscordSimulator
from chatrig.models.server import ScriptedServer
from chatrig.slack import SlackSimulator

MAX_BODY_BYTES = 16 * 2**20

_HELP = """\
Control API of chatrig. Send the header "Authorization: Bearer TOKEN". A POST takes a JSON object with the fields of the
table, a GET takes them in its query; [fields] may be left out. An error is {"error": "..."} with a status from 400.
Users and channels are names or ids. The field "call" is a method in Slack ("chat.postMessage"), and a route in Discord
("POST /channels/{channel}/messages").

"""


@dataclass(frozen=True, slots=True)
class _Route:
    """Route of one action.

    Attributes:
        action: the action; its parameters are the fields of a request, its docstring is in the table.
    """

    method: str
    path: str
    action: Callable[..., Awaitable[dict[str, Any]]]

    def describe(self) -> str:
        """Return the route's line of the table."""
        fields = (
            name if parameter.default is Parameter.empty else f"[{name}]"
            for name, parameter in signature(self.action).parameters.items()
        )
        about = (getdoc(self.action) or "").splitlines()[0]
        return f"{self.method:4} {self.path:35} {', '.join(fields):42} {about}".rstrip()


class ControlServer:
    """HTTP API to control two local platforms and scripted models, an async context manager.

    Attributes:
        url: the address of the API, without a slash at the end; "" before the context is entered.
        token: the bearer token of its clients.
        env: environment variables of a bot in the platforms.
    """

    def __init__(
        self,
        slack: SlackSimulator,
        discord: DiscordSimulator,
        models: Mapping[str, ScriptedServer],
        *,
        port: int = 0,
    ) -> None:
        """Create the server, which starts when its context is entered.

        Args:
            models: the scripted models by the name in their routes.
            port: the port on 127.0.0.1; 0 for any free one.
        """
        self.url = ""
        self.token = secrets.token_urlsafe()
        self._slack = slack
        self._discord = discord
        self._models = models
        self._port = port
        self._hosts: frozenset[str] = frozenset()
        self._routes = [
            _Route("GET", "/env", self.get_env),
            _Route("POST", "/reset", self.reset),
            *_list_routes("/slack", SlackControl(slack)),
            *_list_routes("/discord", DiscordControl(discord)),
        ]
        for name, model in models.items():
            self._routes += _list_routes(f"/models/{name}", ModelControl(model))

    @property
    def env(self) -> dict[str, str]:
        variables = {**self._slack.env, **self._discord.env}
        for model in self._models.values():
            variables |= model.env
        return variables

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[_report_errors, self._check_access], client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/", self._serve_table)
        for route in self._routes:
            app.router.add_route(route.method, route.path, _create_handler(route))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        except OSError:
            await self._runner.cleanup()
            raise
        port = self._runner.addresses[0][1]
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def get_env(self) -> dict[str, Any]:
        """Return the environment variables of a bot."""
        return dict(self.env)

    async def reset(self) -> dict[str, Any]:
        """Remove messages, faults, scripts and received requests; users, channels, connections and tokens stay."""
        await self._slack.reset()
        await self._discord.reset()
        for model in self._models.values():
            model.reset()
        return {}

    async def _serve_table(self, _: web.Request) -> web.Response:
        return web.Response(text=_HELP + "".join(f"{route.describe()}\n" for route in self._routes))

    @web.middleware
    async def _check_access(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests of others: a middleware.

        Raises:
            web.HTTPForbidden: the host name or the origin is another one.
            web.HTTPUnauthorized: the token is missing or wrong.
        """
        origin = request.headers.get("Origin")
        if request.host not in self._hosts:
            raise web.HTTPForbidden(text=f"The control API is only available at {self.url}.")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            raise web.HTTPForbidden(text="Web pages may not use the control API.")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(token.encode(errors="surrogateescape"), self.token.encode()):
            raise web.HTTPUnauthorized(
                text="Send the header 'Authorization: Bearer TOKEN' with the token that chatrig serve printed.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return await handler(request)


def _list_routes(prefix: str, actions: SlackControl | DiscordControl | ModelControl) -> list[_Route]:
    """Return a route for each public method."""
    return [
        _Route("GET" if name in actions.queries else "POST", f"{prefix}/{name}", action)
        for name, action in getmembers(actions, ismethod)
        if not name.startswith("_")
    ]


def _create_handler(route: _Route) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        given = dict(request.query) if route.method == "GET" else await _read_body(request)
        return web.json_response(await route.action(**read_arguments(route.action, given)))

    return handle


@web.middleware
async def _report_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Respond to errors with JSON: a middleware."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _create_error(404, f"there is no route {request.path}; GET / lists the routes")
    except web.HTTPMethodNotAllowed as error:
        return _create_error(405, f"{request.path} takes {' or '.join(sorted(error.allowed_methods - {'HEAD'}))}")
    except web.HTTPException as error:
        headers = {name: error.headers[name] for name in ("WWW-Authenticate",) if name in error.headers}
        return _create_error(error.status, error.text or error.reason, headers)
    except TimeoutError as error:
        return _create_error(408, str(error) or "not in time")
    except ValueError as error:
        return _create_error(400, str(error))


def _create_error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": message}, status=status, headers=headers)


async def _read_body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object of a request; an empty body is an empty object.

    Raises:
        ValueError: the body is something else.
    """
    content = await request.read()
    try:
        body = json.loads(content or "{}", parse_constant=_refuse_constant, parse_float=_parse_finite)
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    return body


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _parse_finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number
