"""Script that reads the payload of a hook in a process of its own: its fields, and the prompt of the hook's template.

A payload can make a template run for hours or fill the memory, and neither can be stopped in a thread. `read_payload`
runs this file as a script without environment variables, and kills it at the time limit. Each value of the payload in a
prompt is between brackets, and cannot contain them.
"""

import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

#: Limit of the script's memory (address space), as of `core.tools.builtin.page_text`.
MAX_MEMORY_BYTES = 128 * 2**20

#: Characters of a prompt, and of a field: more than a delivery id may have.
MAX_PROMPT_CHARACTERS, MAX_FIELD_CHARACTERS = 40_000, 250

#: As in `core.sessions.prompt_text`, which a script cannot import.
_OPEN, _CLOSE = "⟦", "⟧"
_LOOKALIKES = str.maketrans({_OPEN: "〚", _CLOSE: "〛"})

#: The variable of templates.
_PAYLOAD = "payload"

#: File name of a template in tracebacks.
_TEMPLATE = "<template>"


def make_environment() -> "SandboxedEnvironment":
    """Return a sandbox for templates: a missing field is empty, and a value is between brackets."""
    from jinja2 import ChainableUndefined, Undefined  # noqa: PLC0415 - takes 0.1 s, and is needed for templates only
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    class PayloadEnvironment(ImmutableSandboxedEnvironment):
        def getattr(self, obj: Any, attribute: str) -> Any:
            """Prefer a key to a method: `payload.items` is a field."""
            return obj[attribute] if isinstance(obj, dict) and attribute in obj else super().getattr(obj, attribute)

    def finalize(value: Any) -> str:
        if value is None or isinstance(value, Undefined):
            return ""
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        if isinstance(value, Iterator):
            value = list(value)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return f"{_OPEN}{text.translate(_LOOKALIKES)}{_CLOSE}" if text else ""

    return PayloadEnvironment(undefined=ChainableUndefined, finalize=finalize)


def find_template_faults(source: str) -> Iterator[str]:
    """Yield an error line for each fault of a template that can be found without a payload."""
    from jinja2 import TemplateSyntaxError, meta  # noqa: PLC0415 - for templates only

    environment = make_environment()
    try:
        tree = environment.parse(source)
        environment.compile(source)
    except TemplateSyntaxError as error:
        yield f"line {error.lineno}: {error.message}"
        return
    for name in sorted(meta.find_undeclared_variables(tree) - {_PAYLOAD, *environment.globals}):
        yield f"there is no variable {name}: write {_PAYLOAD}.{name} for a field of the payload"
    if any(True for _ in meta.find_referenced_templates(tree)):
        yield "it names another template: write all in this one"


def render(source: str, payload: Any) -> tuple[str, bool]:
    """Return the prompt of a template, and whether it is cut at `MAX_PROMPT_CHARACTERS`."""
    pieces = list[str]()
    length = 0
    for piece in make_environment().from_string(source).generate(payload=payload):
        pieces.append(piece)
        length += len(piece)
        if length > MAX_PROMPT_CHARACTERS:
            break
    text = "".join(pieces)
    if length <= MAX_PROMPT_CHARACTERS:
        return text, False
    text = text[:MAX_PROMPT_CHARACTERS]
    return text + _CLOSE * (text.rfind(_OPEN) > text.rfind(_CLOSE)), True


def find_field(payload: Any, path: str) -> str:
    """Return the text, number or boolean at a dotted path, such as `alerts.0.status`; empty if there is none."""
    value = payload
    for name in path.split("."):
        if isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value[:MAX_FIELD_CHARACTERS]
    return json.dumps(value)[:MAX_FIELD_CHARACTERS] if isinstance(value, bool | int | float) else ""


def read(body: bytes, template: str, paths: Sequence[str]) -> dict[str, Any]:
    """Return `fields` by path, and of a template its `prompt` and whether it `is_cut`; or a `fault`."""
    try:
        payload = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return {"fault": "json"}
    result: dict[str, Any] = {"fields": {path: find_field(payload, path) for path in paths}}
    if template:
        try:
            result["prompt"], result["is_cut"] = render(template, payload)
        except Exception as error:  # a filter may raise anything
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _TEMPLATE]
            return {"fault": "template", "kind": type(error).__name__, "line": lines[-1] if lines else 0}
    return result


def _limit_memory() -> None:
    """Limit the address space of this process; macOS does not enforce it."""
    with suppress(ImportError, ValueError, OSError):
        resource = import_module("resource")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def main() -> None:
    """Write the result of `read` for the arguments in the first line of standard input, and the body after it."""
    _limit_memory()
    line, _, body = sys.stdin.buffer.read().partition(b"\n")
    sys.stdout.write(json.dumps(read(body, **json.loads(line))))


if __name__ == "__main__":
    main()
