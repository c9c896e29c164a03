"""The controller and its processes, with commands as the switch: what takes effect when, whatever dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from durability.campaign.definition.settings import Power
from durability_server import clock
from durability_server.power import exchange, switches
from durability_server.power.controller import Controller
from tests.server.power.devices import hung, power, within
from tests.waiting import until, wait_for

pytestmark = pytest.mark.slow

DEADLINE_S = 120

# A slow `off` says that it began, and takes effect once the gate is open. A child in a session of its own
# does it, as agents have that log in through a terminal.
SWITCH = """
import os, pathlib, subprocess, sys
directory, action = pathlib.Path(sys.argv[1]), sys.argv[2]
if action == "status":
    sys.exit(0 if (directory / "state").read_text() == "on" else 2)
with (directory / "log").open("a") as log:
    log.write(f"{action} begins\\n")
if action == "slow":
    script = (
        "import pathlib, sys; directory = pathlib.Path(sys.argv[1]); (directory / 'gate').open().read();"
        " (directory / 'state').write_text('off'); (directory / 'log').open('a').write('slow ends\\\\n')"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(directory)], start_new_session=True)
    (directory / "processes").write_text(f"{os.getpid()} {child.pid}\\n")
    sys.exit(child.wait())
(directory / "state").write_text(action)
print(f"switched {action}")
"""


class Switch:
    """A switch that is on. Its `off`, if it is slow, waits until somebody opens the gate."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        (directory / "state").write_text("on")
        (directory / "log").touch()
        (directory / "switch.py").write_text(SWITCH)
        os.mkfifo(directory / "gate")
        self.power = power(
            "commands",
            on=self._command("on"),
            off=self._command("off"),
            status=self._command("status"),
        )
        self.slow = replace(self.power, options={**self.power.options, "off": self._command("slow")})

    def _command(self, action: str) -> str:
        return shlex.join([sys.executable, str(self.directory / "switch.py"), str(self.directory), action])

    @property
    def state(self) -> str:
        return (self.directory / "state").read_text()

    @property
    def log(self) -> list[str]:
        return (self.directory / "log").read_text().splitlines()

    @property
    def processes(self) -> list[int]:
        """Those of a slow `off`: the command, and its child in another session."""
        path = self.directory / "processes"
        text = path.read_text() if path.exists() else ""
        return [int(word) for word in text.split()] if text.endswith("\n") else []

    async def begun(self) -> list[int]:
        """The processes of the slow `off`, once it is under way."""
        await asyncio.to_thread(wait_for, lambda: bool(self.processes))
        return self.processes

    def open(self) -> None:
        """Lets the slow `off` go on."""
        (self.directory / "gate").write_text("")


def alive(process: int) -> bool:
    """Whether it runs; what is dead and not waited for does not."""
    with suppress(OSError):
        stat = Path(f"/proc/{process}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
    return False


@pytest.fixture
def switch(tmp_path: Path) -> Switch:
    return Switch(tmp_path / "switch")


async def test_commands_switch_and_say_the_state(controller: Controller, switch: Switch) -> None:
    """Commands are run for on, off and status; exit code 0 of status is on, 2 is off."""
    outcomes = [
        (await controller.ask(switch.power, operation)).outcome
        for operation in ("check", "off", "status", "check", "off", "on", "status")
    ]
    assert outcomes == ["on", "done", "off", "off", "done", "done", "on"]


async def test_a_controller_has_one_thread(controller: Controller, switch: Switch) -> None:
    """The controller forks, so nothing that it loads may start a thread."""
    assert (await controller.ask(switch.power, "status")).outcome == "on"
    assert _threads(controller.process) == 1


async def test_times_of_an_answer_surround_the_request(controller: Controller, switch: Switch) -> None:
    """An answer has the server's time before the command began and after it ended."""
    before_ns = clock.now_ns()
    answer = await controller.ask(switch.power, "off")
    assert before_ns <= answer.began_ns < answer.ended_ns <= clock.now_ns()
    assert answer.text == "switched off"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("sh -c 'echo no such outlet >&2; exit 7'", "no such outlet (exit code 7)"),
        ("sh -c 'kill -9 $$'", "no output (killed by signal 9)"),
        ("/does/not/exist", "/does/not/exist cannot be run: No such file or directory"),
        ("sh -c 'unfinished", "cannot be split into words"),
        ("sh -c 'printf \"\\033[2J\"; exit 1'", "\\x1b[2J (exit code 1)"),
    ],
)
async def test_a_command_that_fails_is_told(controller: Controller, command: str, text: str) -> None:
    """A failed command's last words are in the answer, as one plain line, with how it ended."""
    answer = await controller.ask(power("commands", on="true", off=command, status="true"), "off")
    assert answer.outcome == "failed"
    assert text in answer.text


