"""HTTP handler of the REST API: runs routes, with faults and rate limits.

Each call is recorded.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from time import time
from typing import Any

from aiohttp import web

from chatrig.discord.api import requests
from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.faults import DiscordFault, DiscordFaults
from chatrig.discord.api.limits import DiscordRateLimits, create_bucket_headers, create_rate_limit_headers
from chatrig.discord.api.request_schemas import check_body
from chatrig.discord.api.requests import ApiRequest, DiscordError, RequestBody
from chatrig.discord.oauth import CLIENT_ROUTES, USER_ROUTES
from chatrig.discord.state.activity_log import DiscordActivityLog, DiscordCallRecord

PREFIX = "/api/v10"
#: Discord's proxy adds this header; its own refusals lack it.
VIA_HEADER = {"Via": "1.1 google"}
_PATHS_WITHOUT_TOKEN = re.compile(r"/(interactions|webhooks)/[^/]+/.+")


class DiscordRouter:
    """HTTP handler of the REST API.

    Args:
        limits: the rate limits; None for none.
        token: the bot's token.
    """

    def __init__(
        self,
        activity_log: DiscordActivityLog,
        faults: DiscordFaults,
        limits: DiscordRateLimits | None,
        api: DiscordRestApi,
        token: str,
    ) -> None:
        self._activity_log = activity_log
        self._faults = faults
        self._limits = limits
        self._api = api
        self._token = token

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request to `/api/v10/...`, and record the call.

        Latency, injected faults and rate limits apply. A `DiscordError` becomes Discord's error response.
        """
        path = request.path.removeprefix(PREFIX)
        match = self._api.match_route(request.method, path)
        route, ids = match or (f"{request.method} {path}", {})
        refusal = None
        try:
            body = await requests.parse_body(request, accepts_form=route in CLIENT_ROUTES)
        except DiscordError as error:
            body, refusal = RequestBody({}), error
        recorded = {k: v for k, v in body.form.items() if k != "client_secret"} if body.is_form else body.json
        call = self._activity_log.record_call(route, path, recorded, [upload.name for upload in body.uploads])
        await asyncio.sleep(self._faults.latency)
        fault = self._faults.take(route)
        if fault is not None and fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        response = self._apply_fault(call, fault) or self._call_route(call, request, ids, body, refusal)
        self._activity_log.notify()
        await asyncio.sleep(self._faults.latency)
        if fault is not None and fault.kind == "lose_response" and request.transport is not None:
            call.status = 0
            request.transport.abort()
        return response

    def _apply_fault(self, call: DiscordCallRecord, fault: DiscordFault | None) -> web.Response | None:
        """Return the error response of a fault that rejects a call, and record it.

        None without a fault, and for a fault of another kind.
        """
        if fault is None or fault.kind not in ("fail", "rate_limit"):
            return None
        if fault.kind == "fail":
            return _create_response(
                call, fault.status, {"message": f"{fault.status}: injected fault", "code": fault.code}
            )
        if not fault.has_via_header:
            call.status, call.rate_limited = 429, True
            headers = {"Retry-After": str(int(fault.seconds) + 1)}
            return web.Response(status=429, text="error code: 1015", headers=headers)
        headers = create_rate_limit_headers(fault.seconds, fault.scope)
        if fault.scope != "global":
            headers = create_bucket_headers(call.route, 1, 0, time() + fault.seconds) | headers
        return _create_rate_limit_response(call, fault.seconds, headers, fault.scope == "global")

    def _call_route(
        self,
        call: DiscordCallRecord,
        request: web.Request,
        ids: Mapping[str, str],
        body: RequestBody,
        refusal: DiscordError | None,
    ) -> web.Response:
        """Check the token, the rate limits and the body; return the route's response.

        A failed check, an unknown route or the route's `DiscordError` returns Discord's error response.

        Args:
            ids: the ids in the path by their names in the route.
            refusal: the error of an unreadable body; None for a readable one.
        """
        authorization = request.headers.get("Authorization", "")
        if not self._is_authorized(call, authorization):
            return _create_response(call, 401, {"message": "401: Unauthorized", "code": 0})
        headers: Mapping[str, str] = {}
        if self._limits is not None:
            verdict = self._limits.acquire(call.route, ids.get("channel", ""))
            headers = verdict.headers
            if "X-RateLimit-Limit" in headers:
                call.remaining = int(headers["X-RateLimit-Remaining"]), int(headers["X-RateLimit-Limit"])
            if verdict.retry_after is not None:
                return _create_rate_limit_response(call, verdict.retry_after, headers, verdict.scope == "global")
        handler = self._api.routes.get(call.route)
        if handler is None:
            return _create_response(call, 404, {"message": "404: Not Found", "code": 0})
        try:
            if refusal is not None:
                raise refusal
            api_request = ApiRequest(ids, request.query, body, authorization)
            self._api.check_ids(api_request)
            check_body(call.route, body.json)
            reply = handler(api_request)
        except DiscordError as error:
            return _create_response(call, error.status, error.body, headers)
        return _create_response(call, reply.status, reply.body, headers)

    def _is_authorized(self, call: DiscordCallRecord, authorization: str) -> bool:
        """Return whether a call has the bot's token, or is of a route that checks other credentials itself."""
        if call.route in CLIENT_ROUTES or _PATHS_WITHOUT_TOKEN.fullmatch(call.path):
            return True
        is_of_user = call.route in USER_ROUTES and authorization.startswith("Bearer ")
        return is_of_user or authorization == f"Bot {self._token}"


def _create_rate_limit_response(
    call: DiscordCallRecord, retry_after: float, headers: Mapping[str, str], everywhere: bool
) -> web.Response:
    call.rate_limited = True
    message = "You are being rate limited."
    body = {"message": message, "retry_after": retry_after, "global": everywhere, "code": 0}
    return _create_response(call, 429, body, headers)


def _create_response(
    call: DiscordCallRecord, status: int, body: Any, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response with a JSON body; store status and body in the call's record.

    If `body` is None, the response has no body. The content type has no charset, as Discord's: clients compare the
    whole header.
    """
    call.status, call.response = status, body
    if status >= 400:
        call.code = body.get("code")
    if body is None:
        return web.Response(status=status, headers={**VIA_HEADER, **(headers or {})})
    about = {**VIA_HEADER, "Content-Type": "application/json", **(headers or {})}
    return web.Response(status=status, body=json.dumps(body).encode(), headers=about)
