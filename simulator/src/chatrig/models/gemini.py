"""Scripted model with the Gemini API.

Gemini: https://ai.google.dev/api/generate-content
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from chatrig.models.script import (
    CallTool,
    Cite,
    Fail,
    Finish,
    RawChunk,
    ReceivedRequest,
    ReceivedToolResult,
    Say,
    SendFile,
    Step,
    Think,
)
from chatrig.models.server import Chunk, ScriptedServer, WireFormat

_ERROR_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class ScriptedGemini(ScriptedServer):
    """Scripted model server with the Gemini API.

        async with ScriptedGemini(["Hello!"]) as gemini:
            gemini.add_responses([CallTool("weather", {"city": "Oslo"})], "Sunny.")
            start_bot(GOOGLE_GEMINI_BASE_URL=gemini.base_url)
            ...
            assert gemini.received[0].text == "hi"

    The server knows `v1beta/models/{id}:streamGenerateContent`, `:generateContent`, `GET v1beta/models` and
    `GET v1beta/models/{id}`, and answers other paths with 404.

    Attributes:
        base_url: the client's base URL: `HttpOptions(base_url=...)` or the variable `GOOGLE_GEMINI_BASE_URL`.
        requests: JSON bodies of the accepted generation requests, in order.
        received: the same requests as `ReceivedRequest` objects, the same for all vendors.
        disconnects: number of responses that the client aborted.
    """

    url_variable, key_variable = "GOOGLE_GEMINI_BASE_URL", "GOOGLE_API_KEY"

    @property
    def base_url(self) -> str:
        return self._origin

    def list_routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1beta/models/{model:[^:]+}:{method}", self._handle_generation),
            web.get("/v1beta/models", self._list_models),
            web.get("/v1beta/models/{model}", self._get_model),
        ]

    def error_body(self, fail: Fail) -> Chunk:
        details: list[Chunk] = []
        if fail.code:
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            details.append({"@type": kind, "reason": fail.code, "domain": "googleapis.com"})
        if fail.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            details.append({"@type": kind, "retryDelay": f"{fail.retry_after:g}s"})
        status = _ERROR_STATUSES.get(fail.status, "UNKNOWN")
        return {"error": {"code": fail.status, "message": fail.message, "status": status, "details": details}}

    def error_response(self, fail: Fail) -> web.Response:
        """Return the HTTP response of an error.

        Gemini puts `retry_after` into the body, without a `Retry-After` header.
        """
        response = super().error_response(fail)
        if "Retry-After" not in fail.headers:
            response.headers.popall("Retry-After", None)
        return response

    async def _handle_generation(self, request: web.Request) -> web.StreamResponse:
        model = request.match_info["model"]
        if (error := self._check_request(request, model)) is not None:
            return error
        streaming = request.match_info["method"] == "streamGenerateContent"
        body = await self.read_body(request, "contents")
        received = _parse_request(body, model, request.headers, streaming)
        return await self.play(request, received, _GeminiWireFormat(model), b"")

    async def _list_models(self, request: web.Request) -> web.Response:
        if (error := self._check_request(request)) is not None:
            return error
        return web.json_response({"models": [_model_entry(name) for name in self._models or ()]})

    async def _get_model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        return self._check_request(request, name) or web.json_response(_model_entry(name))

    def _check_request(self, request: web.Request, model: str | None = None) -> web.Response | None:
        """Return the error response for a wrong key or an unknown model; None otherwise.

        Args:
            model: the requested model; None for a request without one.
        """
        if self._api_key is not None and request.headers.get("x-goog-api-key") != self._api_key:
            fail = Fail(400, "API key not valid. Please pass a valid API key.", "API_KEY_INVALID")
            return self.error_response(fail)
        if model is not None and self._models is not None and model not in self._models:
            return self.error_response(Fail(404, f"models/{model} is not found for API version v1beta"))
        return None


class _GeminiWireFormat(WireFormat):
    def __init__(self, model: str) -> None:
        self._model = model
        self._parts: list[dict[str, Any]] = []
        self._pages: list[Chunk] = []
        self._finish = Finish()

    def to_chunks(self, step: Step) -> Iterable[Chunk]:
        match step:
            case Say(text):
                yield self._part({"text": text}, step.signature)
            case Think(text):
                yield self._part({"text": text, "thought": True}, step.signature)
            case CallTool(name, arguments):
                call: dict[str, Any] = {"name": name, "args": arguments}
                if step.id is not None:
                    call["id"] = step.id
                yield self._part({"functionCall": call}, step.signature)
            case SendFile(mime_type, data):
                blob = {"mimeType": mime_type, "data": base64.b64encode(data).decode()}
                yield self._part({"inlineData": blob}, step.signature)
            case Cite(url, title):
                self._pages.append({"web": {"uri": url, "title": title}})
            case Finish():
                self._finish = step
                yield self._candidate([{"text": ""}], finishReason=step.reason or "STOP", **self._grounding)
            case RawChunk(chunk):
                yield chunk
            case _:
                return

    def body(self) -> Chunk:
        return self._candidate(self._parts, finishReason=self._finish.reason or "STOP", **self._grounding)

    @property
    def _grounding(self) -> Chunk:
        """The field `groundingMetadata` with all cited pages; empty without pages.

        Gemini sends it in the last chunk.
        """
        return {"groundingMetadata": {"groundingChunks": self._pages}} if self._pages else {}

    def _part(self, part: dict[str, Any], signature: bytes | None) -> Chunk:
        if signature is not None:
            part["thoughtSignature"] = base64.b64encode(signature).decode()
        self._add_part(part)
        return self._candidate([part])

    def _add_part(self, part: dict[str, Any]) -> None:
        """Add a part of a stream to those of the body.

        Gemini sends a text, and a thought, as one part without streaming. A signature belongs to the part that it ends.
        """
        last = self._parts[-1] if self._parts else {}
        is_continued = "text" in last and "thoughtSignature" not in last
        if is_continued and "text" in part and last.get("thought") == part.get("thought"):
            last.update(part, text=last["text"] + part["text"])
        else:
            self._parts.append(dict(part))

    def _candidate(self, parts: Sequence[Chunk], **fields: Any) -> Chunk:
        return {
            "candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **fields}],
            "usageMetadata": self._usage,
            "modelVersion": self._model,
            "responseId": "scripted",
        }

    @property
    def _usage(self) -> Chunk:
        """Token usage in Gemini's JSON; `candidatesTokenCount` does not include thoughts."""
        finish = self._finish
        return {
            "promptTokenCount": finish.input,
            "candidatesTokenCount": finish.output,
            "thoughtsTokenCount": finish.thinking,
            "cachedContentTokenCount": finish.cached,
            "totalTokenCount": finish.input + finish.output + finish.thinking,
        }


