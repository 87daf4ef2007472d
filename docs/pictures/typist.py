"""Simulated user of a pseudo-terminal, who types and reads the output."""

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

#: Control sequences that move the cursor, clear a line, change the style, or begin and end a link.
_CONTROL = re.compile(r"\r\n|[\r\n]|\x1b\]8;[^\x1b]*\x1b\\|\x1b\[\??(?P<count>[\d;]*)(?P<command>[A-Za-z])")


class Typist:
    """User of a terminal; a context manager within an event loop.

    Attributes:
        device: the path of the terminal.
        program_fd: the file descriptor of the program's end of the terminal.
    """

    def __enter__(self) -> Self:
        self._controller_fd, self.program_fd = pty.openpty()
        self.device = os.ttyname(self.program_fd)
        fcntl.ioctl(self.program_fd, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        self._output, self._read_text = b"", ""
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._controller_fd, self._read_available_output)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._controller_fd)
        os.close(self._controller_fd)
        os.close(self.program_fd)

    async def wait_for_text(self, words: str, *, within: float = 30.0) -> None:
        """Wait until the unread output contains `words`, and mark it as read until there.

        Raises:
            TimeoutError: after `within` seconds; the message has the unread text.
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
        os.write(self._controller_fd, keys.encode())

    @property
    def screen(self) -> str:
        """Text on the screen, and lines that have scrolled off it."""
        lines, row, position = [""], 0, 0
        text = self._output.decode(errors="replace")
        for found in _CONTROL.finditer(text):
            lines[row] += text[position : found.start()]
            position = found.end()
            if "\n" in found[0]:
                row += 1
                lines += [""] * (row == len(lines))
            elif found["command"] == "A":
                row -= int(found["count"] or 1)
            elif found["command"] == "K":
                lines[row] = ""
        lines[row] += text[position:]
        return "\n".join(lines)

    def _get_unread(self) -> str:
        """Return the text after the part that `wait_for_text` has read."""
        pairs = zip(self.screen, self._read_text, strict=False)
        return self.screen[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :]

    def _read_available_output(self) -> None:
        self._output += os.read(self._controller_fd, 65_536)
        self._changed.set()
