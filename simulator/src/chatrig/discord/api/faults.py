"""Faults that tests and the simulator's page inject into the local Discord's API."""

from collections.abc import Collection
from dataclasses import dataclass

from chatrig.discord.api.limits import Scope
from chatrig.fault_queue import FaultKind, FaultQueue


@dataclass(frozen=True, slots=True, eq=False)
class DiscordFault:
    """Fault of one REST call, compared by identity.

    Attributes:
        status: of a `fail`: the HTTP status.
        code: of a `fail`: Discord's error code.
        seconds: of a `rate_limit`: the `Retry-After`; of a `delay`: real seconds.
        scope: of a `rate_limit`: the kind of limit that was reached.
        has_via_header: of a `rate_limit`: False imitates Cloudflare, without `Via` header and JSON body.
    """

    kind: FaultKind
    status: int = 500
    code: int = 0
    seconds: float = 0
    scope: Scope = "user"
    has_via_header: bool = True


class DiscordFaults:
    """Faults that tests inject; a call gets the first pending fault of its route.

    Attributes:
        routes: the known routes, as Discord documents them: `POST /channels/{channel}/messages`.
        latency: delay of each request, response and event, in real seconds.
    """

    def __init__(self, routes: Collection[str]) -> None:
        self.routes = routes
        self._pending = FaultQueue[DiscordFault]()
        self._handshake_refusals = 0
        self._resume_refusals = 0
        self.latency = 0.0

    def fail(self, route: str, times: int = 1, *, status: int = 500, code: int = 0) -> None:
        """Refuse the next `times` calls of a route with an HTTP status and an error code.

        Args:
            code: Discord's error code; 0 for a general error.

        Raises:
            ValueError: the route is not in `routes`.
        """
        self._add(route, times, DiscordFault("fail", status=status, code=code))

    def rate_limit(
        self, route: str, retry_after: float, times: int = 1, *, scope: Scope = "user", has_via_header: bool = True
    ) -> None:
        """Refuse the next `times` calls of a route with HTTP 429.

        Args:
            retry_after: seconds until the client may try again.
            scope: the kind of limit that was reached.
            has_via_header: False imitates Cloudflare in front of Discord: no `Via` header and no JSON body.

        Raises:
            ValueError: the route is not in `routes`.
        """
        self._add(
            route, times, DiscordFault("rate_limit", seconds=retry_after, scope=scope, has_via_header=has_via_header)
        )

    def lose_response(self, route: str, times: int = 1) -> None:
        """Run the next `times` calls of a route, but close their connections unanswered.

        Raises:
            ValueError: the route is not in `routes`.
        """
        self._add(route, times, DiscordFault("lose_response"))

    def delay(self, route: str, seconds: float, times: int = 1) -> None:
        """Run the next `times` calls of a route after a delay in real seconds.

        Args:
            route: as in `routes`, such as `POST /channels/{channel}/messages`.

        Raises:
            ValueError: the route is not in `routes`.
        """
        self._add(route, times, DiscordFault("delay", seconds=seconds))

    def refuse_handshakes(self, times: int) -> None:
        """Refuse the next `times` handshakes with the gateway with HTTP 503.

        The number replaces the former one; 0 for none.
        """
        self._handshake_refusals = times

    def refuse_resumes(self, times: int) -> None:
        """Answer the next `times` RESUMEs with an invalid session (op 9).

        The session ends, and the events that it has missed are lost. The number replaces the former one; 0 for none.
        """
        self._resume_refusals = times

    def set_latency(self, seconds: float) -> None:
        """Delay each request, response and event by real seconds; 0 for none."""
        self.latency = seconds

    def clear(self) -> None:
        """Cancel all pending faults, and set the latency to 0."""
        self._pending.clear()
        self._handshake_refusals = self._resume_refusals = 0
        self.latency = 0.0

    def cancel(self, kind: FaultKind) -> None:
        """Cancel all pending faults of this kind, on all routes."""
        self._pending.cancel(kind)

    def has_pending(self, kind: FaultKind) -> bool:
        """Return whether a fault of this kind is pending on any route."""
        return self._pending.has_pending(kind)

    def take(self, route: str) -> DiscordFault | None:
        """Remove and return the next fault of a route; None if it has none."""
        return self._pending.take(route)

    def take_handshake_refusal(self) -> bool:
        """Return whether to refuse the present WebSocket handshake.

        If so, the number of handshakes to refuse is reduced by one.
        """
        self._handshake_refusals, refused = max(0, self._handshake_refusals - 1), self._handshake_refusals > 0
        return refused

    def take_resume_refusal(self) -> bool:
        """Return whether to refuse the present RESUME of a session.

        If so, the number of RESUMEs to refuse is reduced by one.
        """
        self._resume_refusals, refused = max(0, self._resume_refusals - 1), self._resume_refusals > 0
        return refused

    def _add(self, route: str, times: int, fault: DiscordFault) -> None:
        if route not in self.routes:
            raise ValueError(f"there is no route {route}")
        self._pending.add([route], times, fault)
