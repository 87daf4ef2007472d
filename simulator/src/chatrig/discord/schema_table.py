"""Command that derives the table of request schemas from Discord's specification.

`python -m chatrig.discord.schema_table discord_openapi.json` writes `api/request_schemas.json`. The specification is
github.com/discord/discord-api-spec (MIT).
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from chatrig.discord.api.request_schemas import SCHEMAS_FILE, normalize_route
from chatrig.discord.server import DiscordSimulator

Json = dict[str, Any]

#: Values that the specification lacks: forwards (docs.discord.com/developers/resources/message).
_CORRECTIONS: Json = {"MessageReferenceType": {"type": ["integer"], "enum": [0, 1]}}

_METHODS = ("get", "post", "put", "patch", "delete")
_LIMITS = ("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "enum", "required")


def create_schema_table(specification: Json) -> str:
    """Return the text of `request_schemas.json` for the simulator's routes.

    Each schema is one line.

    Args:
        specification: Discord's OpenAPI document.
    """
    components = specification["components"]["schemas"]
    operations = {
        normalize_route(f"{method.upper()} {path}"): operation
        for path, about in specification["paths"].items()
        for method, operation in about.items()
    }
    routes: Json = {}
    schemas: Json = {}
    for route in sorted({normalize_route(route) for route in DiscordSimulator().faults.routes}):
        content = operations.get(route, {}).get("requestBody", {}).get("content", {})
        if "application/json" in content:
            routes[route] = _compact(content["application/json"]["schema"])
    pending = _list_refs(routes)
    while pending:
        name = pending.pop()
        if name not in schemas:
            schemas[name] = _CORRECTIONS.get(name) or _compact(components[name])
            pending |= _list_refs(schemas[name])
    names = ",\n".join(
        json.dumps(f"{method.upper()} {re.sub(r'_id(?=})', '', path)}")
        for path, about in specification["paths"].items()
        for method in about
        if method in _METHODS
    )
    return f'{{"all_routes": [\n{names}\n], "routes": {_format(routes)}, "schemas": {_format(schemas)}}}\n'


def _compact(schema: Json) -> Json:
    """Return an OpenAPI schema with only those parts that `request_schemas` checks.

    Descriptions are dropped, and only the format `uri` stays. A reference becomes `ref` (a snowflake: the type
    `snowflake`), a union of constants `enum`, any other union `any`.
    """
    if (reference := schema.get("$ref")) is not None:
        name = reference.rsplit("/", 1)[-1]
        return {"type": ["snowflake"]} if name == "SnowflakeType" else {"ref": name}
    types = schema.get("type", [])
    compact: Json = {"type": [types] if isinstance(types, str) else types} if types else {}
    compact |= {name: schema[name] for name in _LIMITS if name in schema}
    if schema.get("format") == "uri":
        compact["format"] = "uri"
    branches = schema.get("oneOf") or schema.get("anyOf") or []
    if branches and all("const" in branch for branch in branches):
        compact["enum"] = [branch["const"] for branch in branches]
    elif branches:
        return {"any": [_compact(branch) for branch in branches]}
    if "properties" in schema:
        compact["properties"] = {name: _compact(about) for name, about in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        compact["items"] = _compact(schema["items"])
    return compact


def _list_refs(schema: Any) -> set[str]:
    """Return the names of all schemas to which a compact schema refers directly."""
    if isinstance(schema, dict):
        own = {schema["ref"]} if isinstance(schema.get("ref"), str) else set[str]()
        return own.union(*(_list_refs(part) for part in schema.values()))
    return set[str]().union(*map(_list_refs, schema)) if isinstance(schema, list) else set()


def _format(schemas: Json) -> str:
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(schemas[name])}" for name in sorted(schemas))
    return f"{{\n{lines}\n}}"


if __name__ == "__main__":
    SCHEMAS_FILE.write_text(create_schema_table(json.loads(Path(sys.argv[1]).read_text())))
