"""The world of a history: a machine with a drive, a server with its store, a network, and an operator.

The client's `run` and `verify`, the link, the protocol, the server and its store are the product's own, in
virtual time (`virtual_loop`). The machine, the drive and the network are simulated. Each step is one event.
This module neither records nor judges events: it reports them to `history_truth` and `unheard_clients`.
"""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from durability.formats.case import ProvableCutClass, case_from_value
from durability.formats.workloads.registry import DEFAULT
from durability.units import parse_run
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import run
from durability_client.verify.verify_command import VerifyOptions
from durability_lab.histories.cuts_and_answers import ATTESTATION, VerifyAnswer, attests
from durability_lab.histories.simulated.eventful_drive import SIZE_BYTES, flipped
from durability_lab.histories.simulated.history_machine import HistoryMachine
from durability_lab.histories.simulated.history_server import HistoryServer
from durability_lab.histories.simulated.history_truth import HistoryTruth
from durability_lab.histories.simulated.unheard_clients import UnheardClients
from durability_lab.histories.simulated.verify_commands import VerifyCommands, VerifyOutput
from durability_lab.histories.simulated.virtual_loop import VirtualLoop
from durability_lab.histories.simulated.virtual_process import Process
from durability_lab.histories.steps import History, Step
from durability_lab.histories.store_copies import StoreCopies

_LESSER: dict[str, ProvableCutClass] = {"os": "os", "vm": "vm"}  # weaker than the default of --cut-class

_BOOT_S = 2.0
_ARMING_S = 3.0
_WRITING_S = 0.03
_ENDING_S = 2.0  # time that a client has to end after a signal
_GROUP_KIB = 256  # target size per operation of a group; a run on a smaller target is refused
_LOOK_S = 0.005


