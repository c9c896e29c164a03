"""Claims: whose runs count as evidence on a drive if several clients of a server have runs on it.

A client reports the serials of its drives itself, so it can report the serial of another client's drive. So
the runs of a client count only in four cases. The client was named, it stored the result, a campaign cut its
drive, or no other client has runs on the drive. Claims of clients are never added up. A client is not taken
for the machine of a campaign only because it has that machine's name now. Every claim that is left out is
named in a sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durability.errors import FormatError
from durability.plain_text import OPERATOR_MACHINE, owner_label
from durability.units import counted

OPERATOR = "operator"  # names the runs of the operator on the server's own machine
_NAMED_MAX = 5  # clients named in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The runs of one client on a drive."""

    client: str  # id of the client, "" for the operator
    name: str  # name of the client, "" for the operator
    runs: int
    cuts: int
    losses: int  # cuts that lost data
    unknown: int  # cuts without an outcome
    bound: float | None
    cut_class: str
    loss_runs: tuple[str, ...]  # the newest run with a loss, for each series and class of cuts
    durable_runs: tuple[str, ...]  # the newest run that lost nothing, likewise
    unanswered_runs: tuple[str, ...]  # the newest run without an outcome, if no run above covers it

    @property
    def named_runs(self) -> tuple[str, ...]:
        """The runs whose series together contain all evidence that counts, losses first."""
        return (*self.loss_runs, *self.durable_runs, *self.unanswered_runs)

    @property
    def label(self) -> str:
        """The client's name for people."""
        return owner_label(self.client, self.name)

    @property
    def text(self) -> str:
        """The client, with its numbers of runs, losses and cuts of unknown outcome."""
        lost = f", {counted(self.losses, 'loss', 'losses')}" if self.losses else ""
        left = f", {counted(self.unknown, 'cut')} with unknown outcome" if self.unknown else ""
        return f"{self.label} ({counted(self.runs, 'run')}{lost}{left})"

    @property
    def against(self) -> str:
        """Losses, or else cuts of unknown outcome, that the claim holds against the drive if it is left out,
        in words. "" for none. Its runs are not read, so stacks and classes of cuts that would not count are
        included."""
        if not self.losses and not self.unknown:
            return ""
        lost = counted(self.losses, "loss", "losses")
        what = lost if self.losses else f"{counted(self.unknown, 'cut')} with unknown outcome"
        return f"{what} in runs of {self.label} that are left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine whose drive a campaign cut."""

    name: str  # name of the machine in the campaign
    client: str = ""  # id of its client; "" for the operator, and if the log (release 0.1) has no id

    def is_of(self, client: str, name: str) -> bool:
        """Whether the machine is the client with this id and its present name. Ids are compared, because
        another client may have the machine's old name. Names are compared if the machine has no id."""
        if self.client:
            return client == self.client
        return self.name == (name if client else OPERATOR_MACHINE)

    def is_same(self, other: Machine) -> bool:
        """Whether two campaigns mean the same machine, by the ids, or by the names if an id is missing."""
        if self.client and other.client:
            return self.client == other.client
        return self.name == other.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The claims that count."""

    taken: tuple[Claim, ...]
    note: str  # a sentence that names the claims left out, "" if none was
    against: str = ""  # a left-out claim against the drive, in words, losses before others; "" for none


def is_named(client: str, name: str, wanted: Collection[str]) -> bool:
    """Whether the client with this id and name is one of `wanted`, which are ids or names. A client whose
    name is "operator" matches only by its id."""
    if not client:
        return OPERATOR in wanted
    return client in wanted or (name in wanted and name != OPERATOR)


def named_among(wanted: Collection[str], clients: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The ids or names in `wanted` that match one of `clients`. A client is a pair of id and name."""
    return frozenset(one for client, name in clients for one in wanted if is_named(client, name, (one,)))


def choose(
    claims: Sequence[Claim], owners: Collection[str], what: str, machines: Collection[Machine] = ()
) -> Choice:
    """Choose the claims that count. `owners`: ids or names of the clients that were named or that own the
    result, () if unknown. `machines`: machines whose drive campaigns cut; their claims count too. Without
    owners, the claim of an only client counts even if it is not one of `machines`. `what`: the drive, in
    words."""
    taken = tuple(claims)
    if owners or len(claims) > 1:
        taken = tuple(
            one
            for one in claims
            if is_named(one.client, one.name, owners) or any(m.is_of(one.client, one.name) for m in machines)
        )
    rest = [one for one in claims if one not in taken]
    if not rest:
        return Choice(taken=taken, note="")
    note = left_out(what, "runs", [one.label for one in taken], [one.text for one in rest])
    losses_first = sorted(rest, key=lambda one: not one.losses)
    return Choice(
        taken=taken, note=note, against=next(filter(None, (one.against for one in losses_first)), "")
    )


def left_out(what: str, kind: str, taken: Sequence[str], others: Sequence[str]) -> str:
    """The sentence that says whose runs or results (`kind`) count, and that those of `others` do not."""
    if taken:
        note = f"the {kind} of {_listed(taken)} count, and those of {_listed(others)} are left out"
    elif len(others) == 1:
        note = f"the {kind} of {_listed(others)} are left out"
    else:
        note = f"several clients have {kind}, {_listed(others)}, and none of them count"
    return f"{what}: {note}"


def claim_from_row(row: Mapping[str, Any]) -> Claim:
    """The claim in a row of the answer to `ListClaims`. Raises FormatError."""
    try:
        bound = row["bound"]
        return Claim(
            client=str(row["client"]),
            name=str(row["client_name"]),
            runs=int(row["runs"]),
            cuts=int(row["cuts"]),
            losses=int(row["losses"]),
            unknown=int(row["left_out"]),
            bound=None if bound is None else float(bound),
            cut_class=str(row["cut_class"]),
            loss_runs=tuple(map(str, row["loss_runs"])),
            durable_runs=tuple(map(str, row["durable_runs"])),
            unanswered_runs=tuple(map(str, row["unanswered_runs"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"not what a client says of a drive: {error!r}") from error


def _listed(texts: Sequence[str]) -> str:
    shown = list(texts[:_NAMED_MAX])
    if len(texts) > _NAMED_MAX:
        shown.append(counted(len(texts) - _NAMED_MAX, "other"))
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
