"""The tester broken on purpose: each mutant is the product without one rule of evidence, and the lab cases that
must then answer wrongly. docs/evidence.md has the same table.
"""

from __future__ import annotations

from durability import cut, exposure, flushes, identity, record, stats, verdict
from durability.frontier import Frontiers
from durability.names import NamesOracle, _Legal
from durability.observation import Observer
from durability.oracle import Oracle
from durability.testimony import Testimony
from durability_client.life import AcknowledgingLife
from durability_client.names_scan import NamesScan
from durability_client.names_writer import NamesWriter
from durability_client.scan import Scan
from durability_client.scanning import Scanning
from durability_client.target import TargetFiles
from durability_client.writer import _Writer
from durability_server.desk import Desk
from durability_server.runs import Run
from tests.lab.mutation import Mutant, answering, constant, without

_ACKNOWLEDGING = (
    Mutant(
        name="acknowledges before the sync returns",
        rule=1,
        taken_away="a writer publishes a group, then syncs it",
        noticed_by=("cut-inside-a-sync",),
        change=without(
            _Writer._write,
            "                sync()\n",
            "                words[frontier_at] = seq\n                sync()\n",
        ),
    ),
    Mutant(
        name="acknowledges each write of a group",
        rule=1,
        taken_away="a writer publishes each operation of a group as it is written",
        noticed_by=("cut-inside-the-sync-of-a-group",),
        change=without(
            _Writer._write,
            "            pwrite(view, offset)\n",
            "            pwrite(view, offset)\n            words[frontier_at] = seq\n",
        ),
    ),
    Mutant(
        name="acknowledges names before the directory is synced",
        rule=1,
        taken_away="a writer of names publishes a group, then syncs the directory",
        noticed_by=("cut-inside-the-sync-of-a-directory",),
        change=without(
            NamesWriter._commit,
            "    directory.sync()\n",
            "    self._ledger.words[self._ledger.frontier_index(self._writer)] = self._seq\n"
            "    directory.sync()\n",
        ),
    ),
    Mutant(
        name="goes on after an error",
        rule=1,
        taken_away="a sync that failed counts as done",
        noticed_by=("sync-that-fails-once",),
        change=without(
            _Writer._write,
            "                sync()\n",
            "                try:\n                    sync()\n"
            "                except OSError:\n                    pass\n",
        ),
    ),
    Mutant(
        name="retries a failed sync",
        rule=1,
        taken_away="a sync that failed is called once more",
        noticed_by=("sync-that-fails-once",),
        change=without(
            _Writer._write,
            "                sync()\n",
            "                try:\n                    sync()\n"
            "                except OSError:\n                    sync()\n",
        ),
    ),
    Mutant(
        name="acknowledges after another writer's error",
        rule=1,
        taken_away="a sync that returns after the halt is published",
        noticed_by=("error-that-another-writer-was-told",),
        change=without(_Writer._write, "if words[halt_at]:", "if False:"),
    ),
    Mutant(
        name="rotates without syncing the directory",
        rule=1,
        taken_away="the next file of a log is written to before its name is durable",
        noticed_by=("cut-behind-a-rotation",),
        change=without(_Writer._open, "storage.sync_directory()", "pass"),
    ),
    Mutant(
        name="renames before the data are synced",
        rule=1,
        taken_away="`rename` gives a file its name without a sync of the file",
        noticed_by=("cut-between-renames",),
        change=without(NamesWriter._settle, "        file.sync()", "        pass"),
    ),
    Mutant(
        name="counts acknowledgements",
        rule=2,
        taken_away="a frame raises a frontier by one group, whatever it says",
        noticed_by=("acknowledgements-merged-into-one",),
        change=without(Frontiers._advanced, "return new", "return old + self._group"),
    ),
    Mutant(
        name="anybody goes on with a run",
        rule=3,
        taken_away="resuming a run takes no secret",
        noticed_by=("second-client-without-the-secret",),
        change=without(Desk._resume, "if not auth.equal(proof, message.proof):", "if False:"),
    ),
    Mutant(
        name="two connections write one run",
        rule=3,
        taken_away="a newer connection does not fence the older one",
        noticed_by=("client-that-came-back",),
        change=without(Desk._accept, "if older is not None:", "if False:"),
    ),
    Mutant(
        name="a run goes on after verify",
        rule=10,
        taken_away="verify does not end the run",
        noticed_by=("client-that-comes-back-after-verify",),
        change=without(Desk._resume, 'if run.state == "ended":', "if False:"),
    ),
    Mutant(
        name="writes without credit",
        rule=4,
        taken_away="a writer does not wait for grants",
        noticed_by=("server-that-grants-nothing",),
        change=without(
            AcknowledgingLife._wait_for_credit, "ledger.words[grant_at] + plan.credit", "seq + plan.credit"
        ),
    ),
    Mutant(
        name="believes claims beyond the credit",
        rule=4,
        taken_away="the server takes in any frontier",
        noticed_by=("client-that-claims-beyond-its-credit",),
        change=without(Frontiers._advanced, "new > ceiling", "False"),
    ),
    Mutant(
        name="no ceiling",
        rule=4,
        taken_away="writes beyond A + W on the target are not noticed",
        noticed_by=("store-that-was-rolled-back",),
        change=without(verdict._log_reasons, "if scan.above_ceiling:", "if False:"),
    ),
    Mutant(
        name="what is beyond the ceiling testifies",
        rule=4,
        taken_away="writes that the log does not allow for raise A'",
        noticed_by=("store-that-was-rolled-back",),
        change=without(Testimony._testify, "if seq > self.ceiling(writer):", "if False:"),
    ),
    Mutant(
        name="prefill not synced",
        rule=5,
        taken_away="the run is armed before superblocks and prefill are durable",
        noticed_by=("honest-drive-that-gets-fua-only",),
        change=without(TargetFiles.create, "main.sync()", "pass"),
    ),
    Mutant(
        name="arming ignored",
        rule=5,
        taken_away="a run that was never armed is judged",
        noticed_by=("cut-during-the-prefill",),
        change=without(verdict._log_reasons, "elif case.armed is None:", "elif False:"),
    ),
)

