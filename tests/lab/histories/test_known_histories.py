"""Histories whose verdicts were once wrong: each has the verdicts that it deserves.

Those that show a rule of evidence are files in `known`, for `durability lab histories --replay FILE`. The
others are here, with "; " where a file has the end of a line.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from durability_lab.histories.play import Played, play
from durability_lab.histories.steps import FORMAT, History
from tests.lab.mutants.mutants import MUTANTS

pytestmark = pytest.mark.slow

KNOWN = Path(__file__).parent / "known"
HEAD = f"{FORMAT}; seed 1; target device; drive honest; counters no; "  # what is said again later counts

# Each file with the rule, as a mutant's name, without which it is judged otherwise, and the answers of
# `verify` in their order; the last one is that after the end of the history.
FILES = {
    "a": ("any error is a cut", "inconclusive (nothing-at-risk); inconclusive (nothing-at-risk)"),
    "b": ("a hang is a cut", "inconclusive (nothing-at-risk); inconclusive (nothing-at-risk)"),
    "c": (
        "a restart after an error is a cut",
        "inconclusive (cut-not-shown, nothing-at-risk); inconclusive (cut-not-shown, nothing-at-risk)",
    ),
    "d": ("no reread of good places", "inconclusive (scan-unfinished, nothing-checked); durable; durable"),
    "e": (
        "later files of a log not read",
        "inconclusive (log-behind, session-live); inconclusive (log-behind, session-server-down);"
        " inconclusive (log-behind, session-server-down)",
    ),
    "f": (
        "newer runs on the target ignored",
        "inconclusive (session-stopped, cut-not-shown); loss (findings); loss (findings, earlier-loss)",
    ),
    "g": (
        "newer runs on the target ignored",
        "inconclusive (session-stopped, cut-not-shown); loss (findings); loss (findings, earlier-loss)",
    ),
    "h": (
        "the latest verdict stands",
        "durable; inconclusive (too-few-cuts); durable; inconclusive (superseded); durable",
    ),
    "i": ("smaller drives accepted", "loss (device-smaller); loss (device-smaller, earlier-loss)"),
    # j is a file system that does not mount, of a kernel: rig B has it.
    "k": (
        "a reset after silence does not count",
        "inconclusive (session-closed); inconclusive (session-closed)",
    ),
    # Found by a reader: the power is cut after a verify that found the drive with power, after a crash, or
    # after a client that had ended in a dead network.
    "crash-first": (
        "the last of several events was the cut",
        "inconclusive (attestation-contradicted, cut-class); inconclusive (attestation-contradicted,"
        " cut-class); inconclusive (attestation-contradicted, cut-class)",
    ),
    "went-on": (
        "a client's system dies with it",
        "inconclusive (session-closed, attestation-contradicted, cut-not-shown);"
        " inconclusive (session-closed); inconclusive (session-closed)",
    ),
    # Found by another reader: the verify that found it so was of another run.
    "other-run": (
        "a verify tells of its own run only",
        "inconclusive (superseded, session-closed, cut-class); inconclusive (cut-class);"
        " inconclusive (attestation-contradicted, cut-class)",
    ),
    # Found by the search: a drive dies while the network is away, which then delivers what is old by now.
    "held-up": ("late frames are new", "inconclusive (nothing-at-risk)"),
    # Found by the search: a run of which only the superblock is left, and a server restored to before it.
    "unarmed": (
        "runs without a log are armed",
        "inconclusive (no-server-log, not-armed, superseded, cut-not-shown, nothing-at-risk)",
    ),
    # Found by a reader, and since by the search: a drive that goes away before it is read, a frozen client.
    "gone": (
        "a target that is gone is empty",
        "inconclusive (scan-unfinished, nothing-checked); durable; durable",
    ),
    "frozen": ("a frozen client is cut", "inconclusive (nothing-at-risk); inconclusive (nothing-at-risk)"),
    # Of another drive, which `verify` refuses where it shows no run.
    "dock": ("a serial is a drive", "none (WrongTargetError); none (WrongTargetError)"),
    "no-serial": ("drives without a serial are alike", "none (WrongTargetError); none (WrongTargetError)"),
    # Found by the search: a drive without a serial that becomes smaller below a file that is whole; and one
    # that gives back its superblocks, and nothing of the one name that there is.
    "half": ("drives without a serial may shrink", "inconclusive (smaller-or-copy)"),
    "one-name": ("I/O errors cause no loss", "loss (findings, unreadable-only)"),
    "copy": ("copies accepted", "inconclusive (drive-changed); inconclusive (drive-changed)"),
    # Found by the search: a smaller run is cut in its first sync, and the server is restored to before both.
    "smaller": (
        "superblocks among records are earlier runs'",
        "durable; inconclusive (no-server-log, superseded, cut-not-shown, nothing-at-risk)",
    ),
    # Found by the search: the names of a larger run are back, whose numbers the smaller one does not use.
    "larger": ("names of an earlier run accepted", "loss (findings)"),
}
NEEDS = {name: rule for name, (rule, _) in FILES.items()}

# Found by the search and by readers: each history with its answers.
RIGHT = {
    # The account remembers what was broken, though the server knows only of the run that was lost first.
    "a loss over which a later run wrote": (
        "seed 0; drive flush-ignored; run; copy; hang; pass; cut; boot; run; server how=newest",
        "loss (findings)",
    ),
    # Found by the search: a second run is cut in its first sync, and no log knows it. What it wrote of a
    # superblock counts as a finding beside the loss.
    "a superblock that an unknown run began to write over": (
        "drive flush-skipped; run; pass ms=4000; hang; pass; reboot; pass ms=1500; pass; copy; run; cut;"
        " server; run; pass; copy; pass ms=1500; cut; server how=newest age=1",
        "loss (findings)",
    ),
    # Removals after the end of the log leave no proof, and a torn name shows a broken promise.
    "names removed after the log, and a torn name": (
        "target file; drive partial-flush:cache_bytes=65536; counters no; run workload=unlink size_kib=1024;"
        " pass; copy; pass ms=1500; cut; server how=newest",
        "loss (findings)",
    ),
    "names removed after the log, and an unreadable name": (
        "seed 15541; target file; drive unreadable:share=0.05,recovery_ms=3000;"
        " run workload=unlink size_kib=256; pass ms=1500; copy; pass ms=400; cut; server how=newest; boot",
        "loss (findings)",
    ),
    # The last acknowledgement is under way as the power goes, and no round trip was measured yet.
    "a run that is cut before its first heartbeat": (
        "seed 3827; drive flush-ignored; run writers=3 sync=dsync",
        "loss (findings)",
    ),
    # The server ended while the client stood still, so nobody saw for how long its machine had power.
    **{
        f"a client that stands still, and a server that ends: {server}": (
            f"drive flush-ignored; run size_kib=1024 writers=1; freeze; pass ms=4000; {server}",
            "loss (findings)",
        )
        for server in ("server how=restarted", "server; pass ms=4000; server how=start")
    },
    # A reader's: the drive had emptied its cache when a verify saw it.
    "attested after a crash that a verify had seen": (
        "drive early-ack:delay_ms=3000; run size_kib=1024; pass ms=400; cut what=guest; boot; pass ms=4000;"
        " verify attest=none; cut; boot; verify",
        "inconclusive (cut-class); inconclusive (attestation-contradicted, cut-class);"
        " inconclusive (attestation-contradicted, cut-class)",
    ),
    "a clean restart after a verify that had seen the machine": (
        "drive early-ack:delay_ms=3000; run size_kib=1024; pass ms=400; network; pass; kill; pass ms=4000;"
        " network up=yes; pass; verify attest=none require=os; reboot; verify attest=none require=os",
        "inconclusive (session-closed, cut-not-shown); inconclusive (session-closed);"
        " inconclusive (session-closed, cut-class)",
    ),
    # Another reader's: that verify was of another run.
    "a machine that a verify of another run had seen": (
        "drive early-ack:delay_ms=3000; run size_kib=1024; kill; run size_kib=1024; pass ms=400; network;"
        " pass; kill; pass ms=4000; pass ms=4000; pass ms=4000; pass ms=4000; network up=yes; pass ms=4000;"
        " verify run=older attest=none; pass ms=4000; cut; boot; verify",
        "inconclusive (superseded, session-closed, cut-not-shown); inconclusive (session-closed);"
        " inconclusive (session-closed)",
    ),
    # The same reader's: what a verify has shown holds, though the server has another clock since.
    **{
        f"a restart of the server after a verify, counters {counters}": (
            f"counters {counters}; run size_kib=1024; pass ms=400; cut what=guest; boot; verify attest=none;"
            " server how=restarted; verify attest=true require=os cut_class=os; reboot;"
            " verify attest=none require=os",
            "inconclusive (cut-class); durable; durable; inconclusive (cut-class)",
        )
        for counters in ("yes", "no")
    },
    "attested after a restart of the server, which had seen the cut": (
        "run size_kib=1024; pass ms=400; cut; boot; verify attest=none; server how=restarted;"
        " verify attest=true; reboot; verify attest=none",
        "inconclusive (cut-class); durable; durable; durable",
    ),
    # A verify that is killed, or loses its network, has told the server what it was told.
    "a false attestation of a verify that lost its network": (
        "run size_kib=1024; pass ms=400; cut what=guest; boot; verify attest=false cut_after=5 loses=network",
        "durable; durable",
    ),
    "a false attestation of a verify that was killed, in an export": (
        "counters yes; run size_kib=1024; pass ms=400; cut what=guest; boot;"
        " verify attest=false cut_class=vm cut_after=5 loses=process; glitch; copy;"
        " verify require=os log=export",
        "none (killed); durable; inconclusive (cut-class)",
    ),
    "an export that was made before a verify saw the machine": (
        "counters yes; run size_kib=1024; pass ms=400; cut what=guest; boot; pass ms=4000; copy;"
        " verify attest=none; cut; boot; verify log=export",
        "inconclusive (cut-class); durable; inconclusive (attestation-contradicted, cut-class)",
    ),
    # Found by the search: it looks as if it had no power, and somebody says so, though nothing was cut.
    "a false attestation about a drive that failed everything": (
        "run; error lasting=yes; pass ms=1500; reboot; pass ms=1500; verify attest=false",
        "inconclusive (scan-unfinished, nothing-checked); durable",
    ),
    # Found by the search: the client meets the first error, and then looks at a drive without a link.
    **{
        f"an error, {text} a drive that fails everything": (
            f"run; error; {step}error lasting=yes; pass ms=4000; cut; pass ms=1500",
            "durable",
        )
        for text, step in (("then", ""), ("a run that is refused, then", "run; "))
    },
    # Found by the search: what is said later makes what the first verify was told no more.
    "attested as more after the drive was cut again": (
        "run size_kib=1024; pass ms=1500; cut; boot; verify cut_class=vm cut_after=1; boot; verify",
        "inconclusive (cut-class, scan-unfinished, nothing-checked); inconclusive (cut-class);"
        " inconclusive (cut-class)",
    ),
    # The first verify was told of the cut, and lost its drive; so the second one need not be told.
    "power lost during verify, and a cut of the machine after it": (
        "run size_kib=1024; pass ms=400; cut; boot; verify cut_after=5; cut; boot; verify attest=none",
        "inconclusive (scan-unfinished, nothing-checked); durable; durable",
    ),
    # The kernel enumerates the drive anew, so a run that goes on gets an error: no flush of the drive that
    # came back acknowledges what it lost.
    **{
        f"the power of a drive flickers, {target}": (
            f"target {target}; run; cut what=drive; boot; pass",
            "durable",
        )
        for target in ("device", "file")
    },
    # The second cut meets no load and breaks nothing; the first one counts.
    **{
        f"power lost again in recovery after {cut}, {target}": (
            f"seed 3; target {target}; run size_kib=1024; pass ms=400; {cut};"
            " boot cut=yes; boot cut=yes; boot; verify",
            "durable; durable",
        )
        for target in ("device", "file")
        for cut in ("cut", "cut what=guest", "cut what=drive; pass ms=4000")
    },
    "a clean restart in a dead network counts as a cut of the series": (
        "run size_kib=1024; network; reboot",
        "inconclusive (cut-class)",
    ),
    # A reader's: the files that belong to the target lie where it was before.
    **{
        f"a target of `{workload}` that was moved alone": (
            f"target file; run workload={workload} size_kib=1024; pass ms=400; cut; boot;"
            " move alone=yes; verify",
            f"{answer}; {answer}",
        )
        for workload, answer in (
            ("overwrite", "durable"),
            *((each, "inconclusive (copied)") for each in ("append", "create", "rename")),
        )
    },
    # The lab's: the directory of a drive that does not answer cannot be synced.
    "a target that is moved alone while its drive hangs": (
        "target file; run; reboot; hang; move alone=yes",
        "inconclusive (session-stopped, cut-class)",
    ),
    # A reader's: the loss window had the clock of the server's earlier boot.
    "a restart of the server before its first acknowledgement": (
        f"seed 1; drive flush-ignored; run next=2 size_kib=1024; {'pass ms=1; ' * 15}"
        "network; pass ms=1500; server how=restarted; network up=yes; pass ms=400; cut",
        "loss (findings)",
    ),
    # Found by the search: the server is killed before it saves what it still hears of the client's kernel.
    "a frozen client and a server that is killed": (
        "seed 0; drive empty; run; freeze; pass ms=4000; cut;"
        " pass ms=1500; pass; copy; pass ms=1500; cut; server",
        "loss (findings)",
    ),
    # The lab's: a write is under way that the drive will never take.
    "the power of a drive that is dead": (
        "seed 0; drive dead; run; cut; boot; hang; run",
        "inconclusive (superseded, scan-unfinished, nothing-checked)",
    ),
    # All that was removed is back, where the target was before.
    "a target of `unlink` that was moved alone": (
        "seed 2; target file; drive early-ack:delay_ms=100; counters yes;"
        " run workload=unlink; pass ms=400; cut; boot; move alone=yes; verify",
        "inconclusive (copied); inconclusive (copied)",
    ),
    # The second reading looks for the names of an earlier run too, and finds as many.
    "names of a log are back": (
        "seed 0; target file; drive early-ack:delay_ms=100; run workload=append; reboot; run",
        "loss (findings)",
    ),
    **{
        f"names of `{workload}` are back in a log": (
            "seed 3; target file; drive rollback:interval_ms=3000;"
            f" run workload={workload}; pass ms=4000; stop; run workload=append",
            "loss (findings)",
        )
        for workload in ("create", "rename")
    },
    # No server keeps the verdict on a run that it does not know, so `runs` does not show it.
    "a loss without a log of the newer run": (
        "seed 7; drive partial-rollback:interval_ms=300;"
        " run; kill; copy; run; pass ms=400; cut; server how=newest",
        "loss (findings)",
    ),
    "a loss without a log of the only run": (
        "drive partial-flush:cache_bytes=65536;"
        " copy; run size_kib=1024; pass ms=1500; cut; boot; server how=oldest; verify",
        "loss (findings); loss (findings)",
    ),
    # Found by the search: the file has its earlier size again, so its end is no superblock of the newer run.
    "only the second superblock of a smaller run is left": (
        "seed 31; target file; drive flush-ignored; serials none;"
        " run size_kib=1024; pass ms=400; reboot; run",
        "loss (findings)",
    ),
    # Nothing is lost, and it may be another drive with a copy.
    "a drive without a serial that became smaller": (
        "seed 0; drive smaller:share=0.5; serials none; run size_kib=1024; pass ms=400",
        "inconclusive (smaller-or-copy)",
    ),
    # It loses the whole second run. With the serial of others it may be another drive, as the limits say.
    "a drive made larger that has the serial of others": (
        "seed 0; drive early-ack:delay_ms=100; serials same; run; reboot; resize percent=150; run",
        "inconclusive (superseded, drive-changed, session-stopped)",
    ),
    "a drive made larger that is known by its world wide name": (
        "seed 0; drive early-ack:delay_ms=100; serials wwid; run; reboot; resize percent=150; run",
        "loss (findings)",
    ),
    # `verify` reads a drive that was enumerated anew through a new mount: that of before has them in memory.
    "names that never reached the media": (
        "target file; drive fua-ignored; run workload=unlink; cut what=drive; boot; pass ms=4000; verify",
        "loss (findings); loss (findings, earlier-loss)",
    ),
    "a counter without a serial": (
        "counters yes; serials none; run size_kib=1024; pass ms=400; cut; boot; verify attest=none",
        "inconclusive (cut-class); durable",
    ),
    "a counter without a serial contradicts nobody": (
        "counters yes; serials none; run; cut what=guest; boot; verify attest=false",
        "durable; durable",
    ),
    "a counter contradicts a cut of the power alone": (
        "counters yes; run; cut what=guest; boot; verify attest=false cut_class=vm require=os",
        "durable; inconclusive (cut-class)",
    ),
    "a series with another disk in a dock": (
        "serials same; run; kill; replace; verify; run; kill",
        "loss (findings); inconclusive (session-closed, cut-not-shown)",
    ),
    "two runs after the target got its name": (
        "target file; drive early-ack:delay_ms=100;"
        " run; stop; move; run workload=create; stop; run workload=append",
        "loss (findings)",
    ),
    "a client that has had no time to write on": (
        "run size_kib=1024; pass ms=400; network; freeze; pass ms=1500; thaw; network up=yes; cut",
        "durable",
    ),
    "an older run of which the log does not know": (
        "drive early-ack:delay_ms=100; run; stop; copy; run; stop; server how=newest; run",
        "inconclusive (no-server-log, cut-not-shown, nothing-at-risk)",
    ),
    "a run after one that was killed in a commit": (
        "seed 4; target file; run; kill; run size_kib=1024; pass ms=400; cut; boot; verify",
        "durable; durable",
    ),
    "a run after the drive came back by itself": (
        "target file; run; cut what=drive; pass ms=4000; boot; kill;"
        " run size_kib=1024; pass ms=400; cut; boot; verify",
        "durable; durable",
    ),
    "an error of a drive without power": (
        "run size_kib=1024; pass ms=400; cut; error lasting=yes; boot; verify",
        "durable; durable",
    ),
    "an error that is put right at the end": (
        "run size_kib=1024; pass ms=400; cut; boot; error lasting=yes",
        "durable",
    ),
    "an error while the superblocks are written": (
        "run next=2; error; pass; reboot; pass ms=1500",
        "inconclusive (not-armed, cut-not-shown, nothing-at-risk)",
    ),
    "a superblock that a later run cannot read": (
        "seed 0; target file; drive unreadable:share=0.05; run; cut; boot; verify; verify; run",
        "durable; durable; durable",
    ),
    "superblocks that are unreadable in part": (
        "seed 7088; target file; drive unreadable:share=0.05; run workload=create",
        "loss (findings, unreadable-only)",
    ),
    "power lost while a loss by reads is seen again": (
        "target file; drive unreadable:share=0.05; run; cut; boot; verify; verify cut_after=30 beside=yes",
        "loss (findings, unreadable-only); loss (findings, earlier-loss, unreadable-only);"
        " loss (earlier-loss, unreadable-only, scan-unfinished);"
        " loss (findings, earlier-loss, unreadable-only)",
    ),
    "a frozen client whose connection is over": (
        f"run; network; freeze; {'pass ms=4000; ' * 3}network up=yes; pass ms=4000",
        "durable",
    ),
    "a client that has not connected again": (
        f"run; network; freeze; {'pass ms=4000; ' * 3}network up=yes; thaw; pass ms=1; kill; pass ms=1500;"
        " cut",
        "durable",
    ),
    "a client that gave up in a dead network": (
        f"run; network; error; {'pass ms=4000; ' * 6}network up=yes; pass ms=400; cut",
        "durable",
    ),
    "a client frozen shortly before the network died": (
        "run; freeze; pass ms=1500; network; pass ms=4000",
        "durable",
    ),
    # Found by the search: the log is as if the server had ended when the copy was made.
    "a client frozen shortly before its log was copied": (
        "run; freeze; pass ms=1500; copy; pass ms=1500; cut; server how=newest",
        "durable",
    ),
    "a client frozen shortly before its run was exported": (
        "run; freeze; pass ms=1500; copy; pass ms=4000; cut; boot; verify log=export",
        "durable; inconclusive (nothing-at-risk)",
    ),
    "a mount after a client was killed in a commit": (
        "target file; run workload=unlink; kill; unmount; run workload=unlink",
        "durable",
    ),
    "a drive that comes back after a client was killed in a commit": (
        "target file; run workload=unlink; kill; cut what=drive; boot; run workload=unlink",
        "durable",
    ),
    "a loss by reads that nobody saw withdrawn": (
        "seed 2; drive unreadable:share=0.05,recovery_ms=3000; run size_kib=1024; pass ms=400; cut; boot;"
        f" {'pass ms=400; ' * 2}pass ms=100; {'pass ms=20; ' * 4}{'pass ms=1; ' * 16}"
        "verify beside=yes; replace",
        "loss (findings, unreadable-only); durable (loss-withdrawn); none (RefusedError)",
    ),
    # A reader's: the superblock of the older run is left, and the log of this target does not have that run.
    **{
        f"an older run that the log does not have as older, {line}": (
            f"drive partial-rollback:interval_ms=300; {line};"
            " run size_kib=1024; pass ms=100; pass ms=100; cut",
            answer,
        )
        for line, answer in (
            ("run; stop; pass ms=400; renumber", "inconclusive (superseded)"),
            ("seed 7; target file; run; stop; pass ms=400; move", "inconclusive (superseded)"),
            ("run; stop; replace holds=copy", "loss (findings)"),
        )
    },
    "a later run that was lost, over one that the log lacks": (
        "seed 9; drive flush-ignored; run; stop; copy; run size_kib=1024; stop; server how=newest; run",
        "loss (findings)",
    ),
    "a log of a moment at which the client had stopped unheard": (
        "run; network; error; pass ms=1500; copy; network up=yes; pass ms=400; cut; server how=newest",
        "durable",
    ),
    "a log of a moment at which the server had ended beside a frozen client": (
        "run size_kib=1024; freeze; pass ms=1500; server; pass ms=4000; copy; thaw; server how=start;"
        " pass ms=100; pass ms=100; pass; stop; pass ms=4000; cut; server how=newest",
        "durable",
    ),
    # The figures are those of the moment of the copy.
    "the loss window of a log of a silence": (
        "drive early-ack:delay_ms=3000; run; network; pass ms=1500; copy; network up=yes; pass; cut;"
        " server how=newest",
        "loss (findings)",
    ),
    "records at risk by a log of a silence": (
        "run size_kib=1024; pass ms=400; network; freeze; pass ms=4000; copy; network up=yes; thaw;"
        " pass ms=100; pass ms=100; pass; stop; cut; boot; server how=newest; verify",
        "durable; durable",
    ),
    **{
        f"a clean restart beside a frozen client, {line}": (
            f"run; freeze; pass ms=1500; {line} require=os attest=none",
            f"durable; inconclusive ({reasons})",
        )
        for line, reasons in (
            ("server; reboot; server how=start; verify", "cut-class"),
            ("server how=moved; reboot; verify", "cut-class"),
            ("copy; reboot; server how=newest; verify", "cut-class"),
            ("copy; reboot; verify log=export", "session-closed, cut-class"),
        )
    },
    "a clean restart, and a log of a moment at which the client had failed unheard": (
        "run; network; error; pass ms=1500; copy; network up=yes; pass ms=400; reboot;"
        " server how=newest; verify require=os attest=none",
        "durable; inconclusive (cut-class)",
    ),
    **{
        f"an older log of an end that another store heard, {line}": (
            "run; network; error; pass ms=1500; copy; network up=yes; pass ms=400; server how=newest;"
            f" pass ms=400; {line}",
            answer,
        )
        for line, answer in (
            ("pass ms=1; cut", "durable"),
            ("reboot; verify require=os attest=none", "durable; inconclusive (cut-class)"),
        )
    },
    # The server knows the later run by another path, and by the number of the file; its superblocks are gone.
    "a target that was moved before and after a run that was lost": (
        "target file; drive early-ack:delay_ms=3000; run; cut what=guest; pass ms=4000; boot; move;"
        " unmount; run; cut; boot; move; verify require=os",
        "inconclusive (superseded); inconclusive (superseded, attestation-contradicted, cut-class)",
    ),
    "a target that was moved before and after a run that was lost in part": (
        "seed 7; target file; drive partial-rollback:interval_ms=300; run; stop; pass ms=400; move; run;"
        " pass ms=100; cut; boot; move; verify",
        "inconclusive (superseded, session-stopped); inconclusive (superseded, session-stopped)",
    ),
    "a target that is moved twice": (
        "target file; run; stop; move; run workload=append; cut; boot; move alone=yes",
        "inconclusive (copied)",
    ),
    "a move alone that fails": (
        "target file; run workload=append; cut; boot; error; move alone=yes",
        "durable",
    ),
    "a move alone that the drive undoes": (
        "target file; drive early-ack:delay_ms=100; run workload=append; cut what=guest; boot;"
        " move alone=yes; cut; boot; verify require=os",
        "durable; durable",
    ),
    "a scan that ends early beside an earlier loss": (
        "seed 35044; target file; drive flush-skipped; copy; run workload=append group=4 size_kib=1024; copy;"
        " cut what=drive; pass ms=4000; boot; verify beside=yes; error lasting=yes;"
        " verify cut_after=3 loses=server node=stays",
        "loss (findings); loss (findings, earlier-loss); loss (earlier-loss, scan-unfinished);"
        " loss (findings, earlier-loss)",
    ),
    "findings that are set aside beside an earlier loss": (
        "seed 2; target file; drive early-ack:delay_ms=100; run workload=unlink; pass ms=400; cut; boot;"
        " verify; verify cut_after=7",
        "loss (findings); loss (earlier-loss, scan-unfinished); loss (findings, earlier-loss)",
    ),
}

# Found by a reader: a history for each limit that is documented.
LIMITS = {
    "a machine restarted in order in a dead network": (
        "run size_kib=1024; pass ms=400; network; reboot; network up=yes; verify attest=none require=os"
    ),
    "a drive that lost a later run, of which the log does not know": (
        "seed 2; drive flush-ignored; run size_kib=1024; stop; copy; run;"
        " cut; boot; server how=newest; verify"
    ),
}

# Found by a reader: what ends an excuse, after a run's beginning, and the rule without which that is durable.
EXCUSES_END = {
    "the server heard of the error": (
        "network; error; network up=yes; pass ms=4000; pass ms=4000; cut; boot",
        "any error is a cut",
    ),
    "the server heard of the hang": (
        "network; hang; network up=yes; pass ms=4000; cut what=drive; pass ms=4000; boot",
        "a hang is a cut",
    ),
    "the server asked the kernel of a frozen client": (
        "network; freeze; pass ms=100; network up=yes; pass ms=4000; pass ms=4000; cut; boot",
        "a frozen client is cut",
    ),
    "the client was frozen long before the network died": (
        "freeze; pass ms=4000; pass ms=4000; hang; network; cut; boot; network up=yes",
        "a frozen client is cut",
    ),
    "the server heard of a client that had been frozen": (
        "freeze; pass ms=400; server how=kill; server how=start; thaw; pass ms=4000; error; pass ms=4000;"
        " pass ms=4000; cut; boot",
        "any error is a cut",
    ),
    "the drive failed long before it failed everything": (
        "error; pass ms=4000; pass ms=4000; error lasting=yes; cut; boot",
        "any error is a cut",
    ),
}


def of_file(name: str) -> History:
    """The history of a file of `known`."""
    return History.parse((KNOWN / f"{name}.history").read_text())


def of_line(line: str) -> History:
    """The history of a line here."""
    return History.parse((HEAD + line).replace("; ", "\n"))


def answers(found: Played) -> str:
    """What `verify` answered in turn, with its reasons: those of a verdict, or why there is none."""
    said = ((grade.word, ", ".join(grade.reasons)) for grade in found.grades)
    return "; ".join(f"{word} ({reasons})" if reasons else word for word, reasons in said)


def check(known: History, expected: str) -> None:
    """Play it: the answers are the expected ones, and nothing was wrong."""
    found = play(known)
    assert (answers(found), found.wrong) == (expected, ()), "\n".join(found.told)


def without(rule: str) -> AbstractContextManager[None]:
    """The rule of this mutant's name is taken away within."""
    (mutant,) = [one for one in MUTANTS if one.name == rule]
    return mutant.change()


