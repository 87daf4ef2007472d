"""Tool `read_page`, which fetches web pages."""

import asyncio
import gzip
import ipaddress
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from core.tools.builtin import page_text
from core.tools.builtin.page_text import decode
from core.tools.builtin.read_page import MAX_CHARACTERS, PageReader
from core.tools.public_web import is_public

PAGE = (
    "<html><head><title>T</title><style>p{}</style></head>"
    "<body><h1>Hours</h1><p>Open at <b>nine</b>.</p><script>x()</script></body></html>"
)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1"),
        *("::ffff:a00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:c0a8:101::"),
        *("192.0.0.8", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
        *("168.63.129.16", "100.100.100.200", "240.0.0.1", "64:ff9b:1::a9fe:a9fe", "64:ff9b::a83f:8110"),
        *("fec0::1", "::7f00:1", "::808:808", "::ffff:0:7f00:1", "::ffff:0:808:808", "5f00::1", "3fff::1"),
        *("2001::1", "2001:2::1", "2001:db8::1", "100::1", "fd00:ec2::254", "4000::1"),
    ],
)
def test_private_and_reserved_addresses_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "168.63.129.17",
        "192.0.1.1",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@asynccontextmanager
async def serve(**handlers: Any) -> AsyncIterator[str]:
    app = web.Application()
    for name, handler in handlers.items():
        app.router.add_get(f"/{name}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def allow_all(_address: object) -> bool:
    return True


async def test_a_page_is_returned_as_text() -> None:
    pytest.importorskip("html_to_markdown")

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def redirect(_request: web.Request) -> web.Response:
        raise web.HTTPFound("/page")

    async with serve(page=page, redirect=redirect) as origin:
        result = await PageReader(allow_all)({"url": f"{origin}/redirect"})
    assert result["url"] == f"{origin}/page"
    assert "# Hours" in result["text"]
    assert "nine" in result["text"]
    assert "x()" not in result["text"]


async def test_long_slow_binary_and_looping_pages_are_errors_or_truncated() -> None:
    never = asyncio.Event()

    async def long(_request: web.Request) -> web.Response:
        return web.Response(text="x" * 5_000_000)

    async def bomb(_request: web.Request) -> web.Response:
        body = gzip.compress(b"x" * 50_000_000)
        return web.Response(body=body, content_type="text/plain", headers={"Content-Encoding": "gzip"})

    async def slow(_request: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    async def picture(_request: web.Request) -> web.Response:
        return web.Response(body=b"\x89PNG", content_type="image/png")

    async def redirect_loop(_request: web.Request) -> web.Response:
        raise web.HTTPFound("/redirect_loop")

    async def odd(_request: web.Request) -> web.Response:
        return web.Response(body=b"caf\xe9", headers={"Content-Type": "text/plain; charset=no-such"})

    async def missing(_request: web.Request) -> web.Response:
        raise web.HTTPNotFound

    read, hasty = PageReader(allow_all, timeout_seconds=60), PageReader(allow_all, timeout_seconds=3)
    async with serve(
        long=long, bomb=bomb, slow=slow, picture=picture, redirect_loop=redirect_loop, odd=odd, missing=missing
    ) as origin:
        names = ("long", "bomb", "picture", "redirect_loop", "odd", "missing")
        results = dict(zip(names, [await read({"url": f"{origin}/{name}"}) for name in names], strict=True))
        results["slow"] = await hasty({"url": f"{origin}/slow"})
        never.set()
    assert [(results[name]["cut"], len(results[name]["text"])) for name in ("long", "bomb")] == [
        (True, MAX_CHARACTERS)
    ] * 2
    assert results["picture"]["error"] == "the address is no web page but image/png"
    assert results["redirect_loop"]["error"].startswith("the address redirects more than")
    assert results["odd"]["text"] == "caf\ufffd"
    assert results["missing"]["error"] == "the page answers with status 404"
    assert results["slow"]["error"] == "the page did not load within 3 seconds"


def _punycode() -> bytes:
    """Return a body that Python's punycode codec decodes for minutes."""
    return b"a" * 1_000_000 + b"-" + b"b9" * 450_000


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "zlib", "zip", "unicode_escape", "utf-7", "rot13", "undefined"]
)
async def test_a_charset_that_no_page_has_is_read_as_utf_8(charset: str) -> None:
    assert decode("café".encode(), charset) == "café"

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=_punycode(), headers={"Content-Type": f"text/plain; charset={charset}"})

    async with serve(page=page) as origin:
        result = await PageReader(allow_all)({"url": f"{origin}/page"})
    assert result["text"] == "a" * MAX_CHARACTERS


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        *(("utf-8", "café"), ("UTF-16", "café"), ("ISO-8859-1", "café"), ("windows-1252", "café"), ("euc-kr", "한국")),
        *(("euc-jp", "日本"), ("Shift_JIS", "日本"), ("gb18030", "中国"), ("gb2312", "中国"), ("big5", "中國")),
    ],
)
def test_a_page_is_decoded_by_its_charset(charset: str, text: str) -> None:
    assert decode(text.encode(charset), charset) == text


async def test_a_page_that_is_no_text_is_an_error() -> None:
    pytest.importorskip("html_to_markdown")

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=b"\0" * 1_000, content_type="text/html")

    async with serve(page=page) as origin:
        result = await PageReader(allow_all)({"url": f"{origin}/page"})
    assert result == {"error": "the page cannot be converted to text"}


@pytest.mark.parametrize("ends", ["time limit", "cancellation"])
async def test_the_process_that_converts_a_page_ends_with_the_call(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "endless.py"
    endless.write_text("while True: pass")
    monkeypatch.setattr(page_text, "__file__", str(endless))
    processes = asyncio.Queue[asyncio.subprocess.Process]()
    create = asyncio.create_subprocess_exec

    async def create_and_record(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*command, **options)
        processes.put_nowait(process)
        return process

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="x")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_and_record)
    async with serve(page=page) as origin:
        read = PageReader(allow_all, timeout_seconds=2 if ends == "time limit" else 60)
        reading = asyncio.create_task(read({"url": f"{origin}/page"}))
        process = await processes.get()
        if ends == "time limit":
            assert await reading == {"error": "the page did not load within 2 seconds"}
        else:
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
    assert process.returncode == -signal.SIGKILL
