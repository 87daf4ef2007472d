"""Agent of the scripted tour: support of a small shop, in plain ADK, and a chat for all other messages.

The shop's model is the scripted server of `tour.py`, which answers in place of a vendor. It gets the messages of
the tour's steps; the chat, with the model of the settings, gets the others. The shop is made up: `refund_order` only
returns its arguments. It has Parley's tools `make_file` and `schedule`. `list_events` needs the account of the person
who asks, at the simulator's server of calendars.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.tools import request_input
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.get_user_choice_tool import get_user_choice_tool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from bot.simulator.tour import CALENDAR_CLIENT, CALENDAR_VARIABLE, ROAST_SECONDS, TOUR_MODEL, find_step
from core.tools import background, idempotent, make_file, schedule

#: Time that the shop's database takes, so that people can see the line of the tool.
LOOKUP_SECONDS = 1.0

#: Chart of the week's revenue, with the numbers of `tour.py`.
CHART = Path(__file__).with_name("revenue.png")

#: URL of the server of calendars; empty outside of the simulator.
CALENDAR_URL = os.environ.get(CALENDAR_VARIABLE, "")

ORDERS = {"1042": {"customer": "Mina Park", "item": "Coffee, 2 bags", "total": "$42.00", "state": "damaged"}}


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


@background
async def roast_coffee(blend: str, kilograms: int) -> dict[str, str]:
    """Roast a batch of a blend.

    Args:
        blend: the name of the blend.
        kilograms: the weight of the batch.

    Returns:
        The `blend`, and the weight as `roasted`.
    """
    await asyncio.sleep(ROAST_SECONDS)
    return {"blend": blend, "roasted": f"{kilograms} kg"}


async def list_events(credential: AuthCredential) -> Any:
    """List the events in the user's calendar.

    Returns:
        The `events`, each with its `title` and `starts_at`.
    """
    assert credential.oauth2 is not None
    headers = {"Authorization": f"Bearer {credential.oauth2.access_token}"}
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.get(f"{CALENDAR_URL}/calendar", headers=headers) as response,
    ):
        return await response.json()


_sign_in = OAuthFlowAuthorizationCode(
    authorizationUrl=f"{CALENDAR_URL}/authorize",
    tokenUrl=f"{CALENDAR_URL}/token",
    scopes={"calendar": "Read the calendar"},
)
calendar_account = AuthConfig(
    auth_scheme=OAuth2(description="Harbour Calendar", flows=OAuthFlows(authorizationCode=_sign_in)),
    raw_auth_credential=AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id=CALENDAR_CLIENT)
    ),
)

writer = LlmAgent(
    name="writer",
    description="Writes messages to customers.",
    instruction="Write the message to the customer, short and kind.",
    disallow_transfer_to_parent=True,  # the next message goes to the shop's agent again
)

shop = LlmAgent(
    name="shop",
    model=TOUR_MODEL,
    description="Shows what Parley does, with scripted answers.",
    instruction="You are the support of a small shop. Hand over to the writer for messages to customers.",
    tools=[
        find_order,
        FunctionTool(refund_order, require_confirmation=True),
        get_user_choice_tool,
        request_input,
        make_file,
        draw_chart,
        schedule,
        roast_coffee,
        idempotent(AuthenticatedFunctionTool(func=list_events, auth_config=calendar_account)),
    ],
    sub_agents=[writer],
    disallow_transfer_to_parent=True,
)

chat = LlmAgent(
    name="chat",
    instruction="You are Parley, a helpful teammate in a chat.",
    include_contents="none",  # the tiny local model reads the tour's answers for half a minute
    disallow_transfer_to_parent=True,
    disallow_transfer_to_peers=True,
)


class TourAgent(BaseAgent):
    """Agent that runs `shop` for the message of a step, and `chat` for any other message."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        texts = [part.text or "" for part in (ctx.user_content and ctx.user_content.parts) or ()]
        agent = chat if find_step("\n".join(texts)) is None else shop
        async with aclosing(agent.run_async(ctx)) as events:
            async for event in events:
                yield event


root_agent = TourAgent(name="scripted_tour", sub_agents=[shop, chat])
