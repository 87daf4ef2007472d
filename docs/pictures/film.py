"""Animated picture of the README: the scripted tour in the simulator, in a browser."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import FloatRect, Page, expect

from docs.pictures.browser import SETTLE_MILLISECONDS, open_page, run_simulator

HERE = Path(__file__).parent

#: Size of the browser window; the inspector of the page is left out of the picture.
WIDTH, HEIGHT = 1200, 620

#: Time between two frames.
FRAME_INTERVAL_MILLISECONDS = 250

#: Display times of a frame: while text streams (at most), after a step, and at the end.
STREAM_SECONDS, STEP_SECONDS, END_SECONDS = 0.7, 2.5, 5.0

#: Maximum size of the picture.
MAX_BYTES = 1_500_000

_STYLE = """
#inspector, #top, #tabs, #notices, #toasts { display: none !important; }
main { grid-template-columns: 1fr 1fr !important; }
"""


@dataclass(frozen=True)
class Frame:
    """Picture of the page (JPEG), and its display time in seconds."""

    image: bytes
    seconds: float


class Camera:
    """Camera of one page: takes frames, and joins equal successive ones."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.frames: list[Frame] = []

    async def take(self, seconds: float) -> None:
        clip = FloatRect(x=0, y=0, width=WIDTH, height=HEIGHT)
        image = await self._page.screenshot(type="jpeg", quality=62, clip=clip, animations="disabled")
        if self.frames and self.frames[-1].image == image:
            self.frames[-1] = Frame(image, max(self.frames[-1].seconds, seconds))
        else:
            self.frames.append(Frame(image, seconds))

    async def follow(self, start_wait: Callable[[], asyncio.Future[None]]) -> None:
        """Take frames until a condition is met, and one after that.

        Args:
            start_wait: starts to wait for the condition, and returns the future.
        """
        condition_met = start_wait()
        while not condition_met.done():
            await self.take(STREAM_SECONDS)
            await asyncio.wait([condition_met], timeout=FRAME_INTERVAL_MILLISECONDS / 1000)
        await condition_met
        await self._page.wait_for_timeout(SETTLE_MILLISECONDS)
        await self.take(STEP_SECONDS)


async def main() -> None:
    """Write `tour.svg`."""
    async with (
        run_simulator({}, is_tour=True) as address,
        open_page(address, WIDTH, HEIGHT, style=_STYLE) as page,
    ):
        for pane in ("slack", "discord"):
            await page.locator(f"#{pane} .place", has_text="general").click()
        frames = await _play(page)
    svg = animate(frames)
    assert len(svg) < MAX_BYTES, f"{len(svg):,} bytes in {len(frames)} frames"
    (HERE / "tour.svg").write_text(svg)


async def _play(page: Page) -> list[Frame]:
    """Ask for a tool and an approval in Slack, and for a report in Discord.

    Returns:
        The frames of the tour.
    """
    camera = Camera(page)

    def expect_text(pane: str, text: str) -> Callable[[], asyncio.Future[None]]:
        return lambda: asyncio.ensure_future(expect(page.locator(f"#{pane} .messages")).to_contain_text(text))

    await _type(page, "slack", "@parley Where is order 1042?")
    await camera.take(STEP_SECONDS)
    await page.press("#slack-line", "Enter")
    await page.locator("#slack .replies .open").click()
    await page.mouse.move(0, 0)
    await camera.follow(expect_text("slack", "Regenerate"))
    await _type(page, "slack", "Please refund it.")
    await page.press("#slack-line", "Enter")
    await camera.follow(expect_text("slack", "Deny"))
    await page.locator("#slack .button", has_text="Approve").click()
    await page.mouse.move(0, 0)
    await camera.follow(expect_text("slack", "Approved and done"))
    await _type(page, "discord", "@parley How was this week?")
    await camera.take(STEP_SECONDS)
    await page.press("#discord-line", "Enter")
    await camera.follow(expect_text("discord", "Open tasks"))
    await camera.follow(expect_text("discord", "Regenerate"))
    await (
        page.locator("#discord .messages", has_text="This week")
        .get_by_text("This week")
        .last.scroll_into_view_if_needed()
    )
    await page.wait_for_timeout(FRAME_INTERVAL_MILLISECONDS)
    await camera.take(END_SECONDS)
    return camera.frames


async def _type(page: Page, pane: str, text: str) -> None:
    await page.fill(f"#{pane}-line", text)


def animate(frames: Sequence[Frame]) -> str:
    """Return an SVG that shows the frames in turn.

    With reduced motion it shows only the last one.
    """
    total, shown_at = sum(frame.seconds for frame in frames), 0.0
    style, layers = [], []
    for number, frame in enumerate(frames):
        start, end = (100 * at / total for at in (shown_at, shown_at + frame.seconds))
        shown_at += frame.seconds
        hidden = "0% { visibility: hidden; } " if number else ""
        style.append(
            f"@keyframes f{number} {{ {hidden}{start:.3f}% {{ visibility: visible; }} "
            f"{end:.3f}%, 100% {{ visibility: hidden; }} }}"
        )
        style.append(f".f{number} {{ animation-name: f{number}; }}")
        data = base64.b64encode(frame.image).decode()
        visibility = "" if number == len(frames) - 1 else ' visibility="hidden"'
        size = f'width="{WIDTH}" height="{HEIGHT}"'
        layers.append(f'<image class="f f{number}" {size}{visibility} href="data:image/jpeg;base64,{data}"/>')
    animated = [f".f {{ animation: {total:g}s step-end infinite; }}", *style]
    rules = "\n".join(animated)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n'
        f"<style>@media (prefers-reduced-motion: no-preference) {{\n{rules}\n}}</style>\n"
        + "\n".join(layers)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    asyncio.run(main())
