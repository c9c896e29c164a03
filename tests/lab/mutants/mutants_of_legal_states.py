"""The tester broken on purpose, rules 6 and 7: what the target itself proves, and what is legal on it."""

from __future__ import annotations

from durability.evidence import record_rows
from durability.evidence.name_oracle import NameOracle
from durability.evidence.proven_operations import ProvenOperations
from durability.evidence.slot_oracle import SlotOracle
from durability_client.verify.scan.name_scan import NameScan
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
)
