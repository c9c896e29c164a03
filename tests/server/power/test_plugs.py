"""Tasmota and Shelly plugs, over the HTTP that their makers document."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from durability.campaign.definition.settings import PowerKind
from durability_server.power.controller import Controller
from tests.server.power.devices import Shelly, Tasmota, hung, plug, power, secret_file
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

SECRET = 'j&k e=r+%"ü'

# How each kind names an outlet, counted from 0.
OUTLETS: dict[PowerKind, Callable[[int], dict[str, str]]] = {
    "tasmota": lambda outlet: {"relay": str(outlet + 1)},
    "shelly": lambda outlet: {"switch": str(outlet)},
}
KINDS: list[tuple[PowerKind, Any]] = [("tasmota", Tasmota), ("shelly", Shelly)]
both = pytest.mark.parametrize(("kind", "handler"), KINDS, ids=["tasmota", "shelly"])


@both
@pytest.mark.parametrize("password", ["", SECRET], ids=["open", "password"])
async def test_a_plug_is_switched(
    controller: Controller, tmp_path: Path, kind: PowerKind, handler: Any, password: str
) -> None:
    """A plug with one relay goes off and on, with a password and without, and says its state."""
    options = {"password_file": secret_file(tmp_path, password)} if password else {}
    with plug(handler, password=password) as served:
        switch = power(kind, served.address, **options)
        outcomes = []
        for operation in ("check", "off", "status", "off", "on", "check"):
            answer = await controller.ask(switch, operation)
            assert password == "" or password not in answer.text
            outcomes.append((answer.outcome, served.is_on[0]))
        assert outcomes == [
            *(("on", True), ("done", False), ("off", False)),
            *(("done", False), ("done", True), ("on", True)),
        ]


@both
async def test_only_the_relay_that_is_meant_is_switched(
    controller: Controller, kind: PowerKind, handler: Any
) -> None:
    """Only the chosen relay of several is switched; a relay that does not exist is an error."""
    with plug(handler, relays=3) as served:
        assert (
            await controller.ask(power(kind, served.address, **OUTLETS[kind](1)), "off")
        ).outcome == "done"
        assert served.is_on == [True, False, True]
        answer = await controller.ask(power(kind, f"http://{served.address}/", **OUTLETS[kind](7)), "off")
        assert answer.outcome == "failed"
        assert served.is_on == [True, False, True]


@both
async def test_a_wrong_password_is_told(
    controller: Controller, tmp_path: Path, kind: PowerKind, handler: Any
) -> None:
    """A password that the plug does not take, or that is missing, fails the request with a hint."""
    wrong = secret_file(tmp_path, "wrong password")
    with plug(handler, password=SECRET) as served:
        answer = await controller.ask(power(kind, served.address, password_file=wrong), "off")
        assert (answer.outcome, "not take this password" in answer.text) == ("failed", True)
        assert "wrong password" not in answer.text
        answer = await controller.ask(power(kind, served.address), "off")
        assert (answer.outcome, "password" in answer.text) == ("failed", True)
        assert served.is_on == [True]


@both
async def test_a_plug_that_does_not_obey_has_failed(
    controller: Controller, kind: PowerKind, handler: Any
) -> None:
    """A plug that accepts a request but does not change its state has failed, whatever it reports."""
    with plug(handler) as served:
        served.obeys = False
        answer = await controller.ask(power(kind, served.address), "off")
        assert answer.outcome == "failed"
        assert answer.text == "it says that it is on (exit code 1)"


@both
async def test_a_plug_that_hangs_fails_in_time(controller: Controller, kind: PowerKind, handler: Any) -> None:
    """A plug that does not answer fails the request after its time; once it answers it can be asked again."""
    with plug(handler) as served:
        served.answering.clear()
        text = await hung(controller, power(kind, served.address), "status", lambda: bool(served.requests))
        assert "no answer within 5 s" in text
        served.answering.set()
        assert (await controller.ask(power(kind, served.address), "status")).outcome == "on"


@both
async def test_nobody_there_is_told(
    controller: Controller, tmp_path: Path, kind: PowerKind, handler: Any
) -> None:
    """Where nothing listens, the answer names the address and the system's reason, and no password."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        switch = power(kind, address, password_file=secret_file(tmp_path, SECRET))
        answer = await controller.ask(switch, "off")
    assert answer.outcome == "failed"
    assert answer.text == f"no answer from http://{address}: Connection refused (exit code 1)"


@pytest.mark.parametrize(
    ("kind", "agent", "options", "text"),
    [
        ("tasmota", "192.0.2.7", {"switch": "1"}, "tasmota has no option switch"),
        ("tasmota", "192.0.2.7", {"password": "x"}, "no option password: did you mean password_file?"),
        ("shelly", "192.0.2.7", {"switch": "one"}, "expected a number"),
        ("shelly", "http://admin:secret@192.0.2.7", {}, "the address holds a user or a password"),
        ("shelly", "http://192.0.2.7/rpc", {}, "is not an address"),
        ("tasmota", "ftp://192.0.2.7", {}, "is not an address"),
        ("tasmota", "", {}, "is not an address"),
        ("tasmota", "192.0.2.7:port", {}, "is not an address"),
    ],
)
async def test_what_is_no_plug_is_refused(
    controller: Controller, kind: PowerKind, agent: str, options: dict[str, str], text: str
) -> None:
    """Options and addresses that cannot be are refused before anything is asked."""
    for operation in ("check", "off"):
        answer = await controller.ask(power(kind, agent, **options), operation)
        assert answer.outcome == "failed"
        assert text in answer.text
        assert "admin:secret" not in answer.text


async def test_a_shelly_password_never_crosses_the_wire(controller: Controller, tmp_path: Path) -> None:
    """Digest authentication sends no password, and each request is asked for the switch alone."""
    with plug(Shelly, password=SECRET) as served:
        switch = power("shelly", served.address, password_file=secret_file(tmp_path, SECRET))
        assert (await controller.ask(switch, "off")).outcome == "done"
        asked = {json.loads(request.split(" ", 1)[1])["method"] for request in served.requests}
        assert asked == {"Switch.Set", "Switch.GetStatus"}
        assert not any(SECRET in request for request in served.requests)


async def test_other_requests_go_on_while_a_plug_hangs(controller: Controller) -> None:
    """One plug that does not answer keeps no other waiting."""
    with plug(Tasmota) as hanging, plug(Tasmota) as other:
        hanging.answering.clear()
        slow = asyncio.create_task(controller.ask(power("tasmota", hanging.address), "off"))
        await asyncio.to_thread(wait_for, lambda: bool(hanging.requests))
        assert (await controller.ask(power("tasmota", other.address), "off")).outcome == "done"
        assert not slow.done()
        hanging.answering.set()
        assert (await slow).outcome == "done"
