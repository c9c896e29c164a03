"""The tester broken on purpose, rules 4, 8 and 10: what is looked at, what convicts, and what comes before a
verdict."""

from __future__ import annotations

from durability.evidence import identity, verdict
from durability.evidence.name_oracle import NameOracle, _Legal
from durability.evidence.observation import Observer
from durability.evidence.proven_operations import ProvenOperations
from durability.evidence.scan_report import ScanReport
from durability.evidence.slot_oracle import LogOracle, SlotOracle
from durability.formats import record
from durability_client.system import encrypted_directories
from durability_client.verify import mount_probe
from durability_client.verify.scan import target_reader
from durability_client.verify.scan.canary import Canary
from durability_client.verify.scan.scan_base import ScanBase
from durability_client.verify.scan.slot_scan import LogScan, SlotScan
from durability_client.verify.unmountable import UnmountableStorage
from tests.lab.mutants.mutation import Mutant, answering, together, without

FINDINGS_ARE_NO_LOSS = without(verdict._loss_reasons, "if found:", "if False:")

READING = (
    Mutant(
        name="slots in flight are read once",
        rule=8,
        taken_away="a slot in flight that was damaged or unreadable is not read again for what it proves",
        noticed_by={"write-in-flight-behind-a-wrong-bit": "loss; 1 corrupt, 1 damaged in flight"},
        change=answering(SlotScan._read_in_flight_again, 'self._begin("judging", 0)'),
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
        change=without(ScanReport._counts, "self.finished or name not in self.provisional", "True"),
    ),
    Mutant(
        name="a file that does not open ends the scan",
        rule=8,
        taken_away="an I/O error of a file's own metadata is no finding",
        noticed_by={
            "inode-that-cannot-be-read": "inconclusive: scan-unfinished, nothing-checked",
            "inode-of-the-target-that-cannot-be-read": "inconclusive: scan-unfinished, nothing-checked",
        },
        change=together(
            without(target_reader.opened, "error.errno not in MEDIUM_ERRORS", "True"),
            without(ScanBase._size, "error.errno not in MEDIUM_ERRORS", "True"),
        ),
    ),
    Mutant(
        name="a directory that cannot be listed ends the scan",
        rule=8,
        taken_away="without a list of the files of a log, its records are not read",
        noticed_by={
            "directory-that-cannot-be-listed": "inconclusive: scan-unfinished, nothing-checked",
        },
        change=without(ScanBase._suffixes, "error.errno not in MEDIUM_ERRORS", "True"),
    ),
    Mutant(
        name="files of a log are lost without a list",
        rule=8,
        taken_away="a missing file of a log counts, though no list shows whether it was replaced",
        noticed_by={
            "old-log-of-a-directory-that-cannot-be-listed": "loss; 100 truncated",
        },
        change=without(LogScan._extents, " and self._unlisted is None", ""),
    ),
    Mutant(
        name="a first record that cannot be read is old",
        rule=4,
        taken_away="a file beyond the ceiling shows no newer record if that cannot be read",
        noticed_by={
            "old-log-whose-newer-files-begin-with-bad-sectors": "loss; 100 truncated",
        },
        change=without(LogScan._first_record, "if chunk.content.unreadable:", "if False:"),
    ),
    Mutant(
        name="an unfinished scan knows how old the log is",
        rule=8,
        taken_away="damage to a slot counts, though the rest of the target may show that the log is behind",
        noticed_by={
            "write-in-flight-that-an-old-log-does-not-know": "loss; 1 corrupt",
        },
        change=without(SlotScan.run, "|= MAY_BE_EXPLAINED", "|= frozenset()"),
    ),
    Mutant(
        name="an old log explains superblocks",
        rule=8,
        taken_away="a damaged superblock of an unfinished scan is set aside like damage to a slot",
        noticed_by={
            "superblock-that-no-old-log-explains": "inconclusive: scan-unfinished; 1 corrupt",
        },
        change=without(ScanReport._counts, " or not explainable", ""),
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
            ScanReport._counts,
            "self.finished or name not in self.provisional",
            "name not in self.provisional",
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
        change=without(verdict.decide, "_OUTLAST_A_LOSS if may_fall", "frozenset() if may_fall"),
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
            "name-of-a-larger-run-that-is-back": "durable",
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
            "name-of-a-larger-run-that-is-back": "durable",
        },
        change=answering(NameOracle._faults_of_presence, "return Faults(None, False, False, None)"),
    ),
    Mutant(
        name="names of an earlier run accepted",
        rule=8,
        taken_away="a name that no operation of the run made or removed may hold an earlier run's record",
        noticed_by={
            "name-of-a-larger-run-that-is-back": "durable",
        },
        change=together(
            without(NameOracle._faults_of_presence, "newest or EARLIER_RUN in seqs", "newest"),
            answering(ScanBase._look_for_earlier_names, "pass"),
        ),
    ),
    Mutant(
        name="names of earlier runs not looked for",
        rule=8,
        taken_away="what stands beside the target where the run makes no name is not read",
        noticed_by={
            "earlier-name-beside-a-region": "durable",
            "earlier-file-beside-a-log": "durable",
            "names-of-another-writer-that-are-back": "durable",
            "name-of-an-earlier-tag-that-is-back": "durable",
            "created-name-of-an-earlier-tag-that-is-back": "inconclusive: log-behind",
            "earlier-control-arm-that-is-back": "durable",
        },
        change=answering(ScanBase._look_for_earlier_names, "pass"),
    ),
    Mutant(
        name="any other run is an earlier one",
        rule=8,
        taken_away="a name of a run that the server does not know as an earlier one is a finding",
        noticed_by={
            "name-of-an-unknown-run": "loss; 1 resurrected",
        },
        change=without(ProvenOperations.judge_earlier, "run in earlier", "run"),
    ),
    Mutant(
        name="what stands beside a renamed target was removed",
        rule=8,
        taken_away="names beside the target's new path count as those that arming removed",
        noticed_by={
            "name-of-an-earlier-run-beside-a-renamed-target": "loss; 1 resurrected",
        },
        change=without(identity.moved, " or armed.path_in_file_system != now.path_in_file_system", ""),
    ),
    Mutant(
        name="a file has one directory",
        rule=8,
        taken_away="names beside a mount of the target alone count as those that arming removed",
        noticed_by={
            "name-of-an-earlier-run-beside-a-target-that-was-mounted-alone": "loss; 1 resurrected",
            "name-of-an-earlier-run-beside-a-mount-of-the-target": "loss; 1 resurrected",
        },
        change=answering(identity._is_mounted_alone, "return False"),
    ),
    Mutant(
        name="targets of an unknown place have not moved",
        rule=8,
        taken_away="a target without a known path within its file system is where it was at arming",
        noticed_by={
            "name-of-an-earlier-run-beside-a-target-of-an-unknown-place": "loss; 1 resurrected",
        },
        change=without(identity.moved, "not now.path_in_file_system or ", ""),
    ),
    Mutant(
        name="old blocks in the next file are an earlier file",
        rule=8,
        taken_away="the first file beyond the ceiling counts as one that the run never makes",
        noticed_by={
            "next-file-of-a-log-over-old-blocks": (
                "inconclusive: log-behind, nothing-at-risk; 66 truncated, 1 resurrected"
            ),
        },
        change=without(LogOracle._may_be_begun, "<= self.next_file(", "< self.next_file("),
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
        name="drives without a serial may shrink",
        rule=8,
        taken_away="the sizes of drives without a serial are not compared",
        noticed_by={
            "drive-without-a-serial-that-lost-the-half-without-the-target": "durable",
        },
        change=answering(identity._nameless_smaller, "yield from ()"),
    ),
    Mutant(
        name="unknown sizes are small",
        rule=8,
        taken_away="a drive whose size cannot be read is smaller than at arming",
        noticed_by={
            "drive-that-does-not-tell-its-size": "loss: device-smaller",
        },
        change=without(identity._smaller, "0 < after.size_bytes <", "after.size_bytes <"),
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
        name="locked directories are empty",
        rule=8,
        taken_away="what is missing counts, whether or not the directory has been unlocked",
        noticed_by={
            "target-in-a-directory-that-is-locked": "loss; 66 truncated",
        },
        change=answering(encrypted_directories.locked_above, "return None"),
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
    Mutant(
        name="any failed mount is damage",
        rule=10,
        taken_away="a mount that fails for the system's reasons shows that the file system is damaged",
        noticed_by={
            "file-system-that-a-small-system-does-not-mount": "loss; 66 truncated",
        },
        change=without(
            mount_probe.cause_of,
            "if not refused and not any(words in said for words in _DAMAGE):",
            "if False:",
        ),
    ),
    Mutant(
        name="refusals are damage",
        rule=10,
        taken_away="a file system that any later kernel does not take is damaged",
        noticed_by={
            "file-system-that-a-kernel-of-another-build-refuses": "loss; 66 truncated",
        },
        change=without(UnmountableStorage._require_kernel_of, "now.kernel != armed.kernel", "False"),
    ),
    Mutant(
        name="older kernels know all",
        rule=10,
        taken_away="a kernel older than that of the run knows all features of its file system",
        noticed_by={
            "file-system-that-an-older-kernel-takes-for-damaged": "loss; 66 truncated",
        },
        change=without(
            UnmountableStorage._require_kernel_of, "older = _version(now) < _version(armed)", "older = False"
        ),
    ),
)
