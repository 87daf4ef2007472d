"""What a zygote forks here: `python -m bot COMMAND`, with its standard streams, to its own end."""

import os
import sys
from collections.abc import Mapping


def live(folder: str, settings: Mapping[str, str], command: str, typed: str, log: str) -> None:
    """Run a command in `folder`, with `settings` in its environment."""
    reader, writer = os.pipe()
    os.write(writer, typed.encode())
    os.close(writer)
    os.dup2(reader, 0)
    os.close(reader)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)
    os.chdir(folder)
    os.environ.update(settings)
    sys.argv = ["bot", *command.split()]
    from bot.cli import main  # noqa: PLC0415 - imported long ago, and not by whoever asks for this module's name

    main()
