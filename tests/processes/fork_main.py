"""Code of a forked process that runs `python -m bot COMMAND` or another module."""

import os
import runpy
import sys
from collections.abc import Mapping, Sequence


def run_process(
    folder: str,
    settings: Mapping[str, str],
    command: str = "",
    stdin: str = "",
    log: str = "",
    terminal: str = "",
    module: Sequence[str] = (),
) -> None:
    """Run a command of the bot in `folder`, with `settings` as its environment.

    The standard input is `terminal` if given, else the text `stdin`.

    Args:
        log: the file for the output.
        terminal: the path of a terminal.
        module: another program to run instead: paths of its standard input and output, its module and arguments.
    """
    os.chdir(folder)
    os.environ.update(settings)
    if module:
        source, sink, name, *arguments = module
        _redirect(os.open(source, os.O_RDONLY), 0)
        _redirect(os.open(sink, os.O_WRONLY | os.O_APPEND), 1, 2)
        sys.path[:0] = [folder, *os.environ.get("PYTHONPATH", folder).split(os.pathsep)]
        sys.argv = [name, *arguments]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    if terminal:
        os.setsid()
        _redirect(os.open(terminal, os.O_RDWR), 0, 1, 2)  # the first opened terminal becomes the controlling one
    else:
        reader, writer = os.pipe()
        os.write(writer, stdin.encode())
        os.close(writer)
        _redirect(reader, 0)
        _redirect(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 1, 2)
    sys.argv = ["bot", *command.split()]
    from bot.cli.main import main  # noqa: PLC0415 - the fork server imports it first

    main()


def _redirect(file: int, *streams: int) -> None:
    """Redirect these standard streams to an open file, and close its descriptor."""
    for stream in streams:
        os.dup2(file, stream)
    os.close(file)
