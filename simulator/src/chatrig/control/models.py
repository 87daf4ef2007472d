"""Actions of the control API on a scripted model: each public method is a route."""

from typing import Any

from chatrig.control.steps import create_request_json, parse_responses
from chatrig.models.server import ScriptedServer


class ModelControl:
    """Actions on one scripted model.

    Attributes:
        queries: names of the methods that change nothing.
    """

    queries = ("requests",)

    def __init__(self, model: ScriptedServer) -> None:
        self._model = model

    async def add_responses(self, responses: object) -> dict[str, Any]:
        """Add responses to the script: a list of texts, steps and lists of steps."""
        self._model.add_responses(*parse_responses(responses))
        return {}

    async def requests(self) -> dict[str, Any]:
        """Return the requests that the bot has sent to the model."""
        return {"requests": [create_request_json(request) for request in self._model.received]}

    async def wait_for_requests(
        self,
        count: int = 1,
        timeout: float = 20,  # noqa: ASYNC109 (a field of the request)
    ) -> dict[str, Any]:
        """Wait until the bot has sent this number of requests; return them."""
        await self._model.wait_for_requests(count, timeout)
        return await self.requests()
