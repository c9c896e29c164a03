"""Strings that would move a terminal's cursor or forge a line: what commands and the log print of them."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import unicodedata
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from durability.errors import ProtocolError, RefusedError
from durability.formats.case import Event, PastVerdict
from durability.formats.documents import to_value
from durability.formats.facts import TargetWarning
from durability.formats.packing import pack
from durability.protocol import messages
from durability.protocol.frame import frame
from durability_server.store.records import Registration, RunSnapshot, StoredRun
from durability_server.store.store import Store
from durability_server.store.target_keys import target_keys
from tests.sample_facts import drive, facts, file_system, host

if TYPE_CHECKING:
    from tests.server.conftest import Client, Lab, ServerProcess

pytestmark = pytest.mark.slow  # whole commands against a server

COMMAND = str(Path(sys.executable).with_name("durability"))
DEADLINE_S = 120
NEVER = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
# A title, colours, a C1 sequence, a bell, a reversal, what is invisible, and lines that look like others.
EVIL = "\x1b]0;owned\x07\x1b[31m\x9b2Jmodel\u202egnp\u200b\u2066\U000e0041\r\x85\u2028x\nverdict: durable"
LINE = EVIL.replace("\n", "")


def _raw(data: bytes) -> set[str]:
    """What must never be printed, in this output."""
    text = data.decode("utf-8", "surrogateescape").replace("\n", "")
    return {one for one in text if unicodedata.category(one) in NEVER}


def _durability(
    lab: Lab, server: ServerProcess, folder: Path, *arguments: str | bytes | Path
) -> tuple[int, bytes]:
    """A command's exit code and all that it printed, to stdout and stderr; the operator types it."""
    local = arguments[0] == "device" or "--from-export" in arguments
    done = subprocess.run(
        [COMMAND, *map(os.fsencode, arguments), *([] if local else _options(server))],
        env=_environment(lab),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_S,
    )
    return done.returncode, done.stdout


