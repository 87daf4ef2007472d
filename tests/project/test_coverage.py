"""Tables of the modelled API parts of each platform, in the docs."""

from chatrig.coverage import SECTIONS, update_page
from tests.fixtures.import_graph import ROOT

PAGE = "docs/reference/simulator.md"


def test_the_page_lists_what_is_modelled_of_each_platform() -> None:
    page = (ROOT / PAGE).read_text()
    assert page == update_page(page), f"run .venv/bin/python -m chatrig.coverage {PAGE}"
    for platform in SECTIONS:
        assert f"<!-- coverage: {platform} -->" in page
