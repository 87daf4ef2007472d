"""Command that writes into the sandbox's page what is modelled of each platform.

`python -m sandbox.coverage` replaces the sections between `<!-- coverage: PLATFORM -->` and `<!-- end of coverage -->`
in `docs/reference/sandbox.md`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sandbox.slack import SlackSandbox, catalog
from sandbox.slack.events.dispatcher import EVENTS

PAGE = Path(__file__).parents[1] / "docs/reference/sandbox.md"

_SECTION = re.compile(r"(?P<begin><!-- coverage: (?P<platform>[a-z]+) -->\n).*?(?P<end><!-- end of coverage -->)", re.S)


def describe_slack() -> str:
    """Return tables of the methods and events of Slack."""
    methods = _create_table("Methods", SlackSandbox().methods, catalog.METHODS, lambda name: name.partition(".")[0])
    events = _create_table("Events", EVENTS, catalog.EVENT_SCOPES, lambda name: re.split("[_.]", name)[0])
    return f"{methods}\n{events}"


#: The section of each platform, without its markers.
SECTIONS: Mapping[str, Callable[[], str]] = {"slack": describe_slack}


def update_page(page: str) -> str:
    """Return the page with current sections."""
    return _SECTION.sub(lambda found: f"{found['begin']}\n{SECTIONS[found['platform']]()}\n{found['end']}", page)


def _create_table(title: str, modelled: Iterable[str], known: Iterable[str], group: Callable[[str], str]) -> str:
    """Return a table with a row for each group of names."""
    modelled, rows = set(modelled), defaultdict(list)
    for name in sorted(modelled | set(known)):
        rows[group(name)].append(name)
    lines = [f"| {title} | Modelled | Not modelled |", "| --- | --- | --- |"]
    for label, names in rows.items():
        columns = [[f"`{name}`" for name in names if (name in modelled) is wanted] for wanted in (True, False)]
        lines.append(f"| {label} | {' | '.join(', '.join(column) for column in columns)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text()))
