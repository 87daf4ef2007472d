"""Tools of agents: the names that users import, or list in `TOOLS`."""

from core.errors import ChatError, TicketError
from core.tools.builtin.make_file import make_file
from core.tools.builtin.read_page import read_page
from core.tools.builtin.schedule import schedule
from core.tools.builtin.search_history import search_history
from core.tools.builtin.stay_silent import stay_silent
from core.tools.chat import ChatContext, get_chat
from core.tools.tool import Tool, background, current_time, idempotent, restrict_to
from core.turns.automation.tickets import Ticket, finish_ticket, get_ticket

__all__ = [
    "ChatContext",
    "ChatError",
    "Ticket",
    "TicketError",
    "Tool",
    "background",
    "current_time",
    "finish_ticket",
    "get_chat",
    "get_ticket",
    "idempotent",
    "make_file",
    "read_page",
    "restrict_to",
    "schedule",
    "search_history",
    "stay_silent",
]
