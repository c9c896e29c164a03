"""A program with the contract of fence agents for smart plugs: Tasmota, and Shelly Gen2 and later.

    python -m durability_server.power.plug_agent KIND URL

Options are `name=value` lines on stdin: `action` (on, off, status), `relay`, `switch`, `username`,
`password`. Exit code 0: done, or on; 2: off; 1: failed. It does not follow redirects or use proxies, which
would send a password elsewhere. A connection is reset when it closes, so the kernel sends no more of a
request once this process is gone. The process that starts it limits its time.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPDigestAuth
from urllib3.connection import HTTPConnection

ON, OFF, FAILED = 0, 2, 1
_BYTES_MAX = 64 << 10
_RESET_ON_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

# Asks the switch at a URL, with options, for an action. Returns whether the switch is on.
_Ask: TypeAlias = Callable[[str, Mapping[str, str]], bool]


class PlugError(Exception):
    """The switch did not do what it was asked. The message says what it did."""


def main() -> None:
    """Does one action. Ends the process with its exit code."""
    kind, url = sys.argv[1:]
    lines = (line.rstrip("\n").partition("=") for line in sys.stdin)
    options = {name: _unquoted(value) for name, _, value in lines}
    action = options["action"]
    try:
        is_on = _ASK[kind](url, options)
    except PlugError as error:
        print(error, file=sys.stderr)
        sys.exit(FAILED)
    except (requests.RequestException, OSError) as error:
        print(f"no answer from {url}: {_innermost(error)}", file=sys.stderr)
        sys.exit(FAILED)
    print(f"it says that it is {'on' if is_on else 'off'}")
    if action == "status":
        sys.exit(ON if is_on else OFF)
    sys.exit(ON if is_on == (action == "on") else FAILED)


def _tasmota(url: str, options: Mapping[str, str]) -> bool:
    relay = options.get("relay", "1")
    action = options["action"]
    query = {"cmnd": f"Power{relay}" if action == "status" else f"Power{relay} {action}"}
    if "password" in options:
        query = {"user": options.get("username", "admin"), "password": options["password"], **query}
    encoded = urllib.parse.urlencode(query, quote_via=urllib.parse.quote)
    status, body = _exchange("GET", f"{url}/cm?{encoded}")
    value = _parsed(status, body)
    names = [f"POWER{relay}", *(["POWER"] if relay == "1" else [])]  # a plug with one relay omits the 1
    state = next((value[name] for name in names if name in value), None)
    if state in {"ON", "OFF"}:
        return bool(state == "ON")
    if status == 401 or "WARNING" in value:
        raise PlugError(f"it does not take this password: {_shown(body)}")
    raise PlugError(f"it does not say whether relay {relay} is on (HTTP {status}): {_shown(body)}")


def _shelly(url: str, options: Mapping[str, str]) -> bool:
    switch = int(options.get("switch", "0"))
    authentication = HTTPDigestAuth("admin", options["password"]) if "password" in options else None
    action = options["action"]

    def call(method: str, **parameters: Any) -> Any:
        request = {"id": 1, "src": "durability", "method": method, "params": {"id": switch, **parameters}}
        status, body = _exchange("POST", f"{url}/rpc", body=request, authentication=authentication)
        if status == 401:
            hint = "does not take this password" if authentication else "asks for one: set password_file"
            raise PlugError(f"it has a password and {hint} (HTTP 401)")
        value = _parsed(status, body)
        if status != 200 or not isinstance(value.get("result"), dict):
            raise PlugError(f"it refused {method} of switch {switch} (HTTP {status}): {_shown(body)}")
        return value["result"]

    if action != "status":
        call("Switch.Set", on=action == "on")
    output = call("Switch.GetStatus").get("output")
    if not isinstance(output, bool):
        raise PlugError(f"it does not say whether switch {switch} is on")
    return output


_ASK: Final[Mapping[str, _Ask]] = {"tasmota": _tasmota, "shelly": _shelly}


class _Adapter(HTTPAdapter):
    """Connections that are reset when they close, so that no data are sent afterwards."""

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        options = [*HTTPConnection.default_socket_options, _RESET_ON_CLOSE]
        super().init_poolmanager(*args, socket_options=options, **more)


def _exchange(
    method: str,
    url: str,
    *,
    body: Mapping[str, Any] | None = None,
    authentication: HTTPDigestAuth | None = None,
) -> tuple[int, bytes]:
    """One request. Returns the status and the beginning of the body."""
    with requests.Session() as session:
        session.trust_env = False
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter())
        with session.request(
            method, url, json=body, auth=authentication, allow_redirects=False, stream=True
        ) as response:
            return response.status_code, response.raw.read(_BYTES_MAX, decode_content=True)


def _parsed(status: int, body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise PlugError(f"it does not answer as such a switch does (HTTP {status}): {_shown(body)}")
    return value


def _shown(body: bytes) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", body.decode(errors="replace")).split())[:200] or "(nothing)"


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _innermost(error: BaseException) -> str:
    """The system's error message. The outer messages repeat the URL, which may have a password."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return str(getattr(error, "strerror", None) or type(error).__name__)


if __name__ == "__main__":
    main()
