"""The steps of a history: their names, their words and values, and their text form.

A history is its seed, the drive and the steps, one per line, such as `cut what=drive`. The same text is the
same history. A step that is impossible at its place (a cut without power) does nothing. Any step can
therefore be left out to shorten a failing history. This module has data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from durability.formats.workloads.registry import WORKLOADS
from durability_lab.drive import faults

FORMAT = "durability.history/1"
TARGETS = ("device", "file")
SERIALS = ("own", "wwid", "same", "none")  # see `History`
MACHINES = ("hardware", "guest", "hidden")  # see `History`
_HEADS = ("seed", "target", "drive", "counters", "serials", "machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKind:
    """One kind of step."""

    does: str  # the effect, as a sentence
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # possible values of each word


_MS = ("20", "1", "100", "400", "1500", "4000")

_AGES = ("0", "1", "2", "3")
# How a system shows a drive without power: as before, as no device, or as a device of 0 bytes.
_NODES = ("stays", "gone", "empty")

# The first value of each word is the simplest; shrinking prefers it.
KINDS: Final[Mapping[str, StepKind]] = {
    "run": StepKind(
        does="the client begins a run on the target, over what is there",
        words={
            "workload": tuple(WORKLOADS),  # on a device always the default workload
            "writers": ("1", "3"),
            "group": ("1", "4"),
            "pattern": ("random", "sequential"),
            "sync": ("fdatasync", "dsync"),
            "size_kib": ("256", "1024"),
            "next": ("armed", "2", "8", "25", "60"),  # next step: once the run is armed and writes, or in ms
        },
    ),
    "pass": StepKind(does="time passes, in ms", words={"ms": _MS}),
    "error": StepKind(
        does="the drive fails one request with EIO, or every one until it is off",
        words={"lasting": ("no", "yes")},
    ),
    "glitch": StepKind(
        does="the drive loses its power for a moment, and no data: it counts that, and goes on"
    ),
    "hang": StepKind(does="the drive answers nothing until `answer`, and goes on working within"),
    "answer": StepKind(does="the drive answers again"),
    "cut": StepKind(
        does="the power of the drive alone, of the machine, or of the operating system alone is gone",
        words={
            "what": ("machine", "drive", "guest"),
            "node": _NODES,
        },
    ),
    "boot": StepKind(
        does="whatever has no power gets it back, and the machine starts; or it loses its power again while"
        " the file system recovers",
        words={"cut": ("no", "yes")},
    ),
    "reboot": StepKind(does="the machine is shut down in order and starts again; the drive keeps its power"),
    "stop": StepKind(does="Ctrl-C at the client"),
    "kill": StepKind(does="SIGKILL for the client"),
    "freeze": StepKind(does="SIGSTOP for the client"),
    "thaw": StepKind(does="SIGCONT for the client"),
    "network": StepKind(does="the network dies or is back", words={"up": ("no", "yes")}),
    "copy": StepKind(does="the server's store is copied, and an export of its newest run is taken"),
    "server": StepKind(
        does="the server is killed, started, or started on a copy of its store (`age`: so many before the"
        " newest); its machine restarts, or its store is moved to another machine, and it starts there",
        words={"how": ("kill", "start", "newest", "oldest", "restarted", "moved"), "age": _AGES},
    ),
    "unmount": StepKind(does="the file system is unmounted in order, and mounted again"),
    "move": StepKind(
        does="someone gives the target another name; alone: and leaves the files that belong to it elsewhere",
        words={"alone": ("no", "yes")},
    ),
    "resize": StepKind(
        does="someone makes the drive smaller, or larger, in percent", words={"percent": ("50", "150")}
    ),
    "replace": StepKind(
        does="another drive of the kind takes the place of this one; it is new, or has a copy of all of it",
        words={"holds": ("nothing", "copy")},
    ),
    "renumber": StepKind(
        does="the drive shows another serial from now on, as one whose firmware lost its own"
    ),
    "verify": StepKind(
        does="the operator verifies the target",
        words={
            "attest": ("true", "none", "false"),  # true: attest a cut only if there was one
            "cut_class": ("power", "vm", "os"),  # the class that the operator attests
            "require": ("power", "os"),
            "min_cuts": ("1", "10", "2"),
            "run": ("found", "older"),
            "log": ("server", "export"),
            "age": _AGES,  # age of the export: number of newer exports
            "cut_after": (
                "0",
                "1",
                "5",
                "30",
                "3",
                "4",
                "7",
            ),  # number of reads after which the `loses` event happens; 0: never
            # The event: the drive or the machine loses power, the process, the server or the network fails,
            # the system alone dies (guest), or that read has one wrong bit.
            "loses": ("power", "process", "server", "network", "machine", "guest", "bit"),
            "node": _NODES,
            "beside": ("no", "yes"),  # meanwhile a second `verify` is started again and again
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `words` has only the words whose value is not the first one."""

    kind: str
    words: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, word: str) -> str:
        """The value of a word of this step."""
        return dict(self.words).get(word, KINDS[self.kind].words[word][0])

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{word}={value}" for word, value in self.words)])

    @classmethod
    def parse(cls, line: str) -> Step:
        """Parse a line that `str` wrote. Raises ValueError."""
        kind, *rest = line.split()
        if kind not in KINDS:
            raise ValueError(f"no step {kind!r}; there are {', '.join(KINDS)}")
        words = []
        for text in rest:
            word, _, value = text.partition("=")
            allowed = KINDS[kind].words.get(word, ())
            if value not in allowed:
                wanted = f"one of {', '.join(allowed)}" if allowed else f"no word of {kind}"
                raise ValueError(f"{line!r}: {word} is {wanted}")
            if value != allowed[0]:
                words.append((word, value))
        return cls(kind, tuple(words))


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A whole history."""

    seed: int
    target: str  # "device" or "file"
    drive: str  # a model's spec
    counters: bool  # the drive counts unsafe shutdowns
    steps: tuple[Step, ...]
    # "own": each drive shows a serial of its own. "wwid": an adapter shows one serial for all drives, and the
    # WWID of each. "same": an adapter shows one serial for all drives. "none": no serial is shown.
    serials: str = SERIALS[0]
    # "hardware". "guest": a guest with emulated drives, whose host keeps its power. "hidden": such a guest,
    # but only its drives show that.
    machine: str = MACHINES[0]

    @property
    def in_guest(self) -> bool:
        """Whether the machine is a virtual one."""
        return self.machine != MACHINES[0]

    def __str__(self) -> str:
        counters = "yes" if self.counters else "no"
        head = (
            FORMAT,
            f"seed {self.seed}",
            f"target {self.target}",
            f"drive {self.drive}",
            f"counters {counters}",
            *([] if self.serials == SERIALS[0] else [f"serials {self.serials}"]),
            *([] if self.machine == MACHINES[0] else [f"machine {self.machine}"]),
        )
        return "\n".join([*head, *map(str, self.steps)]) + "\n"

    @classmethod
    def parse(cls, text: str) -> History:
        """Parse a history that `str` wrote. Empty lines and lines that begin with # are ignored. Raises
        ValueError."""
        lines = [line.strip() for line in text.splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        if not lines or lines[0] != FORMAT:
            raise ValueError(f"the first line is not {FORMAT!r}: not a history")
        given = list(takewhile(lambda line: line.partition(" ")[0] in _HEADS, lines[1:]))
        usual = {"serials": SERIALS[0], "machine": MACHINES[0]}
        heads = {**usual, **dict(line.partition(" ")[::2] for line in given)}
        if set(heads) != set(_HEADS):
            raise ValueError("expected the lines seed, target, drive and counters after the first")
        if not heads["seed"].isdecimal():
            raise ValueError(f"seed is a number, found {heads['seed']!r}")
        words = {"target": TARGETS, "counters": ("yes", "no"), "serials": SERIALS, "machine": MACHINES}
        for head, allowed in words.items():
            if heads[head] not in allowed:
                raise ValueError(f"{head} is one of {', '.join(allowed)}, found {heads[head]!r}")
        faults.parse(heads["drive"])
        return cls(
            seed=int(heads["seed"]),
            target=heads["target"],
            drive=heads["drive"],
            counters=heads["counters"] == "yes",
            serials=heads["serials"],
            machine=heads["machine"],
            steps=tuple(map(Step.parse, lines[1 + len(given) :])),
        )
