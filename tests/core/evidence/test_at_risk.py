"""Records at risk and the loss window follow from receipts alone, and err on the side of less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.evidence.at_risk import at_risk, cut_interval_ns, last_power_ns, loss_window
from durability.formats.case import (
    Case,
    DriveState,
    Event,
    HeldUp,
    PowerOff,
    Receipt,
    SessionEnd,
    TargetFailure,
)
from durability.formats.plan import Plan
from tests.core.evidence.memory_target import LAST_NS, MS, MakePlan, make_case, small


@pytest.fixture(name="plan", scope="module")
def fixture_plan(make_plan: MakePlan) -> Plan:
    """One writer with enough slots that nothing comes round again within a second."""
    return small(make_plan, slots=4096)


def counts(case: Case, plan: Plan, seen: int) -> tuple[int, int, int, int]:
    """At risk within 1, 10, 100 and 1000 ms."""
    risk = at_risk(case, plan, may_be_done=(seen,))
    return risk.ms1, risk.ms10, risk.ms100, risk.ms1000


def test_at_risk_counts_what_was_acknowledged_last(plan: Plan) -> None:
    """At one operation a millisecond a window holds as many records as milliseconds, and the last one."""
    assert counts(make_case(plan, (3000,)), plan, 3000) == (2, 11, 101, 1001)


def test_a_slot_that_a_write_in_flight_may_cover_is_not_at_risk(make_plan: MakePlan) -> None:
    """Its loss would not show, so it is not counted: of 64 slots 8 may be under way."""
    plan = small(make_plan)
    assert counts(make_case(plan, (3000,)), plan, 3000)[3] == 64 - 8


@pytest.mark.parametrize(("acked", "exposed"), [(70, 70), (119, 119), (120, 56), (130, 66), (190, 62)])
def test_a_record_whose_file_may_be_removed_is_not_at_risk(
    make_plan: MakePlan, acked: int, exposed: int
) -> None:
    """Records of a log are at risk only in the newest file within credit and the one before it."""
    plan = small(make_plan, workload="append")
    assert counts(make_case(plan, (acked,)), plan, acked)[3] == exposed


def test_load_that_ended_before_the_cut_leaves_nothing_at_risk(plan: Plan) -> None:
    """If frames went on for seconds after the last acknowledgement, the drive had time to drain its cache."""
    case = make_case(plan, (3000,), last_receipt_ns=LAST_NS + 2000 * MS)
    assert counts(case, plan, 3000) == (0, 0, 0, 0)


def test_what_came_before_the_servers_boot_is_of_unknown_age(plan: Plan) -> None:
    """The server's machine restarted just before the cut: what it had heard until then may be old."""
    timeline = (Receipt(at_ns=0, frontiers=(2990,)), Receipt(at_ns=480 * MS, frontiers=(3000,)))
    case = make_case(plan, (3000,), timeline=timeline, last_receipt_ns=500 * MS, now_ns=60_000 * MS)
    assert counts(case, plan, 3000) == (0, 0, 10, 10)


def failed(drive: DriveState, *, after_ms: int = 0) -> TargetFailure:
    """An I/O error so long after the last acknowledgement, and what was seen of the drive then."""
    return TargetFailure(at_ns=LAST_NS + after_ms * MS, drive=drive, text="")


def test_of_a_drive_seen_dead_the_error_is_the_last_moment_of_power(plan: Plan) -> None:
    """The client goes on to report that its drive is gone; until the error the drive may have hung."""
    late = {"last_receipt_ns": LAST_NS + 5000 * MS, "session_end": "target-error"}
    case = make_case(plan, (3000,), target_error=failed("dead"), **late)
    assert counts(case, plan, 3000) == (2, 11, 101, 1001)
    hung = make_case(plan, (3000,), target_error=failed("dead", after_ms=500), **late)
    assert counts(hung, plan, 3000) == (0, 0, 0, 501)
    hung = make_case(plan, (3000,), target_error=failed("dead", after_ms=1001), **late)
    assert counts(hung, plan, 3000) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (failed("answered"), "still answered after the I/O error"),
        (failed("silent"), "a read of the drive did not return"),
        (failed("unseen"), "did not see the drive"),
        (None, "did not see the drive"),
    ],
)
def test_of_a_drive_not_seen_dead_the_last_moment_of_power_is_unknown(
    plan: Plan, error: TargetFailure | None, why: str
) -> None:
    """Nothing is at risk then, with the reason, and a loss has no window."""
    case = make_case(plan, (3000,), session_end="target-error", target_error=error)
    risk = at_risk(case, plan, may_be_done=(3000,))
    assert (risk.ms1, risk.ms10, risk.ms100, risk.ms1000) == (0, 0, 0, 0)
    assert why in risk.unknown
    assert cut_interval_ns(case) is None
    assert loss_window(case, proven=(3000,), oldest_lost=(2901,)) is None


