"""Page about model servers, compared with the code."""

import re
from pathlib import Path

from core.models.finish_reasons import FINISH_REASONS

PAGE = Path(__file__).parents[2] / "docs/reference/model-servers.md"


def test_the_page_has_each_finish_reason_by_its_ending() -> None:
    table = PAGE.read_text().partition("| Ending | OpenAI")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:] for line in table.splitlines()[2:]]
    listed = {row[0].strip(): {name.lower() for name in re.findall(r"`(\w+)`", "".join(row))} for row in rows}
    assert listed == {ending.name.lower(): reasons for ending, reasons in FINISH_REASONS.items()}
