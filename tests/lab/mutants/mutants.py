"""The tester broken on purpose: each mutant is the product without one rule of evidence, with the lab cases
that must notice. docs/reference/mutants.md has the same table.

Here are those of acknowledging, rules 1 to 5.
"""

from __future__ import annotations

from durability.evidence import verdict
from durability.protocol.frontiers import Frontiers
from durability_client.run.name_writer import NameWriter
from durability_client.run.slot_writer import _LogWriter, _SlotWriter
from durability_client.run.writer import AcknowledgingWriter
from durability_client.target import commit_check
from durability_client.target.kernel_storage import KernelFile
from durability_client.target.target_files import TargetFiles
from durability_client.verify import verify_command
from durability_server.runs import requests
from durability_server.runs.requests import Requests
from tests.lab.mutants.mutants_of_identity import IDENTITY
from tests.lab.mutants.mutants_of_legal_states import LEGAL_STATES
from tests.lab.mutants.mutants_of_reading import READING
from tests.lab.mutants.mutants_of_the_cut import THE_CUT
from tests.lab.mutants.mutation import Mutant, answering, without

_ACKNOWLEDGING = (
    Mutant(
        name="acknowledges before the sync returns",
        rule=1,
        taken_away="a writer publishes a group, then syncs it",
        noticed_by={
            "cut-inside-a-sync": "loss; 1 lost",
        },
        change=without(
            _SlotWriter._write,
            "                sync()\n",
            "                words[frontier_at] = seq\n                sync()\n",
        ),
    ),
    Mutant(
        name="acknowledges each write of a group",
        rule=1,
        taken_away="a writer publishes each operation of a group as it is written",
        noticed_by={
            "cut-inside-the-sync-of-a-group": "loss; 4 lost",
        },
        change=without(
            _SlotWriter._write,
            "            pwrite(view, offset)\n",
            "            pwrite(view, offset)\n            words[frontier_at] = seq\n",
        ),
    ),
    Mutant(
        name="acknowledges names before the directory is synced",
        rule=1,
        taken_away="a writer of names publishes a group, then syncs the directory",
        noticed_by={
            "cut-inside-the-sync-of-a-directory": "loss; 1 absent",
        },
        change=without(
            NameWriter._commit,
            "    directory.sync()\n",
            "    self._shared.words[self._shared.frontier_index(self._writer)] = self._seq\n"
            "    directory.sync()\n",
        ),
    ),
    Mutant(
        name="goes on after an error",
        rule=1,
        taken_away="a sync that failed counts as done",
        noticed_by={
            "sync-that-fails-once": "loss; 1 lost",
        },
        change=without(
            _SlotWriter._write,
            "                sync()\n",
            "                try:\n                    sync()\n"
            "                except OSError:\n                    pass\n",
        ),
    ),
    Mutant(
        name="retries a failed sync",
        rule=1,
        taken_away="a sync that failed is called once more",
        noticed_by={
            "sync-that-fails-once": "loss; 1 lost",
        },
        change=without(
            _SlotWriter._write,
            "                sync()\n",
            "                try:\n                    sync()\n"
            "                except OSError:\n                    sync()\n",
        ),
    ),
    Mutant(
        name="acknowledges after another writer's error",
        rule=1,
        taken_away="a sync that returns after the halt is published",
        noticed_by={
            "error-that-another-writer-was-told": "loss; 1 lost",
        },
        change=without(_SlotWriter._write, "if words[halt_at]:", "if False:"),
    ),
    Mutant(
        name="believes a sync though the file system has failed",
        rule=1,
        taken_away="a sync counts also if the file system takes no change after it",
        noticed_by={
            "sync-behind-a-commit-that-failed": "loss; 1 lost",
        },
        change=answering(commit_check.require_alive, "pass"),
    ),
    Mutant(
        name="short writes accepted",
        rule=1,
        taken_away="a write of a part of a record counts as a write",
        noticed_by={
            "write-that-was-cut-short": "loss; 1 truncated",
        },
        change=without(KernelFile.pwrite, "if written != len(buffer):", "if False:"),
    ),
    Mutant(
        name="rotates without syncing the directory",
        rule=1,
        taken_away="the next file of a log is written to before its name is durable",
        noticed_by={
            "cut-behind-a-rotation": "loss; 2 truncated",
        },
        change=without(_LogWriter._open, "storage.sync_directory()", "pass"),
    ),
    Mutant(
        name="renames before the data are synced",
        rule=1,
        taken_away="`rename` gives a file its name without a sync of the file",
        noticed_by={
            "cut-between-renames": "loss; 64 torn",
        },
        change=without(NameWriter._settle, "        file.sync()", "        pass"),
    ),
    Mutant(
        name="counts acknowledgements",
        rule=2,
        taken_away="a frame raises a frontier by one group, whatever it says",
        noticed_by={
            "acknowledgements-merged-into-one": "durable",
        },
        change=without(Frontiers._advanced, "return new", "return old + self._group"),
    ),
    Mutant(
        name="any client resumes a run",
        rule=3,
        taken_away="resuming a run needs no secret",
        noticed_by={
            "second-client-without-the-secret": "accepted",
        },
        change=without(Requests._resume, "if not auth.equal(known.secret, message.secret):", "if False:"),
    ),
    Mutant(
        name="two connections write one run",
        rule=3,
        taken_away="a newer connection does not fence the older one",
        noticed_by={
            "client-that-came-back": "accepted, and so is the older connection",
        },
        change=without(Requests._accept, "if older is not None:", "if False:"),
    ),
    Mutant(
        name="a run goes on after verify",
        rule=10,
        taken_away="verify does not end the run",
        noticed_by={
            "client-that-comes-back-after-verify": "refused: run-live, then accepted",
        },
        change=without(requests._require_not_ended, 'if head.state == "ended":', "if False:"),
    ),
    Mutant(
        name="a live run is judged",
        rule=10,
        taken_away="the server lets verify have a run whose client is connected",
        noticed_by={
            "client-that-comes-back-after-verify": "accepted, then refused: run-ended",
        },
        change=without(Requests._require_not_live, "if session is not None:", "if False:"),
    ),
    Mutant(
        name="verify takes no lock",
        rule=10,
        taken_away="a target is judged while its client has it",
        noticed_by={
            "target-that-a-run-still-has": "judged, exit code 4",
        },
        change=without(verify_command.verify, "        target.lock()\n", "        pass\n"),
    ),
    Mutant(
        name="mounts without replay accepted",
        rule=10,
        taken_away="a file system that was mounted without its log is judged",
        noticed_by={
            "log-that-was-not-replayed": "loss; 20 lost",
        },
        change=answering(verify_command._require_replay, "pass"),
    ),
    Mutant(
        name="writes without credit",
        rule=4,
        taken_away="a writer does not wait for grants",
        noticed_by={
            "server-that-grants-nothing": "inconclusive: tainted, log-behind, nothing-at-risk",
        },
        change=without(
            AcknowledgingWriter._wait_for_credit,
            "plan.issue_limit(shared.words[grant_at])",
            "plan.issue_limit(seq)",
        ),
    ),
    Mutant(
        name="believes claims beyond the credit",
        rule=4,
        taken_away="the server takes in any frontier",
        noticed_by={
            "client-that-claims-beyond-its-credit": "loss; 14 lost",
        },
        change=without(Frontiers._advanced, "new > ceiling", "False"),
    ),
    Mutant(
        name="no ceiling",
        rule=4,
        taken_away="writes beyond A + W on the target are not noticed",
        noticed_by={
            "store-that-was-rolled-back": "durable",
        },
        change=without(verdict._log_reasons, "if scan.above_ceiling:", "if False:"),
    ),
    Mutant(
        name="prefill not synced",
        rule=5,
        taken_away="the run is armed before superblocks and prefill are durable",
        noticed_by={
            "honest-drive-that-gets-fua-only": "loss; corrupt, damaged in flight; not the truth",
        },
        change=without(TargetFiles.create, "main.sync()", "pass"),
    ),
    Mutant(
        name="arming ignored",
        rule=5,
        taken_away="a run that was never armed is judged",
        noticed_by={
            "cut-during-the-prefill": "loss; 24 corrupt",
        },
        change=without(verdict._log_reasons, "elif case.armed is None:", "elif False:"),
    ),
    Mutant(
        name="runs without a log are armed",
        rule=5,
        taken_away="a run that the server does not know is judged by its superblock, as if it had been armed",
        noticed_by={
            "prefill-that-no-server-knows-of": "loss; 24 foreign",
        },
        change=without(verdict._log_reasons, "if not any(scan.newest_seen):", "if False:"),
    ),
)

MUTANTS = (*_ACKNOWLEDGING, *LEGAL_STATES, *READING, *IDENTITY, *THE_CUT)
