"""What to do next: only what helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durability.evidence.verdict import REASONS
from durability.formats.case import PastVerdict, PowerOff, TargetFailure
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability_client.verify.advice import ADVICE, next_steps
from tests.client.verify.outcomes import judged
from tests.core.evidence.memory_target import LAST_NS, MS, make_look
from tests.sample_facts import drive, facts

MakePlan = Callable[..., Plan]
ATTEST = (
    "if you cut the power, verify again before this machine restarts or a drive is attached anew, and say"
    ' how: `--attest-cut "mains plug pulled"`'
)


def of_ssd(*, boot: int = 1, virtualisation: str = "none", **changes: Any) -> Facts:
    """The facts of a target on a drive that does not count power losses, in the first boot or the second."""
    fields: dict[str, Any] = {"unsafe_shutdowns": None, "diskseq": 9 if boot == 1 else 1, **changes}
    uptime_s = 5000 if boot == 1 else 30
    return facts(
        boot=f"boot-{boot}", uptime_s=uptime_s, virtualisation=virtualisation, drives=(drive(**fields),)
    )


def advised(make_plan: MakePlan, *, case: dict[str, Any] | None = None, **changes: Any) -> str:
    """What is advised on a run on such a drive, which was restarted since unless `now` says otherwise."""
    fields: dict[str, Any] = {"now": of_ssd(boot=2), "require_cut": "power", **changes}
    return "\n".join(next_steps(judged(make_plan, case={"armed": of_ssd(), **(case or {})}, **fields)))


def test_every_reason_has_advice() -> None:
    """No reason leaves people alone; those of a loss have the section of the loss."""
    assert {*ADVICE} == {*REASONS} - {"findings", "device-smaller", "earlier-loss", "unreadable-only"}


def test_who_forgot_to_attest_is_told_to(make_plan: MakePlan) -> None:
    """After a restart the plug may have been pulled, or not: both have their next step."""
    said = advised(make_plan)

    assert said.splitlines() == [
        ATTEST,
        "run again, and cut the power of the drive itself, or ask for less: `--require-cut os`",
    ]
    assert advised(make_plan, attested="plug pulled").startswith("cut again")


def test_a_restart_after_an_error_can_be_attested(make_plan: MakePlan) -> None:
    """After a target error the machine may have been restarted in order, so the advice asks for the
    operator's attestation."""
    error = TargetFailure(at_ns=LAST_NS, drive="dead", text="")
    case: dict[str, Any] = {"session_end": "target-error", "target_error": error}

    assert advised(make_plan, case=case) == ATTEST
    counted: dict[str, Any] = {"now": facts(boot="boot-2", uptime_s=30), "require_cut": "os"}
    assert advised(make_plan, case={**case, "armed": facts()}, **counted) == (
        "if the operating system crashed or was reset, verify again before this machine restarts or a drive"
        " is attached anew, and say so:"
        ' `--attest-cut "HOW IT WAS CUT" --cut-class os`'
    )


def test_a_counter_that_did_not_rise_leaves_nothing_to_attest(make_plan: MakePlan) -> None:
    """The judge would not believe it."""
    said = advised(make_plan, case={"armed": facts()}, now=facts(boot="boot-2", uptime_s=30))

    assert said == "run again, and cut the power of the drive itself, or ask for less: `--require-cut os`"


def test_a_guests_host_may_have_lost_its_power(make_plan: MakePlan) -> None:
    """A word alone counts for the guest, with or without one: the class must be named."""
    guest: dict[str, Any] = {
        "case": {"armed": of_ssd(virtualisation="kvm")},
        "now": of_ssd(boot=2, virtualisation="kvm"),
    }
    for attested, shown in ((None, "os"), ("host unplugged", "vm")):
        first, second = advised(make_plan, attested=attested, **guest).splitlines()
        assert first == (
            "if the drives lost their power, verify again before this machine restarts or a drive"
            " is attached anew, and say so:"
            ' `--attest-cut "HOW IT WAS CUT" --cut-class power`'
        )
        assert second.endswith(f"or ask for less: `--require-cut {shown}`")
    assert advised(make_plan, require_cut="vm", **guest).splitlines()[0] == ATTEST


@pytest.mark.parametrize("attested", [None, "plug pulled"])
def test_what_an_earlier_verify_was_not_told_is_not_to_be_attested_now(
    make_plan: MakePlan, attested: str | None
) -> None:
    """The machine has restarted since, so a word of now may be about that."""
    seen = make_look(of_ssd(boot=2))
    said = advised(make_plan, case={"looks": (seen,)}, now=of_ssd(boot=3), attested=attested)

    assert "verify again" not in said
    assert ("run again, and attest the cut in the first `verify` after it" in said) is (attested is not None)


