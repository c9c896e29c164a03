"""Devices that switch power: smart plugs that speak their documented HTTP, and programs of others that play a
server's BMC with Redfish, and a PDU with SNMP."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from durability.campaign.definition.settings import Power, PowerKind
from durability.campaign.log_entries import Operation
from durability_server.power.controller import Controller
from tests.waiting import wait_for

BIN = Path(sys.executable).parent
TIMEOUT_S = 120.0


def power(kind: PowerKind, agent: str = "", /, **options: str) -> Power:
    """A switch, with time enough for a machine that is busy."""
    return Power(kind=kind, agent=agent, options=options, timeout_s=TIMEOUT_S, machine="")


def within(timeout_s: float, switch: Power) -> Power:
    """The same switch with less time."""
    return replace(switch, timeout_s=timeout_s)


async def hung(controller: Controller, switch: Power, operation: Operation, begun: Callable[[], bool]) -> str:
    """What the answer says of a request that hangs: it has failed. One that had not `begun` when its 5 s were
    over, because the machine stood still, is made again."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            answer = await controller.ask(within(5, switch), operation)
            assert answer.outcome == "failed"
            if begun():
                return answer.text


def secret_file(directory: Path, secret: str, *, mode: int = 0o600) -> str:
    """The path of a new file that holds a secret."""
    path = directory / f"secret-{secrets.token_hex(4)}"
    path.write_text(f"{secret}\n", encoding="utf-8")
    path.chmod(mode)
    return str(path)


class Plug(ThreadingHTTPServer):
    """What smart plugs share. `requests` are the paths and bodies that came. With `obeys` False the plug says
    yes and does nothing; while `answering` is not set, it takes requests and does not answer."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], *, relays: int = 1, password: str = "") -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.is_on = [True] * relays
        self.password = password
        self.obeys = True
        self.answering = threading.Event()
        self.answering.set()
        self.requests: list[str] = []
        self.nonces: set[str] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def switch(self, relay: int, on: bool) -> None:
        if self.obeys:
            self.is_on[relay] = on


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Plug

    def log_message(self, format: str, *values: object) -> None:
        """Nothing."""

    def answer(self, status: int, value: object, **headers: str) -> None:
        body = json.dumps(value).encode() if value is not None else b""
        self.server.answering.wait(TIMEOUT_S)
        with suppress(OSError):
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name.replace("_", "-"), text)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


class Tasmota(_Handler):
    """https://tasmota.github.io/docs/Commands: `/cm?cmnd=Power1%20off`."""

    def do_GET(self) -> None:
        plug = self.server
        plug.requests.append(self.path)
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path != "/cm":
            self.answer(404, None)
        elif plug.password and (query.get("user"), query.get("password")) != ("admin", plug.password):
            self.answer(401, {"WARNING": "Need user=<username>&password=<password>"})
        else:
            self.answer(200, self._done(query.get("cmnd", "")))

    def _done(self, command: str) -> dict[str, str]:
        found = re.fullmatch(r"power(\d*)(?: (on|off))?", command.lower())
        if found is None:
            return {"Command": "Unknown"}
        relay = int(found[1] or "1") - 1
        if relay >= len(self.server.is_on):
            return {"Command": "Error"}
        if found[2]:
            self.server.switch(relay, found[2] == "on")
        name = "POWER" if len(self.server.is_on) == 1 else f"POWER{relay + 1}"
        return {name: "ON" if self.server.is_on[relay] else "OFF"}


