"""Command that lists each platform's modelled API in a page of docs.

`python -m chatrig.coverage PAGE` replaces the sections between `<!-- coverage: PLATFORM -->` and
`<!-- end of coverage -->` in a Markdown file.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from chatrig.discord import DiscordSimulator
from chatrig.discord import catalog as discord_catalog
from chatrig.discord.api.request_schemas import list_unmodelled_routes, load_schemas
from chatrig.slack import SlackSimulator, catalog
from chatrig.slack.events.dispatcher import EVENTS

_SECTION = re.compile(r"(?P<begin><!-- coverage: (?P<platform>[a-z]+) -->\n).*?(?P<end><!-- end of coverage -->)", re.S)


def describe_slack() -> str:
    """Return Markdown tables of Slack's methods and events, modelled or not."""
    methods = _create_table(
        "Methods", SlackSimulator().methods, catalog.METHODS, lambda name: f"`{name.partition('.')[0]}.*`"
    )
    events = _create_table("Events", EVENTS, catalog.EVENT_SCOPES, lambda name: f"`{re.split('[_.]', name)[0]}*`")
    return f"{methods}\n{events}"


def describe_discord() -> str:
    """Return Markdown tables of Discord's routes and events, modelled or not."""
    routes = load_schemas()["all_routes"]
    modelled = set(routes) - set(list_unmodelled_routes(DiscordSimulator().faults.routes))

    def group(route: str) -> str:
        return " ".join([part for part in route.split("/")[1:] if not part.startswith(("{", "@"))][:2])

    tables = [
        _create_table("Routes", modelled, routes, group),
        _create_table(
            "Gateway events",
            discord_catalog.MODELLED_EVENTS,
            discord_catalog.EVENTS,
            lambda name: f"`{name.split('_')[0]}*`",
        ),
    ]
    return "\n".join(tables)


#: The section of each platform, without its markers.
SECTIONS: Mapping[str, Callable[[], str]] = {"slack": describe_slack, "discord": describe_discord}


def update_page(page: str) -> str:
    """Return the text of a page with new text between each pair of coverage markers.

    Raises:
        KeyError: a marker names no platform in `SECTIONS`.
    """
    return _SECTION.sub(lambda found: f"{found['begin']}\n{SECTIONS[found['platform']]()}\n{found['end']}", page)


def _create_table(title: str, modelled: Iterable[str], known: Iterable[str], group: Callable[[str], str]) -> str:
    """Return a Markdown table with a row for each group that has a modelled name.

    A line below has the number of names in the other groups.

    Args:
        title: noun for the names, such as `Methods`.
        modelled: names that the simulator models.
        known: all names of the platform.
        group: returns the label of a name's group.
    """
    modelled, rows = set(modelled), defaultdict(list)
    for name in sorted(modelled | set(known)):
        rows[group(name)].append(name)
    lines, missing = [f"| {title} | Modelled | Not modelled |", "| --- | --- | --- |"], 0
    for label, names in sorted(rows.items()):
        if modelled.isdisjoint(names):
            missing += len(names)
            continue
        columns = [
            [f"`{name}`" for name in names if (name in modelled) is is_modelled] for is_modelled in (True, False)
        ]
        lines.append(f"| {label} | {' | '.join(', '.join(column) for column in columns)} |")
    if missing:
        lines += ["", f"{title} of other groups, none of them modelled: {missing}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page_path = Path(sys.argv[1])
    page_path.write_text(update_page(page_path.read_text()))