_JUDGING = (
    Mutant(
        name="the disk does not testify",
        rule=6,
        taken_away="A' is A",
        noticed_by=(
            "drive-that-lies-about-what-nobody-heard-of",
            "write-missing-before-one-that-is-there",
        ),
        change=without(
            Testimony._testify,
            "max(self._testified[writer], (seq - 1) // group * group)",
            "self._testified[writer]",
        ),
    ),
    Mutant(
        name="a sector testifies for itself",
        rule=6,
        taken_away="a sector of seq s proves s acknowledged, not the group before it",
        noticed_by=("write-in-flight-torn",),
        change=without(Testimony._testify, "(seq - 1) // group * group", "seq"),
    ),
    Mutant(
        name="a sector testifies for its group",
        rule=6,
        taken_away="a sector of seq s proves s - 1 acknowledged, though it is of the same group",
        noticed_by=("honest-drive-under-groups", "honest-drive-that-tears"),
        change=without(Testimony._testify, "(seq - 1) // group * group", "seq - 1"),
    ),
    Mutant(
        name="the control arm testifies",
        rule=6,
        taken_away="an unsynced sector of the control arm raises the first writer's A'",
        noticed_by=("control-record-in-a-slot",),
        change=without(
            Testimony.testify,
            "and self._is_writer(span.writer):\n            self._testify(span.writer, span.seq)",
            "and span.writer >= 0:\n            self._testify(span.writer % self.plan.writers, span.seq)",
        ),
    ),
    Mutant(
        name="temporaries do not testify",
        rule=6,
        taken_away="temporary files of `rename` are not read",
        noticed_by=("temporary-that-testifies",),
        change=answering(NamesScan._survey, "pass"),
    ),
    Mutant(
        name="order violations not counted",
        rule=6,
        taken_away="what is wrong only under A' is not told apart",
        noticed_by=("write-missing-before-one-that-is-there",),
        change=without(
            Oracle._judge,
            "wrong and self._faults(observation, logged, latest).finding is None",
            "False",
        ),
    ),
    Mutant(
        name="nobody testifies without a log",
        rule=6,
        taken_away="a target without a log is not surveyed",
        noticed_by=("log-with-a-hole-that-nobody-heard-of",),
        change=answering(Testimony.survey, "pass"),
    ),
    Mutant(
        name="nothing is in flight",
        rule=7,
        taken_away="W is taken to be 0",
        noticed_by=("write-in-flight-whole", "honest-drive"),
        change=without(Testimony.ceiling, "self.acked[writer] + self.plan.credit", "self.acked[writer]"),
    ),
    Mutant(
        name="a mix of legal versions is illegal",
        rule=7,
        taken_away="a version in flight counts only if it is whole",
        noticed_by=("write-in-flight-torn", "honest-drive-that-tears"),
        change=without(
            Oracle._faults, "expected <= span.seq <= ceiling", "span.seq == expected"
        ),
    ),
    Mutant(
        name="any version is legal",
        rule=7,
        taken_away="an older version of a slot is as good as the newest",
        noticed_by=("drive-that-ignores-flushes", "old-record-lost"),
        change=without(Oracle._faults, "expected <= span.seq <= ceiling", "span.seq <= ceiling"),
    ),
    Mutant(
        name="damage in flight not excused",
        rule=7,
        taken_away="what was being written must be recognisable",
        noticed_by=("garbage-in-flight",),
        change=without(Oracle._faults, "excused = latest > expected", "excused = False"),
    ),
    Mutant(
        name="damage excused everywhere",
        rule=7,
        taken_away="what is not recognisable, or cannot be read, is taken for a write in flight",
        noticed_by=("drive-that-flips-bits-of-neighbours", "drive-that-cannot-read-its-pages"),
        change=without(Oracle._faults, "excused = latest > expected", "excused = True"),
    ),
    Mutant(
        name="shared blocks not told",
        rule=7,
        taken_away="an idle record that shares a block with one in flight is damaged like any other",
        noticed_by=("neighbour-in-a-shared-block",),
        change=answering(Oracle._beside_in_flight, "return False"),
    ),
    Mutant(
        name="only first sectors compared",
        rule=7,
        taken_away="of a record only the first sector is looked at",
        noticed_by=("drive-that-shears-pages",),
        change=without(
            Testimony._same,
            "(wanted.reshape(-1, width) == records.reshape(-1, width))",
            "(wanted.reshape(-1, width) == records.reshape(-1, width))[:, :SECTOR_WORDS]",
        ),
    ),
    Mutant(
        name="body not checked",
        rule=8,
        taken_away="a sector is what its header says",
        noticed_by=("body-changed-below-an-intact-header",),
        change=without(
            record.parse,
            "U64(xxhash.xxh3_64_intdigest(body.tobytes())) == words[number, 63] ^ check[number]",
            "True",
        ),
    ),
    Mutant(
        name="place not checked",
        rule=8,
        taken_away="the place that a sector names is not compared with where it lies",
        noticed_by=("newer-record-in-another-place", "drive-that-misplaces-pages"),
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
        noticed_by=("old-record-lost",),
        change=without(
            Oracle.screen,
            "found = np.array(suspects, dtype=np.intp)",
            "found = np.array(suspects, dtype=np.intp)\n"
            "    newest = self._expected(writer, first_slot, len(records))[found]\n"
            "    found = found[newest + U64(32) > self._testified[writer]]",
        ),
    ),
    Mutant(
        name="superblock not checked",
        rule=8,
        taken_away="whatever lies in place of a superblock is taken for it",
        noticed_by=("superblock-gone",),
        change=without(Testimony.judge_superblock, "elif bytes(data) != wanted:", "elif False:"),
    ),
    Mutant(
        name="no second look",
        rule=8,
        taken_away="what was wrong once is a finding",
        noticed_by=("cable-that-flips-a-bit-once",),
        change=without(
            Scanning._conclude,
            "if second.judgement.finding is None:",
            "if second.judgement.finding is None:\n        second = first\n    if False:",
        ),
    ),
    Mutant(
        name="unstable not counted",
        rule=8,
        taken_away="what is right at the second look was never wrong",
        noticed_by=("cable-that-flips-a-bit-once",),
        change=without(Scanning._conclude, "self._tally.unstable += 1", "pass"),
    ),
    Mutant(
        name="unstable forgotten",
        rule=8,
        taken_away="a later pass clears an unstable slot",
        noticed_by=("second-pass-after-a-flip",),
        change=answering(verdict._earlier_reasons, "yield from ()"),
    ),
    Mutant(
        name="ends of files not counted",
        rule=8,
        taken_away="a file that is short, or gone, lacks nothing",
        noticed_by=("log-that-is-short", "drive-that-comes-back-smaller"),
        change=answering(Oracle.absent_slots, "return range(0)"),
    ),
    Mutant(
        name="removed files of a log not looked for",
        rule=8,
        taken_away="a file of `append` that is back is not seen",
        noticed_by=("file-of-a-log-that-is-back",),
        change=answering(Scan._look_for_removed, "pass"),
    ),
    Mutant(
        name="absence is legal",
        rule=8,
        taken_away="any name may be absent",
        noticed_by=("created-name-that-is-gone",),
        change=answering(_Legal.absent, "return True"),
    ),
    Mutant(
        name="stale names accepted",
        rule=8,
        taken_away="a name may hold any version, if it is whole",
        noticed_by=("rename-that-came-undone",),
        change=without(NamesOracle._faults_of_content, "seq >= newest", "True"),
    ),
    Mutant(
        name="listed names not looked up",
        rule=8,
        taken_away="a name that nobody asks for is not seen",
        noticed_by=("removed-name-that-is-back",),
        change=without(
            NamesOracle.slots_to_check, "np.union1d(listed,", "np.union1d(listed[:0],"
        ),
    ),
    Mutant(
        name="resurrection accepted",
        rule=8,
        taken_away="a name that was removed may be there",
        noticed_by=("unlinked-name-that-is-back", "removed-name-that-is-back"),
        change=answering(NamesOracle._faults_of_presence, "return Faults(None, False, False, None)"),
    ),
    Mutant(
        name="torn renames accepted",
        rule=7,
        taken_away="what `rename` has in flight may be anything, as with `create`",
        noticed_by=("rename-before-the-data",),
        change=without(NamesOracle._legal, ' & (self.plan.workload != "rename")', ""),
    ),
    Mutant(
        name="names in the making must be whole",
        rule=7,
        taken_away="what `create` has in flight is judged as though it were acknowledged",
        noticed_by=("name-in-the-making",),
        change=without(
            NamesOracle._legal,
            "rewrite |= (event <= ceiling) & ~takes_away",
            "rewrite |= False",
        ),
    ),
    Mutant(
        name="names must stay until their removal is acknowledged",
        rule=7,
        taken_away="a removal in flight may not have been done",
        noticed_by=("removal-in-flight",),
        change=without(NamesOracle._legal, "removal |= (event <= ceiling) & takes_away", "removal |= False"),
    ),
    Mutant(
        name="identity off",
        rule=9,
        taken_away="whatever is there is the run's target",
        noticed_by=("another-drive-in-its-place",),
        change=without(
            identity.identify, 'None if differences else "hardware"', '"hardware"'
        ),
    ),
    Mutant(
        name="later runs ignored",
        rule=9,
        taken_away="another run's superblock means nothing",
        noticed_by=("target-that-was-used-again",),
        change=answering(identity._superseded_by, "return ''"),
    ),
    Mutant(
        name="copies accepted",
        rule=9,
        taken_away="a superblock on another drive is as good as on the one that was cut",
        noticed_by=("copy-of-an-earlier-moment",),
        change=answering(identity._drives_differ, "return False"),
    ),
    Mutant(
        name="earlier losses forgotten",
        rule=9,
        taken_away="a later pass clears a loss",
        noticed_by=("second-pass-over-a-drive-that-healed",),
        change=without(verdict._loss_reasons, 'past.verdict == "loss"', "False"),
    ),
    Mutant(
        name="taint ignored",
        rule=4,
        taken_away="a client that broke the protocol is believed the rest",
        noticed_by=("tainted-run", "client-that-claims-beyond-its-credit"),
        change=without(verdict._log_reasons, "elif case.tainted:", "elif False:"),
    ),
    Mutant(
        name="unfinished scans accepted",
        rule=10,
        taken_away="what was not read is taken to be in order",
        noticed_by=("drive-that-goes-away-while-it-is-read",),
        change=without(verdict._scan_reasons, "if not scan.finished:", "if False:"),
    ),
    Mutant(
        name="no log needed",
        rule=10,
        taken_away="a missing log is no reason against a pass",
        noticed_by=("target-without-a-log",),
        change=without(
            verdict._log_reasons,
            'yield _reason("no-server-log", "the plan and the target alone can prove a loss, never durability")',
            "pass",
        ),
    ),
)