async def test_a_status_that_is_neither_on_nor_off_has_failed(controller: Controller) -> None:
    """Other exit codes of status than 0 and 2 are failures, not a state."""
    for code in (1, 3, 127):
        switch = power("commands", on="true", off="true", status=f"sh -c 'exit {code}'")
        assert (await controller.ask(switch, "status")).outcome == "failed"


@pytest.mark.parametrize(
    "command", ["python3 /does/not/exist", "sh /does/not/exist", "grep on /does/not/exist"]
)
async def test_a_status_command_that_cannot_look_has_failed(controller: Controller, command: str) -> None:
    """Exit code 2 with an error on stderr, as of programs that do not find a file, is not "off"."""
    answer = await controller.ask(power("commands", on="true", off="true", status=command), "status")
    assert answer.outcome == "failed"
    assert "/does/not/exist" in answer.text
    assert "(exit code 2)" in answer.text


async def test_check_looks_for_all_commands(controller: Controller) -> None:
    """Check names a program that is not there, though it does not run `on` and `off`."""
    answer = await controller.ask(power("commands", on="true", off="/no/such one", status="true"), "check")
    assert answer.outcome == "failed"
    assert answer.text == "the command off cannot be run: there is no program /no/such"


async def test_a_missing_or_unknown_command_is_refused(controller: Controller) -> None:
    """A table without one of the commands, or with another key, is refused by check and by each request."""
    answer = await controller.ask(power("commands", on="true", off="true", stats="true"), "check")
    assert answer.outcome == "failed"
    assert answer.text == "commands has no option stats: did you mean status?"
    answer = await controller.ask(power("commands", on="true", off="true"), "status")
    assert (answer.outcome, "status is missing" in answer.text) == ("failed", True)


async def test_a_slow_request_delays_no_other_switch(
    controller: Controller, switch: Switch, tmp_path: Path
) -> None:
    """While one switch takes its time, others are asked and answer."""
    other = Switch(tmp_path / "other")
    slow = asyncio.create_task(controller.ask(switch.slow, "off"))
    await switch.begun()
    assert (await controller.ask(other.power, "off")).outcome == "done"
    assert not slow.done() and switch.state == "on"
    switch.open()
    assert (await slow).outcome == "done"


async def test_requests_to_a_switch_keep_their_order(controller: Controller, switch: Switch) -> None:
    """A request begins after the one before it to the same switch has ended; also if its caller went away."""
    slow = asyncio.create_task(controller.ask(switch.slow, "off"))
    await switch.begun()
    slow.cancel()
    later = [asyncio.create_task(controller.ask(switch.slow, operation)) for operation in ("on", "status")]
    await asyncio.sleep(0)
    assert switch.log == ["slow begins"]
    switch.open()
    assert [(await task).outcome for task in later] == ["done", "on"]
    assert switch.log == ["slow begins", "slow ends", "on begins"]


async def test_a_request_that_hangs_ends_with_all_it_started(controller: Controller, switch: Switch) -> None:
    """After its time a request has failed, none of its processes is left, and the next one may begin."""
    text = await hung(controller, switch.slow, "off", lambda: bool(switch.processes))
    assert text == "no answer within 5 s, and was stopped: it may have obeyed or not"
    assert not any(alive(process) for process in switch.processes)
    assert (await controller.ask(switch.slow, "status")).outcome == "on"


async def test_a_request_waits_for_the_one_before_within_its_time(
    controller: Controller, switch: Switch
) -> None:
    """A request whose turn does not come in time has failed and never begins."""
    slow = asyncio.create_task(controller.ask(switch.slow, "off"))
    await switch.begun()
    answer = await controller.ask(within(0.2, switch.slow), "on")
    assert (answer.outcome, "an earlier request" in answer.text) == ("failed", True)
    switch.open()
    assert (await slow).outcome == "done"
    assert (await controller.ask(switch.slow, "status")).outcome == "off"
    assert switch.log == ["slow begins", "slow ends"]


