"""Reading stored events: by the schema of ADK's own class, three times as fast as that class reads them.

Most of its time goes to callers that make an event by hand: ADK takes short forms from them (`message=`), and
google-genai looks for models of the wrong class and has a `Part` made by its `__init__`. What `model_dump_json` has
written has none of that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic_core import SchemaError, SchemaValidator

from core.models.lazy_import import Late

if TYPE_CHECKING:
    from google.adk.events.event import Event
else:
    Event = Late("google.adk.events.event", "Event")

log = logging.getLogger(__name__)

_FOR_CALLERS = {"_accept_convenience_kwargs", "_check_field_type_mismatches"}


def read(event: str) -> Event:
    """The event that `model_dump_json` has made this of.

    Raises:
        ValueError: it is none.
    """
    return _reader()(event)


@cache
def _reader() -> Callable[[str], Event]:
    try:
        # the classes' own validators, which are what pydantic would put in the place of their schemas, are not wanted
        lean = SchemaValidator(_without_callers(Event.__pydantic_core_schema__), _use_prebuilt=False)
    except (AttributeError, TypeError, SchemaError) as error:  # a pydantic, or an ADK, of another make
        log.warning("events are read as their class reads them, which takes three times as long: %s", error)
        return Event.model_validate_json
    return lean.validate_json


def _without_callers(schema: Any) -> Any:
    """A part of a schema, without what is there for callers alone."""
    if isinstance(schema, list):
        return [_without_callers(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "function-before" and schema["function"]["function"].__name__ in _FOR_CALLERS:
        return _without_callers(schema["schema"])
    lean = {key: _without_callers(value) for key, value in schema.items()}
    return lean | {"custom_init": False} if "custom_init" in lean else lean
