"""Somebody who sits at a terminal, types, and reads what a program shows there."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import termios
from itertools import takewhile
from types import TracebackType
from typing import Self

#: Columns and lines of the terminal.
SIZE = (80, 24)

#: What moves the cursor, takes a line away, or changes how it looks.
_CONTROL = re.compile(r"\r\n|[\r\n]|\x1b\[\??(?P<count>[\d;]*)(?P<what>[A-Za-z])")


class Typist:
    """Use it as a context, within an event loop.

    Attributes:
        device: the terminal, for a program to be started at.
    """

    def __enter__(self) -> Self:
        self._hand, self.program_end = pty.openpty()
        self.device = os.ttyname(self.program_end)
        fcntl.ioctl(self.program_end, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        self._said, self._read = b"", ""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._hand, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._hand)
        os.close(self._hand)
        os.close(self.program_end)

    async def sees(self, words: str, *, within: float = 30.0) -> None:
        """Read on until `words` stand there.

        Raises:
            TimeoutError: they do not; tells what does.
        """
        try:
            async with asyncio.timeout(within):
                while words not in self._unread():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"{words!r} is not to be seen in\n{self._unread()}") from None
        unread = self._unread()
        self._read = self.screen.removesuffix(unread[unread.index(words) + len(words) :])

    async def answers(self, prompt: str, line: str) -> None:
        """Wait for a prompt, and type a line."""
        await self.sees(prompt)
        self.types(line)

    def types(self, line: str) -> None:
        self.presses(f"{line}\n")

    def presses(self, keys: str) -> None:
        os.write(self._hand, keys.encode())

    @property
    def screen(self) -> str:
        """All that stands on it by now, or has moved out of it at the top."""
        lines, at, place = [""], 0, 0
        text = self._said.decode(errors="replace")
        for found in _CONTROL.finditer(text):
            lines[at] += text[place : found.start()]
            place = found.end()
            if "\n" in found[0]:
                at += 1
                lines += [""] * (at == len(lines))
            elif found["what"] == "A":
                at -= int(found["count"] or 1)
            elif found["what"] == "K":
                lines[at] = ""
        lines[at] += text[place:]
        return "\n".join(lines)

    def _unread(self) -> str:
        """Return the lines below those that were read."""
        pairs = zip(self.screen, self._read, strict=False)
        return self.screen[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :]

    def _hear(self) -> None:
        self._said += os.read(self._hand, 65_536)
        self._news.set()
