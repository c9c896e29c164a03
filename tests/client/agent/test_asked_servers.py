"""What the agent asks its server before it judges or erases: each question is a program, and here a shell
script gives its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from durability.campaign.tasks import TaskKind
from durability.errors import EXIT_ENVIRONMENT, EXIT_LOSS, EXIT_OK, NOT_STORED, PERHAPS_NOT_STORED
from durability_client.agent import run_child
from durability_client.agent.abandonable_calls import Children
from durability_client.agent.drive_status import TaskPart
from durability_client.agent.drives import DriveError, FoundDrive, find
from durability_client.agent.run_child import Verify
from durability_client.agent.same_drive import is_on
from durability_client.target.discovery import collect
from tests.client.agent.task_server import Tasks, drive_on

RUN, EARLIER = "00000000000000bb", "00000000000000aa"
NOWHERE = FoundDrive(name="", leaves=(), serial="", diskseqs=())


def work_of(kind: TaskKind) -> TaskPart:
    task = Tasks((drive_on("/dev/sdx"),)).make(kind, run=RUN)
    return TaskPart(task, task.drives[0], lambda _: None)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """A function that has each command say something and end; the file in which each leaves its name."""
    asked = tmp_path / "asked"
    asked.touch()

    def give(says: dict[str, object], ends: dict[str, int] | None = None) -> Path:
        def command(*words: str) -> Sequence[str]:
            name = next((one for one in (" ".join(words[:2]), words[0]) if one in says), "")
            said = json.dumps(says[name]) if name else "none"
            code = (ends or {}).get(words[0], 0)
            return "/bin/sh", "-c", f"echo {words[0]} >> {asked}; echo '{said}'; exit {code}"

        monkeypatch.setattr(run_child, "own_command", command)
        monkeypatch.setattr(run_child, "BETWEEN_TRIES_S", 0.0)
        return asked

    return give


def verify_of() -> Verify:
    online = asyncio.Event()
    online.set()
    return Verify(Children(), (), online)


def past(verdict: str, cut_class: str = "power", *reasons: str) -> dict[str, object]:
    """A verdict, as `show` has it."""
    return {
        "run": RUN,
        "verdict": verdict,
        "cut_class": cut_class,
        "at_risk_ms1000": 0,
        "wall": "2027-01-01T00:00:00Z",
        "reasons": reasons,
    }


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ([past("durable")], EXIT_OK),
        ([past("durable", "os")], None),
        ([past("loss", "power", "findings")], EXIT_LOSS),
        ([past("loss", "power", "findings"), past("inconclusive", "power", "nothing-at-risk")], EXIT_LOSS),
        ([past("loss", "power", "findings", "unreadable-only")], None),
        ([past("inconclusive", "power", "nothing-at-risk")], None),
        ([past("inconclusive", "none", "scan-unfinished"), past("durable")], EXIT_OK),
        ([], None),
    ],
)
async def test_a_verdict_that_people_had_made_is_not_made_again(
    answer: Callable[..., Path], given: list[object], known: int | None
) -> None:
    """A task to verify asks for it first: the drive may have been erased since. What another verify may add
    to or withdraw, and what is of a weaker class of cut than the campaign's, is judged."""
    asked = answer({"show": {"case": {"verdicts": given}}})
    work = work_of("verify")
    code = await verify_of().judge(work, Path("/dev/sdx"), RUN)
    assert code == work.status.exit_code == (EXIT_OK if known is None else known)
    assert asked.read_text().split() == (["show", "verify"] if known is None else ["show"])


async def test_nothing_is_judged_while_the_server_does_not_say_its_verdict(
    answer: Callable[..., Path],
) -> None:
    """While the server cannot say whether a run has a verdict, the agent does not verify the run. The server
    may return with one just before the verify."""
    asked = answer({}, {"show": EXIT_ENVIRONMENT})
    with pytest.raises(DriveError) as error:
        await verify_of().judge(work_of("verify"), Path("/dev/sdx"), RUN)
    assert error.value.trouble == "not-verified"
    assert set(asked.read_text().split()) == {"show"}


