"""Agent of a shirt shop that asks users for answers, results and a confirmation.

The workflow asks two questions at the same time. Then an agent calls a long-running tool and one with a confirmation.
"""

from collections.abc import Iterator
from typing import Any, Literal

from google.adk.agents import LlmAgent
from google.adk.events.request_input import RequestInput
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.adk.workflow import JoinNode, Workflow
from pydantic import BaseModel, Field, SecretStr


class Delivery(BaseModel):
    name: str = Field(title="Your name", max_length=80)
    count: int = Field(default=1, ge=1, le=9)
    wrapping: Literal["paper", "box"]
    voucher: SecretStr = SecretStr("")


def ask_size(node_input: Any) -> Iterator[RequestInput]:
    yield RequestInput(message="Which size?", response_schema={"enum": ["S", "M", "L"]})


def ask_delivery(node_input: Any) -> Iterator[RequestInput]:
    yield RequestInput(message="Where does it go?", response_schema=Delivery)


def ask_tailor(about: str) -> None:
    """Ask the tailor, who answers later."""


def pay(euros: int) -> str:
    """Take the payment."""
    return f"{euros} euros are paid"


clerk = LlmAgent(
    name="clerk",
    instruction="You are the clerk. Ask the tailor, take the payment, and draw the shirt.",
    tools=[LongRunningFunctionTool(ask_tailor), FunctionTool(pay, require_confirmation=True)],
)
root_agent = Workflow(
    name="shirt_shop", edges=[("START", (ask_size, ask_delivery), JoinNode(name="both_answers"), clerk)]
)