class Shelly(_Handler):
    """https://shelly-api-docs.shelly.cloud/gen2: JSON-RPC by POST to `/rpc`, with digest authentication by
    SHA-256 (RFC 7616) for the user admin."""

    REALM: ClassVar = "shellyplus1-a8032ab12345"

    def do_POST(self) -> None:
        plug = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        plug.requests.append(f"{self.path} {body.decode()}")
        if plug.password and not self._is_known():
            nonce = secrets.token_hex(8)
            plug.nonces.add(nonce)
            challenge = f'Digest qop="auth", realm="{self.REALM}", nonce="{nonce}", algorithm=SHA-256'
            self.answer(401, None, WWW_Authenticate=challenge)
        elif self.path != "/rpc":
            self.answer(404, None)
        else:
            self._call(json.loads(body))

    def _call(self, request: dict[str, Any]) -> None:
        frame = {"id": request["id"], "src": self.REALM}
        switch = request["params"]["id"]
        if switch >= len(self.server.is_on):
            text = f"Argument 'id', value {switch} not found!"
            self.answer(500, {**frame, "error": {"code": -105, "message": text}})
            return
        was_on = self.server.is_on[switch]
        if request["method"] == "Switch.Set":
            self.server.switch(switch, request["params"]["on"])
            self.answer(200, {**frame, "result": {"was_on": was_on}})
        else:
            self.answer(200, {**frame, "result": {"id": switch, "source": "HTTP_in", "output": was_on}})

    def _is_known(self) -> bool:
        given = self.headers.get("Authorization", "")
        values = {name: text.strip('"') for name, text in re.findall(r'(\w+)=("[^"]*"|[^",\s]+)', given)}
        if values.get("nonce") not in self.server.nonces or values.get("username") != "admin":
            return False
        first = _sha256(f"admin:{self.REALM}:{self.server.password}")
        second = _sha256(f"{self.command}:{values['uri']}")
        middle = ":".join(values[name] for name in ("nonce", "nc", "cnonce", "qop"))
        return bool(values["response"] == _sha256(f"{first}:{middle}:{second}"))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def plug(handler: type[_Handler], *, relays: int = 1, password: str = "") -> Iterator[Plug]:
    """A plug that listens within the block."""
    with Plug(handler, relays=relays, password=password) as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            served.answering.set()
            served.shutdown()
            thread.join()


@contextmanager
def redfish_bmc(directory: Path, *, username: str, password: str) -> Iterator[dict[str, str]]:
    """sushy-emulator with its driver for no machine at all; yields the options for fence_redfish, without
    the password. Its certificate is its own."""
    import bcrypt  # noqa: PLC0415 - comes with sushy-tools

    (directory / "users").write_text(
        f"{username}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()}\n"
    )
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bmc"),
            *("-keyout", directory / "key.pem", "-out", directory / "certificate.pem"),
        ],
        check=True,
        capture_output=True,
    )
    (directory / "emulator.conf").write_text(
        f"SUSHY_EMULATOR_AUTH_FILE = {str(directory / 'users')!r}\n"
        f"SUSHY_EMULATOR_SSL_CERT = {str(directory / 'certificate.pem')!r}\n"
        f"SUSHY_EMULATOR_SSL_KEY = {str(directory / 'key.pem')!r}\n"
        f"SUSHY_EMULATOR_STATE_DIR = {str(directory)!r}\n"
    )
    port = _free_port(socket.SOCK_STREAM)
    command: list[str | Path] = [BIN / "sushy-emulator", "--fake"]
    command += ["--config", directory / "emulator.conf"]
    with _running([*command, "--interface", "127.0.0.1", "--port", str(port)], directory / "emulator.log"):
        wait_for(lambda: _accepts(port), (directory / "emulator.log").read_text)
        yield {"ip": "127.0.0.1", "ipport": str(port), "username": username, "ssl_insecure": "1"}


@contextmanager
def snmp_pdu(directory: Path, *, community: str, outlets: int) -> Iterator[dict[str, str]]:
    """snmpsim as an APC MasterSwitch whose outlets are on; yields the options for fence_apc_snmp, without
    the community."""
    outlet = "1.3.6.1.4.1.318.1.1.4.4.2.1.3"
    lines = ["1.3.6.1.2.1.1.2.0|6|1.3.6.1.4.1.318.1.3.4.9"]
    lines += [f"{outlet}.{number}|2:writecache|value=1" for number in range(1, outlets + 1)]
    data, cache = directory / "data", directory / "cache"
    data.mkdir()
    cache.mkdir()
    (data / f"{community}.snmprec").write_text("\n".join([*lines, ""]))
    port = _free_port(socket.SOCK_DGRAM)
    user = ["--process-user=root", "--process-group=root"] if os.geteuid() == 0 else []
    command: list[str | Path] = [BIN / "snmpsim-command-responder", *user]
    command += [f"--data-dir={data}", f"--cache-dir={cache}"]
    log = directory / "snmpsim.log"
    with _running([*command, f"--agent-udpv4-endpoint=127.0.0.1:{port}"], log):
        wait_for(lambda: "Listening at UDP" in log.read_text(), log.read_text)
        yield {"ip": "127.0.0.1", "ipport": str(port)}


@contextmanager
def _running(command: Sequence[str | Path], log: Path) -> Iterator[None]:
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