async def test_another_controller_keeps_its_lock(
    controller: Controller, switch: Switch, tmp_path: Path
) -> None:
    """While anything holds a switch's lock, nothing is asked of it; afterwards it is."""
    (tmp_path / "switches").mkdir()
    path = tmp_path / "switches" / f"{switches.identity(exchange.SwitchAccess.of(switch.power))}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = await controller.ask(within(0.5, switch.power), "off")
        assert (answer.outcome, switch.log) == ("failed", [])
        waiting = asyncio.create_task(controller.ask(switch.power, "off"))
    assert (await waiting).outcome == "done"


async def test_a_killed_controller_leaves_nothing_behind(controller: Controller, switch: Switch) -> None:
    """SIGKILL of the controller in the middle of `off`: the request failed, and the next controller's `on`
    begins after all of it is gone, so that it stays on."""
    slow = asyncio.create_task(controller.ask(switch.slow, "off"))
    begun = await switch.begun()
    assert controller.process is not None
    first = controller.process
    os.kill(first, signal.SIGKILL)
    answer = await slow
    assert answer.outcome == "failed"
    assert "may have obeyed" in answer.text
    assert (await controller.ask(switch.slow, "on")).outcome == "done"
    assert not any(alive(process) for process in begun)
    assert controller.process != first
    assert (switch.state, switch.log) == ("on", ["slow begins", "on begins"])


async def test_a_killed_process_of_a_request_leaves_nothing_behind(
    controller: Controller, switch: Switch
) -> None:
    """SIGKILL of the one process that asks a switch: the request failed, what it started in its session is
    gone before the next one begins, and the controller goes on. Also if the controller is killed with it."""
    off = replace(switch.slow, options={**switch.slow.options, "off": "sh -c 'sleep 1000 & wait'"})
    slow = asyncio.create_task(controller.ask(off, "off"))
    await until(lambda: controller.process is not None)
    assert controller.process is not None
    first = controller.process
    await asyncio.to_thread(wait_for, lambda: len(_descendants(first)) == 3)
    asking, *started = _descendants(first)
    os.kill(asking, signal.SIGKILL)
    assert (await slow).outcome == "failed"
    assert (await controller.ask(off, "on")).outcome == "done"
    assert not any(alive(process) for process in started)
    assert controller.process == first


async def test_deaths_at_any_moment_never_mix_requests(controller: Controller, tmp_path: Path) -> None:
    """Controller and processes of requests are killed at moments drawn at random: no request does anything
    once a later one has begun, and the last one is done."""
    seed = random.getrandbits(32)
    draw = random.Random(seed)
    script = tmp_path / "command"
    log = tmp_path / "log"
    script.write_text(f"#!/bin/sh\necho begins $$ >> {log}\n(sleep 0.05; echo ends $$ >> {log}) &\nwait\n")
    script.chmod(0o755)
    commands = power("commands", on=str(script), off=str(script), status=str(script))
    assert (await controller.ask(commands, "on")).outcome == "done"
    for _ in range(40):
        asked = asyncio.create_task(controller.ask(commands, draw.choice(["on", "off", "status"])))
        await asyncio.sleep(draw.uniform(0, 0.15))
        if (first := controller.process) is not None:
            for process in draw.choice([[first], _descendants(first)[:1], [*_descendants(first)[:1], first]]):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        await asked
    await controller.ask(commands, "on")  # it may have gone to a controller that was killed a moment ago
    assert (await controller.ask(commands, "on")).outcome == "done", seed
    begun: list[str] = []
    for line in log.read_text().splitlines():
        what, who = line.split()
        begun += [who] if what == "begins" else []
        assert begun[-1] == who, (seed, line)
    assert len(begun) > 2, seed


async def test_a_controller_that_is_closed_ends_what_it_started(switch: Switch, tmp_path: Path) -> None:
    """`close` ends requests under way with all their processes."""
    controller = Controller(tmp_path / "switches")
    slow = asyncio.create_task(controller.ask(switch.slow, "off"))
    begun = await switch.begun()
    await controller.close()
    assert (await slow).outcome == "failed"
    assert not any(alive(process) for process in begun)
    assert controller.process is None