def _model_entry(name: str) -> Chunk:
    return {
        "name": f"models/{name}",
        "displayName": name,
        "supportedGenerationMethods": ["generateContent"],
    }


def _parse_request(body: dict[str, Any], model: str, headers: Mapping[str, str], streaming: bool) -> ReceivedRequest:
    contents = body["contents"]
    texts = [(content.get("role", "user"), _join_text(content)) for content in contents]
    return ReceivedRequest(
        model=model,
        text=next((text for role, text in reversed(texts) if role == "user" and text), ""),
        system=_join_text(body.get("systemInstruction") or {}),
        messages=tuple(texts),
        tools=tuple(
            declaration["name"]
            for tool in body.get("tools") or ()
            for declaration in tool.get("functionDeclarations") or ()
        ),
        tool_results=tuple(_parse_tool_results(contents)),
        body=body,
        headers=headers,
        is_streaming=streaming,
    )


def _parse_tool_results(contents: Sequence[dict[str, Any]]) -> list[ReceivedToolResult]:
    results: list[ReceivedToolResult] = []
    for content in contents:
        if content.get("role") == "model":
            results = []
        for part in content.get("parts") or ():
            if (response := part.get("functionResponse")) is not None:
                results.append(ReceivedToolResult(response.get("id"), response["name"], response.get("response")))
    return results


def _join_text(content: Mapping[str, Any]) -> str:
    return "".join(part.get("text", "") for part in content.get("parts") or () if not part.get("thought"))
