"""Tables of the modelled API parts of each platform, in the docs."""

import re

from chatrig.coverage import SECTIONS, update_page
from tests.fixtures.import_graph import ROOT

PAGE = "docs/reference/simulator.md"


def test_the_page_lists_what_is_modelled_of_each_platform() -> None:
    page = (ROOT / PAGE).read_text()
    assert page == update_page(page), f"run .venv/bin/python -m chatrig.coverage {PAGE}"
    for platform in SECTIONS:
        assert f"<!-- coverage: {platform} -->" in page


def test_a_section_lists_modelled_and_other_names_by_group() -> None:
    page = update_page("before\n<!-- coverage: slack -->\nold\n<!-- end of coverage -->\nafter\n")
    assert page.startswith("before\n<!-- coverage: slack -->\n\n| Methods | Modelled | Not modelled |\n")
    assert page.endswith("\n<!-- end of coverage -->\nafter\n")
    assert "\n| `team.*` | `team.info` | `team.accessLogs`, " in page
    assert "\n| `app*` | `app_context_changed`, `app_home_opened`, `app_mention`, `app_uninstalled` | " in page
    assert re.search(r"^Methods of other groups, none of them modelled: \d+\.$", page, re.M)
    assert "old" not in page