class World:
    """The world of one history. `truth`: facts beyond those that any tester can know. `store`: the content of
    the server's store."""

    def __init__(self, history: History, directory: Path, loop: VirtualLoop) -> None:
        self._history = history
        self._loop = loop
        self._network = loop.network
        self._server = HistoryServer(directory, loop)
        self.store = StoreCopies(directory)
        self._machine = HistoryMachine(history, loop)
        self._unheard = UnheardClients(self._machine, self._server, loop)
        self.truth = HistoryTruth(
            history, self._machine, self._server, self.store, loop, assumed=self._unheard.assumed
        )
        self._moves = 0  # number of moves of the target
        self._interrupted = False  # an event disturbed the present `verify`
        self._draw = Random(f"{history.seed} bits")
        self._flipped = b""  # the label of the sector in which that `verify` read a wrong bit

    async def start(self) -> None:
        """Start the server."""
        await self._server.start()

    async def take(self, step: Step) -> VerifyAnswer | None:
        """Take one step; returns the answer if the step is a `verify`."""
        self._note_time()
        self.truth.note_step(step)
        if step.kind == "verify":
            return await self._verify(step)
        await getattr(self, f"_do_{step.kind}")(step)
        return None

    async def finish(self) -> VerifyAnswer | None:
        """Take the steps that end every history: a power cut, repair of everything, and a `verify`."""
        self._note_time()
        self._machine.drive.hung, self._machine.drive.failing = False, ""
        if self._machine.client_alive:
            await self._do_cut(Step("cut"))
        await self._do_network(Step("network", (("up", "yes"),)))
        await self._do_server(Step("server", (("how", "start"),)))
        await self._do_boot(Step("boot"))
        return await self._verify(Step("verify"))

    async def end(self) -> None:
        """Kill the server and cancel all other tasks."""
        await self._do_server(Step("server"))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(_LOOK_S)

    async def listed(self) -> dict[int, str]:
        """The verdict that `runs` shows for each run."""
        return await self._server.listed()

    def _note_time(self) -> None:
        """Note that time has passed since the last step."""
        self.truth.note_runs()
        self._unheard.note_time()

    async def _do_pass(self, step: Step) -> None:
        await asyncio.sleep(int(step["ms"]) / 1000)

    # The client.

    async def _do_run(self, step: Step) -> None:
        machine = self._machine
        if not machine.reachable or machine.client_alive:
            return
        group = 1 if step["sync"] == "dsync" else int(step["group"])
        options = RunOptions(
            endpoint=self._server.endpoint,
            size_bytes=max(int(step["size_kib"]), group * _GROUP_KIB) << 10,
            workload=step["workload"] if self._history.target == "file" else DEFAULT,
            writers=int(step["writers"]),
            group=group,
            pattern="sequential" if step["pattern"] == "sequential" else None,
            sync="dsync" if step["sync"] == "dsync" else "fdatasync",
            destroy_data=True,
            force=True,
        )
        if not machine.storage.mounted:
            machine.storage.mount()
        task = machine.begin_client(run(options, machine.storage, io.StringIO()))
        if step["next"] != "armed":
            await asyncio.sleep(int(step["next"]) / 1000)
            return
        for _ in range(int(_ARMING_S / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            if task.done() or self.truth.note_armed():
                break
        await asyncio.sleep(_WRITING_S)

    async def _do_stop(self, step: Step) -> None:
        await self._signal(signal.SIGINT)

    async def _signal(self, number: int) -> None:
        if not self._machine.takes_signal(number):
            return
        self._unheard.note_stop()
        self._machine.signal_client(number)
        for _ in range(int(_ENDING_S / _LOOK_S)):
            if not self._machine.client_alive:
                return
            await asyncio.sleep(_LOOK_S)

    async def _do_kill(self, step: Step) -> None:
        self._unheard.note_stop()
        self._machine.end_client()

    async def _do_freeze(self, step: Step) -> None:
        if self._machine.client_goes_on:
            self._unheard.note_freeze()
            self._machine.freeze_client()

    async def _do_thaw(self, step: Step) -> None:
        if self._machine.client_frozen:
            pending = self._machine.thaw_client()
            self._unheard.note_thaw()
            for number in pending:
                await self._signal(number)

    # The machine and its drive.

    async def _do_cut(self, step: Step) -> None:
        what, machine = step["what"], self._machine
        if (what == "drive" and not machine.drive.powered) or (what != "drive" and not machine.up):
            return
        self.truth.note_cut(what)
        self.truth.note_load(what)
        self._unheard.note_end_of_sight()
        machine.drive.node = step["node"]
        if what != "guest":
            self._lose_power()
        if what != "drive":
            machine.lose_system()

    def _lose_power(self) -> None:
        self.truth.note_power_going()
        self._machine.drive.cut()
        self.truth.note_power_gone()

    async def _do_boot(self, step: Step) -> None:
        machine = self._machine
        off = not machine.reachable
        if not machine.drive.powered:
            machine.drive.power_on()
        if off and step["cut"] == "yes":
            await asyncio.sleep(_BOOT_S * 3 / 4)  # by now no earlier promise is at risk
            self.truth.note_cut("drive" if machine.up else "machine")
            self._lose_power()
            return
        if not machine.up:
            await asyncio.sleep(_BOOT_S)
            self._start_machine()
        if not machine.client_alive:
            machine.storage.mount()

    def _start_machine(self) -> None:
        self._machine.start()
        self.truth.note_start()

    async def _do_reboot(self, step: Step) -> None:
        if not self._machine.up:
            return
        await self._signal(signal.SIGTERM)
        await self._do_kill(step)
        self._machine.storage.unmount()
        if self._unheard.note_restart():
            self.truth.note_like_cut()
        await asyncio.sleep(_BOOT_S)
        self._machine.shut_down()
        self._start_machine()

    async def _do_error(self, step: Step) -> None:
        if self._machine.drive.powered:
            self._machine.drive.failing = "lasting" if step["lasting"] == "yes" else "once"
            self._unheard.note_error()

    async def _do_glitch(self, step: Step) -> None:
        if self._machine.drive.powered:
            self._machine.drive.glitches += 1
            self._unheard.note_glitch()
            self.truth.note_like_cut()

    async def _do_hang(self, step: Step) -> None:
        self._machine.drive.hung = self._machine.drive.powered
        self._unheard.note_stop()
        self._unheard.note_change()

    async def _do_answer(self, step: Step) -> None:
        self._machine.drive.hung = False
        self._unheard.note_change()

    async def _do_unmount(self, step: Step) -> None:
        if self._machine.reachable and not self._machine.client_alive:
            self._machine.storage.unmount()

    async def _do_move(self, step: Step) -> None:
        storage = self._machine.storage
        if self._history.target == "file" and not self._machine.client_alive:
            self._moves += 1
            storage.path = storage.path.with_name(f"renamed-{self._moves}")
            if step["alone"] == "yes" and self._machine.reachable and storage.mounted:
                self.truth.note_left_behind()
                with suppress(OSError):  # the drive fails or does not answer
                    for suffix in storage.suffixes():
                        storage.unlink(suffix)
                    storage.sync_directory()

    async def _do_resize(self, step: Step) -> None:
        drive = self._machine.drive
        if not self._machine.client_alive:
            before_bytes = drive.size_bytes
            drive.resize(SIZE_BYTES * int(step["percent"]) // 100)
            if drive.size_bytes < before_bytes:
                self.truth.note_like_cut()

    async def _do_replace(self, step: Step) -> None:
        if not self._machine.client_alive and self._machine.drive.powered:
            copied = step["holds"] == "copy"
            self._machine.replace_drive(copied=copied)
            self.truth.note_replaced(copied=copied)

    async def _do_renumber(self, step: Step) -> None:
        if not self._machine.client_alive:
            self._machine.storage.renumber()

    # The network and the server.

    async def _do_network(self, step: Step) -> None:
        self._turn_network(up=step["up"] == "yes")

    def _turn_network(self, *, up: bool) -> None:
        was_up = self._network.up
        self._network.turn(up=up)
        self._unheard.note_network(was_up=was_up)

    async def _do_server(self, step: Step) -> None:
        how, server = step["how"], self._server
        if server.runs and how != "start":
            self._kill_server()
            await asyncio.sleep(_LOOK_S)
        if copy := self.store.restore(step):
            server.restore(copy.path)
            self._unheard.note_older_log(copy.assumed)
        if how in ("restarted", "moved"):
            await asyncio.sleep(_BOOT_S)
            server.machine_changes(moved=how == "moved")
        if not server.runs and how != "kill":
            await server.start()
        self._unheard.note_change()

    def _kill_server(self) -> None:
        if self._server.runs:
            self.truth.note_armed()
            self._unheard.note_end_of_sight()
            self._server.kill()
            self._unheard.note_change()

    async def _do_copy(self, step: Step) -> None:
        assumed = self._unheard.as_of_now
        self._server.copy(self.store.add_copy(assumed))
        newest = self._machine.newest_run
        case = await self._server.case_value(newest) if newest else None
        if case is not None:
            self.store.add_export(case, assumed)

    # The operator.

    async def _verify(self, step: Step) -> VerifyAnswer | None:
        machine = self._machine
        if not machine.reachable or machine.client_alive:
            return None
        export = self.store.export_for(step)
        if export is None and not (self._server.runs and self._network.up):
            return None
        runs = list(machine.plans)
        older = step["run"] == "older" and len(runs) > 1
        attested = attests(step, self.truth.cuts, runs[-2 if older else -1 :][:1])
        options = VerifyOptions(
            target=machine.storage.path,
            endpoint=None if export else self._server.endpoint,
            run=runs[-2] if older and export is None else 0,
            attest_cut=ATTESTATION if attested else None,
            cut_class=_LESSER.get(step["cut_class"]) if attested else None,
            require_cut="os" if step["require"] == "os" else "power",
            min_cuts=int(step["min_cuts"]),
            from_export=export.path if export else None,
            json=True,
        )
        if export is not None:
            self._unheard.note_older_log(export.assumed)
        began_ns = self._loop.now_ns
        smaller = frozenset(one for one in runs if self.truth.smaller(one))
        went_on = frozenset(one for one in runs if self.truth.went_on(one))
        others = {one: self.truth.others_seen(one) for one in runs}

        async def answered(output: VerifyOutput) -> VerifyAnswer:
            case = None
            if output.document is not None and export is not None:
                case = case_from_value(json.loads(export.path.read_text()))
            elif output.document is not None:
                case = await self._server.case(parse_run(output.document["run"]))
            judged = 0 if output.document is None else parse_run(output.document["run"])
            return VerifyAnswer(
                step=step,
                began_ns=began_ns,
                at_ns=self._loop.now_ns,
                document=output.document,
                why=output.why,
                case=case,
                attested=attested,
                older=older or export is not None,
                exported=export is not None,
                smaller=smaller,
                interrupted=self._interrupted,
                recovered=recovered,
                flipped=self._flipped,
                went_on=went_on,
                others=others.get(judged, {}),
                looks=None if export is None else export.looks,
            )

        if not machine.storage.mounted:
            machine.storage.mount()  # the drive may have recovered by now
        unread = self.truth.broken_now() if machine.drive.recovering else ()
        first, *second = await self._verified(step, options)
        recovered = bool(unread) and not machine.drive.recovering
        if recovered:
            self.truth.note_broken(unread)
        answer = await answered(first)
        if second:
            answer = replace(answer, beside=replace(await answered(second[0]), interrupted=True))
        return answer

    async def _verified(self, step: Step, options: VerifyOptions) -> list[VerifyOutput]:
        """The outputs of `verify`, and of a second `verify` if the step has one. Events may disturb them."""
        machine, drive = self._machine, self._machine.drive
        commands = VerifyCommands(self._loop, machine.storage, options, beside=step["beside"] == "yes")
        self._interrupted, self._flipped = False, b""
        drive.on_read = lambda data: self._on_read(data, step, commands.processes)
        drive.reads_left = int(step["cut_after"]) or None
        outputs = await commands.outputs()
        machine.storage.unlock()
        drive.reads_left = None
        return outputs

    def _on_read(self, data: bytes, step: Step, processes: Sequence[Process]) -> bytes:
        """Let the step's event happen at this read; returns the data that the host gets."""
        if step["loses"] == "bit":
            data, self._flipped = flipped(data, self._draw)
        else:
            self._lose(step, processes)
        return data

    def _lose(self, step: Step, processes: Sequence[Process]) -> None:
        """Let the step's event disturb `verify`, the first of `processes`, during its reads."""
        self._interrupted = True
        what = step["loses"]
        if what == "server":
            self._kill_server()
        elif what == "network":
            self._turn_network(up=False)
        elif what == "process":
            if not processes[0].dead:
                self._machine.end_process(processes[0])
        else:
            self._cut_while_read("drive" if what == "power" else what, processes, node=step["node"])

    def _cut_while_read(self, what: str, processes: Sequence[Process], *, node: str) -> None:
        """Cut the drive, its machine, or the machine's system while `verify` reads.

        Only the first boot after a run's cut shows when the run ended. If that boot ends here, no verdict is
        due any more.
        """
        self._machine.drive.node = node
        self.truth.note_cut(what)
        if what != "guest":
            self._lose_power()
        if what != "drive":
            self.truth.note_nothing_due()
            self._machine.lose_system_of(processes)
