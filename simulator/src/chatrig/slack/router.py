"""HTTP handlers of the Web API and of response URLs, with faults and rate limits.

Each call is recorded.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from aiohttp import web

from chatrig.oauth.authorization import read_client_credentials
from chatrig.slack.api import requests as arguments
from chatrig.slack.api.base import WebApi
from chatrig.slack.api.faults import SlackFault, SlackFaults
from chatrig.slack.api.limits import SlackRateLimits
from chatrig.slack.api.requests import SlackError
from chatrig.slack.interactions.commands import SlashCommands
from chatrig.slack.state.activity_log import SlackActivityLog, SlackCallRecord

#: The method name of posts to a `response_url` in call records and faults.
RESPONSE_URL = "response_url"


class SlackRouter:
    """HTTP handlers of the Web API and of response URLs.

    Args:
        limits: the rate limits; None for none.
    """

    def __init__(
        self,
        activity_log: SlackActivityLog,
        faults: SlackFaults,
        limits: SlackRateLimits | None,
        api: WebApi,
        commands: SlashCommands,
    ) -> None:
        self._activity_log = activity_log
        self._faults = faults
        self._limits = limits
        self._api = api
        self._commands = commands

    async def handle_call(self, request: web.Request) -> web.StreamResponse:
        """Respond to `/api/{method}`: read token and arguments, and run the method.

        An error of the method has HTTP 200. A rate limit rejects the call with HTTP 429, and pending faults and the
        latency of `SlackFaults` apply.
        """
        name = request.match_info["method"]
        try:
            values = await arguments.read_arguments(request, accepts_json=name not in arguments.FORM_METHODS)
        except SlackError as error:
            return _to_response(self._record(name, {}), arguments.with_charset_warning(error.body(), request))
        authorization = request.headers.get("Authorization", "")
        scheme, _, token = authorization.partition(" ")
        token = token.strip() if scheme == "Bearer" else str(values.pop("token", ""))
        if scheme == "Basic":
            client_id, client_secret = read_client_credentials(authorization, values)
            values |= {"client_id": client_id, "client_secret": client_secret}

        def act(call: SlackCallRecord) -> web.Response:
            answer = self._api.call(name, token, values)
            response = _to_response(call, arguments.with_charset_warning(answer.body, request))
            if answer.scopes:
                response.headers["x-oauth-scopes"] = ",".join(sorted(answer.scopes))
            if answer.accepted_scope:
                response.headers["x-accepted-oauth-scopes"] = answer.accepted_scope
            return response

        recorded = {key: value for key, value in values.items() if key != "client_secret"}
        return await self._process(request, self._record(name, recorded), act)

    async def handle_response(self, request: web.Request) -> web.StreamResponse:
        """Respond to a post to a `response_url`: `ok`, or an error with HTTP 400 or 404.

        Status 404 is for an unknown, expired or used-up URL. Pending faults and the latency of `SlackFaults` apply.
        """
        try:
            values = await arguments.read_arguments(request)
        except SlackError as error:
            return _to_response(self._record(RESPONSE_URL, {}), error.body(), status=400)

        def act(call: SlackCallRecord) -> web.Response:
            try:
                self._commands.handle_response(request.match_info["key"], values)
            except SlackError as error:
                is_gone = error.code in ("expired_url", "used_url")
                return _to_response(call, error.body(), status=404 if is_gone else 400)
            _to_response(call, {"ok": True})
            return web.Response(text="ok")

        return await self._process(request, self._record(RESPONSE_URL, values), act)

    def _record(self, method: str, values: dict[str, Any]) -> SlackCallRecord:
        return self._activity_log.record_call(method, values)

    async def _process(
        self, request: web.Request, call: SlackCallRecord, act: Callable[[SlackCallRecord], web.Response]
    ) -> web.StreamResponse:
        """Run a recorded call with its faults, rate limit and latency.

        Args:
            act: runs the call and returns the response; not called if a fault or a rate limit rejects the call.
        """
        await asyncio.sleep(self._faults.latency)
        fault = self._faults.take(call.method)
        if fault is not None and fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        response = self._check_limits_and_faults(call, fault) or act(call)
        self._activity_log.notify()
        await asyncio.sleep(self._faults.latency)
        if fault is not None and fault.kind == "lose_response" and request.transport is not None:
            call.status = 0
            request.transport.abort()
        return response

    def _check_limits_and_faults(self, call: SlackCallRecord, fault: SlackFault | None) -> web.Response | None:
        """Return the error response if a fault or a rate limit rejects a call; else None.

        Args:
            fault: the pending fault of the call; None for none.
        """
        retry_after = None
        if fault is not None and fault.kind == "rate_limit":
            retry_after = int(fault.seconds)
        elif fault is not None and fault.kind == "fail":
            if fault.error is not None:
                return _to_response(call, {"ok": False, "error": fault.error})
            call.status, call.error = fault.status, f"http_{fault.status}"
            return web.Response(status=fault.status, text="a fault of the simulator")
        elif self._limits is not None:
            channel = str(call.arguments.get("channel", ""))
            retry_after = self._limits.acquire(call.method, channel)
            call.remaining = self._limits.remaining(call.method, channel)
        if retry_after is None:
            return None
        call.rate_limited = True
        response = _to_response(call, {"ok": False, "error": "ratelimited"}, status=429)
        response.headers["Retry-After"] = str(retry_after)
        return response


def _to_response(call: SlackCallRecord, body: dict[str, Any], *, status: int = 200) -> web.Response:
    call.status, call.error, call.response = status, body.get("error"), body
    response = web.json_response(body, status=status)
    response.headers["x-slack-req-id"] = secrets.token_hex(16)
    if call.error:
        response.headers["x-slack-failure"] = call.error
    return response
