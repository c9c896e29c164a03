"""Real clients that say nothing more: frozen beside a working kernel, cut off with it, or behind a proxy."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from durability.evidence.cut import outlived
from durability.evidence.judge import Attestation, Found, judge
from durability.evidence.outcome import Outcome, Requirements
from durability.formats.case import Case, case_from_value
from durability.formats.plan import Plan
from durability.protocol.messages import CaseFile, Export
from durability.units import parse_address
from durability_client.link.server_connection import connect
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.scan.scan_base import ScanJob, ScanListener
from durability_client.verify.scan.scan_child import scan_here
from durability_client.verify.scan.target_reader import read_superblocks
from durability_lab.support.local_server import LocalServer, local_server
from durability_lab.support.tcp_proxy import TcpProxy
from durability_server.runs.run import Run
from tests.waiting import until

COMMAND = str(Path(sys.executable).with_name("durability"))
OPERATIONS = 200
NETWORK = f"198.18.{100 + os.getpid() % 100}"  # of this process alone
ADDRESS = f"{NETWORK}.1"  # of the server, towards a machine of its own
LISTENS = f"{ADDRESS}/30"
CLIENTS = f"{NETWORK}.2/30"

pytestmark = [
    pytest.mark.slow,  # a connection is given up after ten seconds
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what the other kernel says"),
]


class Writer:
    """`durability run` with processes of its own; `within`: the command that starts it elsewhere."""

    def __init__(self, lab: LocalServer, target: Path, address: str, within: Sequence[str] = ()) -> None:
        command = (*within, COMMAND, "run", str(target), "--size", "64MiB", "--server", address, "--force")
        self._process = subprocess.Popen(
            command,
            env=os.environ | {"DURABILITY_CREDENTIAL": str(lab.credential)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._lab, self._target = lab, target

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def until_it_writes(self) -> Run:
        """Its run, once some of its operations are acknowledged."""

        def acked() -> int:
            assert self._process.poll() is None, "the client has ended"
            run = self._lab.live_run(self._target)
            return sum(run.frontiers.acked) if run is not None else 0

        await until(lambda: acked() >= OPERATIONS)
        run = self._lab.live_run(self._target)
        assert run is not None
        return run

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()


async def case_of(lab: LocalServer, run: Run) -> Case:
    """The run as it is exported."""
    with closing(await connect(lab.endpoint, "query")) as query:
        return case_from_value((await query.request(Export(run=run.id), CaseFile)).case)


def judged(case: Case, target: Path) -> Outcome:
    """The judge's word on what lies on `target`, if the power is cut now and the machine starts again."""
    storage = KernelStorage(target)
    plan = Plan.decode(bytes.fromhex(case.plan))
    here = storage.facts()
    now = replace(here, host=replace(here.host, boot_id="the next boot", uptime_ns=1))
    job = ScanJob(plan=plan, acked=case.frontiers, control_completed=0, block_bytes=512)
    listener = ScanListener(tick=lambda: None, progress=lambda _: None, example=lambda _: None)
    return judge(
        plan=plan,
        case=case,
        found=Found(facts=now, superblocks=read_superblocks(storage, plan)),
        report=scan_here(storage, job, listener),
        examples=(),
        attestation=Attestation(text="pulled the plug", cut_class="power"),
        requirements=Requirements(),
        duration_s=0.0,
    )


def kinds(run: Run) -> list[str]:
    """The kinds of what happened to the run."""
    return [event.kind for _, event in run.events]


def is_given_up(run: Run) -> bool:
    """Whether the server has closed the connection of the silent client. Before that, on a busy machine, it
    may have been silent for a while and heard again."""
    silences = [kind for kind in kinds(run) if kind in ("silence", "heard-again")]
    return silences[-2:] == ["silence", "silence"]


async def test_a_frozen_client_leaves_nothing_at_risk(tmp_path: Path) -> None:
    """The kernel of a frozen client still acknowledges data, so its machine has power and a later cut meets
    no load. By its last frame alone, hundreds of records would be at risk."""
    target = tmp_path / "target"
    async with local_server() as lab:
        with Writer(lab, target, lab.address) as writer:
            run = await writer.until_it_writes()
            writer.signal(signal.SIGSTOP)
            await until(partial(is_given_up, run))
            case = await case_of(lab, run)
    frame_ns = run.last_receipt_ns
    assert case.last_receipt_ns - frame_ns > 8_000_000_000
    assert case.session_end == "silence" and "kernel-alive" in kinds(run)

    outcome = judged(case, target)
    assert [reason.code for reason in outcome.verdict.reasons] == ["nothing-at-risk"]
    by_frames = judged(replace(case, last_receipt_ns=frame_ns), target)
    assert by_frames.verdict.word == "durable" and by_frames.at_risk.ms1000 > 0


