"""The tester broken on purpose: what the target itself proves, also of the log (rules 4 and 6), and what is
legal on it (rule 7)."""

from __future__ import annotations

from durability.evidence import record_rows
from durability.evidence.name_oracle import NameOracle
from durability.evidence.proven_operations import ProvenOperations
from durability.evidence.scan_report import ScanCounts
from durability.evidence.slot_oracle import LogOracle, SlotOracle
from durability_client.verify.scan.name_scan import NameScan
from durability_client.verify.scan.slot_scan import LogScan
from tests.lab.mutants.mutation import Mutant, answering, without

LEGAL_STATES = (
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
        name="what is beyond the ceiling explains, whatever it shows",
        rule=4,
        taken_away="a place beyond the ceiling shows that the log is behind, without a version beyond it",
        noticed_by={
            "empty-file-of-a-log-that-is-back": "inconclusive: log-behind; 1 lost",
            "file-of-a-log-that-is-an-older-one": (
                "inconclusive: log-behind; 22 misdirected, 8 damaged in flight"
            ),
            "log-over-a-longer-one-that-is-gone": "inconclusive: log-behind; 12 lost, 8 damaged in flight",
            "log-over-a-longer-one-that-was-trimmed": "inconclusive: log-behind; 12 lost",
            "next-file-of-a-log-that-is-not-full": (
                "inconclusive: log-behind, nothing-at-risk; 66 truncated"
            ),
            "files-of-a-log-that-fell-back-by-halves": "inconclusive: log-behind; 64 truncated",
            "file-of-a-log-that-no-other-follows": (
                "inconclusive: log-behind, nothing-at-risk; 66 truncated"
            ),
            "name-that-nobody-made-with-garbage": "inconclusive: log-behind; 1 absent",
        },
        change=without(
            ScanCounts.settle_out_of_reach, "if explained == sum(self.findings.values()):", "if True:"
        ),
    ),
    Mutant(
        name="what is out of reach passes",
        rule=4,
        taken_away="content beyond the ceiling is ignored if it shows no version beyond it",
        noticed_by={
            "file-of-a-log-that-nobody-can-have-made": "durable",
        },
        change=without(ScanCounts.settle_out_of_reach, "explained or self.out_of_reach", "explained"),
    ),
    Mutant(
        name="records of any age testify",
        rule=4,
        taken_away="any record of the run in a file beyond the ceiling shows that the log is behind",
        noticed_by={
            "file-of-a-log-that-is-back-over-reused-blocks": "inconclusive: log-behind; 1 lost",
        },
        change=without(LogOracle.look_beyond, "ceilings[sectors.writer[records].astype(np.intp)]", "U64(0)"),
    ),
    Mutant(
        name="the next file may be another run's",
        rule=4,
        taken_away="the first file beyond the ceiling is ignored if it has another run's data",
        noticed_by={
            "earlier-file-in-the-place-of-the-next-one": "durable",
        },
        change=without(LogScan._read_beyond, "is_next or ", ""),
    ),
    Mutant(
        name="a group that the log does not know makes no name",
        rule=4,
        taken_away="a name just beyond the ceiling is judged as if nobody could be making it",
        noticed_by={
            "name-in-the-making-beyond-the-credit": "loss; 1 absent, 1 resurrected",
        },
        change=answering(NameOracle._may_be_begun, "return False"),
    ),
    Mutant(
        name="names that nobody made may hold older records",
        rule=7,
        taken_away="a name of `create` that was never made may hold a record of the run",
        noticed_by={
            "name-that-nobody-made-with-an-older-record": "loss; 1 absent",
        },
        change=without(NameOracle._faults_of_presence, 'span.state == "stray"', "False"),
    ),
)