def test_every_known_history_is_here() -> None:
    """Each file has its expected answers."""
    assert {path.stem for path in KNOWN.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_known_history_has_the_verdicts_that_it_deserves(name: str) -> None:
    """The answers are the expected ones, and the account that knows everything agrees."""
    check(of_file(name), FILES[name][1])


@pytest.mark.parametrize("name", FILES)
def test_a_known_history_notices_that_its_rule_is_gone(name: str) -> None:
    """Without its rule of evidence the history is answered otherwise, so it shows that the rule is there."""
    rule, expected = FILES[name]
    with without(rule):
        found = play(of_file(name))
    assert answers(found) != expected or found.wrong, f"{name} does not notice that this is gone: {rule}"


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_verdict_is_not_called_wrong(name: str) -> None:
    """A search does not fail a verdict that documented limits and rules allow."""
    line, expected = RIGHT[name]
    check(of_line(line), expected)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_that_is_documented_is_no_wrong_verdict(limit: str) -> None:
    """Nothing that any tester sees tells these histories from others."""
    found = play(of_line(LIMITS[limit]))
    assert (found.grades[0].limit, found.wrong) == (limit, ()), found.told


@pytest.mark.parametrize("name", EXCUSES_END)
def test_a_documented_assumption_excuses_nothing_else(name: str) -> None:
    """A tester without the rule was excused."""
    steps, rule = EXCUSES_END[name]
    known = of_line(f"run size_kib=1024; pass ms=400; {steps}; verify")
    with without(rule):
        assert "durable, and no such cut met load" in play(known).wrong
    assert play(known).wrong == ()