_THE_CUT = (
    Mutant(
        name="no proof of a cut needed",
        rule=11,
        taken_away="where nothing shows a cut, there was one",
        noticed_by=("client-that-was-killed",),
        change=without(cut.assess, 'if death else "none"', 'if death else "power"'),
    ),
    Mutant(
        name="any class of cut is enough",
        rule=11,
        taken_away="the class that is shown is not compared with the one that is required",
        noticed_by=("machine-that-was-reset",),
        change=without(verdict._cut_reasons, "if at_least(cut.cut_class, require_cut):", "if True:"),
    ),
    Mutant(
        name="attestations always believed",
        rule=11,
        taken_away="facts do not contradict the operator",
        noticed_by=("client-that-was-killed-and-a-cut-attested", "reset-and-a-cut-attested"),
        change=answering(cut._contradictions, "return []"),
    ),
    Mutant(
        name="one drive's counter is enough",
        rule=11,
        taken_away="one leaf drive that counted a power loss stands for all",
        noticed_by=("mirror-of-which-one-drive-was-cut",),
        change=without(cut._counted_power_loss, "not all(", "not any("),
    ),
    Mutant(
        name="emulated counters believed",
        rule=11,
        taken_away="a virtual machine's drive proves a power cut",
        noticed_by=("guest-with-a-counter-of-its-own",),
        change=without(cut._risen, " or before.emulated or after.emulated", ""),
    ),
    Mutant(
        name="a guest's end is a power cut",
        rule=11,
        taken_away="an attestation of a guest's end counts as power",
        noticed_by=("guest-that-was-forced-off",),
        change=answering(cut._believable, "return claimed or 'power'"),
    ),
    Mutant(
        name="uptime not compared",
        rule=11,
        taken_away="another boot id is the death of the operating system, however long it has been up",
        noticed_by=("machine-that-was-up-all-the-time",),
        change=without(cut._os_death, "if now.host.uptime_ns >= since_ns:", "if False:"),
    ),
    Mutant(
        name="closed sessions accepted",
        rule=12,
        taken_away="a FIN is as good as silence",
        noticed_by=("connection-that-was-closed",),
        change=without(
            verdict._session_reasons, '("silence", "target-error")', '("silence", "target-error", "fin", "rst")'
        ),
    ),
    Mutant(
        name="a FIN after silence does not count",
        rule=12,
        taken_away="once silent, a client is taken to be cut",
        noticed_by=("connection-that-was-closed-after-silence",),
        change=without(
            Run.detached, ' or (self.session_end == "silence" and end == "fin")', ""
        ),
    ),
    Mutant(
        name="stalled writers counted",
        rule=12,
        taken_away="a writer that may have waited for credit has records at risk",
        noticed_by=("network-that-failed-before-the-power", "server-that-grants-nothing"),
        change=answering(exposure._stalled, "return ()"),
    ),
    Mutant(
        name="the log does not show who stalled",
        rule=12,
        taken_away="a writer is at its limit only if the target shows it",
        noticed_by=("server-that-grants-nothing",),
        change=without(exposure._stalled, "max(seen, acked)", "seen"),
    ),
    Mutant(
        name="removals do not show who stalled",
        rule=12,
        taken_away="a name's absence says nothing of the writer that took it away",
        noticed_by=("removals-that-used-up-the-credit",),
        change=answering(NamesOracle._see_removals, "pass"),
    ),
    Mutant(
        name="nothing at risk accepted",
        rule=13,
        taken_away="a cut that could cost nothing is a pass",
        noticed_by=("liar-that-had-time-to-drain", "heartbeats-without-load"),
        change=without(verdict._scan_reasons, "if not at_risk.ms1000:", "if False:"),
    ),
    Mutant(
        name="covered slots at risk",
        rule=13,
        taken_away="losses that a write in flight may hide are counted as at risk",
        noticed_by=("end-of-a-pass",),
        change=without(exposure._exposed, "np.count_nonzero(newest == seqs)", "len(seqs)"),
    ),
    Mutant(
        name="any frame is load",
        rule=13,
        taken_away="after the target's error, frames of the client count as signs of load",
        noticed_by=("client-that-reports-the-targets-error",),
        change=answering(exposure._last_sign_ns, "return case.last_receipt_ns"),
    ),
    Mutant(
        name="loss window of the newest version",
        rule=14,
        taken_away="the window reaches back to the version expected, not to the one after that found",
        noticed_by=("slot-that-fell-back-two-versions",),
        change=without(
            Testimony._oldest_lost,
            "return self._versions.after(observation.writer, observation.slot, faults.found)",
            "return expected",
        ),
    ),
    Mutant(
        name="the cut is a moment",
        rule=14,
        taken_away="the cut is taken to be at the last frame",
        noticed_by=("slot-that-fell-back-two-versions",),
        change=answering(
            exposure.cut_interval_ns, "return case.last_receipt_ns, case.last_receipt_ns"
        ),
    ),
    Mutant(
        name="control losses are findings",
        rule=15,
        taken_away="writes that were never synced must be there",
        noticed_by=("control-arm-that-lost-writes", "honest-drive-that-gets-fua-only"),
        change=without(
            Scanning._read_control,
            "self._tally.control_lost += lost + chunk.piece.slots - chunk.whole",
            'self._tally.findings["lost"] += lost + chunk.piece.slots - chunk.whole',
        ),
    ),
    Mutant(
        name="control losses not seen",
        rule=15,
        taken_away="the control arm is not compared",
        noticed_by=("control-arm-that-lost-writes",),
        change=answering(Testimony.screen_control, "return 0"),
    ),
    Mutant(
        name="unverified cuts left out silently",
        rule=16,
        taken_away="cuts that nobody verified do not void the bound",
        noticed_by=("series-with-a-cut-that-nobody-verified",),
        change=without(stats.strength, 'past.verdict == "unverified"', "False"),
    ),
    Mutant(
        name="discarded cuts left out silently",
        rule=16,
        taken_away="inconclusive cuts that may hide a loss do not void the bound",
        noticed_by=("series-with-a-cut-that-may-hide-a-loss",),
        change=constant(stats, "HIDE_LOSSES", frozenset()),
    ),
    Mutant(
        name="idle cuts counted",
        rule=16,
        taken_away="cuts with nothing at risk strengthen a series",
        noticed_by=("series-of-idle-cuts",),
        change=without(stats.strength, " and past.at_risk_ms1000 > 0", ""),
    ),
    Mutant(
        name="classes pooled",
        rule=16,
        taken_away="resets strengthen a series of power cuts",
        noticed_by=("series-of-resets",),
        change=without(stats.strength, " and past.cut_class == cut_class", ""),
    ),
    Mutant(
        name="no warning of flushes that never came",
        rule=17,
        taken_away="nobody is told that no flush was sent",
        noticed_by=("file-system-without-barriers",),
        change=answering(flushes.LeafFlushes.none_sent, "return False"),
    ),
)

MUTANTS = (*_ACKNOWLEDGING, *_JUDGING, *_THE_CUT)
