"""Interface with which a program adds to the page and to the terminal.

The page loads `extension.js` and `extension.css` of the extension's folder. The script fills the lists of
`page/static/extension.js`: tabs of the inspector, controls of the header, switches of the tab *Faults*. It reads what
`create_view` returns from the store, and sends actions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from chatrig.client.managed_bot import ManagedBot
from chatrig.client.session import ChatSession

#: The sessions of one user of the page, by `slack` and `discord`.
Sessions = Mapping[str, ChatSession]

#: Function that runs an action for the sessions of one user, with the JSON of the action. It returns a text for the
#: user, or data for the script; a `ValueError` is a text for the user, too.
Action = Callable[[Sessions, Mapping[str, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class TerminalCommand:
    """Command of the terminal.

    Attributes:
        help: the line of `/help`; "" for none.
        progress: the text on the screen until `run` has returned.
        run: runs the command, and returns a text for the user; "" for none.
    """

    help: str
    progress: str
    run: Callable[[], Awaitable[str]]


class SimulatorExtension:
    """Additions to the page and the terminal; a subclass overrides what it adds.

    Attributes:
        bot: the process of the bot, which the page shows, kills and restarts; None if the program did not start it.
        title: the name before the word `simulator` at the top.
        static_folder: the folder with `extension.js` and `extension.css`, served below `/extension/`; None for none.
        actions: further actions of the page, by the name that the script sends.
        commands: further commands of the terminal, by the typed line, such as `/brew tea`.
    """

    bot: ManagedBot | None = None
    title = "chatrig"
    static_folder: Path | None = None
    actions: Mapping[str, Action] = {}
    commands: Mapping[str, TerminalCommand] = {}

    def set_up(self, app: web.Application) -> None:
        """Add routes to the page's server, which answers only programs and pages of this machine."""

    def create_view(self, sessions: Sessions) -> Mapping[str, Any]:
        """Return further JSON values of the page, by key; the page sends those that changed."""
        del sessions
        return {}

    def list_notices(self) -> Sequence[str]:
        """Return lines for the top of the terminal."""
        return ()

    async def wait_for_change(self) -> None:
        """Wait until `create_view` may return something else."""
        await asyncio.Event().wait()
