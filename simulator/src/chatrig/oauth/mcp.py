"""MCP server with two tools, without sessions: the messages of streamable HTTP, each answered as JSON.

MCP: modelcontextprotocol.io/specification/2025-11-25/basic/transports. `OAuthServer` checks the tokens.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chatrig.oauth.grants import OAuthUser

VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MCPTool:
    """Tool without arguments.

    Attributes:
        scope: the scope that a call needs.
        run: returns the result for the user of the token.
    """

    description: str
    scope: str
    run: Callable[[OAuthUser], Json]


def describe_user(user: OAuthUser) -> Json:
    return {"id": user.id, "name": user.name, "email": user.email}


def list_events(user: OAuthUser) -> Json:
    return {"events": [{"title": event.title, "starts_at": event.starts_at.isoformat()} for event in user.events]}


TOOLS: Mapping[str, MCPTool] = {
    "whoami": MCPTool("Return the signed-in user.", "profile", describe_user),
    "list_events": MCPTool("List the events in the user's calendar.", "calendar", list_events),
}


def find_scope(message: Any) -> str:
    """Return the scope that a message needs; "" if any token will do."""
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return ""
    tool = TOOLS.get(str(_get_params(message).get("name")))
    return tool.scope if tool else ""


def respond_to_message(message: Any, user: OAuthUser) -> Json | None:
    """Return the response to a JSON-RPC message of a user; None for a notification."""
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return create_error(None, INVALID_REQUEST, "The message must be a JSON-RPC request.")
    if (id_ := message.get("id")) is None:
        return None
    params = _get_params(message)
    result: Json
    match message["method"]:
        case "initialize":
            version = params.get("protocolVersion")
            result = {
                "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "chatrig", "version": "1"},
            }
        case "ping":
            result = {}
        case "tools/list":
            result = {"tools": [_describe_tool(name, tool) for name, tool in TOOLS.items()]}
        case "tools/call":
            tool = TOOLS.get(str(params.get("name")))
            if tool is None:
                return create_error(id_, INVALID_PARAMS, "The tool is unknown.")
            value = tool.run(user)
            result = {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}
        case _:
            return create_error(id_, METHOD_NOT_FOUND, "The method is unknown.")
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def create_error(id_: Any, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}


def _get_params(message: Json) -> Json:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _describe_tool(name: str, tool: MCPTool) -> Json:
    return {
        "name": name,
        "description": tool.description,
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True},
    }
