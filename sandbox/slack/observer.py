"""Observation of a Slack sandbox: changes, connections, and use of rate limits."""

from collections.abc import Callable
from typing import TypeVar

from sandbox.rate_limit import RateLimitUsage
from sandbox.slack.api.limits import SlackRateLimits
from sandbox.slack.events.http_mode import EnvelopeSender
from sandbox.slack.state.activity_log import EnvelopeRecord, SlackActivityLog, SlackCallRecord, Subscription
from sandbox.slack.state.workspace import Workspace

T = TypeVar("T")


class SlackObserver:
    """Observer of the workspace; `SlackSandbox` sets the attributes."""

    calls: list[SlackCallRecord]
    envelopes: list[EnvelopeRecord]
    _activity_log: SlackActivityLog
    _limits: SlackRateLimits | None
    _sender: EnvelopeSender
    _workspace: Workspace

    @property
    def connection_count(self) -> int:
        """Number of sockets that receive events; always 1 with a request URL."""
        return self._sender.connection_count

    def changes(self) -> Subscription:
        """Return a subscription to all visible changes from now on."""
        return self._activity_log.subscribe()

    async def wait_for_change(self) -> None:
        """Wait for the next visible change, API call, or change of a connection."""
        await self._activity_log.wait_for_change()

    def rate_limit_usage(self) -> list[RateLimitUsage]:
        """Return the use of each rate-limit window that has calls; none without rate limits."""
        return self._limits.list_usage() if self._limits else []

    async def wait_for(self, predicate: Callable[[], T], *, timeout: float = 20) -> T:  # noqa: ASYNC109 (the message)
        """Return the first truthy result of `predicate`, called now and after every change or call.

        Raises:
            TimeoutError: there was none within `timeout` seconds; the message describes the state.
        """
        return await self._activity_log.wait_until(predicate, timeout, self._describe_state)

    async def wait_until_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (as `wait_for`)
        """Wait until a client is connected to Socket Mode, or a request URL is set.

        Raises:
            TimeoutError: none was within `timeout` seconds.
        """
        await self.wait_for(lambda: self.connection_count, timeout=timeout)

    def _describe_state(self) -> str:
        calls = [f"{c.method} {c.status} {c.error or ''}".rstrip() for c in self.calls[-10:]]
        unacknowledged = sum(e.acknowledged_at is None for e in self.envelopes)
        messages = [f"{m.channel.name}/{m.ts}: {m.text[:80]!r}" for m in self._workspace.latest_messages(10)]
        return "\n  ".join(
            [
                f"{self.connection_count} sockets, {len(self.envelopes)} envelopes ({unacknowledged} unacknowledged)",
                f"{len(self.calls)} calls, the last: {calls}",
                "messages:",
                *messages,
            ]
        )
