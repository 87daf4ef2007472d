"""The page about ADK's events against the installed ADK."""

import re
from pathlib import Path

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/adk.md").read_text()


@pytest.mark.parametrize(("heading", "model"), [("Parts", types.Part), ("Events", Event), ("Actions", EventActions)])
def test_the_page_has_a_row_for_each_field_of_adk(heading: str, model: type[BaseModel]) -> None:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    names = [row.split("|")[1] for row in section.splitlines() if row.startswith("|")]
    named = set(re.findall(r"`(\w+)`", " ".join(names)))
    missing = set(model.model_fields) - named - ({"actions"} if model is Event else set())
    assert not missing


def test_each_test_of_the_page_exists() -> None:
    paths = re.findall(r"`([\w/]+\.py)`", PAGE)
    assert paths
    assert [path for path in paths if not (ROOT / "tests" / path).is_file()] == []
