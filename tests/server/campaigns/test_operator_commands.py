"""What an operator types, against a real server and a played machine: each command says what it did."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.tasks import Condition, Status
from durability.errors import RefusedError, SetupError, UsageError
from durability.protocol import messages
from durability.protocol.local_address import socket_name
from durability_client.campaigns import campaign_command
from durability_client.link.endpoint import Endpoint
from tests import waiting
from tests.server.campaigns.played_machine import Machine, switch
from tests.server.campaigns.test_campaigns import living, until
from tests.server.conftest import Lab, Running

pytestmark = pytest.mark.slow  # each begins campaigns

COLUMNS = 80
START = """
import asyncio, sys
from pathlib import Path
from durability.errors import DurabilityError
from durability_client.campaigns import campaign_command
from durability_client.link.endpoint import Endpoint
server, file = Endpoint(local=Path(sys.argv[1])), Path(sys.argv[2])
work = campaign_command.start(server, file, yes=False, out=sys.stdout, err=sys.stderr)
try:
    sys.exit(asyncio.run(work))
except DurabilityError as error:
    sys.exit(str(error))
"""


def write_file(path: Path, power: Path, *, cuts: int = 3, machine: str = "test") -> Path:
    """A campaign file whose switch is the file `power`."""
    options = switch(power).options
    commands = "\n".join(f'{name} = "{command}"' for name, command in options.items())
    path.write_text(
        f'[campaign]\nmachine = "{machine}"\ncuts = {cuts}\ncut_after_s = [0.05, 0.1]\noff_s = [0.05, 0.1]\n'
        f'[power]\n{commands}\ncut_class = "power"\n'
        '[[drive]]\nname = "ssd"\ntarget = "/mnt/t"\n'
    )
    return path


def operator(lab: Lab, running: Running) -> Endpoint:
    """The server as its operator has it."""
    return Endpoint(local=lab.directory / socket_name(running.address[1]))


def is_over(state: CampaignState) -> bool:
    """Whether nothing more comes."""
    return state.state == "ended"


async def test_check_start_status_show_and_export(
    lab: Lab, sqlite_url: str, tmp_path: Path, power: Path
) -> None:
    """From the check to what is taken away; its tables fit into 80 columns."""
    running = await lab.start(sqlite_url)
    server = operator(lab, running)
    file = write_file(tmp_path / "ssd.toml", power)
    out, err = io.StringIO(), io.StringIO()
    async with living(Machine(lab, running.address, power, verdicts={"ssd": ["durable", "loss"]})):
        assert await campaign_command.check(server, file, yes=True, out=out, err=err) == 0
        assert "Check passed: the switches cut test" in out.getvalue()
        assert "switch 1: off: done" in err.getvalue()
        await campaign_command.start(server, file, yes=True, out=out, err=err)
        assert "3 cuts for each drive" in err.getvalue() and "Campaign ssd has begun" in out.getvalue()
        await until(lab, running, is_over, "ssd")
    shown = io.StringIO()
    await campaign_command.status(server, None, json=False, out=shown)
    tables = [line for line in shown.getvalue().splitlines() if line.startswith(("drive", "ssd "))]
    assert len(tables) == 2 and max(map(len, tables)) <= COLUMNS
    assert "campaign ssd: ended: no drive is left to test" in shown.getvalue()
    assert "LOSS in 1 of 2 cuts, first in cycle 2" in " ".join(shown.getvalue().split())
    whole = io.StringIO()
    await campaign_command.show(server, "ssd", log=True, health=True, json=False, out=whole)
    assert "ssd lost data in cycle 2: `durability show " in whole.getvalue()
    assert "switch 1: status: off" in whole.getvalue()
    assert "health of ssd (serial S1, firmware 1, 2 cycles)" in whole.getvalue()
    assert [line.split()[0] for line in whole.getvalue().splitlines() if line.endswith(" 1 GiB")] == [
        *("check", "1", "2")
    ]
    export, junit = tmp_path / "ssd.json", tmp_path / "ssd.xml"
    out, err = io.StringIO(), io.StringIO()
    await campaign_command.export(server, "ssd", output=export, junit=junit, out=out, err=err)
    assert not out.getvalue() + err.getvalue()
    document = json.loads(export.read_text())
    assert document["schema"] == "durability.campaign/1" and len(document["runs"]) == 2
    assert all(run["case"]["power_offs"] for run in document["runs"].values())
    assert [row["cycle"] for row in document["health"][0]["rows"]] == [0, 1, 2]
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "0")
    with pytest.raises(SetupError, match="exists"):
        await campaign_command.export(server, "ssd", output=export, junit=None, out=out, err=err)


async def test_an_export_names_the_runs_that_it_lacks(
    lab: Lab, sqlite_url: str, tmp_path: Path, power: Path
) -> None:
    """An export names the runs that are unreadable or missing in the store, and has all others and the JUnit
    report. If the whole store fails, there is no export."""
    running = await lab.start(sqlite_url)
    server = operator(lab, running)
    file = write_file(tmp_path / "ssd.toml", power, cuts=4)
    out, err = io.StringIO(), io.StringIO()
    async with living(Machine(lab, running.address, power)) as machine:
        await campaign_command.start(server, file, yes=True, out=out, err=err)
        await until(lab, running, is_over, "ssd")
    damaged, *others, gone = machine.armed
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database, database:
        database.execute("UPDATE runs SET armed = x'ff' WHERE run = ?", (damaged,))
        database.execute("DELETE FROM runs WHERE run = ?", (gone,))
    exported, said, junit = io.StringIO(), io.StringIO(), tmp_path / "ssd.xml"
    await campaign_command.export(server, "ssd", output=None, junit=junit, out=exported, err=said)
    document = json.loads(exported.getvalue())
    assert [*document["runs"]] == others and document["missing_runs"] == {
        damaged: "not a valid Facts: the whole: Input should be a dictionary or an instance of Facts",
        gone: f"this server knows of no run {gone}",
    }
    assert f"the export lacks run {gone}: " in " ".join(said.getvalue().split())
    (suite,) = ElementTree.parse(junit).getroot()
    assert suite.get("tests") == "5"
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database, database:
        database.execute("ALTER TABLE verdicts RENAME TO hidden")
    with pytest.raises(RefusedError) as refused:
        await campaign_command.export(server, "ssd", output=None, junit=None, out=exported, err=said)
    assert refused.value.code == "store-unavailable"


async def test_a_failed_check_exits_with_5(lab: Lab, sqlite_url: str, tmp_path: Path, power: Path) -> None:
    """The reasons are printed; the same file can be checked again once it is mended."""
    running = await lab.start(sqlite_url)
    server = operator(lab, running)
    file = write_file(tmp_path / "ssd.toml", power.with_name("missing") / "power")
    out = io.StringIO()
    async with living(Machine(lab, running.address, power)):
        assert await campaign_command.check(server, file, yes=True, out=out, err=io.StringIO()) == 5
        assert "Check failed:" in out.getvalue() and "commands" in out.getvalue()
        write_file(file, power)
        assert await campaign_command.check(server, file, yes=True, out=out, err=io.StringIO()) == 0


async def test_a_check_that_is_paused_says_how_it_goes_on(
    lab: Lab, sqlite_url: str, tmp_path: Path, power: Path
) -> None:
    """It has not failed: the campaign goes on to have its machine, until it is resumed or stopped."""
    running = await lab.start(sqlite_url)
    server = operator(lab, running)
    file = write_file(tmp_path / "ssd.toml", power)
    out, err = io.StringIO(), io.StringIO()
    check = asyncio.create_task(campaign_command.check(server, file, yes=True, out=out, err=err))
    await waiting.until(lambda: "the check begins" in err.getvalue())  # no agent comes
    await campaign_command.steer(server, "ssd", "pause", out=io.StringIO())
    assert await check == 5
    said = " ".join(out.getvalue().split())
    assert said.startswith(
        "Check paused: an operator asked for it. No other campaign can have test before"
    ), said
    assert "`durability campaign resume ssd` makes the check again" in said and "failed" not in said
    await campaign_command.steer(server, "ssd", "stop", out=io.StringIO())


async def test_what_cannot_be_is_refused(lab: Lab, sqlite_url: str, tmp_path: Path, power: Path) -> None:
    """Each refusal says why: no terminal and no --yes, a machine that is taken, unknown campaigns, others."""
    running = await lab.start(sqlite_url)
    server = operator(lab, running)
    file = write_file(tmp_path / "one.toml", power, cuts=59)
    with pytest.raises(UsageError, match="nothing was begun"):
        await campaign_command.start(server, file, yes=False, out=io.StringIO(), err=io.StringIO())
    with pytest.raises(SetupError, match="cannot read the campaign file"):
        await campaign_command.start(
            server, tmp_path / "none.toml", yes=True, out=io.StringIO(), err=io.StringIO()
        )
    told = io.StringIO()
    begun = asyncio.create_task(campaign_command.start(server, file, yes=True, out=io.StringIO(), err=told))
    async with asyncio.timeout(60):  # no agent comes, so it waits for its check
        while "the check begins" not in told.getvalue():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
    begun.cancel()
    with pytest.raises(RefusedError, match="campaign one is running"):
        await campaign_command.start(server, file, yes=True, out=io.StringIO(), err=(err := io.StringIO()))
    assert err.getvalue() == "", "nothing is said of data before it is refused"
    other = write_file(tmp_path / "two.toml", power)
    with pytest.raises(RefusedError, match="machine test belongs to campaign one"):
        await campaign_command.start(server, other, yes=True, out=io.StringIO(), err=io.StringIO())
    with pytest.raises(RefusedError, match="no campaign 'three'"):
        await campaign_command.steer(server, "three", "stop", out=io.StringIO())
    with pytest.raises(RefusedError, match="is not paused"):
        await campaign_command.steer(server, "one", "resume", out=io.StringIO())
    member = lab.members[running.address]
    client = Endpoint(
        addresses=(running.address,),
        fingerprint=member.fingerprint,
        client=member.client,
        secret=member.secret,
    )
    with pytest.raises(RefusedError, match="shown to operators and viewers"):
        await campaign_command.status(client, None, json=False, out=io.StringIO())
    local = await lab.connect(running.address, "operate", local=True)
    invited = await local.ask(messages.Invite(role="operator", name="far"), messages.Invited)
    far = await lab.join(running.address, invited.line, name="far")
    remote = Endpoint(
        addresses=(running.address,), fingerprint=far.fingerprint, client=far.client, secret=far.secret
    )
    with pytest.raises(RefusedError, match="on the server's own machine"):
        await campaign_command.start(remote, other, yes=True, out=io.StringIO(), err=io.StringIO())
    await campaign_command.steer(remote, "one", "stop", out=io.StringIO())


async def test_a_start_waits_for_its_check(lab: Lab, sqlite_url: str, tmp_path: Path, power: Path) -> None:
    """Without a check of the same file, `start` says what that found, and exits with 5 if it fails: nothing
    is begun then."""
    running = await lab.start(sqlite_url)
    server = operator(lab, running)
    file = write_file(tmp_path / "ssd.toml", power.with_name("missing") / "power", cuts=1)
    out, err = io.StringIO(), io.StringIO()
    async with living(Machine(lab, running.address, power, verdicts={"ssd": ["durable"]})):
        assert await campaign_command.start(server, file, yes=True, out=out, err=err) == 5
        assert "Check failed:" in out.getvalue() and "has begun" not in out.getvalue()
        write_file(file, power, cuts=1)
        out, err = io.StringIO(), io.StringIO()
        assert await campaign_command.start(server, file, yes=True, out=out, err=err) == 0
        assert "Campaign ssd has begun" in out.getvalue()
        assert "ssd: " in err.getvalue() and "serial S1" in err.getvalue()
        await until(lab, running, is_over, "ssd")


async def test_at_a_terminal_the_drives_are_shown_before_the_question(
    lab: Lab, sqlite_url: str, tmp_path: Path, power: Path
) -> None:
    """The check comes first, with a question of its own; then the operator sees what each drive is and
    holds, and only a second yes begins the campaign."""
    running = await lab.start(sqlite_url)
    file = write_file(tmp_path / "ssd.toml", power, cuts=1)
    where = str(operator(lab, running).local)
    async with living(Machine(lab, running.address, power, verdicts={"ssd": ["durable"]})):
        code, said = await asyncio.to_thread(at_terminal, where, str(file), "y", "n")
        assert code != 0 and "nothing was begun" in said, said
        code, said = await asyncio.to_thread(at_terminal, where, str(file), "y")
        assert code == 0 and "Campaign ssd has begun" in said, said
        await until(lab, running, is_over, "ssd")
    found = said.index("serial S1")
    assert said.index("/mnt/t (") < found < said.index("Begin?"), said
    assert "Switch off and on" not in said, "the check of before holds"


class Old(Machine):
    """One whose agent is of release 0.1; its drive holds something."""

    def _status(self) -> Status:
        return replace(super()._status(), software="durability 0.1.0")

    def _condition(self) -> Condition:
        return replace(super()._condition(), holds="ext4")


async def test_a_second_check_is_announced(lab: Lab, sqlite_url: str, tmp_path: Path, power: Path) -> None:
    """An agent of release 0.1 makes a check that counts no longer once the campaign begins: the operator
    learns that before the second yes, and what the other check found after it."""
    running = await lab.start(sqlite_url)
    file = write_file(tmp_path / "ssd.toml", power, cuts=1)
    file.write_text(
        file.read_text().replace('target = "/mnt/t"', 'device = "/dev/sdb"\nfile_system = "ext4"')
    )
    async with living(Old(lab, running.address, power)) as machine:
        where = str(operator(lab, running).local)
        code, said = await asyncio.to_thread(at_terminal, where, str(file), "y", "y")
    assert code == 0 and said.count("Check passed") == 2, said
    assert said.index("begins with another check") < said.index("Begin?"), said
    assert [task.kind for task in machine.tasks].count("examine") == 4, "before and after each cut"


def at_terminal(where: str, file: str, *answers: str) -> tuple[int, str]:
    """Exit code and output of `campaign start` at a terminal, where each question gets the next answer."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", START, where, file])
    said, asked = b"", 0
    while True:
        try:
            said += os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if said.count(b"[y/N]") > asked:
            os.write(terminal, f"{answers[asked]}\n".encode())
            asked += 1
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), " ".join(said.decode().split())
