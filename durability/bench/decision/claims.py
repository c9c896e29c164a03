"""Claims: whose runs count as evidence on a drive, where several clients of a server say something of it.

A client names its drives itself, so each can give its own the serial of another's. So runs count only of the
client that is named or that kept the result, of those whose drive a campaign cut, or where only one client
has runs on the drive. Refuses to pool clients, to take a client for the machine of a campaign because it has
that one's name by now, and to leave a claim out without a sentence that says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durability.errors import FormatError
from durability.plain_text import OPERATOR_MACHINE, owner_label
from durability.units import counted

OPERATOR = "operator"  # names the runs of the operator on the server's own machine
_NAMED_MAX = 5  # in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one client says of a drive. `client`: its id, `name`: what people call it, both "" for the
    operator; `losses`: how many cuts lost data, `unknown`: how many have no outcome. `loss_runs`,
    `durable_runs`, `unanswered_runs`: of each series and class of cuts the newest run that lost data, that
    lost nothing, or, if none of the latter tells of it, that has no outcome."""

    client: str
    name: str
    runs: int
    cuts: int
    losses: int
    unknown: int
    bound: float | None
    cut_class: str
    loss_runs: tuple[str, ...]
    durable_runs: tuple[str, ...]
    unanswered_runs: tuple[str, ...]

    @property
    def named_runs(self) -> tuple[str, ...]:
        """Those whose series together say all that counts, losses first."""
        return (*self.loss_runs, *self.durable_runs, *self.unanswered_runs)

    @property
    def label(self) -> str:
        """The client, for people."""
        return owner_label(self.client, self.name)

    @property
    def text(self) -> str:
        """The client, and how much it says."""
        lost = f", {counted(self.losses, 'loss', 'losses')}" if self.losses else ""
        left = f", {counted(self.unknown, 'cut')} with unknown outcome" if self.unknown else ""
        return f"{self.label} ({counted(self.runs, 'run')}{lost}{left})"

    @property
    def against(self) -> str:
        """What it says against the drive if it does not count, in words; "" for nothing. Nobody reads its
        runs, so this is all that they say, also of stacks and classes of cuts that would not count."""
        if not self.losses and not self.unknown:
            return ""
        lost = counted(self.losses, "loss", "losses")
        what = lost if self.losses else f"{counted(self.unknown, 'cut')} with unknown outcome"
        return f"{what} in runs of {self.label} that are left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine whose drive a campaign cut: the `name` that the campaign calls it by, and the id of the
    `client` that it was, "" for the operator, and where the log, of release 0.1, does not say."""

    name: str
    client: str = ""

    def is_of(self, client: str, name: str) -> bool:
        """Whether it is the client with this id, which has this name now: another one may have its old
        name. Without an id the name has to do."""
        if self.client:
            return client == self.client
        return self.name == (name if client else OPERATOR_MACHINE)

    def is_same(self, other: Machine) -> bool:
        """Whether two campaigns mean one machine: by the ids, or by the names where a log lacks one."""
        if self.client and other.client:
            return self.client == other.client
        return self.name == other.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The claims that count. `note`: one sentence if any was left out, else "". `against`: what one that was
    left out says against the drive, in words, one with losses before others, "" if none does."""

    taken: tuple[Claim, ...]
    note: str
    against: str = ""


def is_named(client: str, name: str, wanted: Collection[str]) -> bool:
    """Whether the client with this id and name is one of `wanted`, which are ids or names. A client that
    calls itself operator goes by its id."""
    if not client:
        return OPERATOR in wanted
    return client in wanted or (name in wanted and name != OPERATOR)


def named_among(wanted: Collection[str], clients: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Those of `wanted`, ids or names, that one of `clients` has, each an id and a name."""
    return frozenset(one for client, name in clients for one in wanted if is_named(client, name, (one,)))


def choose(
    claims: Sequence[Claim], owners: Collection[str], what: str, machines: Collection[Machine] = ()
) -> Choice:
    """Whose runs count. `owners`: ids or names of those whose result it is, or who were named; () if that is
    not known. `machines`: those whose drive campaigns cut, which count too, but without owners do not keep
    out an only client. `what`: the drive, in words."""
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
    """The sentence that says whose `kind`, "runs" or "results", count, and those of which `others` do not."""
    if taken:
        note = f"the {kind} of {_listed(taken)} count, and those of {_listed(others)} are left out"
    elif len(others) == 1:
        note = f"the {kind} of {_listed(others)} are left out"
    else:
        note = f"several clients have {kind}, {_listed(others)}, and none of them count"
    return f"{what}: {note}"


def claim_from_row(row: Mapping[str, Any]) -> Claim:
    """A row that answers `ListClaims`. Raises FormatError."""
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
