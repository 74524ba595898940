"""Just enough HTTP to be asked how a broker is: GET of a few pages, one request a connection."""

import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NoReturn

import attrs
import trio

from plait.broker.net.security import REALM, GuardedPages

REQUEST_BYTES_MAX: Final = 8 << 10
REQUEST_TIMEOUT_S: Final = 5.0
"""For the request and the answer together."""
CONNECTIONS_MAX: Final = 16
"""Those who ask are few, and say at once what they want: of more, the first is sent away."""


@attrs.frozen
class Page:
    """What a path answers."""

    content_type: str
    render: Callable[[], str]


async def serve_pages(
    listening: socket.socket, pages: Mapping[str, Page], guard: GuardedPages | None = None
) -> NoReturn:
    """Answer requests for ever; with a guard, those of who has shown who it is."""
    asking: dict[trio.SocketStream, trio.CancelScope] = {}

    async def converse(stream: trio.SocketStream) -> None:
        if len(asking) >= CONNECTIONS_MAX:
            asking.pop(next(iter(asking))).cancel()
        try:
            with trio.move_on_after(REQUEST_TIMEOUT_S) as asking[stream]:
                if guard is None:
                    await stream.send_all(_answer(await _read_request(stream), pages))
                else:
                    await _answer_safely(guard.wrap(stream), guard, pages)
        except trio.BrokenResourceError:
            pass  # whoever asked does not want to know any more
        finally:
            asking.pop(stream, None)

    # trio closes what it has served; a broker that starts again goes on listening.
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening.dup()))
    await trio.serve_listeners(converse, [listener])


async def _answer_safely(
    stream: trio.SSLStream[trio.SocketStream], guard: GuardedPages, pages: Mapping[str, Page]
) -> None:
    request = await _read_request(stream)
    if await guard.admits(stream, _authorization(request)):
        answer = _answer(request, pages)
    else:
        answer = _response(HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": REALM})
    await stream.send_all(answer)
    await stream.aclose()


def _authorization(request: bytes) -> str:
    """What a request says of who asks; empty if it says nothing."""
    for line in request.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "authorization":
            return value
    return ""


async def _read_request(stream: trio.abc.ReceiveStream) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request and len(request) <= REQUEST_BYTES_MAX:
        data = await stream.receive_some(REQUEST_BYTES_MAX)
        if not data:
            break
        request += data
    return request


def _answer(request: bytes, pages: Mapping[str, Page]) -> bytes:
    if len(request) > REQUEST_BYTES_MAX:
        return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or b"\r\n\r\n" not in request:
        return _response(HTTPStatus.BAD_REQUEST)
    method, target, _ = words
    page = pages.get(target.partition("?")[0])
    if page is None:
        return _response(HTTPStatus.NOT_FOUND)
    if method not in ("GET", "HEAD"):
        return _response(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})
    body = page.render().encode()
    response = _response(HTTPStatus.OK, {"Content-Type": page.content_type}, body)
    return response if method == "GET" else response.removesuffix(body)


def _response(
    status: HTTPStatus, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> bytes:
    if body is None:
        body = f"{status.value} {status.phrase}\n".encode()
    fields = {"Content-Type": "text/plain; charset=utf-8", **(headers or {})}
    fields |= {"Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
