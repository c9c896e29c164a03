"""The tester broken on purpose, rules 6 to 10: who testifies, what is legal, what is looked at."""

from __future__ import annotations

from durability.evidence import drive_identity, identity, record_rows, strength, verdict
from durability.evidence.name_oracle import NameOracle, _Legal
from durability.evidence.observation import Observer
from durability.evidence.proven_operations import ProvenOperations
from durability.evidence.scan_report import ScanReport
from durability.evidence.slot_oracle import SlotOracle
from durability.formats import drive_serials, record
from durability_client.verify.canary import Canary
from durability_client.verify.name_scan import NameScan
from durability_client.verify.scan_base import ScanBase
from durability_client.verify.slot_scan import LogScan, SlotScan
from durability_server.store import target_keys
from tests.lab.mutants.mutation import Mutant, answering, without

FINDINGS_ARE_NO_LOSS = without(verdict._loss_reasons, "if found:", "if False:")

JUDGING = (
    Mutant(
        name="data on the target prove nothing",
        rule=6,
        taken_away="A' is A",
        noticed_by={
            "drive-that-lies-about-what-nobody-heard-of": "inconclusive: nothing-at-risk; not the truth",
            "write-missing-before-one-that-is-there": "durable",
        },
        change=without(
            ProvenOperations._prove,
            "max(self._proven[writer], (seq - 1) // group * group)",
            "self._proven[writer]",
        ),
    ),
    Mutant(
        name="a sector proves its own operation",
        rule=6,
        taken_away="a sector of seq s proves s acknowledged, not the group before it",
        noticed_by={
            "write-in-flight-torn": "loss; 1 torn, 1 out of order",
        },
        change=without(ProvenOperations._prove, "(seq - 1) // group * group", "seq"),
    ),
    Mutant(
        name="a sector proves its own group",
        rule=6,
        taken_away="a sector of seq s proves s - 1 acknowledged, though it is of the same group",
        noticed_by={
            "honest-drive-under-groups": "loss; torn, out of order; not the truth",
            "honest-drive-that-tears": "loss; torn, out of order; not the truth",
        },
        change=without(ProvenOperations._prove, "(seq - 1) // group * group", "seq - 1"),
    ),
    Mutant(
        name="the control arm proves operations",
        rule=6,
        taken_away="an unsynced sector of the control arm raises the first writer's A'",
        noticed_by={
            "control-record-in-a-slot": "loss; 3 lost, 1 misdirected, 3 out of order",
        },
        change=without(
            ProvenOperations._prove_by_spans,
            "and self._is_writer(span.writer):\n            self._prove(span.writer, span.seq)",
            "and span.writer >= 0:\n            self._prove(span.writer % self.plan.writers, span.seq)",
        ),
    ),
    Mutant(
        name="temporary files prove nothing",
        rule=6,
        taken_away="temporary files of `rename` are not read",
        noticed_by={
            "temporary-that-testifies": "durable",
        },
        change=answering(NameScan._survey, "pass"),
    ),
    Mutant(
        name="order violations not counted",
        rule=6,
        taken_away="slots that are wrong only under A' are not counted apart",
        noticed_by={
            "write-missing-before-one-that-is-there": "loss; 1 lost",
        },
        change=without(SlotOracle.judge_rows, "out_of_order = wrong & ", "out_of_order = ~wrong & "),
    ),
    Mutant(
        name="nothing is proven without a log",
        rule=6,
        taken_away="a target without a log is not surveyed",
        noticed_by={
            "log-with-a-hole-that-nobody-heard-of": (
                "inconclusive: no-server-log, cut-not-shown, nothing-at-risk"
            ),
        },
        change=answering(ProvenOperations.survey, "pass"),
    ),
    Mutant(
        name="nothing is in flight",
        rule=7,
        taken_away="W is taken to be 0",
        noticed_by={
            "write-in-flight-whole": "inconclusive: log-behind",
            "honest-drive": "inconclusive: log-behind; not the truth",
        },
        change=without(
            ProvenOperations.ceiling, "self.acked[writer] + self.plan.credit", "self.acked[writer]"
        ),
    ),
    Mutant(
        name="all of the credit is in flight",
        rule=7,
        taken_away="what the target shows does not bound what was in flight",
        noticed_by={
            "garbage-ahead-of-what-was-in-flight": "durable; 1 damaged in flight",
            "name-gone-ahead-of-what-was-in-flight": "durable",
        },
        change=answering(ProvenOperations.last_issued, "return self.ceiling(writer)"),
    ),
    Mutant(
        name="what cannot be read hides nothing",
        rule=7,
        taken_away="a group of which a slot cannot be read was never acknowledged",
        noticed_by={
            "write-in-flight-behind-records-that-cannot-be-read": (
                "loss; 1 corrupt, 2 unreadable, 1 damaged in flight"
            ),
        },
        change=answering(ProvenOperations._unread_groups, "return set()"),
    ),
    Mutant(
        name="what cannot be read excuses",
        rule=7,
        taken_away="groups of which a slot cannot be read for good excuse what they may hide",
        noticed_by={"write-in-flight-behind-records-that-cannot-be-read": "durable; 4 damaged in flight"},
        change=answering(ProvenOperations.last_issued, "return self.last_hidden(writer)"),
    ),
    Mutant(
        name="slots in flight are read once",
        rule=8,
        taken_away="a slot in flight that was damaged or unreadable is not read again for what it proves",
        noticed_by={"write-in-flight-behind-a-wrong-bit": "loss; 1 corrupt, 1 damaged in flight"},
        change=answering(SlotScan._read_in_flight_again, 'self._begin("judging", 0)'),
    ),
    Mutant(
        name="a mix of legal versions is illegal",
        rule=7,
        taken_away="a version in flight counts only if it is whole",
        noticed_by={
            "write-in-flight-torn": "loss; 1 torn",
            "honest-drive-that-tears": "loss; torn; not the truth",
        },
        change=without(record_rows.faults, "(rows.lowest < wanted)", "(rows.highest != wanted)"),
    ),
    Mutant(
        name="any version is legal",
        rule=7,
        taken_away="an older version of a slot is as good as the newest",
        noticed_by={
            "drive-that-ignores-flushes": "durable; not the truth",
            "old-record-lost": "durable",
        },
        change=without(record_rows.faults, "(rows.lowest < wanted)", "(rows.lowest < 0)"),
    ),
    Mutant(
        name="damage in flight not excused",
        rule=7,
        taken_away="content in flight must be recognisable",
        noticed_by={
            "garbage-in-flight": "loss; 1 corrupt",
        },
        change=without(record_rows.faults, "excused = latest > expected", "excused = latest < expected"),
    ),
    Mutant(
        name="damage excused everywhere",
        rule=7,
        taken_away="unrecognisable content counts as a write in flight",
        noticed_by={
            "drive-that-flips-bits-of-neighbours": "loss; corrupt, damaged in flight; not the truth",
        },
        change=without(record_rows.faults, "excused = latest > expected", "excused = latest >= expected"),
    ),
    Mutant(
        name="I/O errors excused everywhere",
        rule=7,
        taken_away="unreadable content counts as a write in flight",
        noticed_by={
            "drive-that-cannot-read-its-pages": (
                "loss: unreadable-only; unreadable, damaged in flight; not the truth"
            ),
        },
        change=without(SlotOracle._faults, "excused = latest > expected", "excused = True"),
    ),
    Mutant(
        name="shared blocks not marked",
        rule=7,
        taken_away="an idle record that shares a block with one in flight is damaged like any other",
        noticed_by={
            "neighbour-in-a-shared-block": "loss; 1 corrupt",
        },
        change=answering(SlotOracle._beside_in_flight, "return False"),
    ),
    Mutant(
        name="only first sectors compared",
        rule=7,
        taken_away="only the first sector of a record is compared",
        noticed_by={
            "drive-that-shears-pages": "durable; not the truth",
        },
        change=without(
            ProvenOperations._same,
            "(wanted.reshape(-1, width) == records.reshape(-1, width))",
            "(wanted.reshape(-1, width) == records.reshape(-1, width))[:, :SECTOR_WORDS]",
        ),
    ),
    Mutant(
        name="body not checked",
        rule=8,
        taken_away="a sector is what its header says",
        noticed_by={
            "body-changed-below-an-intact-header": "durable",
        },
        change=without(
            record.parse,
            "_digests(words[good, BODY] ^ check[good, None]) == words[good, 63] ^ check[good]",
            "True",
        ),
    ),
    Mutant(
        name="place not checked",
        rule=8,
        taken_away="the place that a sector names is not compared with where it lies",
        noticed_by={
            "newer-record-in-another-place": "durable",
            "drive-that-misplaces-pages": "loss; lost, torn, corrupt; not the truth",
        },
        change=without(
            Observer.identify,
            "here = (span.writer, span.slot, number, span.offset) == (writer, slot, index, offset)",
            "here = True",
        ),
    ),
    Mutant(
        name="old slots not checked",
        rule=8,
        taken_away="only what was written in the last 32 operations is judged",
        noticed_by={
            "old-record-lost": "durable",
        },
        change=without(
            SlotOracle.screen,
            "found = np.array(suspects, dtype=np.intp)",
            "found = np.array(suspects, dtype=np.intp)\n"
            "    newest = self._expected(writer, first_slot, len(records))[found]\n"
            "    found = found[newest + U64(32) > self._proven[writer]]",
        ),
    ),
    Mutant(
        name="superblock not checked",
        rule=8,
        taken_away="any content in place of a superblock passes",
        noticed_by={
            "superblock-gone": "durable",
        },
        change=without(ProvenOperations.judge_superblock, "elif bytes(data) != wanted:", "elif False:"),
    ),
    Mutant(
        name="no reread",
        rule=8,
        taken_away="a slot that was wrong once is a finding",
        noticed_by={
            "cable-that-flips-a-bit-once": "loss; 1 corrupt",
        },
        change=without(
            ScanBase._conclude,
            "if second.judgement.finding is None:",
            "if second.judgement.finding is None:\n        second = first\n    if False:",
        ),
    ),
    Mutant(
        name="no reread of good places",
        rule=8,
        taken_away="an I/O error counts, whether or not the drive still answers elsewhere",
        noticed_by={
            "drive-that-loses-power-while-it-is-read": (
                "loss: unreadable-only; 63 unreadable, 1 damaged in flight"
            ),
        },
        change=answering(Canary.require_drive, "pass"),
    ),
    Mutant(
        name="a target that is gone is empty",
        rule=8,
        taken_away="what is missing counts, whether or not the target is as it was recognised",
        noticed_by={
            "drive-that-goes-away-before-it-is-read": "loss; 66 truncated",
        },
        change=answering(Canary.require_presence, "pass"),
    ),
    Mutant(
        name="I/O errors of an unfinished scan count",
        rule=8,
        taken_away="unreadable slots are a loss even if the drive went away later",
        noticed_by={
            "bad-sector-before-the-drive-goes-away": "loss: unreadable-only; 1 unreadable",
        },
        change=without(ScanReport.convicting, 'self.finished or name != "unreadable"', "True"),
    ),
    Mutant(
        name="I/O errors cause no loss",
        rule=8,
        taken_away="unreadable slots are never a loss",
        noticed_by={
            "bad-sector": "durable; 1 unreadable",
            "drive-that-cannot-read-its-pages": "durable; unreadable",
        },
        change=without(
            ScanReport.convicting, 'self.finished or name != "unreadable"', 'name != "unreadable"'
        ),
    ),
    Mutant(
        name="unreadable forever",
        rule=8,
        taken_away="a pass that reads everything does not withdraw a loss of unreadable slots alone",
        noticed_by={
            "pass-that-reads-what-was-unreadable": "loss: earlier-loss, unreadable-only",
        },
        change=without(verdict._earlier_losses, "if complete else 0", "* 0"),
    ),
    Mutant(
        name="withdrawn without reading",
        rule=8,
        taken_away="any later pass withdraws a loss of unreadable slots alone",
        noticed_by={
            "unfinished-pass-after-unreadable-slots": "inconclusive: scan-unfinished, loss-withdrawn",
        },
        change=without(verdict._earlier_losses, "if complete else 0", ""),
    ),
    Mutant(
        name="unstable falls with a loss",
        rule=8,
        taken_away="what was unstable beside unreadable slots is forgotten when they are withdrawn",
        noticed_by={
            "pass-that-reads-what-was-unreadable-beside-a-flip": "durable: loss-withdrawn",
        },
        change=without(verdict.decide, "if reason.code in _OUTLAST_A_LOSS", "if False"),
    ),
    Mutant(
        name="unstable not counted",
        rule=8,
        taken_away="a slot that is right when reread was never wrong",
        noticed_by={
            "cable-that-flips-a-bit-once": "durable",
        },
        change=without(ScanBase._conclude, "self._counts.unstable += 1", "pass"),
    ),
    Mutant(
        name="unstable forgotten",
        rule=8,
        taken_away="a later pass clears an unstable slot",
        noticed_by={
            "second-pass-after-a-flip": "durable",
        },
        change=answering(verdict._earlier_reasons, "yield from ()"),
    ),
    Mutant(
        name="ends of files not counted",
        rule=8,
        taken_away="a file that is short, or gone, is intact",
        noticed_by={
            "log-that-is-short": "durable",
            "drive-that-comes-back-smaller": "loss: device-smaller; truncated; not the truth",
        },
        change=answering(SlotOracle.absent_slots, "return range(0)"),
    ),
    Mutant(
        name="removed files of a log not looked for",
        rule=8,
        taken_away="a file of `append` that is back is not seen",
        noticed_by={
            "file-of-a-log-that-is-back": "durable",
        },
        change=answering(LogScan._look_for_removed, "pass"),
    ),
    Mutant(
        name="later files of a log not read",
        rule=8,
        taken_away="files of `append` beyond the ceiling do not show that the log is behind",
        noticed_by={
            "store-that-was-rolled-back-by-files-of-a-log": "loss; 72 truncated",
        },
        change=answering(LogScan._read_beyond, "pass"),
    ),
    Mutant(
        name="later removals not recognised",
        rule=8,
        taken_away="names that the next operations of `unlink` remove are lost, however many",
        noticed_by={
            "store-that-was-rolled-back-before-removals": "loss; 25 absent",
        },
        change=answering(NameOracle.done_beyond, "return 0"),
    ),
    Mutant(
        name="any later removal explains an absence",
        rule=8,
        taken_away="names are taken as removed later, though operations before those were not done",
        noticed_by={
            "name-that-no-removal-explains": "inconclusive: log-behind, nothing-at-risk; 1 absent",
        },
        change=without(
            NameOracle._makes_up_to,
            "return None if removed.any() else making",
            "return making",
        ),
    ),
    Mutant(
        name="absence is legal",
        rule=8,
        taken_away="any name may be absent",
        noticed_by={
            "created-name-that-is-gone": "durable",
        },
        change=answering(_Legal.absent, "return True"),
    ),
    Mutant(
        name="stale names accepted",
        rule=8,
        taken_away="a name may hold any version, if it is whole",
        noticed_by={
            "rename-that-came-undone": "durable",
        },
        change=without(NameOracle._faults_of_content, "seq >= newest", "True"),
    ),
    Mutant(
        name="listed names not looked up",
        rule=8,
        taken_away="a name that nobody asks for is not seen",
        noticed_by={
            "removed-name-that-is-back": "durable",
        },
        change=without(NameOracle.slots_to_check, "np.union1d(listed,", "np.union1d(listed[:0],"),
    ),
    Mutant(
        name="resurrection accepted",
        rule=8,
        taken_away="a name that was removed may be there",
        noticed_by={
            "unlinked-name-that-is-back": "durable",
            "removed-name-that-is-back": "durable",
        },
        change=answering(NameOracle._faults_of_presence, "return Faults(None, False, False, None)"),
    ),
    Mutant(
        name="torn renames accepted",
        rule=7,
        taken_away="what `rename` has in flight may be anything, as with `create`",
        noticed_by={
            "rename-before-the-data": "durable; 1 damaged in flight",
        },
        change=without(NameOracle._legal, " & (not self.plan.contract.whole_at_all_times)", ""),
    ),
    Mutant(
        name="names being created must be whole",
        rule=7,
        taken_away="what `create` has in flight is judged as if it were acknowledged",
        noticed_by={
            "name-in-the-making": "inconclusive: log-behind",
        },
        change=without(
            NameOracle._legal,
            "rewrite |= (event <= ceiling) & ~takes_away",
            "rewrite |= False",
        ),
    ),
    Mutant(
        name="names must stay until their removal is acknowledged",
        rule=7,
        taken_away="a removal in flight may not have been done",
        noticed_by={
            "removal-in-flight": "loss; 1 absent",
        },
        change=without(NameOracle._legal, "(event <= last_removal) & takes_away", "False"),
    ),
    Mutant(
        name="identity off",
        rule=9,
        taken_away="any target is the run's",
        noticed_by={
            "another-drive-in-its-place": "loss; 66 truncated",
        },
        change=without(identity.identify, 'None if differences else "hardware"', '"hardware"'),
    ),
    Mutant(
        name="drives without a serial are alike",
        rule=9,
        taken_away="two drives without a serial are the same drive",
        noticed_by={
            "another-drive-without-a-serial": "loss; 66 truncated",
        },
        change=without(drive_identity.own_serials, ' and "" not in known', ""),
    ),
    Mutant(
        name="serials of guests are unique",
        rule=9,
        taken_away="a guest's disk with the same serial on another machine is the same drive",
        noticed_by={
            "image-on-another-guest-whose-disk-has-the-same-serial": "durable",
        },
        change=answering(drive_serials.is_shared, "return False"),
    ),
    Mutant(
        name="numbers of hypervisors are serials",
        rule=9,
        taken_away="a number that a hypervisor gives its drives by itself identifies one",
        noticed_by={
            "another-disk-that-the-hypervisor-gave-the-same-number": "loss; 66 truncated",
        },
        change=without(drive_identity.own_serial, "is_nobodys(drive.serial)", "not drive.serial"),
    ),
    Mutant(
        name="targets that lack a drive are copies",
        rule=9,
        taken_away="a target of which one drive is gone is on other drives than at arming",
        noticed_by={
            "mirror-of-which-one-drive-is-gone": "inconclusive: drive-changed, drive-missing",
        },
        change=without(identity._drives_differ, " and not _missing(armed, now)", ""),
    ),
    Mutant(
        name="missing drives explain nothing",
        rule=9,
        taken_away="what the rest of a mirror lacks is lost, although the missing drive may hold it",
        noticed_by={
            "mirror-of-the-half-that-had-dropped-out": "loss; 20 lost",
        },
        change=without(verdict.decide, "in EXPLAIN_FINDINGS", 'in EXPLAIN_FINDINGS - {"drive-missing"}'),
    ),
    Mutant(
        name="missing drives ignored",
        rule=9,
        taken_away="what is left of a mirror shows that nothing was lost",
        noticed_by={
            "mirror-of-which-one-drive-is-gone": "durable",
        },
        change=without(verdict._identity_reasons, "if identity.missing:", "if False:"),
    ),
    Mutant(
        name="drives of a log hold the target",
        rule=9,
        taken_away="a target with the drive of an external log that arming did not find is a copy",
        noticed_by={"log-drive-that-only-verify-finds": "inconclusive: drive-changed, cut-class; 20 lost"},
        change=without(identity._serials, "None in (armed.offset_bytes, now.offset_bytes)", "True"),
    ),
    Mutant(
        name="missing logs ignored",
        rule=9,
        taken_away="an external log that is gone holds nothing that the file system lacks",
        noticed_by={"log-drive-that-is-gone": "loss; 20 lost"},
        change=answering(identity._lacks_log, "return True"),
    ),
    Mutant(
        name="logs are always found",
        rule=9,
        taken_away="the drive of an external log is missing if the file system does not mount",
        noticed_by={
            "file-system-with-a-log-that-is-wiped": "inconclusive: drive-missing, cut-class; 66 truncated"
        },
        change=answering(identity._lacks_log, "return False"),
    ),
    Mutant(
        name="paths are drives",
        rule=9,
        taken_away="drives are counted, and two paths to one drive are two",
        noticed_by={
            "drive-of-which-one-path-is-up": "inconclusive: drive-changed, cut-class; 20 lost",
        },
        change=without(drive_identity.own_serials, "frozenset(known)", "frozenset({(*known, len(drives))})"),
    ),
    Mutant(
        name="volumes of one drive are alike",
        rule=9,
        taken_away="where the target lies on its drives is not compared",
        noticed_by={
            "another-volume-of-the-same-drives": "loss; 66 truncated",
        },
        change=answering(identity._place_differences, "yield from ()"),
    ),
    Mutant(
        name="later runs ignored",
        rule=9,
        taken_away="another run's superblock means nothing",
        noticed_by={
            "target-that-was-used-again": "loss; 66 lost",
        },
        change=answering(identity._superseded_by, "return ''"),
    ),
    Mutant(
        name="runs that never wrote supersede",
        rule=9,
        taken_away="a run that was registered supersedes earlier ones, also if it never wrote",
        noticed_by={
            "second-run-that-never-wrote": "inconclusive: superseded; 20 lost",
        },
        change=answering(identity._untouched, "return False"),
    ),
    Mutant(
        name="runs that were not armed never supersede",
        rule=9,
        taken_away="a run that was never armed is taken not to have begun its superblocks",
        noticed_by={
            "second-run-that-was-cut-in-its-first-write": "loss; 1 corrupt",
        },
        change=without(verdict._identity_reasons, " and scan.superblocks_lost", " and False"),
    ),
    Mutant(
        name="other runs are earlier without a log",
        rule=9,
        taken_away="without a log, another run's superblock is an earlier run's",
        noticed_by={
            "later-run-that-nobody-knows-of-and-that-was-cut-as-it-began": (
                "inconclusive: no-server-log, superseded, cut-not-shown, nothing-at-risk; 1 lost; "
                "later run unknown"
            ),
        },
        change=without(identity.identify_without_log, "if others else", "if False else"),
    ),
    Mutant(
        name="superblocks convict without a log",
        rule=9,
        taken_away="without a log, a damaged superblock alone is a loss",
        noticed_by={
            "later-run-that-nobody-knows-of-and-that-was-cut-in-a-write": (
                "loss; 1 corrupt; later run unknown"
            ),
        },
        change=answering(verdict._only_superblocks, "return False"),
    ),
    Mutant(
        name="newer runs on the target ignored",
        rule=9,
        taken_away="the run whose superblock is left is judged, whatever was made there since",
        noticed_by={
            "second-run-that-is-gone": "inconclusive: superseded",
        },
        change=answering(identity.newer_run_here, "return False"),
    ),
    Mutant(
        name="earlier runs on the target not known",
        rule=9,
        taken_away="any other run's superblock is that of a later run",
        noticed_by={
            "second-run-that-is-gone": "inconclusive: superseded; 66 lost",
        },
        change=without(identity._superseded_by, " if run not in case.predecessors", ""),
    ),
    Mutant(
        name="newer runs judged on any file",
        rule=9,
        taken_away="the earlier run may have been made on another target",
        noticed_by={
            "file-of-another-run-in-the-targets-place": "inconclusive: superseded; 66 lost",
        },
        change=without(
            identity.newer_run_here,
            "    return one_target and not",
            "    return not",
        ),
    ),
    Mutant(
        name="later runs elsewhere on the drive ignored",
        rule=9,
        taken_away="only a run on the same target follows an earlier one",
        noticed_by={
            "whole-drive-on-whose-partition-a-later-run-was-made": "not superseded",
        },
        change=answering(target_keys.overlap, "return False"),
    ),
    Mutant(
        name="later runs on drives without a serial ignored",
        rule=9,
        taken_away="a drive without a serial of its own is never that of a later run elsewhere",
        noticed_by={
            "guests-disk-on-whose-partition-a-later-run-was-made": "not superseded",
        },
        change=answering(target_keys._machine_places, "return set()"),
    ),
    Mutant(
        name="smaller drives accepted",
        rule=8,
        taken_away="a drive may come back smaller, if the target lies in what is left",
        noticed_by={
            "drive-that-lost-the-half-without-the-target": "durable",
        },
        change=answering(identity._smaller, "yield from ()"),
    ),
    Mutant(
        name="unknown sizes are small",
        rule=8,
        taken_away="a drive whose size cannot be read is smaller than at arming",
        noticed_by={
            "drive-that-does-not-tell-its-size": "loss: device-smaller",
        },
        change=without(identity._smaller, "if 0 < size < drive.size_bytes:", "if size < drive.size_bytes:"),
    ),
    Mutant(
        name="smaller copies are losses",
        rule=9,
        taken_away="a copy on a smaller device is a device that became smaller",
        noticed_by={
            "copy-on-a-smaller-device": "loss: device-smaller",
        },
        change=without(verdict._loss_reasons, "(identity.superseded_by or identity.is_copy)", "False"),
    ),
    Mutant(
        name="smaller devices without a serial are losses",
        rule=9,
        taken_away="a device without a serial that is smaller is the one of arming",
        noticed_by={
            "copy-on-a-smaller-device-of-drives-without-a-serial": "loss: device-smaller",
        },
        change=answering(identity._drives_are_known, "return True"),
    ),
    Mutant(
        name="the latest verdict stands",
        rule=9,
        taken_away="any later verdict takes the place of an earlier one",
        noticed_by={
            "run-of-which-more-was-asked-later": "inconclusive, and inconclusive in its series",
        },
        change=answering(strength.weightiest, "return given[-1] if given else None"),
    ),
    Mutant(
        name="copies accepted",
        rule=9,
        taken_away="a superblock on another drive is as good as on the one that was cut",
        noticed_by={
            "copy-of-an-earlier-moment": "loss; 20 lost",
        },
        change=answering(identity._drives_differ, "return False"),
    ),
    Mutant(
        name="emptied directories ignored",
        rule=9,
        taken_away="a target that is gone is the drive's loss, whatever empties its directory",
        noticed_by={
            "target-in-a-directory-that-was-emptied": "loss; 66 truncated",
        },
        change=answering(identity.emptied_at_boot, "return ''"),
    ),
    Mutant(
        name="any directory may have been emptied",
        rule=9,
        taken_away="a target that is gone may always have been removed by the system",
        noticed_by={
            "target-that-is-gone": "inconclusive: emptied-at-boot; 66 truncated",
        },
        change=answering(identity.emptied_at_boot, "return '/'"),
    ),
    Mutant(
        name="copies on the same drive accepted",
        rule=9,
        taken_away="a superblock anywhere on the drive is as good as where it was written",
        noticed_by={
            "snapshot-of-an-earlier-moment-on-the-same-drive": "loss; 20 lost",
            "file-that-was-copied-before-the-last-writes": "loss; 20 lost",
        },
        change=answering(identity._copied, "return ''"),
    ),
    Mutant(
        name="earlier losses forgotten",
        rule=9,
        taken_away="a later pass clears a loss",
        noticed_by={
            "second-pass-over-a-drive-that-healed": "durable",
        },
        change=without(verdict._earlier_losses, 'past.verdict == "loss"', "False"),
    ),
    Mutant(
        name="findings do not cause loss",
        rule=8,
        taken_away="findings are counted, and the verdict is not loss",
        noticed_by={
            "drive-that-ignores-flushes": "durable; lost, torn",
            "old-record-lost": "durable; 1 lost",
        },
        change=FINDINGS_ARE_NO_LOSS,
    ),
    Mutant(
        name="taint ignored",
        rule=4,
        taken_away="other claims of a client that broke the protocol are believed",
        noticed_by={
            "tainted-run": "durable",
            "client-that-claims-beyond-its-credit": "durable",
        },
        change=without(verdict._log_reasons, "elif case.tainted:", "elif False:"),
    ),
    Mutant(
        name="unfinished scans accepted",
        rule=10,
        taken_away="unread slots count as intact",
        noticed_by={
            "drive-that-goes-away-while-it-is-read": "durable",
        },
        change=without(verdict._scan_reasons, "if not scan.finished:", "if False:"),
    ),
    Mutant(
        name="no log needed",
        rule=10,
        taken_away="a missing log is no reason against a pass",
        noticed_by={
            "target-without-a-log": "inconclusive: cut-not-shown, nothing-at-risk",
        },
        change=without(
            verdict._log_reasons,
            "    if case is None:\n        yield",
            "    if case is None:\n        0 and",
        ),
    ),
)