@pytest.mark.parametrize("attested", [None, "plug pulled"])
def test_nothing_is_to_be_attested_where_nothing_was_cut(make_plan: MakePlan, attested: str | None) -> None:
    """If neither system nor drive was restarted since the run, the advice is to run again, not to attest a
    cut."""
    said = advised(make_plan, now=of_ssd(), attested=attested)

    assert "--attest-cut" not in said
    assert "run again, and cut the power of the drive or of its machine while the run writes" in said


@pytest.mark.parametrize("attested", [None, "plug pulled"])
def test_a_log_that_was_read_too_soon_is_to_be_read_again(make_plan: MakePlan, attested: str | None) -> None:
    """A later one shows if the machine restarted after the run; not that of a server that started with it."""
    soon: dict[str, Any] = {"now_ns": LAST_NS + 10_000 * MS}
    newer = "verify with the server that has the log of this run, or with a newer export of it"

    assert advised(make_plan, case=soon, attested=attested) == newer
    assert newer not in advised(make_plan, attested=attested)
    here = {**soon, "server_boot_id": "boot-2"}
    assert newer not in advised(make_plan, case=here, attested=attested)


@pytest.mark.parametrize(
    "case",
    [
        {"session_end": "stop"},
        {"session_end": "server-down"},
        {"tainted": "claimed too much"},
        {"superseded_by": "00ff"},
        {"last_receipt_ns": LAST_NS + 9000 * MS},
        {"verdicts": ("unstable",)},
    ],
)
def test_a_run_that_nothing_makes_durable_needs_no_attestation(
    make_plan: MakePlan, case: dict[str, Any]
) -> None:
    """If no later verify can make the run durable, the advice names neither --attest-cut nor
    --require-cut."""
    if "verdicts" in case:
        unstable = PastVerdict(
            run="1", verdict="inconclusive", cut_class="os", at_risk_ms1000=1, wall="", reasons=("unstable",)
        )
        case = {"verdicts": (unstable,)}
    said = advised(make_plan, case=case)

    assert said
    assert "--attest-cut" not in said
    assert "--require-cut" not in said


@pytest.mark.parametrize("attested", [None, "plug pulled"])
def test_without_a_log_only_the_log_helps(make_plan: MakePlan, attested: str | None) -> None:
    """Without the server's log, cut and load are unknown even with an attestation, so the advice asks for the
    log."""
    said = advised(make_plan, logged=False, attested=attested)

    assert said == ADVICE["no-server-log"]


def test_records_at_risk_take_what_was_missing(make_plan: MakePlan) -> None:
    """Where the server was reachable all along, something else kept it from seeing the cut."""
    off = PowerOff(
        asked_ns=1, confirmed_ns=2, boot_id="other", subject="machine", cut_class="power", text="s"
    )
    unseen = TargetFailure(at_ns=LAST_NS, drive="unseen", text="")
    failed: dict[str, Any] = {"session_end": "target-error", "target_error": unseen}

    assert "connected to the server that runs the campaign" in advised(make_plan, case={"power_offs": (off,)})
    assert "run again as root" in advised(make_plan, case=failed, attested="plug pulled")
    assert ADVICE["nothing-at-risk"] in advised(make_plan, case={"last_receipt_ns": LAST_NS + 9000 * MS})


def test_a_scan_that_read_nothing_asks_for_no_longer_run(make_plan: MakePlan) -> None:
    """The run wrote enough; the drive did not answer."""
    said = advised(make_plan, attested="plug pulled", finished=False, checked=0, newest_seen=(0,))

    assert said == ADVICE["scan-unfinished"]


def test_a_series_that_cannot_be_completed_is_begun_anew(make_plan: MakePlan) -> None:
    """A run that a later one has covered stays unverified for ever."""
    lost = PastVerdict(
        run="2", verdict="inconclusive", cut_class="power", at_risk_ms1000=5, wall="", reasons=("superseded",)
    )
    said = advised(make_plan, case={"series": (lost,)}, attested="plug pulled", min_cuts=2)

    assert "begin a new series with another `--size`" in said
    durable = advised(make_plan, case={"series": (lost,)}, attested="plug pulled")
    assert durable.splitlines()[0] == ADVICE["series-incomplete"]
    assert "cut again" not in durable


def test_more_cuts_of_a_drive_without_a_serial_are_not_asked_for(make_plan: MakePlan) -> None:
    """They would never be one series."""
    now = of_ssd(boot=2, serial="")
    case = {"armed": of_ssd(serial="")}
    said = advised(make_plan, case=case, now=now, attested="plug pulled", min_cuts=5)

    assert said == (
        "for a series, give a virtual disk a serial of its own, or attach the drive without an adapter that"
        " hides its serial; or ask for less: `--min-cuts 1`"
    )