async def test_a_server_that_dies_takes_all_of_it_along(switch: Switch, tmp_path: Path) -> None:
    """SIGKILL of the server in the middle of `off`: controller, request and all that it started end; another
    server's `on` on the same locks comes after them."""
    script = (
        "import asyncio, sys; from pathlib import Path;"
        " from durability.campaign.definition.settings import Power;"
        " from durability_server.power.controller import *;"
        " power = Power(kind='commands', agent='', options={'on': 'true', 'off': sys.argv[2],"
        " 'status': 'true'}, timeout_s=100, machine='');"
        " asyncio.run(Controller(Path(sys.argv[1])).ask(power, 'off'))"
    )
    off = switch.slow.options["off"]
    command = [sys.executable, "-c", script, str(tmp_path / "switches"), off]
    server = subprocess.Popen(command)  # noqa: ASYNC220 - started at once
    try:
        begun = await switch.begun()
        family = _descendants(server.pid)
        assert set(begun) <= set(family)
    finally:
        server.kill()
        server.wait()
    await asyncio.to_thread(wait_for, lambda: not any(alive(process) for process in family))
    assert (switch.state, switch.log) == ("on", ["slow begins"])


async def test_what_a_command_leaves_in_its_group_ends_and_a_daemon_lives(
    controller: Controller, tmp_path: Path
) -> None:
    """When a command ended, the rest of its process group is killed; what it began in a session of its own,
    such as a virtual machine, lives on and holds no lock."""
    script = tmp_path / "on"
    script.write_text(
        "#!/bin/sh\n"
        f"sleep 1000 & echo $! > {tmp_path}/left\n"
        f"setsid sh -c 'echo $$ > {tmp_path}/daemon; exec sleep 1000' &\n"
        f"while [ ! -s {tmp_path}/daemon ]; do sleep 0.01; done\n"
    )
    script.chmod(0o755)
    machine = power("commands", on=str(script), off="true", status="true")
    assert (await controller.ask(machine, "on")).outcome == "done"
    assert (await controller.ask(machine, "off")).outcome == "done"
    daemon = int((tmp_path / "daemon").read_text())
    try:
        assert not alive(int((tmp_path / "left").read_text()))
        assert alive(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)


async def test_a_command_that_says_a_lot_is_heard_to_its_end(controller: Controller) -> None:
    """Output beyond any pipe's room does not stop a command, and the answer has little of it."""
    chatty = power("commands", on="true", off="head --bytes 3000000 /dev/zero", status="true")
    answer = await controller.ask(chatty, "off")
    assert answer.outcome == "done"
    assert len(answer.text) < 2100


async def test_the_lock_directory_cannot_be_made(tmp_path: Path, switch: Switch) -> None:
    """Where the locks cannot be, requests fail and nothing is asked."""
    (tmp_path / "file").touch()
    controller = Controller(tmp_path / "file" / "switches")
    answer = await controller.ask(switch.power, "off")
    assert (answer.outcome, "cannot be started" in answer.text) == ("failed", True)
    assert switch.log == []
    await controller.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (power("tasmota", "192.0.2.7"), power("tasmota", "http://192.0.2.7/", relay="1"), True),
        (power("tasmota", "plug.example"), power("tasmota", "Plug.Example", username="u"), True),
        (power("tasmota", "192.0.2.7"), power("tasmota", "192.0.2.7", relay="2"), False),
        (power("shelly", "192.0.2.7"), power("tasmota", "192.0.2.7", relay="0"), False),
        (
            power("fence", "fence_apc", ip="a", plug="1"),
            power("fence", "fence_apc", ipaddr="a", port="1"),
            True,
        ),
        (power("fence", "fence_apc", ip="a", plug="1"), power("fence", "fence_apc", ip="a", plug="2"), False),
        (
            power("fence", "fence_apc", ip="a", plug="1"),
            power("fence", "fence_apc_snmp", ip="A", plug="1"),
            True,
        ),
        (
            power("fence", "fence_lpar", ip="a", plug="1", managed="x"),
            power("fence", "fence_lpar", ip="a", plug="1", managed="y"),
            False,
        ),
        (power("shelly", "192.0.2.7"), power("shelly", "http://192.0.2.7:80"), True),
        (power("commands", on="a", off="b"), power("commands", on="a", off="c"), False),
        (power("commands", on="a", off="b"), power("commands", on="d", off="b", status="e"), True),
    ],
)
def test_tables_of_one_outlet_have_one_lock(one: Power, other: Power, same: bool) -> None:
    """Different ways to write one outlet of one device share its lock, and other outlets have their own."""
    assert (
        switches.identity(exchange.SwitchAccess.of(one)) == switches.identity(exchange.SwitchAccess.of(other))
    ) is same


def _threads(process: int | None) -> int:
    return len(list(Path(f"/proc/{process}/task").iterdir()))


def _descendants(process: int) -> list[int]:
    """Children first, then theirs."""
    found = []
    with suppress(OSError):
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        for child in map(int, children):
            found += [child, *_descendants(child)]
    return found
