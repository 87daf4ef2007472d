"""HTTP requests to URLs on the public internet that a model, a tool or another server chose.

URLs of this machine, its network and its cloud are refused, also if a host name or a redirect leads there.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver
from yarl import URL

Address = IPv4Address | IPv6Address

_MAX_REDIRECTS = 5
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})

#: IPv6 prefixes with an IPv4 address in them, and the bits behind it: NAT64 (RFC 6052) and 6to4 (RFC 3056).
_NETWORKS_WITH_IPV4 = ((IPv6Network("64:ff9b::/96"), 0), (IPv6Network("2002::/16"), 80))

#: IPv4 networks that are not public: IANA's special-purpose registry, multicast, and Azure's virtual public address.
#: The tables of `ipaddress` differ between versions of Python.
_NOT_PUBLIC_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
        ),
    )
)

#: IANA assigns public IPv6 addresses from this network alone. Within it: protocol assignments and Teredo, and the two
#: networks of documentation.
_GLOBAL_V6 = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = (IPv6Network("2001::/23"), IPv6Network("2001:db8::/32"), IPv6Network("3fff::/20"))


class UrlRefusedError(Exception):
    """A URL must not be requested; the text is the reason."""


def is_public(address: Address) -> bool:
    """Return whether an address is public: not of this machine, its network or its cloud."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    for network, shift in _NETWORKS_WITH_IPV4:
        if address in network:
            return is_public(IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    return address in _GLOBAL_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


class _PublicResolver(AbstractResolver):
    """Resolver that raises `UrlRefusedError` if any address of a host is not allowed.

    aiohttp connects to the addresses that this resolver returns, so a name cannot change between check and connection.
    """

    def __init__(self, is_allowed: Callable[[Address], bool]) -> None:
        self._is_allowed = is_allowed
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        results = await self._resolver.resolve(host, port, family)
        if not all(self._is_allowed(ip_address(result["host"].partition("%")[0])) for result in results):
            raise UrlRefusedError("this address is not public")
        return results

    async def close(self) -> None:
        await self._resolver.close()


def open_session(is_allowed: Callable[[Address], bool] = is_public) -> aiohttp.ClientSession:
    """Return an HTTP client that connects to a host name only if all its addresses are allowed.

    The caller checks each URL by `check_url`, and follows no redirect without that.
    """
    connector = aiohttp.TCPConnector(resolver=_PublicResolver(is_allowed), use_dns_cache=False)
    return aiohttp.ClientSession(connector=connector, trust_env=False, headers={"User-Agent": "Parley"})


@asynccontextmanager
async def open_url(
    first_url: str, is_allowed: Callable[[Address], bool] = is_public
) -> AsyncIterator[tuple[str, aiohttp.ClientResponse]]:
    """Send a GET request to a URL, and follow at most 5 redirects; the caller limits the time.

    Args:
        first_url: the URL, of the scheme `http` or `https` and without a user name.
        is_allowed: returns whether an IP address may be connected to.

    Yields:
        The URL after all redirects, and the response to it, with any status. It is closed after the block.

    Raises:
        UrlRefusedError: the URL or a redirect is not allowed, or there are more redirects. If a host name leads to an
            address that is not allowed, it is the cause of an `aiohttp.ClientError`.
        aiohttp.ClientError, OSError, ValueError: the URL cannot be requested.
    """
    url = URL(first_url)
    async with open_session(is_allowed) as session:
        for _ in range(_MAX_REDIRECTS + 1):
            check_url(url, is_allowed)
            async with session.get(url, allow_redirects=False) as response:
                if response.status not in _REDIRECT_STATUSES or "Location" not in response.headers:
                    yield str(url), response
                    return
                url = url.join(URL(response.headers["Location"]))
    raise UrlRefusedError(f"the address redirects more than {_MAX_REDIRECTS} times")


async def read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return the first `max_bytes` of a response's body; the rest is not read."""
    body = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        body += piece
        if len(body) >= max_bytes:
            break
    return bytes(body[:max_bytes])


def check_url(url: URL, is_allowed: Callable[[Address], bool] = is_public) -> None:
    """Raise `UrlRefusedError` for another scheme than HTTP, a user name, or an IP address that is not allowed.

    Host names are checked when they are resolved. aiohttp does not resolve hosts of digits and dots, but connects to
    them as addresses: `127.1` is this machine.
    """
    if url.scheme not in ("http", "https") or not url.host or url.user is not None:
        raise UrlRefusedError("the url must begin with http:// or https:// and a host, without a user name")
    host = url.host.partition("%")[0]
    if ":" not in host and not host.replace(".", "").isdigit():
        return
    try:
        is_ok = is_allowed(ip_address(host))
    except ValueError:
        is_ok = False
    if not is_ok:
        raise UrlRefusedError("this address is not public")
