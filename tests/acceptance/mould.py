"""What a zygote forks here: `python -m bot COMMAND`, with its standard streams, to its own end."""

import os
import sys
from collections.abc import Mapping


def live(
    folder: str, settings: Mapping[str, str], command: str, typed: str = "", log: str = "", terminal: str = ""
) -> None:
    """Run a command in `folder`, with `settings` in its environment: at a terminal, if there is one, or else with
    `typed` in its standard input.
    """
    if terminal:
        os.setsid()
        _stand(os.open(terminal, os.O_RDWR), 0, 1, 2)  # the first that is opened is the one that signals come from
    else:
        reader, writer = os.pipe()
        os.write(writer, typed.encode())
        os.close(writer)
        _stand(reader, 0)
        _stand(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 1, 2)
    os.chdir(folder)
    os.environ.update(settings)
    sys.argv = ["bot", *command.split()]
    from bot.cli import main  # noqa: PLC0415 - imported long ago, and not by whoever asks for this module's name

    main()


def _stand(file: int, *streams: int) -> None:
    """Have it stand for these."""
    for stream in streams:
        os.dup2(file, stream)
    os.close(file)
