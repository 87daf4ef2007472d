"""Agent of the scripted tour: support of a small shop, in plain ADK.

It has Parley's tool `make_file`. The shop is made up: `refund_order` only returns its arguments.

Nothing here is special to the tour: the simulator runs it as `AGENT=bot.simulator.tour_agent`. Its model is the
scripted server of `chatrig.tour`, which answers in place of a vendor.
"""

import asyncio
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools import request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.get_user_choice_tool import get_user_choice_tool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from core.tools import idempotent, make_file

#: Time that the shop's database takes, so that people can see the line of the tool.
LOOKUP_SECONDS = 1.0

#: Chart of the week's revenue, with the numbers of `chatrig.tour`.
CHART = Path(__file__).with_name("revenue.png")

ORDERS = {
    "1042": {"customer": "Mina Park", "item": "Harbour Blend, 2 bags", "total": "$42.00", "state": "delivered damaged"}
}


@idempotent
async def find_order(order: str) -> dict[str, Any]:
    """Find an order of the shop.

    Args:
        order: the number of the order, such as 1042.

    Returns:
        The `order` with `customer`, `item`, `total` and `state`; with only `error` if there is no such order.
    """
    await asyncio.sleep(LOOKUP_SECONDS)
    return {"order": order, **ORDERS.get(order, {"error": "there is no such order"})}


find_order.__dict__["progress"] = "Looking up order {order}"


def refund_order(order: str, amount: str) -> dict[str, str]:
    """Refund an order.

    Args:
        order: the number of the order.
        amount: the amount with its currency, such as $42.00.

    Returns:
        The `order`, and the amount as `refunded`.
    """
    return {"order": order, "refunded": amount}


async def draw_chart(name: str, tool_context: ToolContext) -> dict[str, str]:
    """Post the bar chart of the week's revenue to the people in this conversation.

    Args:
        name: the name of the picture, such as revenue.png.

    Returns:
        The name of the picture as `drawn`.
    """
    picture = types.Part.from_bytes(data=CHART.read_bytes(), mime_type="image/png")
    alt = "Bar chart: Mon 612, Tue 540, Wed 904, Thu 811, Fri 1121"
    await tool_context.save_artifact(name, picture, {"alt": alt})
    return {"drawn": name}


draw_chart.__dict__["progress"] = "Drawing {name}"


writer = LlmAgent(
    name="writer",
    description="Writes messages to customers.",
    instruction="Write the message to the customer, short and kind.",
    disallow_transfer_to_parent=True,  # the next message goes to the shop's agent again
)

root_agent = LlmAgent(
    name="scripted_tour",
    description="Shows what Parley does, with scripted answers.",
    instruction="You are the support of a small shop. Hand over to the writer for messages to customers.",
    tools=[
        find_order,
        FunctionTool(refund_order, require_confirmation=True),
        get_user_choice_tool,
        request_input,
        make_file,
        draw_chart,
    ],
    sub_agents=[writer],
)
