"""The world of a history: a machine with a drive, a server with its store, a network between, an operator.

The client's `run` and `verify`, the link, the protocol, the server and its store are the product's own, in
virtual time (`virtual_loop`); the machine, the drive and the network are the history's. Each step is one
thing that happens; what is known of it beyond what any tester can know is kept in fields of the world, for
`deserved`. It judges nothing.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from durability.formats import facts
from durability.formats.case import ProvableCutClass, case_from_value
from durability.formats.plan import Plan
from durability.formats.workloads.registry import DEFAULT
from durability.units import parse_run
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import run
from durability_client.verify.verify_command import VerifyOptions
from durability_lab.drive.drive_log import Broken
from durability_lab.histories.cuts_and_answers import (
    ATTESTATION,
    PlayedCut,
    VerifyAnswer,
    attests,
)
from durability_lab.histories.figures import PromisedOperations
from durability_lab.histories.simulated.eventful_drive import SIZE_BYTES, HistoryStorage
from durability_lab.histories.simulated.history_server import HistoryServer
from durability_lab.histories.simulated.simulated_files import HistoryFileStorage
from durability_lab.histories.simulated.verify_commands import VerifyCommands, VerifyOutput
from durability_lab.histories.simulated.virtual_loop import VirtualLoop
from durability_lab.histories.simulated.virtual_network import VirtualNetwork
from durability_lab.histories.simulated.virtual_process import Process
from durability_lab.histories.sound_runs import SoundRuns
from durability_lab.histories.steps import History, Step
from durability_lab.histories.store_copies import StoreCopies

MS, S = 1_000_000, 1_000_000_000
_LESSER: dict[str, ProvableCutClass] = {"os": "os", "vm": "vm"}  # than what an attestation means by itself

_UNSHOWN_NS = 3 * S  # a client that is frozen for longer must not look like a cut
_REPORT_NS = 200 * MS  # in which a client tells how it is
_BOOT_S = 2.0
_ARMING_S = 3.0
_WRITING_S = 0.03
_LOOK_S = 0.005


@dataclass(slots=True)
class World:
    """One history as it goes on."""

    history: History
    directory: Path
    loop: VirtualLoop
    server: HistoryServer = field(init=False)
    store: StoreCopies = field(init=False)
    storage: HistoryStorage = field(init=False)
    cuts: list[PlayedCut] = field(default_factory=list)
    armed: list[int] = field(default_factory=list)  # those that the server armed on the drive as it is
    broken_before: list[Broken] = field(default_factory=list)  # by this drive, at its cuts
    _interrupted: bool = False  # what goes on has lost something
    ended_unheard: set[int] = field(default_factory=set)  # runs that stopped writing in a dead network
    restarted: set[int] = field(default_factory=set)  # runs whose machine was shut down in order
    ended: list[Process] = field(default_factory=list)  # clients of the past
    failed: set[int] = field(default_factory=set)  # runs with an I/O error
    failed_with_power: set[int] = field(default_factory=set)  # runs whose drive failed everything, with power
    names: dict[int, tuple[Path, str]] = field(default_factory=dict)  # by run: of its target and its drive
    unanswered: set[int] = field(default_factory=set)
    sound_runs: SoundRuns = field(default_factory=SoundRuns)
    lossy: set[int] = field(default_factory=set)
    metadata_lost: set[int] = field(default_factory=set)  # runs whose file system lost what they rest on
    frozen_ns: dict[int, int] = field(default_factory=dict)  # by run, since when its client is frozen
    frozen_shortly: set[int] = field(default_factory=set)  # runs whose client froze just before a cut
    pending: list[int] = field(default_factory=list)  # signals to a frozen client
    heard_since_ns: int | None = None  # since when the server has heard of the client as it is now
    dark_since_ns: int = 0  # when the network died last
    like_cuts: int = 0  # what a series may count though it was no cut
    unheard_ns: int = 60 * MS
    machine_up: bool = True
    boots: int = 1
    booted_ns: int = 0
    drives: int = 1
    copied: bool = False  # the drive as it is has a copy of the one before
    client: Process | None = None
    runs_before: int = 0  # on the drive when the client began

    def __post_init__(self) -> None:
        self.booted_ns = self.loop.now_ns - 100 * S
        self.server = HistoryServer(self.directory, self.loop)
        self.store = StoreCopies(self.directory)
        self.storage = self._drive()

    @property
    def known(self) -> set[int]:
        """The runs that the server's store has as armed, as it is now."""
        return self.store.known

    @property
    def standing(self) -> dict[int, str]:
        """The verdicts that the server's store has, as it is now; `play` keeps it."""
        return self.store.standing

    @property
    def sound(self) -> set[int]:
        """The runs that were cut under load, and nothing else happened to."""
        return self.sound_runs.sound

    @property
    def load_known(self) -> bool:
        """True: the drive has a pace of its own, and virtual time keeps it."""
        return True

    @property
    def plans(self) -> dict[int, Plan]:
        """Of the runs that wrote to the drive, in order."""
        return self.storage.drive.plans

    @property
    def network(self) -> VirtualNetwork:
        """The network between both machines."""
        return self.loop.network

    @property
    def client_alive(self) -> bool:
        """Whether a run goes on."""
        return self.client is not None and bool(self.client.tasks)

    @property
    def client_run(self) -> int:
        """The run of the client that lives or lived last; 0 before it has written anything."""
        return next(reversed(self.plans), 0) if len(self.plans) > self.runs_before else 0

    @property
    def reachable(self) -> bool:
        """Whether the drive has power, and its machine is up."""
        return self.machine_up and self.storage.drive.powered

    # What the truth is found from.

    @property
    def mistakable(self) -> bool:
        """Whether nothing that a system shows tells the drive from the one before it: they have one serial,
        or none and what was written."""
        serials = self.history.serials
        return self.drives > 1 and (serials == "same" or (serials == "none" and self.copied))

    def promised_ns(self) -> dict[int, int]:
        """By run, when the drive last promised an operation."""
        return self.storage.drive.promised_ns

    def promised(self, run: int) -> PromisedOperations | None:
        """What the drive promised of the run, and when."""
        return self.storage.drive.operations.get(run, PromisedOperations())

    def broken(self) -> list[Broken]:
        """The promises that the drive did not keep at one of its cuts, or does not keep now. What a later run
        wrote over them may hide them from a look at the end."""
        return [*self.broken_before, *self.broken_now()]

    def broken_now(self) -> list[Broken]:
        """The promises that the drive does not keep now."""
        return self.storage.drive.broken(self.storage.log)

    def metadata_broken(self, run: int) -> bool:
        """Whether the drive broke a promise to the file system, in a record that what the run wrote rests
        on: its own, or an earlier one. What a run wrote stays where it is when a later record is lost."""
        return run in self.metadata_lost or run in self._metadata_lost_now()

    def _metadata_lost_now(self) -> set[int]:
        if self.history.target == "device":
            return set()
        broken = [one.offset for one in self.storage.drive.broken(self.storage.log) if not one.promised]
        lost, end = set(), 0
        for one in (0, *self.plans):
            end = max(end, self.storage.drive.nameless_bytes.get(one, 0))
            if any(offset < end for offset in broken):
                lost.add(one)
        return lost

    def smaller(self, run: int) -> bool:
        """Whether the drive has power, and is smaller than it was when the run began."""
        drive = self.storage.drive
        return drive.powered and drive.size_bytes < drive.sizes.get(run, 0)

    def grown(self, run: int) -> bool:
        """Whether the drive was made larger since the run began."""
        drive = self.storage.drive
        sizes = [*drive.sizes.values(), drive.size_bytes][list(drive.sizes).index(run) :]
        return any(before < after for before, after in pairwise(sizes))

    def renamed(self, run: int) -> bool:
        """Whether the target, or its drive, has another name than when the run began to write."""
        return self.names.get(run, self._names_now) != self._names_now

    @property
    def _names_now(self) -> tuple[Path, str]:
        return self.storage.path, self.storage.serial

    def target(self) -> HistoryStorage:
        """The target, whatever became of it."""
        return self.storage

    # What the steps do.

    async def take(self, step: Step) -> VerifyAnswer | None:
        """One step; the answer of a `verify`."""
        self._note_runs()
        self.sound_runs.step(step, self.plans, client_alive=self.client_alive)
        if step.kind == "verify":
            return await self._verify(step)
        await getattr(self, f"_{step.kind}")(step)
        return None

    async def finish(self) -> VerifyAnswer | None:
        """What every history ends with: the plug is pulled, everything is put right again, and the operator
        verifies."""
        self._note_runs()
        self.storage.drive.hung, self.storage.drive.failing = False, ""
        if self.client_alive:
            await self._cut(Step("cut"))
        await self._network(Step("network", (("up", "yes"),)))
        await self._server(Step("server", (("how", "start"),)))
        await self._boot(Step("boot"))
        return await self._verify(Step("verify"))

    async def end(self) -> None:
        """Nothing happens any more."""
        await self._server(Step("server"))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(_LOOK_S)

    async def _run(self, step: Step) -> None:
        if not self.reachable or self.client_alive:
            return
        options = RunOptions(
            endpoint=self.server.endpoint,
            size_bytes=int(step["size_kib"]) << 10,
            workload=step["workload"] if self.history.target == "file" else DEFAULT,
            writers=int(step["writers"]),
            group=1 if step["sync"] == "dsync" else int(step["group"]),
            pattern="sequential" if step["pattern"] == "sequential" else None,
            sync="dsync" if step["sync"] == "dsync" else "fdatasync",
            destroy_data=True,
            force=True,
        )
        if not self.storage.mounted:
            self.storage.mount()
        self.runs_before = len(self.plans)
        self.client = Process("client")
        task = self.client.begin(self.loop, run(options, self.storage, io.StringIO()))
        if step["next"] != "armed":
            await asyncio.sleep(int(step["next"]) / 1000)
            return
        for _ in range(int(_ARMING_S / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            if task.done() or self._armed():
                break
        await asyncio.sleep(_WRITING_S)

    def _note_runs(self) -> None:
        """Note of each run what the next step may change."""
        self._armed()
        for one in self.plans:
            self.names.setdefault(one, self._names_now)
        if self.heard_since_ns is None:
            return
        if self.client_alive and not self.network.connected(self.client):
            self.heard_since_ns = self.loop.now_ns
        elif self.loop.now_ns - self.heard_since_ns > self._unheard_for_ns():
            self._forget_excuses()

    def _armed(self) -> bool:
        """Note which runs are armed; whether the newest is."""
        new = [run for run in self.server.armed() if run not in self.armed]
        self.armed += new
        self.known.update(new)
        return bool(self.plans) and list(self.plans)[-1] in self.armed

    async def _pass(self, step: Step) -> None:
        await asyncio.sleep(int(step["ms"]) / 1000)

    async def _error(self, step: Step) -> None:
        if self.storage.drive.powered:
            self.storage.drive.failing = "lasting" if step["lasting"] == "yes" else "once"
            self._meet_error()
            self._note_change()

    def _meet_error(self) -> None:
        """The client meets the error that the drive has for it."""
        run, failing = self.client_run, self.storage.drive.failing
        if failing and run not in self.failed and self._client_goes_on():
            self._stops_writing()
            self.failed.add(run)
            if failing == "lasting":
                self.failed_with_power.add(run)

    async def _hang(self, step: Step) -> None:
        self.storage.drive.hung = self.storage.drive.powered
        self._stops_writing()
        self._note_change()

    async def _answer(self, step: Step) -> None:
        self.storage.drive.hung = False
        self._note_change()

    async def _cut(self, step: Step) -> None:
        what = step["what"]
        drive = self.storage.drive
        if (what == "drive" and not drive.powered) or (what != "drive" and not self.machine_up):
            return
        self._note_cut(what)
        self._note_load(what)
        drive.node = step["node"]
        self._note_frozen()
        if what != "guest":
            self._lose_power()
        if what != "drive":
            self._die(silent=True)
            self.machine_up = False

    def _note_cut(self, what: str) -> None:
        self.cuts.append(
            PlayedCut(
                at_ns=self.loop.now_ns,
                what=what,
                promised_ns=dict(self.storage.drive.promised_ns),
                in_guest=self.history.in_guest,
            )
        )

    def _note_frozen(self) -> None:
        """The machine or the server goes: whether the server had no time to see that the client is frozen."""
        run = self.client_run
        if self.client_alive and self.loop.now_ns - self.frozen_ns.get(run, 0) <= _UNSHOWN_NS:
            self.frozen_shortly.add(run)

    def _note_load(self, what: str) -> None:
        """The cut comes: whether the newest run is a sound one."""
        run, drive = next(reversed(self.plans), 0), self.storage.drive
        if run:
            heard = self.server.runs and self.network.up and run in self.armed and run in self.known
            self.sound_runs.cut(
                what,
                self.plans[run],
                heard=heard and self.client_alive,
                at_ns=self.loop.now_ns,
                begun_ns=drive.begun_ns.get(run),
                promised_ns=drive.promised_ns.get(run, 0),
            )

    def _cut_while_read(self, what: str, node: str) -> None:
        """The drive, its machine, or the system of that goes in the middle of a scan."""
        drive = self.storage.drive
        drive.node = node
        self._note_cut(what)
        if what != "guest":
            self._lose_power()

    def _machine_goes(self, processes: Sequence[Process]) -> None:
        """It says nothing, and neither does what ran on it. Of a run that ended before, only the first boot
        after its cut shows when: nothing is due any more."""
        self.sound_runs.spoil(self.plans)
        self.network.darken(*self.ended, *processes)
        for process in processes:
            process.end()
            self.network.kill(process)
        self.storage.unlock()
        self.machine_up = False

    def _lose_power(self) -> None:
        if self.storage.drive.powered:  # one without power gives nothing back that shows what it has lost
            self.broken_before += self.storage.drive.broken(self.storage.log)
        self.storage.drive.cut()
        self.broken_before += self.storage.drive.broken(self.storage.log)
        self.metadata_lost |= self._metadata_lost_now()

    def _stops_writing(self) -> None:
        """The client writes no more from here on: if the network is dead, it does not use up its credit. If
        it had stopped long before the network died, the server knows."""
        run = self.client_run
        wrote_ns = self.storage.drive.promised_ns.get(run, 0)
        before_ns = self.dark_since_ns - _UNSHOWN_NS - self.unheard_ns
        if self.client_alive and not self.network.up and wrote_ns >= before_ns:
            self.ended_unheard.add(run)

    def _die(self, *, silent: bool) -> None:
        """The client's process is gone, with its machine or by itself."""
        if not silent:
            self._stops_writing()
        client, self.client = self.client, None
        self.pending = []
        if silent:
            self.network.darken(*self.ended, client)
        if client is None:
            return
        self.ended.append(client)
        client.end()
        self.network.kill(client)
        self.storage.unlock()

    async def _boot(self, step: Step) -> None:
        off = not self.reachable
        if not self.storage.drive.powered:
            self.storage.drive.power_on()
        if off and step["cut"] == "yes":
            await asyncio.sleep(_BOOT_S * 3 / 4)  # nothing that was promised before is at risk by now
            self._note_cut("drive" if self.machine_up else "machine")
            self._lose_power()
            return
        if not self.machine_up:
            await asyncio.sleep(_BOOT_S)
            self._start_machine()
        if not self.client_alive:
            self.storage.mount()

    def _start_machine(self) -> None:
        self.machine_up = True
        self.boots += 1
        self.booted_ns = self.loop.now_ns
        self.sound_runs.machine_starts(self.plans)
        self.network.reset_dark()

    async def _reboot(self, step: Step) -> None:
        if not self.machine_up:
            return
        await self._signal(signal.SIGTERM)
        self._die(silent=False)
        self.storage.unmount()
        self.like_cuts += bool(self.ended_unheard.intersection(self.plans) - self.restarted)
        self.restarted.update(self.plans)
        await asyncio.sleep(_BOOT_S)
        self.network.darken(*self.ended)  # what could not be sent by now never is
        self._start_machine()

    async def _unmount(self, step: Step) -> None:
        if self.reachable and not self.client_alive:
            self.storage.unmount()

    async def _move(self, step: Step) -> None:
        if self.history.target == "file" and not self.client_alive:
            self.storage.path = self.storage.path.with_name("renamed")

    async def _stop(self, step: Step) -> None:
        await self._signal(signal.SIGINT)

    async def _signal(self, number: int) -> None:
        client = self.client
        if client is None or number not in client.handlers:
            return
        if client.frozen:
            self.pending.append(number)
            return
        self._stops_writing()
        client.handlers[number]()
        for _ in range(400):
            if not client.tasks:
                return
            await asyncio.sleep(_LOOK_S)

    async def _freeze(self, step: Step) -> None:
        if self.client_alive and self.client is not None and not self.client.frozen:
            self._stops_writing()
            self.frozen_ns[self.client_run] = self.loop.now_ns
            self.client.freeze()
            self._note_change()

    async def _thaw(self, step: Step) -> None:
        if self.client is not None and self.client.frozen:
            self.frozen_ns.pop(self.client_run, None)
            self.client.thaw()
            self.network.thaw(self.client)
            pending, self.pending = self.pending, []
            self._meet_error()
            self._note_change()
            for number in pending:
                await self._signal(number)

    def _client_goes_on(self) -> bool:
        """Whether the client lives, and its system lets it run."""
        return self.client_alive and self.client is not None and not self.client.frozen

    def _note_change(self) -> None:
        """From now on the client, its drive or its way to the server is another than before."""
        self.heard_since_ns = self.loop.now_ns if self.network.up and self.server.runs else None

    def _unheard_for_ns(self) -> float:
        """How long it takes until the server has heard how the client is, or why it ended by itself."""
        if self.client_alive:
            return _REPORT_NS if self._client_goes_on() else _UNSHOWN_NS
        failed = self.client is not None and self.client_run in self.failed
        return _REPORT_NS if failed and self.network.heard_end(self.client) else math.inf

    def _forget_excuses(self) -> None:
        """The server has heard of the client: how it stopped before means nothing any more."""
        self.heard_since_ns = None
        self.ended_unheard.discard(self.client_run)
        if self._client_goes_on():
            self.frozen_shortly.discard(self.client_run)

    async def _kill(self, step: Step) -> None:
        self._die(silent=False)

    async def _network(self, step: Step) -> None:
        self._turn_network(up=step["up"] == "yes")
        stuck = self.storage.drive.hung or self.client_run in self.failed
        if stuck or not self._client_goes_on():
            self._stops_writing()

    def _turn_network(self, *, up: bool) -> None:
        """A network that dies takes with it what a client that had ended sent last."""
        if self.network.up and not up:
            self.dark_since_ns = self.loop.now_ns
        self.network.turn(up=up)
        if not up and self.ended and self.network.unheard(self.ended[-1]):
            self.ended_unheard.update(list(self.plans)[-1:])
        self._note_change()

    async def _resize(self, step: Step) -> None:
        if not self.client_alive:
            before_bytes = self.storage.drive.size_bytes
            self.storage.drive.resize(SIZE_BYTES * int(step["percent"]) // 100)
            self.like_cuts += self.storage.drive.size_bytes < before_bytes

    async def _replace(self, step: Step) -> None:
        if not self.client_alive and self.storage.drive.powered:
            self.drives += 1
            self.like_cuts += self.history.serials in ("same", "none")
            before, self.storage = self.storage, self._drive()
            self.copied = step["holds"] == "copy"
            if self.copied:
                self.storage.copy_from(before)
            self.broken_before = []
            self.armed = []
            self.runs_before = 0

    async def _renumber(self, step: Step) -> None:
        if not self.client_alive:
            self.storage.renumber()

    # The server.

    async def start(self) -> None:
        """Start the server."""
        await self.server.start()

    async def listed(self) -> dict[int, str]:
        """The verdict that `runs` shows of each run."""
        return await self.server.listed()

    async def _server(self, step: Step) -> None:
        how, server = step["how"], self.server
        if server.runs and how != "start":
            self._kill_server()
            await asyncio.sleep(_LOOK_S)
        if copy := self.store.restore(step):
            server.restore(copy)
        if how in ("restarted", "moved"):
            await asyncio.sleep(_BOOT_S)
            server.machine_changes(moved=how == "moved")
        if not server.runs and how != "kill":
            await server.start()
        self._note_change()

    def _kill_server(self) -> None:
        if self.server.runs:
            self._armed()
            self._note_frozen()
            self.server.kill()
            self._note_change()

    async def _copy(self, step: Step) -> None:
        self.server.copy(self.store.add_copy())
        case = await self.server.case_value(list(self.plans)[-1]) if self.plans else None
        if case is not None:
            self.store.add_export(case)

    # The operator.

    async def _verify(self, step: Step) -> VerifyAnswer | None:
        if not self.reachable or self.client_alive:
            return None
        export = self.store.export_for(step)
        if export is None and not (self.server.runs and self.network.up):
            return None
        older = step["run"] == "older" and len(self.plans) > 1
        attested = attests(step, self.cuts, list(self.plans)[-2 if older else -1 :][:1])
        options = VerifyOptions(
            target=self.storage.path,
            endpoint=None if export else self.server.endpoint,
            run=list(self.plans)[-2] if older and export is None else 0,
            attest_cut=ATTESTATION if attested else None,
            cut_class=_LESSER.get(step["cut_class"]) if attested else None,
            require_cut="os" if step["require"] == "os" else "power",
            min_cuts=int(step["min_cuts"]),
            from_export=export,
            json=True,
        )
        smaller = frozenset(run for run in self.plans if self.smaller(run))

        async def answered(output: VerifyOutput) -> VerifyAnswer:
            case = None
            if output.document is not None and export is not None:
                case = case_from_value(json.loads(export.read_text()))
            elif output.document is not None:
                case = await self.server.case(parse_run(output.document["run"]))
            return VerifyAnswer(
                step=step,
                at_ns=self.loop.now_ns,
                document=output.document,
                why=output.why,
                case=case,
                attested=attested,
                older=older or export is not None,
                exported=export is not None,
                smaller=smaller,
                interrupted=self._interrupted,
                recovered=recovered,
            )

        if not self.storage.mounted:
            self.storage.mount()  # a drive that had not recovered may have by now
        drive = self.storage.drive
        unread = drive.broken(self.storage.log) if drive.recovering else []
        first, *second = await self._verified(step, options)
        recovered = bool(unread) and not drive.recovering
        self.broken_before += unread if recovered else []
        answer = await answered(first)
        if second:
            answer = replace(answer, beside=replace(await answered(second[0]), interrupted=True))
        return answer

    async def _verified(self, step: Step, options: VerifyOptions) -> list[VerifyOutput]:
        """What `verify` printed, and another one beside it, where something may be lost meanwhile."""
        commands = VerifyCommands(self.loop, self.storage, options, beside=step["beside"] == "yes")
        drive = self.storage.drive
        self._interrupted = False
        drive.on_read = lambda: self._lose(step, commands.processes)
        drive.reads_left = int(step["cut_after"]) or None
        outputs = await commands.outputs()
        self.storage.unlock()
        drive.reads_left = None
        return outputs

    def _lose(self, step: Step, processes: Sequence[Process]) -> None:
        """What `verify`, the first of `processes`, loses in the middle of its reads."""
        self._interrupted = True
        what, process = step["loses"], processes[0]
        if what == "power":
            self._cut_while_read("drive", step["node"])
        elif what in ("machine", "guest"):
            self._cut_while_read(what, step["node"])
            self._machine_goes(processes)
        elif what == "server":
            self._kill_server()
        elif what == "network":
            self._turn_network(up=False)
        elif not process.dead:
            process.end()
            self.network.kill(process)
            self.storage.unlock()

    # The rest.

    def _drive(self) -> HistoryStorage:
        kind = HistoryFileStorage if self.history.target == "file" else HistoryStorage
        return kind(
            self.history.drive,
            seed=self.history.seed * 16 + self.drives,
            counters=self.history.counters,
            serials=self.history.serials,
            emulated=self.history.in_guest,
            loop=self.loop,
            host=self._host,
        )

    def _host(self) -> facts.Host:
        return facts.Host(
            machine_id="simulated-machine",
            boot_id=f"boot-{self.boots}",
            uptime_ns=self.loop.now_ns - self.booted_ns,
            kernel="simulated",
            virtualisation="kvm" if self.history.machine == "guest" else "none",
            hostname="simulated",
        )
