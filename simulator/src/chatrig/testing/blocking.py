"""Blocking use of simulators, model servers and bots: their event loop runs in a thread of its own."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from chatrig.testing.process import Bot

T = TypeVar("T")


@cache
def _start_thread() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Return the event loop of all blocking use in this process, and its thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="chatrig", daemon=True)
    thread.start()
    return loop, thread


def _is_in_thread() -> bool:
    return threading.current_thread() is _start_thread()[1]


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the thread, and return its result.

    Raises:
        RuntimeError: this is the thread itself, as in the function of a `wait_for`: it would wait for ever.
    """
    if _is_in_thread():
        work.close()
        raise RuntimeError("a function that is called while a simulator waits may only read from it")
    future = asyncio.run_coroutine_threadsafe(work, _start_thread()[0])
    try:
        return future.result()
    except BaseException:
        future.cancel()  # after Ctrl-C
        raise


class Blocking:
    """Simulator, server or bot whose coroutine methods block until their end.

    All other methods run in its own thread, attributes are as they are. A method that returns an async context manager
    returns one for `with`.
    """

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return _wrap(value) if inspect.ismethod(value) else value


def _wrap(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if _is_in_thread() and not inspect.iscoroutinefunction(method):
            return method(*arguments, **options)
        result = _run(_call(method, arguments, options))
        return _enter(result) if isinstance(result, AbstractAsyncContextManager) else result

    return call


async def _call(method: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    result = method(*arguments, **options)
    return await result if inspect.isawaitable(result) else result


@contextmanager
def _enter(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    value = _run(manager.__aenter__())
    try:
        yield value
    except BaseException as error:
        if not _run(manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        _run(manager.__aexit__(None, None, None))


@contextmanager
def blocking(manager: AbstractAsyncContextManager[Any]) -> Iterator[Any]:
    """Enter a simulator or a model server, and yield it for use without `await`.

    `with blocking(SlackSimulator()) as slack:`
    """
    with _enter(manager) as value:
        yield Blocking(value)


@contextmanager
def start_bot(
    *command: str,
    platforms: Sequence[Blocking],
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
) -> Iterator[Any]:
    """Start an unmodified bot, and yield its `Bot` for use without `await`: see `Bot`."""
    with blocking(Bot(*command, platforms=[platform._target for platform in platforms], env=env, cwd=cwd)) as bot:
        yield bot
