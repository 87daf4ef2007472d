"""Docs page about ADK's events, compared with the installed ADK."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from pydantic import BaseModel

from core.agents.event_mapper import EventMapper

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/adk.md").read_text()

#: Headings of the page, with the class of ADK whose fields the section lists.
SECTIONS: dict[str, type[BaseModel]] = {"Parts": types.Part, "Events": Event, "Actions": EventActions}


def list_rows(heading: str) -> Iterator[tuple[set[str], list[str]]]:
    """Yield each table row of a section: the field names in it, and its other cells."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    for row in [line for line in section.splitlines() if line.startswith("|")][2:]:
        name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        yield set(re.findall(r"`(\w+)`", name)), cells


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_page_has_a_row_for_each_field_of_adk(heading: str) -> None:
    fields = set(SECTIONS[heading].model_fields) - {"actions"}
    assert fields - set().union(*(names for names, _ in list_rows(heading))) == set()


def test_each_row_of_the_page_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `") or " | `test_" in line]
    assert [row for row in rows if not re.search(r"`test_\w+`", row)] == []


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        (heading, name)
        for heading in SECTIONS
        for names, (effect, *_) in list_rows(heading)
        if effect.startswith("not shown")
        for name in sorted(names)
    ],
)
def test_fields_that_the_page_calls_not_shown_are_not_shown(heading: str, name: str) -> None:
    value: Any = {"secret": "secret"} if heading == "Actions" else "secret"
    event = Event(author="parley")
    if heading == "Parts":
        text = "secret" if name == "thought" else None
        part = types.Part.model_construct(**{"text": text, name: value})
        event.content = types.Content.model_construct(role="model", parts=[part])
    else:
        setattr(event if heading == "Events" else event.actions, name, value)
    assert list(EventMapper().map_event(event)) == []


def test_each_field_that_is_not_shown_has_a_reason() -> None:
    effects = [effect for heading in SECTIONS for _, (effect, *_) in list_rows(heading)]
    assert [effect for effect in effects if effect.startswith("not ") and ": " not in effect] == []
