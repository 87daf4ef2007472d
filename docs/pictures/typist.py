"""Simulated user of a terminal, who types and reads the output."""

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

#: Control sequences: they move the cursor, clear a line, or change its look.
_CONTROL = re.compile(r"\r\n|[\r\n]|\x1b\[\??(?P<count>[\d;]*)(?P<what>[A-Za-z])")


class Typist:
    """User of a terminal; a context manager within an event loop.

    Attributes:
        device: the path of the terminal, at which a program is started.
    """

    def __enter__(self) -> Self:
        self._controller, self.program_end = pty.openpty()
        self.device = os.ttyname(self.program_end)
        fcntl.ioctl(self.program_end, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        self._output, self._read_text = b"", ""
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._controller, self._read_output)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._controller)
        os.close(self._controller)
        os.close(self.program_end)

    async def wait_for_text(self, words: str, *, within: float = 30.0) -> None:
        """Read on until `words` are shown.

        Raises:
            TimeoutError: they are not shown in time; its message has the unread text.
        """
        try:
            async with asyncio.timeout(within):
                while words not in self._get_unread():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"{words!r} is not in\n{self._get_unread()}") from None
        unread = self._get_unread()
        self._read_text = self.screen.removesuffix(unread[unread.index(words) + len(words) :])

    async def answer_prompt(self, prompt: str, line: str) -> None:
        """Wait for a prompt, and type a line."""
        await self.wait_for_text(prompt)
        self.type_line(line)

    def type_line(self, line: str) -> None:
        self.press_keys(f"{line}\n")

    def press_keys(self, keys: str) -> None:
        os.write(self._controller, keys.encode())

    @property
    def screen(self) -> str:
        """The text on the screen, with the lines that have scrolled out of it."""
        lines, at, place = [""], 0, 0
        text = self._output.decode(errors="replace")
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

    def _get_unread(self) -> str:
        """Return the lines below those that were read."""
        pairs = zip(self.screen, self._read_text, strict=False)
        return self.screen[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :]

    def _read_output(self) -> None:
        self._output += os.read(self._controller, 65_536)
        self._changed.set()