async def test_a_drive_is_looked_at_again_before_each_verify(answer: Callable[..., Path]) -> None:
    """The server was away at the first one, and the owner erased the drive until it was back."""
    asked = answer({}, {"verify": EXIT_ENVIRONMENT})

    async def check() -> None:
        if asked.read_text():
            raise DriveError("not-verified", "it is not there")

    with pytest.raises(DriveError, match="it is not there"):
        await verify_of().judge(work_of("run"), Path("/dev/sdx"), RUN, check=check)
    assert asked.read_text().split() == ["verify"]


def row(run: str, *, path: str = "/mnt/target", label: str = "campaign 3") -> dict[str, object]:
    """A run, as `runs` lists it."""
    return {"run": run, "path": path, "label": label, "verdict": ""}


def case(*, armed: bool, verdicts: Sequence[object] = (), session_end: str = "silent") -> dict[str, object]:
    """A run, as `show` has it."""
    facts: dict[str, object] | None = {} if armed else None
    return {"case": {"label": "campaign 3", "armed": facts, "verdicts": verdicts, "session_end": session_end}}


STOPPED = case(armed=True, session_end="stop")


@pytest.mark.parametrize(
    ("newest", "due"),
    [
        (case(armed=True), RUN),
        (STOPPED, RUN),
        (case(armed=True, verdicts=[past("inconclusive")]), ""),
        (case(armed=False), ""),  # its file system took the place of that of the earlier run
    ],
)
async def test_only_the_newest_run_on_a_path_may_be_due(
    answer: Callable[..., Path], newest: dict[str, object], due: str
) -> None:
    """An earlier one was overwritten by it, so nothing on the drive could answer for that. Runs of others,
    and on other paths, say nothing."""
    rows = [
        row("0000000000000001", label="by hand"),
        row("0000000000000002", path="/mnt/other"),
        row(RUN),
        row(EARLIER),
    ]
    answer({"runs": {"runs": rows}, f"show {RUN}": newest, f"show {EARLIER}": case(armed=True)})
    for or_stopped in (False, True):
        found = await verify_of().due_on(work_of("run"), NOWHERE, Path("/mnt/target"), or_stopped=or_stopped)
        assert found == (due if or_stopped or newest is not STOPPED else "")


def test_a_run_on_a_device_is_known_by_its_drive(make_loop: Callable[..., Path]) -> None:
    """After a boot the drive may have another's name, and another one its own. Only one without a serial is
    known by its name, on its own machine."""
    mine, other = make_loop(), make_loop()
    facts = collect(mine, "device")
    here, there = (find(drive_on(one, ""), "") for one in (mine, other))
    renamed = replace(facts, path=str(other))
    assert [is_on(here, one) for one in (facts, renamed)] == [True, True]
    assert [is_on(there, one) for one in (facts, renamed)] == [False, False]
    nameless = replace(here, serial="")
    assert [is_on(nameless, one) for one in (facts, renamed)] == [True, False]
    elsewhere = replace(facts, host=replace(facts.host, machine_id="another"))
    assert not is_on(nameless, elsewhere)
    assert not is_on(here, replace(facts, kind="file"))


@pytest.mark.parametrize("words", [NOT_STORED, PERHAPS_NOT_STORED])
async def test_a_verdict_that_may_not_be_stored_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    """`verify` exits normally but warns that its verdict may not be stored, so the agent verifies again."""
    asked = tmp_path / "asked"
    script = f"test -e {asked} || echo 'warning: {words}: it is away' >&2; echo verify >> {asked}"
    monkeypatch.setattr(run_child, "own_command", lambda *_: ("/bin/sh", "-c", script))
    monkeypatch.setattr(run_child, "BETWEEN_TRIES_S", 0.0)
    assert await verify_of().judge(work_of("run"), Path("/dev/sdx"), RUN) == EXIT_OK
    assert asked.read_text().split() == ["verify", "verify"]
