"""The tester broken on purpose, rule 9: whose target it is, and on which drive."""

from __future__ import annotations

from durability.evidence import drive_identity, identity, judge, machine_changes, strength, verdict
from durability.formats import drive_serials
from durability_server.store import target_keys
from durability_server.store.store import Store
from tests.lab.mutants.mutation import Mutant, answering, without

IDENTITY = (
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
        name="a serial is a drive",
        rule=9,
        taken_away="a drive of another model, world-wide name or size is the same by its serial",
        noticed_by={
            "another-disk-in-the-dock": "loss: device-smaller, scan-unfinished",
            "clone-in-the-dock-that-lost-power-more-often": "durable",
        },
        change=answering(drive_identity.are_two, "return False"),
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
            "mirror-of-the-half-that-had-dropped-out": "loss: drive-missing; 20 lost",
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
        change=without(identity._holders, "None in (armed.offset_bytes, now.offset_bytes)", "True"),
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
            "drive-of-which-one-path-is-up": "inconclusive: drive-missing, cut-class; 20 lost",
        },
        change=answering(drive_identity._lead_to_one, "return False"),
    ),
    Mutant(
        name="drives with one serial are one",
        rule=9,
        taken_away="two drives below a target that have one serial are two paths to one drive",
        noticed_by={
            "half-of-a-mirror-in-a-dock": "loss; 20 lost",
            "smaller-disk-of-two-in-a-dock": "durable",
        },
        change=without(
            drive_identity._lead_to_one,
            "return same and not are_two(one, two) and not are_two(two, one)",
            "return same",
        ),
    ),
    Mutant(
        name="drives without a serial are not counted",
        rule=9,
        taken_away="a drive without a serial is never missing",
        noticed_by={
            "half-of-a-mirror-of-drives-without-a-serial": "loss; 20 lost",
            "log-drive-without-a-serial-that-is-gone": "loss; 20 lost",
        },
        change=without(drive_identity._others, "for path in others", "for path in others if path.own"),
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
        taken_away="a later run on the target means nothing, if its superblock is not among the records",
        noticed_by={
            "run-over-which-a-later-one-wrote-elsewhere": "loss; 1 lost",
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
        change=without(verdict._identity_reasons, " and scan.superblocks_wrong", " and False"),
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
        name="superblocks among records are earlier runs'",
        rule=9,
        taken_away="a run with a superblock among the records was made before, also if no log says so",
        noticed_by={
            "smaller-run-that-nobody-knows-of-and-that-was-cut-as-it-began": "loss; 64 lost",
            "smaller-run-that-an-older-log-lacks-and-that-was-cut-as-it-began": "loss; 64 lost",
        },
        change=answering(identity._begun_by, "return ''"),
    ),
    Mutant(
        name="superblocks among records explain everything",
        rule=9,
        taken_away="also what is wrong elsewhere is excused by another run's superblock among the records",
        noticed_by={
            "smaller-run-that-an-older-log-lacks-and-a-drive-that-lost-more": (
                "inconclusive: superseded; 64 lost, 1 corrupt"
            ),
        },
        change=answering(judge._may_be_under, "return True"),
    ),
    Mutant(
        name="superblocks among records are later runs'",
        rule=9,
        taken_away="also a run that the log has as an earlier one is taken for a later one",
        noticed_by={"smaller-run-that-was-made-before": "inconclusive: superseded; 64 lost"},
        change=without(identity._begun_by, "if run not in known", "if run"),
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
            "return one_target and is_here",
            "return is_here",
        ),
    ),
    Mutant(
        name="later runs elsewhere on the drive ignored",
        rule=9,
        taken_away="only a run on the same target follows an earlier one",
        noticed_by={
            "whole-drive-on-whose-partition-a-later-run-was-made": "not superseded",
            "volume-on-which-a-file-system-was-made": "not superseded",
        },
        change=answering(target_keys.overlap, "return False"),
    ),
    Mutant(
        name="a volume has no place",
        rule=9,
        taken_away="layers make it unknown whether a later run lies on the same volume",
        noticed_by={
            "volume-on-which-a-file-system-was-made": "not superseded",
        },
        change=without(target_keys.overlap, '"" != one.volume == other.volume', "False"),
    ),
    Mutant(
        name="runs elsewhere that never began ignored",
        rule=9,
        taken_away="a later run elsewhere on the drive that was never armed wrote nothing",
        noticed_by={
            "whole-drive-on-whose-partition-a-later-run-never-began": "not superseded",
        },
        change=without(
            Store.relations,
            "newest_over(db, stored, after, not_(armed)",
            "newest_over(db, stored, armed, not_(armed)",
        ),
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
        name="smaller copies are losses",
        rule=9,
        taken_away="a copy on a smaller device is a device that became smaller",
        noticed_by={
            "copy-on-a-smaller-device": "loss: device-smaller, drive-changed",
        },
        change=without(
            verdict._loss_reasons,
            "(identity.superseded_by or identity.begun_by or identity.is_copy)",
            "False",
        ),
    ),
    Mutant(
        name="smaller devices without a serial are losses",
        rule=9,
        taken_away="a device without a serial that is smaller is the one of arming",
        noticed_by={
            "copy-on-a-smaller-device-of-drives-without-a-serial": "loss: device-smaller",
        },
        change=answering(identity._are_as_enumerated, "return True"),
    ),
    Mutant(
        name="smaller logs without a serial are losses",
        rule=9,
        taken_away="if the drive of a file system has a serial, that of its log is the one of arming",
        noticed_by={
            "log-on-a-smaller-drive-without-a-serial": "loss: device-smaller",
        },
        change=without(identity._smaller, "(text, untouched)", "(text, certain)"),
    ),
    Mutant(
        name="what explains findings untold beside a loss",
        rule=9,
        taken_away="an earlier loss hides that a later run wrote what is found now",
        noticed_by={
            "run-that-lost-before-a-later-one": "loss: earlier-loss; 66 lost",
        },
        change=without(verdict.decide, "EXPLAIN_FINDINGS |", "frozenset() |"),
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
        name="absent names were removed by the run",
        rule=9,
        taken_away="where a name is absent, the operation that may have removed it is taken to be seen",
        noticed_by={
            "names-in-a-directory-that-was-emptied": "loss; 2 truncated, 8 absent",
        },
        change=without(verdict._identity_reasons, "any(scan.newest_seen)", "any(scan.may_be_done)"),
    ),
    Mutant(
        name="what was not read is gone",
        rule=9,
        taken_away="a target that could not be read was removed when its directory was emptied",
        noticed_by={
            "target-of-which-reads-hang-in-a-directory-that-is-emptied": (
                "inconclusive: emptied-at-boot, scan-unfinished, nothing-checked"
            ),
        },
        change=without(verdict._identity_reasons, " and found and ", " and "),
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
        name="other paths accepted",
        rule=9,
        taken_away="a file at another path was renamed, though nothing shows that it was not copied",
        noticed_by={
            "copy-under-another-name-where-files-have-no-number": "loss; 20 lost",
        },
        change=without(
            identity._copied, "if armed.path_in_file_system != now.path_in_file_system:", "if False:"
        ),
    ),
    Mutant(
        name="what belongs to a target follows it",
        rule=9,
        taken_away="files that are not beside a target that was moved, or is mounted alone, are lost",
        noticed_by={
            "created-names-that-were-left-behind": "loss; 63 absent",
            "files-of-a-log-that-were-left-behind": "loss; 72 truncated",
            "created-names-that-are-not-beside-a-mount-of-the-target": "loss; 63 absent",
        },
        change=without(verdict._identity_reasons, "elif identity.moved", "elif False"),
    ),
    Mutant(
        name="what was moved is not looked at",
        rule=9,
        taken_away="of a target that was moved with its files, none is",
        noticed_by={
            "created-names-that-were-moved-along": "inconclusive: copied",
            "created-name-that-is-gone-among-those-moved-along": "inconclusive: copied; 1 absent",
        },
        change=without(verdict._identity_reasons, " and not scan.is_seen:  # else", ":  #"),
    ),
    Mutant(
        name="any file in its place is the target of the newer run",
        rule=9,
        taken_away="an earlier run's superblock in another file shows that the newer run is lost",
        noticed_by={
            "older-copy-as-another-file-in-the-targets-place": "loss; 66 lost",
            "file-of-an-earlier-run-that-was-put-back": "loss; 66 lost",
            "file-of-a-run-that-was-never-armed-and-was-put-back": "loss; 66 lost",
        },
        change=answering(identity._is_another_file, "return False"),
    ),
    Mutant(
        name="any file without the run's superblock has lost it",
        rule=9,
        taken_away="another file than the run's shows by its place what the drive lost",
        noticed_by={
            "file-of-an-earlier-run-judged-as-that-of-the-later-one": "loss; 66 lost",
        },
        change=answering(identity._replaced, "return ''"),
    ),
    Mutant(
        name="what is emulated is asked anew",
        rule=9,
        taken_away="a drive that another release takes for emulated was not cut alone",
        noticed_by={
            "drive-that-this-release-takes-for-emulated": (
                "inconclusive: attestation-contradicted, cut-not-shown"
            ),
        },
        change=without(machine_changes._with_paths, "told_apart(before, after).drives", "after.drives"),
    ),
    Mutant(
        name="copies accepted without a log",
        rule=9,
        taken_away="without a log, a superblock is as good anywhere as where it was written",
        noticed_by={
            "copy-that-was-made-while-the-run-wrote": "loss; 1 lost, 1 out of order",
        },
        change=without(identity.identify_without_log, "_is_tagged(plan, now)", "True"),
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
)
