"""The world of a history on rig B: real processes, kernel and file system, and a lab drive behind nbdkit.

Each step is one event, as in `world`, and takes real time. The kernel's scheduling makes every play slightly
different. A cut of the machine cuts the drive and kills all processes, whose connections fall silent. A cut
of the guest removes the block device and the page cache, but the drive keeps its power and its cache. A step
that is impossible here, or in the present state, does nothing. `kernel_truth` has the facts beyond those that
any tester can know; nothing is judged here.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from durability.errors import DurabilityError
from durability.formats.case import Case, case_from_value
from durability.formats.plan import Plan
from durability.formats.workloads.registry import DEFAULT, workload
from durability.protocol.messages import CaseFile, Export, List, Listing
from durability.units import format_run, parse_run
from durability_lab.drive.drive_events import LASTING, ONCE
from durability_lab.histories.cuts_and_answers import ATTESTATION, VerifyAnswer, attests
from durability_lab.histories.kernel.kernel_processes import BegunCommand, KernelMachine, ServerProcess, until
from durability_lab.histories.kernel.kernel_truth import KernelTruth, MachineState
from durability_lab.histories.kernel.real_network import RealNetwork
from durability_lab.histories.steps import History, Step
from durability_lab.histories.store_copies import StoreCopies
from durability_lab.kernel_rig.block_rig import BlockRig, MountError
from durability_lab.support.loads import FILE_SYSTEMS, NAMES_MIB, FileSystemName

# The kinds of steps that are possible here. There is one drive, and it has no counters.
STEPS: Final = (
    *("run", "pass", "error", "hang", "answer", "cut", "boot", "reboot", "stop", "kill"),
    *("network", "copy", "server", "unmount", "verify"),
)

_MIB = 1 << 20
_SIZES: Final[dict[FileSystemName | None, int]] = {
    None: 32 * _MIB,
    "ext4": 64 * _MIB,
    "xfs": 320 * _MIB,
    "btrfs": 128 * _MIB,
}
_LARGER = 8  # targets are this many times larger than on rig A, because these drives are faster
_PASS_S_MAX = 1.5
_BOOT_S = 2.2  # longer than the server waits for a silent client, and than the error of a boot's clock
_RECOVERY_S = 0.1  # approximate duration of a mount
_ARMING_S = 30.0
_UNREACHABLE_S = 1.0  # patience with a client that cannot reach its server
_PROMISE_S = 5.0
_WRITING_S = 0.1
_SIGNAL_S = 15.0
_KILL_S = 1.0  # patience after SIGKILL with a process that may wait for a hanging drive
_LOOK_S = 10.0  # longest time that a client spends on a failed drive
_VERIFY_S = 180.0


class KernelWorld:
    """The world of one history. Use it once: `start`, the steps, `finish`, and in any case `end`."""

    def __init__(self, history: History, directory: Path) -> None:
        self.store = StoreCopies(directory)
        self.file_system = None if history.target == "device" else Random(history.seed).choice(FILE_SYSTEMS)
        self.rig = BlockRig(
            history.drive,
            self.file_system,
            seed=history.seed,
            size_bytes=_SIZES[self.file_system],
            disturbed=True,
        )
        self.machine = KernelMachine(directory, seed=history.seed)
        self.server = ServerProcess(directory, seed=history.seed)
        self.network = RealNetwork()
        self._state = MachineState(mounted=self.file_system is not None)
        self.truth = KernelTruth(history, self.rig, self._state, self.store)
        self._draw = Random(f"{history.seed} recovery")
        self._client: BegunCommand | None = None
        self._failed: set[int] = set()  # runs with an I/O error

    # The steps.

    async def start(self) -> None:
        """Make the drive, and start the network and the server; the client joins the server."""
        await asyncio.to_thread(self.rig.open)
        await self.network.open()
        await self._start_server()
        await self.server.join(self.network.address)

    async def take(self, step: Step) -> VerifyAnswer | None:
        """Take one step; returns the answer if the step is a `verify`. Raises DefectError if a command ends
        with the exit code of a defect."""
        await self._note()
        self.truth.note_step(step, client_alive=self._client_alive)
        if step.kind == "verify":
            return await self._verify(step)
        if step.kind in STEPS:
            await getattr(self, f"_{step.kind}")(step)
        return None

    async def finish(self) -> VerifyAnswer | None:
        """Take the steps that end every history: a power cut, repair of everything, and a `verify`."""
        await self._note()
        await self._answer(Step("answer"))
        if self._client_alive:
            await self._cut(Step("cut"))
        self.network.turn(up=True)
        await self._server(Step("server", (("how", "start"),)))
        await self._boot(Step("boot"))
        return await self._verify(Step("verify"))

    async def end(self) -> None:
        """Remove the drive and end all processes and connections."""
        try:
            await asyncio.to_thread(self.rig.close)
        finally:
            if self._client is not None:
                self._client.signal(signal.SIGKILL)
                await self._client.end(_SIGNAL_S)
            await self.server.kill()
            await self.network.close()

    @property
    def _client_alive(self) -> bool:
        return self._client is not None and self._client.alive

    async def _run(self, step: Step) -> None:
        if not self.truth.reachable or self._client_alive:
            return
        before = len(self.truth.armed)
        known = set(self.truth.plans)
        self._client = client = await self.machine.begin(
            "run", str(self.rig.target), *self._run_options(step)
        )
        patience_s = _ARMING_S if self.server.runs and self.network.up else _UNREACHABLE_S
        deadline_s = time.monotonic() + patience_s
        while client.alive and len(self.truth.armed) == before and time.monotonic() < deadline_s:
            await self._note()
            await asyncio.sleep(0.02)
        new = set(self.truth.plans) - known
        await until(lambda: new <= set(self.truth.promised_ns()) or not client.alive, _PROMISE_S)
        self.truth.note_begun(new)
        await asyncio.sleep(_WRITING_S)

    def _run_options(self, step: Step) -> tuple[str, ...]:
        chosen = workload(step["workload"] if self.file_system else DEFAULT)
        names = chosen.by_name
        writers = int(step["writers"])
        kib = NAMES_MIB * writers << 10 if names else _LARGER * int(step["size_kib"])
        dsync = step["sync"] == "dsync" and not names
        random = chosen.endless or step["pattern"] == "random"
        return (
            *self._common,
            *("--size", f"{kib}KiB", "--writers", str(writers), "--workload", chosen.name),
            *("--sync", "dsync" if dsync else "fdatasync", "--group", "1" if dsync else step["group"]),
            *(() if random else ("--pattern", "sequential")),
            *(() if self.file_system else ("--destroy-data",)),
            "--force",
        )

    @property
    def _common(self) -> tuple[str, ...]:
        return "--credential", str(self.server.credential)

    async def _note(self) -> None:
        """Note the runs that the server knows, and which are armed; nothing if the server does not answer."""
        with suppress(DurabilityError, OSError):
            for row in (await self.server.ask(List(limit=100), Listing)).rows:
                run = parse_run(str(row["run"]))
                if run in self.truth.armed:
                    continue
                case = await self._case(run)
                if case is None:
                    continue
                if run not in self.truth.plans:
                    self.truth.note_run(run, Plan.decode(bytes.fromhex(case.plan)), self._client)
                if case.armed is not None:
                    self.truth.note_armed(run)

    async def _pass(self, step: Step) -> None:
        await asyncio.sleep(min(int(step["ms"]) / 1000, _PASS_S_MAX))

    async def _error(self, step: Step) -> None:
        lasting = step["lasting"] == "yes"
        self.rig.events.happen(failing=LASTING if lasting else ONCE)
        self._failed.update(list(self.truth.plans)[-1:])
        self._stops_writing()
        if lasting:
            self.truth.assumed.failed_with_power.update(list(self.truth.plans)[-1:])

    async def _hang(self, step: Step) -> None:
        if self.rig.powered and not self._state.hung:
            await asyncio.to_thread(self.rig.stop_answering)
            self._state.hung = True
            self._stops_writing()

    async def _answer(self, step: Step) -> None:
        if self._state.hung and self.rig.powered:
            await asyncio.to_thread(self.rig.answer)
        self._state.hung = False
        self._writes_on()

    async def _cut(self, step: Step) -> None:
        what = step["what"]
        if (what == "drive" and not self.rig.powered) or (what != "drive" and not self._state.up):
            return
        client = self._client if self._client_alive else None
        self.truth.note_load(what, client, hears=self.server.runs and self.network.up)
        if what != "drive":
            self.network.darken()
            self._state.up = False
        at_ns = time.monotonic_ns()
        if what != "guest":
            await self._cut_drive()
        if what != "drive":
            await self._kill_client(_SIGNAL_S if what == "machine" else _KILL_S)
        if what == "guest":
            await self._detach(in_order=False)
        await self.truth.note_cut(what, at_ns)

    async def _cut_drive(self) -> None:
        if self.rig.powered:
            await asyncio.to_thread(self.rig.cut)
        self._state.hung = False

    async def _kill_client(self, timeout_s: float) -> None:
        if self._client is not None:
            self._client.signal(signal.SIGKILL)
            await self._client.end(timeout_s)

    async def _detach(self, *, in_order: bool) -> None:
        if self._state.attached:
            await asyncio.to_thread(lambda: self.rig.detach(in_order=in_order))
            self._state.attached = self._state.mounted = False

    async def _boot(self, step: Step) -> None:
        client = self._client
        if self._state.up and not self.rig.powered and client is not None:
            await client.end(_LOOK_S)
        if (self._client_alive and not self.rig.powered) or self._state.hung:
            return  # on rig B, a drive can come back only when no process uses the old device
        off, again = not (self._state.up and self.rig.powered), step["cut"] == "yes"
        if not self._state.up and not again:
            await self._start_machine()
        if not self.rig.powered:
            await asyncio.to_thread(self.rig.power_on)
            self._state.attached, self._state.mounted = True, False
        elif not self._state.attached:
            await asyncio.to_thread(self.rig.attach)
            self._state.attached = True
        if off and again:
            await self._cut_in_recovery()
        else:
            await self._mount()

    async def _cut_in_recovery(self) -> None:
        """Cut the power again while the file system is being mounted, or just before or after."""
        mounting = asyncio.create_task(self._mount())
        await asyncio.sleep(self._draw.uniform(0.0, _RECOVERY_S))
        at_ns = time.monotonic_ns()
        await self._cut_drive()
        await mounting
        await self.truth.note_cut("drive" if self._state.up else "machine", at_ns)

    async def _mount(self) -> None:
        if self.file_system and not self._state.mounted:
            with suppress(MountError):
                await asyncio.to_thread(self.rig.mount)
                self._state.mounted = True

    async def _start_machine(self) -> None:
        await asyncio.sleep(_BOOT_S)
        self._state.up = True
        self.machine.start_anew(self.rig.mount_point)
        self.truth.note_start()
        self.network.reset_dark()

    async def _reboot(self, step: Step) -> None:
        if not self._state.up or self._state.hung:
            return
        await self._signal(signal.SIGTERM)
        await self._kill(step)
        self.truth.assumed.restarted.update(self.truth.plans)
        if self.rig.powered:
            await self._detach(in_order=True)
        self._state.up = False
        await self._start_machine()
        if self.rig.powered:
            await self._boot(Step("boot"))

    async def _stop(self, step: Step) -> None:
        await self._signal(signal.SIGINT)

    async def _signal(self, number: int) -> None:
        if self._client is not None and self._client.alive:
            self._stops_writing()
            self._client.signal(number)
            await self._client.end(_KILL_S if self._state.hung else _SIGNAL_S)

    async def _kill(self, step: Step) -> None:
        self._stops_writing()
        await self._kill_client(_KILL_S if self._state.hung else _SIGNAL_S)

    async def _network(self, step: Step) -> None:
        self.network.turn(up=step["up"] == "yes")
        if self._state.hung or self._failed.intersection(list(self.truth.plans)[-1:]):
            self._stops_writing()
        else:
            self._writes_on()

    def _stops_writing(self) -> None:
        """Note that the client stops writing now: if the network is dead, it does not use up its credit."""
        if self._client_alive and not self.network.up:
            self.truth.assumed.ended_unheard.update(list(self.truth.plans)[-1:])

    def _writes_on(self) -> None:
        """Note that the client may write again and be heard: assumptions about its earlier stop end."""
        run = self.truth.newest_run
        if self._client_alive and self.network.up and not self._state.hung and run not in self._failed:
            self.truth.assumed.ended_unheard.discard(run)

    async def _unmount(self, step: Step) -> None:
        if self._state.mounted and self.truth.reachable and not self._client_alive:
            await asyncio.to_thread(self.rig.unmount)
            self._state.mounted = False
            await self._mount()

    # The server.

    async def _start_server(self) -> None:
        await self.server.start()
        self.network.lead_to(self.server.port)

    async def _server(self, step: Step) -> None:
        how = step["how"]
        if how != "start":
            await self.server.kill()
        if copy := self.store.restore(step):
            self.server.restore(copy.path)
        if how in ("restarted", "moved"):
            self.server.machine_changes(moved=how == "moved")
        if not self.server.runs and how != "kill":
            await self._start_server()

    async def _copy(self, step: Step) -> None:
        self.server.copy(self.store.add_copy(self.truth.assumed))
        case = await self._case_value(list(self.truth.plans)[-1]) if self.truth.plans else None
        if case is not None:
            self.store.add_export(case, self.truth.assumed)

    async def _case_value(self, run: int) -> Any:
        with suppress(DurabilityError, OSError):
            return (await self.server.ask(Export(run=run), CaseFile)).case
        return None

    async def _case(self, run: int) -> Case | None:
        value = await self._case_value(run)
        return None if value is None else case_from_value(value)

    async def listed(self) -> dict[int, str]:
        """The verdict that `runs` shows for each run; empty if the server does not answer."""
        with suppress(DurabilityError, OSError):
            rows = (await self.server.ask(List(limit=100), Listing)).rows
            return {parse_run(str(row["run"])): str(row["verdict"]) for row in rows}
        return {}

    # The operator.

    async def _verify(self, step: Step) -> VerifyAnswer | None:
        if (
            not (self._state.up and self._state.attached and self.rig.powered)
            or self._state.hung
            or self._client_alive
        ):
            return None
        export = self.store.export_for(step)
        if export is None and not (self.server.runs and self.network.up):
            return None
        unmounted = self.file_system is not None and not self._state.mounted
        if unmounted and not self.truth.armed:
            return None
        older = step["run"] == "older" and len(self.truth.armed) > 1 and export is None
        run = self.truth.armed[-2] if older else self.truth.armed[-1] if unmounted and export is None else 0
        attested = attests(step, self.truth.cuts, self.truth.armed[-2 if older else -1 :][:1])
        options = (
            *(("--from-export", str(export.path)) if export is not None else self._common),
            *(("--run", format_run(run)) if run else ()),
            *(("--device", self.rig.loop) if unmounted else ()),
            *(("--attest-cut", ATTESTATION, "--cut-class", step["cut_class"]) if attested else ()),
            *("--require-cut", step["require"], "--min-cuts", step["min_cuts"], "--json"),
        )
        began_ns = time.monotonic_ns()
        smaller = frozenset(armed for armed in self.truth.armed if self.truth.smaller(armed))
        if int(step["cut_after"]):
            self.rig.events.happen(reads=int(step["cut_after"]) + 1)
        document, why = await self._verdict(options)
        self.rig.events.happen(reads=0)
        interrupted = not self.rig.powered
        if interrupted:
            await asyncio.to_thread(self.rig.cut)
            await self.truth.note_cut("drive", time.monotonic_ns())
        case = None
        if document is not None and export is not None:
            case = case_from_value(json.loads(export.path.read_text()))
        elif document is not None:
            case = await self._case(parse_run(document["run"]))
        return VerifyAnswer(
            step=step,
            began_ns=began_ns,
            at_ns=time.monotonic_ns(),
            document=document,
            why=why,
            case=case,
            attested=attested,
            older=older or export is not None,
            exported=export is not None,
            smaller=smaller,
            interrupted=interrupted,
            looks=None if export is None else export.looks,
        )

    async def _verdict(self, options: tuple[str, ...]) -> tuple[dict[str, Any] | None, str]:
        command = await self.machine.begin("verify", str(self.rig.target), *options)
        ended = await command.end(_VERIFY_S)
        if ended is None:
            command.signal(signal.SIGKILL)
            return None, "no answer"
        code, out, said = ended
        return (json.loads(out), "") if out else (None, f"exit code {code}: {said}")
