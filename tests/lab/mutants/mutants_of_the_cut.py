"""The tester broken on purpose, rules 11 to 17: the cut, what it met, and what a verdict is worth."""

from __future__ import annotations

from durability.evidence import at_risk, cut, flushes, looks, machine_changes, strength, verdict
from durability.evidence.name_oracle import NameOracle
from durability.evidence.proven_operations import ProvenOperations
from durability.evidence.slot_oracle import SlotOracle
from durability_client.target import drive_watch
from durability_client.verify.scan.scan_base import ScanBase
from durability_server.runs.requests import Requests
from durability_server.runs.run import Run
from durability_server.store import look_rows
from tests.lab.mutants.mutation import Mutant, answering, constant, without

THE_CUT = (
    Mutant(
        name="no proof of a cut needed",
        rule=11,
        taken_away="without any proof, a cut is assumed",
        noticed_by={
            "client-that-was-killed": "durable",
        },
        change=without(cut._assess, 'case.failed else "none"', 'case.failed else "power"'),
    ),
    Mutant(
        name="any class of cut is enough",
        rule=11,
        taken_away="the class that is shown is not compared with the one that is required",
        noticed_by={
            "machine-that-was-reset": "durable",
        },
        change=without(verdict._cut_reasons, "if at_least(cut.cut_class, require_cut):", "if True:"),
    ),
    Mutant(
        name="attestations always believed",
        rule=11,
        taken_away="facts do not contradict the operator",
        noticed_by={
            "client-that-was-killed-and-a-cut-attested": "durable",
            "reset-and-a-cut-attested": "durable",
        },
        change=answering(cut._contradictions, "return []"),
    ),
    Mutant(
        name="the last of several events was the cut",
        rule=11,
        taken_away="what an earlier verify found is forgotten, and a later power loss counts as the cut",
        noticed_by={
            "power-cut-after-a-reset-that-a-verify-had-seen": "durable",
        },
        change=answering(looks.first_event, "return None"),
    ),
    Mutant(
        name="a verify tells of its own run only",
        rule=11,
        taken_away="what a verify of another run found is forgotten, and a later power loss is the cut",
        noticed_by={
            "power-cut-after-a-reset-that-a-verify-of-another-run-had-seen": "power",
        },
        change=answering(look_rows._unjudged, "return iter(())"),
    ),
    Mutant(
        name="an arming tells of its own run only",
        rule=11,
        taken_away="what another run found when it was armed is forgotten, and a later power loss is the cut",
        noticed_by={
            "power-cut-after-a-reset-that-another-run-was-armed-after": "power",
        },
        change=without(Requests._arm, "await self._keep_looks(stored.client, seen, of_others=True)", "pass"),
    ),
    Mutant(
        name="one drive's counter is enough",
        rule=11,
        taken_away="one leaf drive that counted a power loss stands for all",
        noticed_by={
            "mirror-of-which-one-drive-was-cut": "durable",
        },
        change=without(machine_changes.counted_power_loss, "not all(", "not any("),
    ),
    Mutant(
        name="counters are read at arming",
        rule=11,
        taken_away="a power loss that a drive counted during the run proves the cut at its end",
        noticed_by={
            "machine-that-was-reset-after-its-drive-had-flickered": "durable",
        },
        change=answering(machine_changes.as_last_counted, "return armed"),
    ),
    Mutant(
        name="emulated counters believed",
        rule=11,
        taken_away="a virtual machine's drive proves a power cut",
        noticed_by={
            "guest-with-a-counter-of-its-own": "durable",
        },
        change=without(machine_changes.has_risen, " or before.emulated or after.emulated", ""),
    ),
    Mutant(
        name="counters of any drive believed",
        rule=11,
        taken_away="a drive whose serial any drive may have proves a power cut",
        noticed_by={
            "other-enclosure-whose-serial-is-zeros-too": "durable",
        },
        change=without(machine_changes.has_risen, "is_nobodys(before.serial)", "not before.serial"),
    ),
    Mutant(
        name="a counter that went back kept its count",
        rule=11,
        taken_away="a counter that began anew contradicts a cut that is attested",
        noticed_by={
            "counter-that-went-back-at-an-attested-cut": "inconclusive: attestation-contradicted, cut-class",
        },
        change=without(machine_changes.has_risen, " or now < then", ""),
    ),
    Mutant(
        name="one count is that of several drives",
        rule=11,
        taken_away="the counter of one drive proves the cut of another that shows the same serial",
        noticed_by={
            "two-disks-in-a-dock-of-which-one-was-cut": "durable",
        },
        change=without(
            machine_changes.counted_pairs,
            "return one.unsafe_shutdowns == other.unsafe_shutdowns or (",
            "return True or (",
        ),
    ),
    Mutant(
        name="names are drives on another machine",
        rule=11,
        taken_away="a drive without a serial is found on another machine by its name, size and `diskseq`",
        noticed_by={
            "image-on-another-guest-without-a-serial": "durable",
        },
        change=without(
            machine_changes.attached_elsewhere, "or not own_serial(then, before.host.machine_id)", ""
        ),
    ),
    Mutant(
        name="containers are machines",
        rule=11,
        taken_away="another machine id is another machine, though the boot is the same",
        noticed_by={
            "container-in-which-nothing-was-cut": "durable",
        },
        change=without(machine_changes._is_elsewhere, "not same_kernel(before.host, after.host) and ", ""),
    ),
    Mutant(
        name="a guest's end is a power cut",
        rule=11,
        taken_away="an attestation of a guest's end counts as power",
        noticed_by={
            "guest-that-was-forced-off": "durable",
        },
        change=answering(cut._believable, "return claimed or 'power'"),
    ),
    Mutant(
        name="a guest's drive on its host was cut",
        rule=11,
        taken_away="the machine of the run is no guest once another one reads the drive",
        noticed_by={
            "guest-whose-drive-is-read-on-its-host": "durable",
        },
        change=without(cut._assess, "_is_guest(case.armed) or ", ""),
    ),
    Mutant(
        name="a guest reads what was cut",
        rule=11,
        taken_away="only the machine of the run may be a guest, not the one that reads the drive",
        noticed_by={
            "drive-that-is-read-on-a-guest": "durable",
        },
        change=without(cut._assess, " or _is_guest(now)", ""),
    ),
    Mutant(
        name="only a guest that restarted has died",
        rule=11,
        taken_away="a guest whose drive is on another machine now is taken for one that lives",
        noticed_by={
            "guest-whose-drive-is-read-on-its-host": "durable",
        },
        change=without(cut._believable, "(died or moved)", "died"),
    ),
    Mutant(
        name="only a system that says so is a guest",
        rule=11,
        taken_away="a drive of a hypervisor does not make its machine a guest",
        noticed_by={
            "guest-that-does-not-say-that-it-is-one": "durable",
        },
        change=without(cut._is_guest, " or any(drive.emulated for drive in facts.drives)", ""),
    ),
    Mutant(
        name="uptime not compared",
        rule=11,
        taken_away="another boot id is the death of the operating system, however long it has been up",
        noticed_by={
            "machine-that-was-up-all-the-time": "inconclusive: cut-class",
        },
        change=without(cut._os_death, "if now.host.uptime_ns >= since_ns:", "if False:"),
    ),
    Mutant(
        name="a restart after an error is a cut",
        rule=11,
        taken_away="another boot id is a cut also if the target failed before",
        noticed_by={
            "restart-after-an-error": "durable",
        },
        change=without(cut._assess, " and not case.failed", ""),
    ),
    Mutant(
        name="a drive is cut with its system",
        rule=11,
        taken_away="the death of the operating system shows that a drive was cut whose switch says so",
        noticed_by={
            "mirror-of-which-one-slot-was-switched": "durable",
        },
        change=without(cut._assess, "(death and not alone)", "death"),
    ),
    Mutant(
        name="a switched drive has no power",
        rule=11,
        taken_away="a drive that works after its switch has said off does not contradict it",
        noticed_by={
            "drive-that-acknowledges-after-its-slot-was-off": "durable",
            "drive-that-answers-after-its-slot-was-off": "durable",
        },
        change=answering(cut._worked_after_off_ns, "return 0"),
    ),
    Mutant(
        name="a switched machine has no power",
        rule=11,
        taken_away="a machine that writes after its switch has said off does not contradict it",
        noticed_by={
            "machine-that-writes-on-after-its-switch-said-off": "durable",
        },
        change=answering(cut._heard_after_off_ns, "return 0"),
    ),
    Mutant(
        name="power supplies of machines hold nothing",
        rule=11,
        taken_away="any frame after the switch of a machine has said off contradicts it",
        noticed_by={
            "machine-that-its-power-supply-feeds-for-a-while": (
                "inconclusive: attestation-contradicted, cut-class; at risk 2, 11, 56, 56"
            ),
        },
        change=without(cut._went_on_without_power, "heard_ns if heard_ns > _HOLD_UP_NS else 0", "heard_ns"),
    ),
    Mutant(
        name="closed sessions accepted",
        rule=12,
        taken_away="a FIN is as good as silence",
        noticed_by={
            "connection-that-was-closed": "durable",
        },
        change=without(
            verdict._session_reasons,
            "TRACES_OF_A_CUT",
            '("silence", "target-error", "fin", "rst")',
        ),
    ),
    Mutant(
        name="a FIN after silence does not count",
        rule=12,
        taken_away="once silent, a client is taken to be cut",
        noticed_by={
            "connection-that-was-closed-after-silence": "durable",
        },
        change=without(Run.detached, 'self.session_end == "silence" and end == "fin"', "False"),
    ),
    Mutant(
        name="a reset after silence does not count",
        rule=12,
        taken_away="once silent, a client is taken to be cut, though its system reset the connection",
        noticed_by={
            "connection-that-was-reset-before-the-machine-started-again": "durable",
        },
        change=answering(cut.outlived, "return False"),
    ),
    Mutant(
        name="any reset after silence counts",
        rule=12,
        taken_away="a reset is taken to be that of the client's system, though it started anew since",
        noticed_by={
            "connection-that-the-next-boot-reset": "inconclusive: session-closed",
        },
        change=answering(cut.outlived, "return _reset_ns(case) is not None"),
    ),
    Mutant(
        name="a client's system dies with it",
        rule=12,
        taken_away="an earlier verify that found the system of the run alive is forgotten",
        noticed_by={
            "power-cut-after-a-client-that-a-verify-had-outlived": "durable",
        },
        change=answering(looks.found_alive, "return False"),
    ),
    Mutant(
        name="any reset in the boot of the run counts",
        rule=12,
        taken_away="a system that resets its client's connection shows no cut, though its drive came anew",
        noticed_by={
            "reset-connection-of-a-drive-that-was-cut-alone": "inconclusive: session-closed",
        },
        change=without(cut._outlived, "not enumerated_anew(case.armed, now)", "True"),
    ),
    Mutant(
        name="silence after an error does not count",
        rule=12,
        taken_away="a client that reported an error and fell silent is taken to have ended",
        noticed_by={
            "machine-that-died-while-it-looked-at-its-drive": (
                "inconclusive: nothing-at-risk; at risk 0, 0, 0, 0"
            ),
        },
        change=without(Run.silent, '("live", "target-error")', '("live",)'),
    ),
    Mutant(
        name="a drive is not looked at",
        rule=12,
        taken_away="a drive that failed a request is dead",
        noticed_by={
            "drive-that-lives-on-after-its-error": "durable",
        },
        change=without(drive_watch.conclude, 'drive="answered"', 'drive="dead"'),
    ),
    Mutant(
        name="stalled writers counted",
        rule=12,
        taken_away="a writer that may have waited for credit has records at risk",
        noticed_by={
            "network-that-failed-before-the-power": "durable",
            "server-that-grants-nothing": "durable",
        },
        change=answering(at_risk._stalled, "return ()"),
    ),
    Mutant(
        name="the log does not show who stalled",
        rule=12,
        taken_away="a writer is at its limit only if the target shows it",
        noticed_by={
            "server-that-grants-nothing": "durable",
        },
        change=without(at_risk._stalled, "max(seen, acked)", "seen"),
    ),
    Mutant(
        name="every grant arrived",
        rule=12,
        taken_away="a writer is taken to have had the last grant that was sent",
        noticed_by={
            "network-that-failed-with-a-grant-under-way": "durable",
        },
        change=without(at_risk._stalled, "case.credits or (case.grants,)", "(case.grants,)"),
    ),
    Mutant(
        name="removals do not show who stalled",
        rule=12,
        taken_away="a name's absence says nothing about the writer that removed it",
        noticed_by={
            "removals-that-used-up-the-credit": "durable",
        },
        change=answering(NameOracle._see_removals, "pass"),
    ),
    Mutant(
        name="nothing at risk accepted",
        rule=13,
        taken_away="a cut that could cost nothing is a pass",
        noticed_by={
            "liar-that-had-time-to-drain": "durable",
            "heartbeats-without-load": "durable",
        },
        change=without(verdict._scan_reasons, "if not at_risk.ms1000:", "if False:"),
    ),
    Mutant(
        name="covered slots at risk",
        rule=13,
        taken_away="losses that a write in flight may hide are counted as at risk",
        noticed_by={
            "end-of-a-pass": "durable; at risk 2, 11, 101, 128",
        },
        change=without(at_risk._exposed, "np.count_nonzero(newest == seqs)", "len(seqs)"),
    ),
    Mutant(
        name="removed records at risk",
        rule=13,
        taken_away="records of a log whose file is removed are counted as at risk",
        noticed_by={
            "log-whose-older-files-are-removed": "durable; at risk 2, 11, 101, 128",
        },
        change=without(at_risk._exposed, 'plan.contract.layout == "log"', "False"),
    ),
    Mutant(
        name="late frames are new",
        rule=13,
        taken_away="acknowledgements that a dead network held up count from when they came",
        noticed_by={
            "network-that-came-back-before-the-cut": "durable",
        },
        change=without(at_risk.frontiers_at, "if held.from_ns", "if False and held.from_ns"),
    ),
    Mutant(
        name="a frozen client is cut",
        rule=13,
        taken_away="the kernel of a silent client acknowledges, and is taken to be dead",
        noticed_by={
            "process-that-was-frozen-before-the-cut": "durable",
        },
        change=answering(Run.kernel_alive, "pass"),
    ),
    Mutant(
        name="switches by another clock ignored",
        rule=13,
        taken_away="a controller's log with another clock says nothing of the last moment of power",
        noticed_by={
            "switch-with-another-clock": "durable",
        },
        change=without(at_risk.last_power_ns, "if case.off_by_another_clock:", "if False:"),
    ),
    Mutant(
        name="silence is the end of a drive that is cut alone",
        rule=13,
        taken_away="a client that falls silent shows nothing of a drive that is switched off alone",
        noticed_by={
            "machine-that-crashed-before-its-drive-was-off": "durable",
        },
        change=without(
            at_risk.last_power_ns, 'off.subject == "drive" and _drive_seen(case) != "dead"', "False"
        ),
    ),
    Mutant(
        name="power supplies hold nothing",
        rule=13,
        taken_away="a drive had no power once its switch had said off, whatever it acknowledged later",
        noticed_by={
            "drive-that-its-power-supply-feeds-for-a-while": "durable; at risk 56, 56, 56, 56",
        },
        change=without(cut.off_as_seen, " + fed_ns", ""),
    ),
    Mutant(
        name="heartbeats of a machine that is off",
        rule=13,
        taken_away="only acknowledgements show for how long a power supply fed a machine",
        noticed_by={
            "machine-that-idles-on-its-power-supply": "durable",
        },
        change=without(cut.off_as_seen, "max(acknowledged_ns, heard_ns)", "acknowledged_ns"),
    ),
    Mutant(
        name="any frame is power",
        rule=13,
        taken_away="after the target's error, frames of the client show that the drive has power",
        noticed_by={
            "client-that-reports-the-targets-error": "inconclusive: nothing-at-risk; at risk 0, 0, 0, 0",
        },
        change=answering(at_risk.last_power_ns, "return case.last_receipt_ns"),
    ),
    Mutant(
        name="any error is a cut",
        rule=13,
        taken_away="the drive counts as dead from the error on, whatever it answered then",
        noticed_by={
            "drive-that-answers-after-its-error": "durable",
            "error-after-which-no-drive-was-seen": "durable",
        },
        change=without(at_risk._last_seen_ns, ' or case.target_error.drive != "dead"', ""),
    ),
    Mutant(
        name="a hang is a cut",
        rule=13,
        taken_away="the drive counts as dead from its last acknowledgement on",
        noticed_by={
            "drive-that-hung-before-it-died": "durable",
        },
        change=without(
            at_risk._last_seen_ns,
            "return case.target_error.at_ns",
            "return case.timeline[-1].at_ns if case.timeline else case.target_error.at_ns",
        ),
    ),
    Mutant(
        name="loss window of the newest version",
        rule=14,
        taken_away="the window reaches back to the version expected, not to the one after that found",
        noticed_by={
            "slot-that-fell-back-two-versions": "loss; 1 lost; 50.5 to 103 ms, 52",
        },
        change=without(
            SlotOracle.judge_rows,
            "np.where(before == NO_SEQ, newest, after)",
            "newest",
        ),
    ),
    Mutant(
        name="damage has no age",
        rule=14,
        taken_away="the window leaves out losses in slots that show no version",
        noticed_by={
            "slot-that-is-garbage-beside-a-loss": "loss; 1 lost, 1 corrupt; 0 to 52 ms, 1",
        },
        change=without(SlotOracle.judge_rows, "wrong & (expected", "(found.found != NO_SEQ) & (expected"),
    ),
    Mutant(
        name="late frames are new in the window",
        rule=14,
        taken_away="the window takes what a dead network held up for sent when it came",
        noticed_by={
            "loss-of-what-the-network-brought-late": "loss; 1 lost; 0 to 31 ms, 1",
        },
        change=without(cut.sent_ns, "min((receipt.at_ns, *held_up))", "receipt.at_ns"),
    ),
    Mutant(
        name="the cut is a moment",
        rule=14,
        taken_away="the cut is taken to be at the last frame",
        noticed_by={
            "slot-that-fell-back-two-versions": "loss; 1 lost; 115 to 116 ms, 116",
        },
        change=answering(at_risk.cut_interval_ns, "return case.last_receipt_ns, case.last_receipt_ns"),
    ),
    Mutant(
        name="control losses are findings",
        rule=15,
        taken_away="writes that were never synced must be there",
        noticed_by={
            "control-arm-that-lost-writes": "loss; 2 lost; control arm 0 lost",
        },
        change=without(
            ScanBase._read_control,
            "self._counts.control_lost += lost + chunk.piece.slots - chunk.whole",
            'self._counts.findings["lost"] += lost + chunk.piece.slots - chunk.whole',
        ),
    ),
    Mutant(
        name="control losses not seen",
        rule=15,
        taken_away="the control arm is not compared",
        noticed_by={
            "control-arm-that-lost-writes": "durable; control arm 0 lost",
        },
        change=answering(ProvenOperations.screen_control, "return 0"),
    ),
    Mutant(
        name="damage in the control arm is a loss",
        rule=15,
        taken_away="a slot of the control arm that holds nothing recognisable lost its write",
        noticed_by={
            "control-arm-that-was-cut-in-a-write": "durable; control arm 1 lost",
        },
        change=without(ProvenOperations.screen_control, "parsed.intact & ~(own", "~(own"),
    ),
    Mutant(
        name="unverified cuts left out silently",
        rule=16,
        taken_away="cuts that nobody verified do not void the bound",
        noticed_by={
            "series-with-a-cut-that-nobody-verified": "durable; 29 cuts, below 0.098",
        },
        change=without(strength._counted, 'past.verdict == "unverified"', "False"),
    ),
    Mutant(
        name="discarded cuts left out silently",
        rule=16,
        taken_away="inconclusive cuts that may hide a loss do not void the bound",
        noticed_by={
            "series-with-a-cut-that-may-hide-a-loss": "durable; 29 cuts, below 0.098",
        },
        change=constant(strength, "HIDE_LOSSES", frozenset()),
    ),
    Mutant(
        name="cuts judged by stricter options not counted",
        rule=16,
        taken_away="a cut without loss counts only if its verdict was durable",
        noticed_by={
            "series-of-which-each-cut-was-asked-for-more": "inconclusive: too-few-cuts; 1 cuts, below 0.950",
        },
        change=constant(strength, "OF_THE_QUESTION", frozenset()),
    ),
    Mutant(
        name="a run's earlier verdicts not counted",
        rule=16,
        taken_away="a run counts in its series with its latest verdict",
        noticed_by={
            "run-that-was-durable-before-a-later-one": "inconclusive: superseded; 28 cuts, no bound",
        },
        change=without(strength.strength, "weightiest((*case.verdicts, outcome)) or outcome", "outcome"),
    ),
    Mutant(
        name="withdrawn losses counted",
        rule=16,
        taken_away="the pass that withdraws a loss counts it in its series",
        noticed_by={
            "series-of-which-a-loss-is-withdrawn": "durable: loss-withdrawn; 1 cuts, below 1.000",
        },
        change=without(verdict.decide, "in (*missing, *withdrawn)", "in missing"),
    ),
    Mutant(
        name="a run without a cut counts none",
        rule=16,
        taken_away="a run of which no cut is shown counts the cuts of no class",
        noticed_by={
            "stopped-run-in-a-series": "inconclusive: session-stopped, cut-not-shown; 0 cuts, no bound",
        },
        change=without(strength.strength, "shown or _strongest(every)", "this.cut_class"),
    ),
    Mutant(
        name="idle cuts counted",
        rule=16,
        taken_away="cuts with nothing at risk strengthen a series",
        noticed_by={
            "series-of-idle-cuts": "durable; 29 cuts, below 0.098",
        },
        change=without(strength._kept, " and past.at_risk_ms1000 > 0", ""),
    ),
    Mutant(
        name="classes pooled",
        rule=16,
        taken_away="resets strengthen a series of power cuts",
        noticed_by={
            "series-of-resets": "durable; 29 cuts, below 0.098",
        },
        change=without(strength._counted, " and past.cut_class == its_class", ""),
    ),
    Mutant(
        name="series of any drive's serial",
        rule=16,
        taken_away="drives without a serial of their own have one series",
        noticed_by={
            "series-of-two-enclosures-whose-serials-are-zeros": "1 other cuts in the series",
            "drive-without-a-serial-that-has-no-series": "durable; 1 cuts, below 0.950",
        },
        change=answering(strength.has_series, "return True"),
    ),
    Mutant(
        name="runs counted as cuts",
        rule=16,
        taken_away="runs that one cut ended count as many cuts",
        noticed_by={
            "series-of-runs-that-one-cut-ended": "durable; 29 cuts, below 0.098",
        },
        change=answering(strength._by_cut, "return [[past] for past in ended]"),
    ),
    Mutant(
        name="missing flushes not reported",
        rule=17,
        taken_away="the verdict does not say that no flush was sent",
        noticed_by={
            "file-system-without-barriers": "durable; warnings none",
        },
        change=answering(flushes.LeafFlushes.none_sent, "return False"),
    ),
)
