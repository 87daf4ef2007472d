"""Animated picture of the README: the scripted tour in the simulator, in a browser."""

import asyncio
import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from playwright.async_api import FloatRect, Page, expect

from docs.pictures.browser import SETTLE_MILLISECONDS, open_page, run_simulator

HERE = Path(__file__).parent

#: Size of the browser window; the inspector of the page is left out of the picture.
WIDTH, HEIGHT = 1200, 620

#: Time between two frames.
FRAME_INTERVAL_MILLISECONDS = 250

#: Display times of a frame: at the start, while text streams (at most), after a step, and at the end.
START_SECONDS, STREAM_SECONDS, STEP_SECONDS, END_SECONDS = 1.0, 0.7, 2.5, 5.0

#: Quality of the JPEG images, and maximum size of the picture.
QUALITY, MAX_BYTES = 45, 600_000

_STYLE = """
#inspector, #top, #tabs, #toasts, .toolbar { display: none !important; }
main { grid-template-columns: 1fr 1fr !important; }
"""


@dataclass(frozen=True)
class Frame:
    """Pictures of the page's left and right half (JPEG), and their display time in seconds."""

    halves: tuple[bytes, bytes]
    seconds: float


class Camera:
    """Camera of one page: takes frames, and joins equal successive ones."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.frames: list[Frame] = []

    async def take(self, seconds: float) -> None:
        halves = await self._take_half(0), await self._take_half(WIDTH / 2)
        if self.frames and self.frames[-1].halves == halves:
            self.frames[-1] = Frame(halves, max(self.frames[-1].seconds, seconds))
        else:
            self.frames.append(Frame(halves, seconds))

    async def _take_half(self, x: float) -> bytes:
        clip = FloatRect(x=x, y=0, width=WIDTH / 2, height=HEIGHT)
        return await self._page.screenshot(type="jpeg", quality=QUALITY, clip=clip, animations="disabled")

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
            await expect(page.locator(f"#{pane} .welcome")).to_contain_text("#general")
        frames = await _play(page)
    svg = animate(frames)
    assert len(svg) < MAX_BYTES, f"{len(svg):,} bytes in {len(frames)} frames"
    (HERE / "tour.svg").write_text(svg)


async def _play(page: Page) -> list[Frame]:
    """Ask for a refund in Slack and for a report in Discord at once, and approve the refund.

    Returns:
        The frames of the tour.
    """
    camera = Camera(page)

    def expect_text(pane: str, text: str) -> Callable[[], asyncio.Future[None]]:
        return lambda: asyncio.ensure_future(expect(page.locator(f"#{pane} .messages")).to_contain_text(text))

    await page.fill("#slack-line", "@parley Refund order 1042.")
    await page.fill("#discord-line", "@parley How was this week?")
    await camera.take(START_SECONDS)
    await page.press("#discord-line", "Enter")
    await page.press("#slack-line", "Enter")
    await page.locator("#slack .replies .open").click()
    await page.mouse.move(0, 0)
    await camera.follow(expect_text("slack", "Deny"))
    await page.locator("#slack .button", has_text="Approve").click()
    await page.mouse.move(0, 0)
    await camera.follow(expect_text("slack", "Approved and done"))
    await camera.follow(expect_text("discord", "Regenerate"))
    await (
        page.locator("#discord .messages", has_text="This week")
        .get_by_text("This week")
        .last.scroll_into_view_if_needed()
    )
    await page.wait_for_timeout(FRAME_INTERVAL_MILLISECONDS)
    await camera.take(END_SECONDS)
    return camera.frames


def animate(frames: Sequence[Frame]) -> str:
    """Return an SVG that shows the frames in turn.

    With reduced motion it shows only the last one.
    """
    total = sum(frame.seconds for frame in frames)
    style, layers = [f".f {{ animation: {total:g}s step-end infinite; }}"], list[str]()
    for half in (0, 1):
        images = groupby(frames, lambda frame, half=half: frame.halves[half])  # type: ignore[misc]
        _add_half(
            ((image, sum(frame.seconds for frame in group)) for image, group in images), half, total, style, layers
        )
    rules = "\n".join(style)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n'
        f"<style>@media (prefers-reduced-motion: no-preference) {{\n{rules}\n}}</style>\n"
        + "\n".join(layers)
        + "\n</svg>\n"
    )


def _add_half(
    images: Iterable[tuple[bytes, float]], half: int, total: float, style: list[str], layers: list[str]
) -> None:
    """Add the rules and elements that show the images of one half in turn.

    Args:
        images: the images with their display times.
        half: 0 for the left half, 1 for the right one.
        total: display time of all images.
    """
    shown_at, place = 0.0, f'x="{half * WIDTH // 2}" width="{WIDTH // 2}" height="{HEIGHT}"'
    for number, (image, seconds) in enumerate(images):
        name = f"f{half}-{number}"
        start, end = (100 * at / total for at in (shown_at, shown_at + seconds))
        shown_at += seconds
        hidden = "0% { visibility: hidden; } " if number else ""
        style.append(
            f"@keyframes {name} {{ {hidden}{start:.3f}% {{ visibility: visible; }} "
            f"{end:.3f}%, 100% {{ visibility: hidden; }} }}"
        )
        style.append(f".{name} {{ animation-name: {name}; }}")
        data = base64.b64encode(image).decode()
        visibility = "" if shown_at >= total - 0.001 else ' visibility="hidden"'
        layers.append(f'<image class="f {name}" {place}{visibility} href="data:image/jpeg;base64,{data}"/>')


if __name__ == "__main__":
    asyncio.run(main())
