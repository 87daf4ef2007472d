"""Addresses of the simulators for an unmodified bot: Python imports this module at the start of a process.

It replaces the default addresses of slack_sdk, discord.py and hikari once the bot imports them. It must not import
chatrig: the bot may run in an environment without it.
"""

import os
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

_SLACK, _DISCORD, _GATEWAY = (
    os.environ.get(f"CHATRIG_{name}_URL", "") for name in ("SLACK_API", "DISCORD_API", "DISCORD_GATEWAY")
)


def _redirect_slack(name: str) -> Callable[[Any], None]:
    def redirect(module: Any) -> None:
        client = getattr(module, name)
        init, client.BASE_URL = client.__init__, _SLACK  # the parameter's default is a copy of the attribute
        init.__defaults__ = tuple(_SLACK if value == "https://slack.com/api/" else value for value in init.__defaults__)

    return redirect


def _redirect_discord_api(module: Any) -> None:
    module.Route.BASE = _DISCORD


def _redirect_discord_gateway(module: Any) -> None:
    module.DiscordWebSocket.DEFAULT_GATEWAY = type(module.DiscordWebSocket.DEFAULT_GATEWAY)(_GATEWAY)


def _redirect_hikari(module: Any) -> None:
    module.REST_API_URL = _DISCORD


_REDIRECTS: dict[str, Callable[[Any], None]] = {}
if _SLACK:
    _REDIRECTS["slack_sdk.web.base_client"] = _redirect_slack("BaseClient")
    _REDIRECTS["slack_sdk.web.async_base_client"] = _redirect_slack("AsyncBaseClient")
    _REDIRECTS["slack_sdk.web.legacy_base_client"] = _redirect_slack("LegacyBaseClient")
if _DISCORD:
    _REDIRECTS["discord.http"] = _redirect_discord_api
    _REDIRECTS["discord.gateway"] = _redirect_discord_gateway
    _REDIRECTS["hikari.urls"] = _redirect_hikari


class _RedirectFinder(MetaPathFinder):
    """Finder that runs the redirect of a module after the module's own code."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        redirect = _REDIRECTS.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if redirect is not None else None
        if redirect is not None and spec is not None and spec.loader is not None:
            spec.loader = _RedirectLoader(spec.loader, redirect)
        return spec


class _RedirectLoader(Loader):
    def __init__(self, loader: Loader, redirect: Callable[[Any], None]) -> None:
        self._loader = loader
        self._redirect = redirect

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._redirect(module)


def _run_own_sitecustomize() -> None:
    """Run the `sitecustomize` of the environment, which this module hides."""
    here = os.path.dirname(__file__)
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


sys.meta_path.insert(0, _RedirectFinder())
_run_own_sitecustomize()