@pytest.mark.parametrize("drive", ["answered", "dead", "silent", "unseen"])
def test_silence_after_an_error_is_counted_back_from_the_last_frame(plan: Plan, drive: DriveState) -> None:
    """The machine died while the client was still there; its drive may have had power until then."""
    for late_ms, expected in ((0, (2, 11, 101, 1001)), (2000, (0, 0, 0, 0))):
        case = make_case(plan, (3000,), last_receipt_ns=LAST_NS + late_ms * MS, target_error=failed(drive))
        assert counts(case, plan, 3000) == expected


def test_the_cut_of_a_drive_seen_dead_ends_with_its_error(plan: Plan) -> None:
    """The cut of a drive seen dead lies between the last acknowledgement and the error. Later frames of the
    client do not move it."""
    late_ns = LAST_NS + 5000 * MS
    error = failed("dead", after_ms=30)
    ended = make_case(plan, (100,), last_receipt_ns=late_ns, session_end="target-error", target_error=error)
    assert cut_interval_ns(ended) == (LAST_NS - MS // 2, LAST_NS + 30 * MS)
    silent = make_case(plan, (100,), last_receipt_ns=late_ns, target_error=error, gap_max_ns=0)
    assert cut_interval_ns(silent) == (LAST_NS - MS // 2, late_ns + 50 * MS + MS // 2)
    answered = make_case(plan, (100,), last_receipt_ns=late_ns, target_error=failed("answered"), gap_max_ns=0)
    assert cut_interval_ns(answered) == (late_ns - MS // 2, late_ns + 50 * MS + MS // 2)


def test_a_writer_at_its_limit_may_have_stalled(make_plan: MakePlan) -> None:
    """A writer that used up its credit waited for the server: nothing of it is at risk, of others it is."""
    plan = small(make_plan, writers=2, slots=4096)
    case = make_case(plan, (3000, 3000), grants=(2999, 3000))
    risk = at_risk(case, plan, may_be_done=(3007, 3007))
    assert risk.stalled == (0,)
    assert risk.ms100 == 101


def test_a_writer_that_is_known_to_be_at_its_limit_from_the_log_alone_may_have_stalled(plan: Plan) -> None:
    """All that it was allowed to do was acknowledged and heard of: the target holds nothing newer to tell."""
    case = make_case(plan, (3000,), grants=(3000 - plan.credit,))
    assert at_risk(case, plan, may_be_done=(0,)).stalled == (0,)
    running = make_case(plan, (3000,), grants=(3001 - plan.credit,))
    assert at_risk(running, plan, may_be_done=(0,)).stalled == ()


@pytest.mark.parametrize(("seen", "stalled"), [(3001, True), (3003, False), (3004, True), (3008, True)])
def test_a_writer_may_have_stalled_at_any_credit_that_may_have_been_its_last(
    plan: Plan, seen: int, stalled: bool
) -> None:
    """When the network fails, the last grants may not reach the client. A writer may have stalled at any of
    these credits."""
    credits = tuple((grant,) for grant in (2993, 2996, 3000))
    case = make_case(plan, (3000,), grants=credits[-1], credits=credits)
    assert at_risk(case, plan, may_be_done=(seen,)).stalled == ((0,) if stalled else ())


def test_nothing_acknowledged_is_nothing_at_risk(plan: Plan) -> None:
    """No receipt, no record."""
    assert counts(make_case(plan, (0,), timeline=()), plan, 0) == (0, 0, 0, 0)


def test_the_cut_lies_between_the_last_receipt_and_the_first_missing_heartbeat(plan: Plan) -> None:
    """Earliest a round trip before the last receipt, latest a heartbeat and one after, or the largest gap."""
    case = make_case(plan, (100,), gap_max_ns=0)
    assert cut_interval_ns(case) == (LAST_NS - MS // 2, LAST_NS + 50 * MS + MS // 2)
    interval = cut_interval_ns(make_case(plan, (100,), gap_max_ns=900 * MS))
    assert interval == (LAST_NS - MS // 2, LAST_NS + 900 * MS)


def test_a_run_without_a_round_trip_was_armed_before_its_cut(plan: Plan) -> None:
    """Its last frame may have been under way since then: no heartbeat was answered yet."""
    armed = Event(at_ns=LAST_NS - 30 * MS, wall="", kind="armed", text="")
    case = make_case(plan, (100,), gap_max_ns=0, rtt_max_ns=0, events=(armed,))
    assert cut_interval_ns(case) == (LAST_NS - 30 * MS, LAST_NS + 50 * MS)
    assert cut_interval_ns(replace(case, events=())) == (LAST_NS, LAST_NS + 50 * MS)


def test_the_loss_window_reaches_back_to_the_oldest_lost_acknowledgement(plan: Plan) -> None:
    """Operation 2901 of 3000 was received 99 ms before the end, at one operation a millisecond."""
    window = loss_window(make_case(plan, (3000,)), proven=(3000,), oldest_lost=(2901,))
    assert window is not None
    assert window.ms_min == pytest.approx(98.5)
    assert window.ms_max == pytest.approx(100 + 51)
    assert window.operations == 100


def test_the_loss_window_takes_the_oldest_of_all_writers(make_plan: MakePlan) -> None:
    """Operations count over all writers from the oldest loss on."""
    plan = small(make_plan, writers=2)
    case = make_case(plan, (3000, 3000))
    window = loss_window(case, proven=(3000, 3001), oldest_lost=(2991, 2901))
    assert window is not None
    assert window.operations == 201
    assert window.ms_min == pytest.approx(98.5)


def test_a_loss_that_only_the_target_knows_of_lies_after_the_last_receipt(plan: Plan) -> None:
    """Its acknowledgement never arrived, so it came after the last one that did, and before the cut."""
    window = loss_window(make_case(plan, (3000,)), proven=(3003,), oldest_lost=(3002,))
    assert window is not None
    assert window.ms_min == 0
    assert window.ms_max == pytest.approx(51)


def test_what_was_lost_from_the_start_reaches_back_to_arming(plan: Plan) -> None:
    """Before the first receipt that is kept, arming is the earliest that an operation can be."""
    timeline = (Receipt(at_ns=LAST_NS - 10 * MS, frontiers=(50,)), Receipt(at_ns=LAST_NS, frontiers=(100,)))
    case = make_case(plan, (100,), timeline=timeline)
    window = loss_window(case, proven=(100,), oldest_lost=(1,))
    assert window is not None
    assert window.operations == 100
    assert window.ms_min == pytest.approx(9.5)
    assert window.ms_max == pytest.approx(5051)


def test_what_an_earlier_boot_of_the_server_received_is_old(plan: Plan) -> None:
    """Receipts of an earlier boot of the server are not at risk. Their loss reaches back at least to the
    reboot, with no upper bound. The clock of the earlier boot does not count, because it may be another
    machine's."""
    timeline = (Receipt(at_ns=0, frontiers=(2000,)), Receipt(at_ns=LAST_NS, frontiers=(2010,)))
    armed = Event(at_ns=LAST_NS * 2, wall="", kind="armed", text="")
    reboot = Event(at_ns=LAST_NS - 1200 * MS, wall="", kind="reboot", text="")
    case = make_case(plan, (2010,), timeline=timeline, events=(armed, reboot))
    assert counts(case, plan, 2010) == (10, 10, 10, 10)
    window = loss_window(case, proven=(2010,), oldest_lost=(1500,))
    assert window is not None
    assert window.ms_min == pytest.approx(1199.5)
    assert (window.ms_max, window.operations) == (None, 2010)
    later = loss_window(case, proven=(2010,), oldest_lost=(2001,))
    assert later is not None and (later.ms_min, later.ms_max, later.operations) == (0, None, 10)
    forgotten = loss_window(replace(case, events=()), proven=(2010,), oldest_lost=(1500,))
    assert forgotten is not None and (forgotten.ms_min, forgotten.ms_max) == (0, None)


def test_the_first_receipt_may_be_of_what_an_earlier_boot_of_the_server_was_sent(plan: Plan) -> None:
    """If the server restarted after arming and before the first receipt, the loss window has no upper bound.
    If the run was armed after the restart, it has one."""
    armed = Event(at_ns=LAST_NS - 10 * MS, wall="", kind="armed", text="")
    reboot = Event(at_ns=LAST_NS - 100 * MS, wall="", kind="reboot", text="")
    held = HeldUp(from_ns=0, until_ns=LAST_NS, frontiers=(3000,))
    case = make_case(plan, (3000,), held_up=(held,))
    for events in ((armed, reboot), (reboot,), ()):
        window = loss_window(replace(case, events=events), proven=(3000,), oldest_lost=(1,))
        assert window is not None and window.ms_max is None
    again = loss_window(
        replace(case, events=(reboot, armed), held_up=()), proven=(3000,), oldest_lost=(1,)
    )  # it was armed after the restart
    assert again is not None and again.ms_max is not None


def test_the_first_receipt_may_have_come_late(plan: Plan) -> None:
    """Where so many events followed that the armed one is no longer kept."""
    timeline = (Receipt(at_ns=LAST_NS - 10 * MS, frontiers=(50,)), Receipt(at_ns=LAST_NS, frontiers=(100,)))
    held = HeldUp(from_ns=LAST_NS - 3000 * MS, until_ns=LAST_NS - 10 * MS, frontiers=(50,))
    case = make_case(plan, (100,), timeline=timeline, held_up=(held,), events=())
    window = loss_window(case, proven=(100,), oldest_lost=(1,))
    assert window is not None
    assert window.ms_min == pytest.approx(9.5)
    assert window.ms_max == pytest.approx(3051)


def test_the_cut_may_be_as_old_as_what_held_up_the_last_frame(plan: Plan) -> None:
    """The server stood still for 3 s and then read what the client had sent meanwhile, which is silent since:
    its machine may have lost its power at any time in these 3 s."""
    held = HeldUp(from_ns=LAST_NS - 3000 * MS, until_ns=LAST_NS, frontiers=(3000,))
    before = Receipt(at_ns=LAST_NS - 3000 * MS, frontiers=(2900,))
    timeline = (before, Receipt(at_ns=LAST_NS, frontiers=(3000,)))
    case = make_case(plan, (3000,), timeline=timeline, held_up=(held,), gap_max_ns=0)
    assert cut_interval_ns(case) == (LAST_NS - 3000 * MS - MS // 2, LAST_NS + 50 * MS + MS // 2)
    answered = replace(case, last_receipt_ns=LAST_NS + MS)  # a frame that was not held up
    assert cut_interval_ns(answered) == (LAST_NS + MS // 2, LAST_NS + 51 * MS + MS // 2)


@pytest.mark.parametrize("lost", [2990, 3000])
def test_the_loss_of_what_came_late_may_be_as_old_as_the_outage(plan: Plan, lost: int) -> None:
    """The network failed for 1.5 s and brought the last ten acknowledgements, then the drive was dead: it may
    have been so since the first of them was sent."""
    held = HeldUp(from_ns=LAST_NS - 1500 * MS, until_ns=LAST_NS, frontiers=(3000,))
    before = Receipt(at_ns=LAST_NS - 1500 * MS, frontiers=(2980,))
    burst = tuple(
        Receipt(at_ns=LAST_NS - (3000 - seq) * MS // 10, frontiers=(seq,)) for seq in range(2981, 3001)
    )
    fields = {
        "timeline": (before, *burst),
        "session_end": "target-error",
        "target_error": failed("dead", after_ms=30),
    }
    late = make_case(plan, (3000,), held_up=(held,), **fields)
    window = loss_window(late, proven=(3000,), oldest_lost=(lost,))
    assert window is not None
    assert window.ms_min == 0
    assert window.ms_max == pytest.approx(1530)
    assert cut_interval_ns(late) == (LAST_NS - 1500 * MS - MS // 2, LAST_NS + 30 * MS)
    at_once = loss_window(make_case(plan, (3000,), **fields), proven=(3000,), oldest_lost=(3000,))
    assert at_once is not None and at_once.ms_max == pytest.approx(30.1)


def test_a_client_that_stood_still_does_not_say_when_its_drive_lost_its_power(plan: Plan) -> None:
    """Its kernel answered for five more seconds; the drive alone may have been off for as long. Found by a
    reader: the window was longer than the run."""
    alive = Event(at_ns=LAST_NS + 3000 * MS, wall="", kind="kernel-alive", text="")
    case = make_case(plan, (3000,), last_receipt_ns=LAST_NS + 5000 * MS, events=(alive,))
    assert cut_interval_ns(case) == (LAST_NS - MS // 2, LAST_NS + 5051 * MS)
    window = loss_window(case, proven=(3000,), oldest_lost=(2901,))
    assert window is not None
    assert window.ms_min == pytest.approx(98.5)
    heard = replace(case, events=(alive, replace(alive, kind="heard-again")))
    assert cut_interval_ns(heard) == (LAST_NS + 5000 * MS - MS // 2, LAST_NS + 5051 * MS)


def test_a_server_that_ended_did_not_see_when_a_client_that_stood_still_lost_its_power(plan: Plan) -> None:
    """Found by the search: the longest loss was shorter than the real one. A power controller may know."""
    alive = Event(at_ns=LAST_NS + 3000 * MS, wall="", kind="kernel-alive", text="")
    events = (alive, replace(alive, kind="lost-sight"), replace(alive, kind="ended"))
    case = make_case(plan, (3000,), last_receipt_ns=LAST_NS + 5000 * MS, events=events)
    assert cut_interval_ns(case) == (LAST_NS - MS // 2, None)
    window = loss_window(case, proven=(3000,), oldest_lost=(2901,))
    assert window is not None
    assert window.ms_min == pytest.approx(98.5) and window.ms_max is None
    unheard = loss_window(case, proven=(3000,), oldest_lost=(3000,))
    assert unheard is not None and unheard.ms_max is None


def test_no_cut_has_no_loss_window(plan: Plan) -> None:
    """Without a loss, or after a clean stop, there is nothing to measure from."""
    assert loss_window(make_case(plan, (100,)), proven=(100,), oldest_lost=(None,)) is None
    stopped = make_case(plan, (100,), session_end="stop")
    assert loss_window(stopped, proven=(100,), oldest_lost=(5,)) is None


def power_off(asked_ms: int, confirmed_ms: int, *, boot_id: str = "server-boot") -> tuple[PowerOff, ...]:
    """A controller's log, in ms from the last acknowledgement on."""
    return (
        PowerOff(
            asked_ns=LAST_NS + asked_ms * MS,
            confirmed_ns=LAST_NS + confirmed_ms * MS,
            boot_id=boot_id,
            subject="machine",
            cut_class="power",
            text="fence_ipmilan 192.0.2.9: off",
        ),
    )


def test_a_silent_client_says_nothing_of_a_drive_that_is_cut_alone(plan: Plan) -> None:
    """Its machine crashed after the switch was asked, and the drive had its power for seconds then. Found
    by a random campaign: the moment was the client's last frame, so a drive that had drained was at risk."""
    alone = tuple(replace(one, subject="drive") for one in power_off(-1, 8000))
    case = make_case(plan, (3000,), power_offs=alone)
    assert last_power_ns(case) == LAST_NS + 8000 * MS
    assert counts(case, plan, 3000) == (0, 0, 0, 0)
    assert cut_interval_ns(case) == (LAST_NS - MS, LAST_NS + 8000 * MS)
    died = replace(case, session_end="target-error", target_error=failed("dead", after_ms=5))
    assert last_power_ns(died) == LAST_NS + 5 * MS
    assert last_power_ns(make_case(plan, (3000,), power_offs=power_off(-1, 8000))) == LAST_NS


def test_what_was_held_up_may_be_older_than_it_looks(plan: Plan) -> None:
    """A window that begins while frames were held up begins after them; others are as ever."""
    held = HeldUp(from_ns=LAST_NS - 500 * MS, until_ns=LAST_NS - 50 * MS, frontiers=(2950,))
    assert counts(make_case(plan, (3000,), held_up=(held,)), plan, 3000) == (2, 11, 50, 1001)
    assert counts(make_case(plan, (3000,), held_up=(replace(held, from_ns=0),)), plan, 3000) == (
        2,
        11,
        50,
        50,
    )


def test_each_stretch_counts_for_the_windows_that_begin_in_it(plan: Plan) -> None:
    """If two delays overlap, operations of the later one are at most as old as its beginning."""
    older = HeldUp(from_ns=LAST_NS - 5000 * MS, until_ns=LAST_NS - 200 * MS, frontiers=(2800,))
    newer = HeldUp(from_ns=LAST_NS - 300 * MS, until_ns=LAST_NS, frontiers=(3000,))
    assert counts(make_case(plan, (3000,), held_up=(older, newer)), plan, 3000) == (0, 0, 0, 200)


def test_a_controller_that_was_asked_before_the_silence_narrows_the_cut(plan: Plan) -> None:
    """The cut lies between the request and the confirmation; what was at risk stays what it was."""
    case = make_case(plan, (3000,), power_offs=power_off(-1, 20))
    assert counts(case, plan, 3000) == (2, 11, 101, 1001)
    assert cut_interval_ns(case) == (LAST_NS - MS // 2, LAST_NS + 20 * MS)
    later = make_case(plan, (3000,), power_offs=power_off(5, 4000))
    assert counts(later, plan, 3000) == (0, 6, 96, 996)  # it had power until the controller was asked
    assert cut_interval_ns(later) == (LAST_NS + 5 * MS, LAST_NS + 56 * MS)


@pytest.mark.parametrize("earlier_gap_ms", [51, 12_000])
def test_a_network_that_died_before_the_controller_was_asked_leaves_nothing_at_risk(
    plan: Plan, earlier_gap_ms: int
) -> None:
    """History k: by the frames hundreds would be at risk; the controller knows of ten seconds with power,
    also if the network had been away for as long earlier in the run."""
    outage = {"gap_max_ns": earlier_gap_ms * MS}
    case = make_case(plan, (3000,), power_offs=power_off(10_000, 12_000), **outage)
    assert counts(case, plan, 3000) == (0, 0, 0, 0)
    assert cut_interval_ns(case) == (LAST_NS + 10_000 * MS, LAST_NS + 12_000 * MS)


@pytest.mark.parametrize("drive", ["answered", "silent", "unseen"])
def test_after_an_error_the_controller_knows_the_last_moment_of_power(plan: Plan, drive: DriveState) -> None:
    """The drive was not seen dead, so it must be assumed to have had power until off was confirmed."""
    late = {"session_end": "target-error", "target_error": failed(drive)}
    assert counts(make_case(plan, (3000,), power_offs=power_off(90, 100), **late), plan, 3000)[2:] == (1, 901)
    assert counts(make_case(plan, (3000,), power_offs=power_off(900, 2000), **late), plan, 3000)[3] == 0


def test_a_drive_that_failed_late_had_no_power_after_off_was_confirmed(plan: Plan) -> None:
    """The kernel may report a drive without power long after; the controller knows when it lost it."""
    case = make_case(
        plan,
        (3000,),
        session_end="target-error",
        target_error=failed("dead", after_ms=30_000),
        power_offs=power_off(-10, 9),
    )
    assert counts(case, plan, 3000)[1] == 2


def test_a_power_supply_may_feed_a_drive_after_its_switch_is_off(plan: Plan) -> None:
    """Acknowledgements after the switch's confirmation show that the drive lost its power later. The kernel's
    later error report does not count."""
    late = {"session_end": "target-error", "target_error": failed("dead", after_ms=30_000)}
    case = make_case(plan, (3000,), power_offs=power_off(-550, -500), **late)
    assert counts(case, plan, 3000) == (2, 11, 101, 1001)
    assert cut_interval_ns(case) == (LAST_NS - 550 * MS, LAST_NS - MS // 2)


@pytest.mark.parametrize(
    ("off_ms", "seen", "at_risk_ms1000"), [(-4000, "dead", 901), (-500, "answered", 0), (-4000, "unseen", 0)]
)
def test_a_drive_that_went_on_is_not_bound_by_the_controller(
    plan: Plan, off_ms: int, seen: DriveState, at_risk_ms1000: int
) -> None:
    """The switch was not its own, so the client's word counts: the error of a dead drive, else nothing."""
    late = {"session_end": "target-error", "target_error": failed(seen, after_ms=100)}
    case = make_case(plan, (3000,), power_offs=power_off(off_ms - 50, off_ms), **late)
    assert counts(case, plan, 3000)[3] == at_risk_ms1000


@pytest.mark.parametrize("end", ["silence", "target-error"])
def test_a_controller_with_another_clock_leaves_the_moment_unknown(plan: Plan, end: SessionEnd) -> None:
    """The controller's times cannot be compared with the receipts. The power may have gone long after the
    last frame, or long after the error of a drive that seemed dead."""
    fields = {"session_end": end, "target_error": failed("dead") if end == "target-error" else None}
    case = make_case(plan, (3000,), power_offs=power_off(0, 1, boot_id="another"), **fields)
    assert counts(case, plan, 3000) == (0, 0, 0, 0)
    assert "logged on another machine" in at_risk(case, plan, may_be_done=(3000,)).unknown
    assert cut_interval_ns(case) is None
    assert loss_window(case, proven=(3000,), oldest_lost=(2991,)) is None