def _done(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def _options(server: ServerProcess) -> list[str]:
    host, port = server.address
    return ["--server", f"{host}:{port}"]


def _environment(lab: Lab) -> dict[str, str]:
    """With the server's local socket, and without a credential."""
    state = str(lab.directory.parent)
    return {**os.environ, "XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state, "COLUMNS": "300"}


def _store_evil(url: str, lab: Lab) -> str:
    """A run as a server that took any string stored it; its id."""
    plan = lab.plan()
    found = facts(
        path=f"/mnt/{EVIL}",
        path_in_file_system=EVIL,
        host=host(hostname=EVIL, kernel=EVIL),
        file_system=file_system(type=EVIL, source=EVIL, mount_point=EVIL, options=EVIL, uuid=EVIL),
        layers=(EVIL,),
        drives=(drive(name=EVIL, model=EVIL, serial=EVIL, firmware=EVIL, write_cache=EVIL),),
        warnings=(TargetWarning(code=EVIL, text=EVIL),),
    )
    store = Store(url)
    store.open()
    store.register(
        Registration(
            run=plan.run,
            client="",
            label=EVIL,
            plan=plan.encode(),
            secret=bytes(32),
            facts=found,
            keys=target_keys(found),
            path=EVIL,
            host=EVIL,
            wall=EVIL,
            writers=plan.writers,
        ),
        force=True,
    )
    snapshot = RunSnapshot(
        run=plan.run,
        finish="",
        session_end="silence",
        frontiers=(5, 5),
        control=0,
        last_receipt_ns=1,
        receipt_boot_id=EVIL,
        receipt_wall=EVIL,
        rtt_max_ns=0,
        gap_max_ns=0,
        tainted=EVIL,
        timeline=None,
        statistics=None,
        events=((1, Event(at_ns=1, wall=EVIL, kind=EVIL, text=EVIL)),),
    )
    stored = StoredRun(
        number=1,
        client="",
        label=EVIL,
        plan=plan.encode(),
        secret=bytes(32),
        keys=target_keys(found),
        host="",
        armed=to_value(found),
        series="",
        snapshot=snapshot,
    )
    store.arm(stored)
    store.save([snapshot])
    run = f"{plan.run:016x}"
    past = PastVerdict(
        run=run, verdict="inconclusive", cut_class="none", at_risk_ms1000=0, wall=EVIL, reasons=()
    )
    document: dict[str, Any] = {
        "verdict": EVIL,
        "cut": {"class": EVIL},
        "reasons": [{"text": EVIL}, {"code": EVIL}, EVIL, 7, None],
    }
    store.add_verdict(past, document)
    store.add_evidence(plan.run, EVIL, b"")
    store.close()
    return run


async def test_what_is_stored_is_printed_plain(
    lab: Lab, sqlite_url: str, server_process: Callable[[str], Awaitable[ServerProcess]], tmp_path: Path
) -> None:
    """A store that an earlier release filled with any strings: no command prints one of them raw, as text, as
    JSON, as JUnit or in an error, and neither does the log."""
    run = _store_evil(sqlite_url, lab)
    server = await server_process(sqlite_url)
    shown = (("runs",), ("runs", "--all"), ("runs", "--json"), ("show", run), ("show", run, "--json"))
    for arguments in (*shown, ("export", run)):
        code, printed = _durability(lab, server, tmp_path, *arguments)
        assert (code, _raw(printed)) == (0, set()), arguments
        assert b"owned" in printed
    lines = _durability(lab, server, tmp_path, "runs", "--all")[1].decode().splitlines()
    assert len(lines) == 2
    text = _durability(lab, server, tmp_path, "show", run)[1].decode()
    assert not [line for line in text.splitlines() if line.startswith("verdict: ")]

    export, report, target = tmp_path / "case.json", tmp_path / "report.xml", tmp_path / "target"
    assert _durability(lab, server, tmp_path, "export", run, "-o", export)[0] == 0
    assert not _raw(export.read_bytes())
    raw = json.loads(export.read_text())
    raw["label"] = raw["tainted"] = raw["events"][0]["text"] = raw["armed"]["path"] = EVIL
    export.write_text(json.dumps(raw))
    target.write_bytes(bytes(4096))
    for more in ((), ("--json",), ("--junit", report)):
        code, printed = _durability(lab, server, tmp_path, "verify", target, "--from-export", export, *more)
        assert code in (3, 4, 5) and printed
        assert not _raw(printed)
    assert not report.exists() or not _raw(report.read_bytes())
    assert not _raw(server.log.encode())


async def test_a_document_with_such_a_string_is_refused(
    lab: Lab, sqlite_url: str, server_process: Callable[[str], Awaitable[ServerProcess]]
) -> None:
    """A message with a string that is not plain text is refused with the field's name and one plain log line.
    An honest run goes on."""
    server = await server_process(sqlite_url)
    honest = await lab.connect(server.address)
    await honest.begin(lab.plan(run=9), lab.facts(serial="S9", uuid="uuid-9"))
    plan = lab.plan()
    document = to_value(lab.facts())
    for facts_of in ({**document, "path": EVIL}, {**document, EVIL: 1}, {**document, "layers": [EVIL]}):
        client = await lab.connect(server.address)
        body = pack([0x10, plan.run, plan.encode(), facts_of, bytes(32), "label", False])
        said = await _refusal(client, body)
        assert "Register: facts: expected plain text" in said
    for body, what in (
        (pack([0x10, plan.run, plan.encode(), document, bytes(32), LINE, False]), "label: expected one line"),
        (pack([0x10, plan.run, plan.encode(), {"a": [{EVIL: [b""]}]}, bytes(32), "", False]), "facts"),
        (pack([0x10, plan.run, plan.encode(), {**document, "kind": "\x1b"}, bytes(32), "", False]), "facts"),
    ):
        client = await lab.connect(server.address)
        assert what in await _refusal(client, body)
    client = await lab.connect(server.address)
    client.say_bytes(frame(pack([0x05, "internal", EVIL])))
    await client.ended()
    await honest.acknowledge(1, 1)
    assert not _raw(server.log.encode())
    assert "verdict: durable" not in [line[:16] for line in server.log.splitlines()]


async def _refusal(client: Client, body: bytes) -> str:
    client.say_bytes(frame(body))
    with pytest.raises((ProtocolError, RefusedError)) as refused:
        await client.get(messages.Accepted)
    return str(refused.value)


async def test_a_strange_machine_can_be_tested(lab: Lab, sqlite_url: str) -> None:
    """Strange names of a drive or host prevent no test. The sender makes them plain both at arming and in
    verify, so the run is found again."""
    running = await lab.start(sqlite_url)
    found = facts(
        path=f"/mnt/{LINE}", host=host(hostname=EVIL), drives=(drive(model=EVIL, serial=EVIL, name=EVIL),)
    )
    plan = lab.plan()
    client = await lab.connect(running.address)
    await client.begin(plan, found)
    await client.acknowledge(1, 1)
    client.vanish()
    client.reset()
    verifier = await lab.connect(running.address, "verify")
    case = await verifier.fetch(0, found)
    assert case.run == f"{plan.run:016x}"
    assert case.armed is not None
    assert case.armed.host.hostname.startswith(r"\x1b]0;owned\x07\x1b[31m\x9b2Jmodel\u202egnp\u200b")


@pytest.mark.lab
async def test_a_target_with_a_strange_name_is_tested(
    lab: Lab, sqlite_url: str, server_process: Callable[[str], Awaitable[ServerProcess]], tmp_path: Path
) -> None:
    """`device`, `run` and `verify` work on a target whose path has control characters, line separators or
    invalid UTF-8, and print none of them raw."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    server = await server_process(sqlite_url)
    image = tmp_path / "terminals.img"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    await asyncio.to_thread(_done, "mkfs.ext4", "-q", image)
    place = tmp_path / (LINE.replace("/", "") + "\x1c\x0b\udcff")
    place.mkdir()
    await asyncio.to_thread(_done, "mount", "-o", "loop", image, place)
    try:
        target = place / "target\udc80\x1b[5m\u202e\n"
        code, printed = _durability(lab, server, tmp_path, "device", target)
        assert (code, _raw(printed)) == (0, set())
        assert rb"\x1b]0;owned" in printed and rb"\udc80" not in printed
        code, printed = _durability(lab, server, tmp_path, "device", target, "--json")
        assert (code, _raw(printed)) == (0, set())
        arguments = ("--size", "1MiB", "--duration", "1", "--force")
        code, printed = _durability(lab, server, tmp_path, "run", target, *arguments)
        assert (code, _raw(printed)) == (0, set()), printed
        code, printed = _durability(lab, server, tmp_path, "verify", target, "--attest-cut", "test")
        assert (code, _raw(printed)) == (4, set()), printed
        assert b"INCONCLUSIVE" in printed
        wrong: tuple[tuple[str | Path, ...], ...] = (
            ("runs",),
            ("verify", place / "no\x1b[5m"),
            ("run", place),
        )
        for words in wrong:
            code, printed = _durability(lab, server, tmp_path, *words)
            assert printed and not _raw(printed), words
        assert not _raw(server.log.encode())
    finally:
        await asyncio.to_thread(_done, "umount", place)


async def test_a_terminal_gets_no_sequence_of_a_stranger(
    lab: Lab, sqlite_url: str, server_process: Callable[[str], Awaitable[ServerProcess]], tmp_path: Path
) -> None:
    """On a real terminal, where colours and cursor movements of our own are printed too."""
    run = _store_evil(sqlite_url, lab)
    server = await server_process(sqlite_url)
    options = _options(server)
    listings = (("runs", *options), ("runs", "--all", *options))
    for arguments in (*listings, ("show", run, *options), ("bench", "--show", f"/none/{LINE}")):
        printed = _on_terminal(_environment(lab), COMMAND, *arguments)
        assert b"owned" in printed
        for evil in ("\x1b]", "\x07", "\x9b", "\u202e", "\u200b", "\u2028", "\x85", "\x1b[31mmodel"):
            assert evil.encode() not in printed, arguments


def _on_terminal(environment: dict[str, str], *command: str) -> bytes:
    """What a command prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        printed = b""
        try:
            while data := os.read(ours, 1 << 16):
                printed += data
        except OSError:  # how a terminal says that it is closed
            pass
        process.wait(DEADLINE_S)
    os.close(ours)
    return printed
