"""Arguments of functions from JSON objects, checked against the annotations of the parameters."""

import base64
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from types import UnionType
from typing import Any, get_args, get_origin

_DESCRIPTIONS: dict[object, str] = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    bytes: "a text in base64",
    Mapping[str, Any]: "an object",
    Mapping[str, str]: "an object of texts",
    type(None): "null",
}
#: Limit of an integer; greater ones have no exact floating-point number.
MAX_INTEGER = 2**53


def read_arguments(function: Callable[..., object], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of a function from a JSON object.

    Args:
        function: a function or a class. Its parameters are texts, numbers, true or false, bytes (in base64), objects,
            `object` for any JSON, or unions of them.

    Raises:
        ValueError: a field is unknown, missing, or of the wrong type; the message names it.
    """
    parameters = signature(function).parameters
    for name in given:
        if name not in parameters:
            fields = f"the fields are {', '.join(parameters)}" if parameters else "there are none"
            raise ValueError(f"there is no field {name!r}; {fields}")
    for name, parameter in parameters.items():
        if parameter.default is Parameter.empty and name not in given:
            raise ValueError(f"the field {name!r} is missing")
    return {name: _convert(name, value, parameters[name].annotation) for name, value in given.items()}


def _convert(name: str, value: Any, annotation: Any) -> Any:
    options = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    if bytes in options and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise ValueError(f"the field {name!r} is not base64") from None
    if not any(_is_instance(value, option) for option in options):
        wanted = " or ".join(_DESCRIPTIONS[option] for option in options if option in _DESCRIPTIONS)
        raise ValueError(f"the field {name!r} must be {wanted}")
    return value


def _is_instance(value: Any, option: Any) -> bool:
    if option is object:
        return True
    if isinstance(value, bool):
        return option is bool
    if isinstance(value, int):
        return option in (int, float) and abs(value) <= MAX_INTEGER
    if get_origin(option) is Mapping:
        is_text = get_args(option)[1] is str
        return isinstance(value, dict) and (not is_text or all(isinstance(item, str) for item in value.values()))
    return isinstance(value, option)