async def test_a_frozen_client_that_is_killed_is_no_cut(tmp_path: Path) -> None:
    """If a frozen client is killed, its kernel resets the connection. In the run's own boot, this is not
    evidence of a cut."""
    target = tmp_path / "target"
    async with local_server() as lab:
        with Writer(lab, target, lab.address) as writer:
            run = await writer.until_it_writes()
            writer.signal(signal.SIGSTOP)
            await until(lambda: run.session_end == "silence")
            writer.signal(signal.SIGKILL)
            await until(lambda: kinds(run)[-1] in ("rst", "fin"))
            case = await case_of(lab, run)
    assert (case.session_end, kinds(run)[-1]) == ("silence", "rst")
    here = KernelStorage(target).facts()
    assert outlived(case, here)
    next_boot = replace(here.host, boot_id="the next boot", uptime_ns=1)
    assert not outlived(case, replace(here, host=next_boot))


async def test_a_client_that_goes_on_is_as_before(tmp_path: Path) -> None:
    """A client that is frozen for a while and then goes on is heard again; its frames are what counts."""
    async with local_server() as lab:
        with Writer(lab, tmp_path / "target", lab.address) as writer:
            run = await writer.until_it_writes()
            writer.signal(signal.SIGSTOP)
            await until(lambda: "kernel-alive" in kinds(run))
            acked = sum(run.frontiers.acked)
            writer.signal(signal.SIGCONT)
            await until(lambda: run.session_end == "live" and sum(run.frontiers.acked) > acked + OPERATIONS)
            assert run.sign_of_life_ns == run.last_receipt_ns


async def test_a_proxy_speaks_for_nobody(tmp_path: Path) -> None:
    """A proxy acknowledges data itself, so its acknowledgements do not show that the client's machine has
    power."""
    target = tmp_path / "target"
    async with local_server() as lab, TcpProxy(*parse_address(lab.address)) as proxy:
        with Writer(lab, target, proxy.address) as writer:
            run = await writer.until_it_writes()
            proxy.to_server.lost = proxy.to_client.lost = True
            await until(partial(is_given_up, run))
            case = await case_of(lab, run)
            writer.signal(signal.SIGKILL)
    assert case.last_receipt_ns == run.last_receipt_ns and "kernel-alive" not in kinds(run)
    assert case.session_end == "silence"


def ip(*arguments: str) -> None:
    """Set up the network."""
    subprocess.run(("ip", *arguments), check=True)


@pytest.fixture
def cable(rig_machine: None) -> Iterator[str]:
    """A network namespace with a cable to this one, called like it."""
    name = f"cable{os.getpid()}"
    with ExitStack() as stack:
        ip("netns", "add", name)
        stack.callback(ip, "netns", "delete", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "cable", "netns", name)
        stack.callback(ip, "link", "delete", name)  # now; with its namespace it goes some time later
        ip("address", "add", LISTENS, "dev", name)
        ip("link", "set", name, "up")
        for arguments in (("address", "add", CLIENTS, "dev", "cable"), ("link", "set", "cable", "up")):
            ip("-n", name, *arguments)
        yield name


@pytest.mark.parametrize("frozen", [False, True], ids=["writes on", "is frozen"])
async def test_who_is_cut_off_acknowledges_nothing(tmp_path: Path, cable: str, *, frozen: bool) -> None:
    """A machine that lost its power, or its network, takes nothing, however often it is sent again: what
    counts is the last frame. A client that is frozen over a real network is seen as well."""
    target = tmp_path / "target"
    listener = socket.create_server((ADDRESS, 0))
    within = ("nsenter", f"--net=/run/netns/{cable}")

    async with local_server(listener) as lab:
        with Writer(lab, target, lab.address, within) as writer:
            run = await writer.until_it_writes()
            if frozen:
                writer.signal(signal.SIGSTOP)
            else:
                ip("link", "set", cable, "down")
            before = len(kinds(run))  # a client that stood still before was silent too
            await until(partial(is_given_up, run))
            writer.signal(signal.SIGKILL)
            ip("link", "set", cable, "up")
            case = await case_of(lab, run)
            while case.session_end == "live":  # its end is on the way
                case = await case_of(lab, run)
    assert case.session_end == "silence"
    assert ("kernel-alive" in kinds(run)[before:]) is frozen
    assert (case.last_receipt_ns > run.last_receipt_ns) is frozen
