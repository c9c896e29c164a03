"""The server's answer to each request, given a run registry and a store.

This module knows no sockets: a client is a `Channel`. It refuses requests that would mix up evidence, with
RefusedError and a code of docs/reference/protocol.md. Such requests are: a second run on a target whose first
was never verified; a claim to another client's run or without its secret; a verify of a live run; a verdict
on a run that has not ended. One client's reports about its targets do not affect the runs of another client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast, get_args

from durability import limits
from durability.errors import FormatError, ProtocolError, RefusedError
from durability.evidence.cut import CUT_CLASSES
from durability.evidence.verdict import REASONS, VerdictWord
from durability.formats.case import (
    PROVABLE_CUT_CLASSES,
    Case,
    DriveState,
    Event,
    Look,
    PastVerdict,
    SessionEnd,
    case_to_value,
)
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.protocol import auth, messages
from durability.protocol.messages import Message
from durability.units import format_run
from durability_server import clock
from durability_server.access.caller import Caller
from durability_server.announcements import Announce, silence
from durability_server.log_lines import EVENTS_AT_ONCE, LineLimit
from durability_server.runs import run_events
from durability_server.runs.credits import IN_DOUBT_RESUMED_MAX
from durability_server.runs.given_bytes import GivenBytes
from durability_server.runs.leases import run_live
from durability_server.runs.run import Run
from durability_server.runs.run_registry import Registry
from durability_server.runs.session import Channel, Session
from durability_server.store.records import MovedError, Registration, RunHead
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from durability_server.store.target_keys import TargetKeys, series_key, target_keys

# Longest time between two saves of the last receipt time while no operation is acknowledged.
SAVE_INTERVAL_NS = 1_000_000_000


class Requests:
    """Answers the requests of all clients."""

    def __init__(
        self, store: Store, thread: StoreThread, registry: Registry, *, announce: Announce = silence
    ) -> None:
        self._announce = announce
        self._event_limit = LineLimit(EVENTS_AT_ONCE)
        self._names: dict[str, str] = {}  # name of each client that has sent a request, by id
        self._store = store
        self._thread = thread
        self._registry = registry
        self._given = GivenBytes(store, thread)
        self._committer = registry.committer
        self.campaign_of: Callable[[int], str] = lambda _: ""  # campaign that verifies a run by itself, or ""
        self.removal_of: Callable[[int], Awaitable[Event | None]] = _nothing_removed  # of a run's files

    # Answered at once, without the store.

    def heard(self, run: Run, at_ns: int, *, ran_ns: int) -> None:
        """A frame of the run's client arrived at `at_ns`. The server is known to have run at `ran_ns` before
        that."""
        if run.heard(at_ns, ran_ns=ran_ns):
            self._announce_event(run, run_events.back(run))

    def acknowledge(self, run: Run, ack: messages.Ack, at_ns: int) -> None:
        """Records an acknowledgement that arrived at `at_ns`. Raises ProtocolError."""
        if run.state != "armed":
            raise ProtocolError(f"Ack for run {format_run(run.id)}, which is {run.state}, not armed")
        urgent = run.acknowledge(at_ns, ack.frontiers, ack.control)
        self._committer.touch(run, urgent=urgent)

    def report(self, run: Run, message: messages.Progress) -> None:
        """Records the client's progress report. It grants no credit. Raises FormatError."""
        run.report(message.statistics)
        self._committer.touch(run)

    def finish(
        self, run: Run, message: messages.Stop | messages.TargetFailed | messages.ClientFailed, at_ns: int
    ) -> None:
        """Records the end that the client reports. `answer` makes it durable."""
        if isinstance(message, messages.Stop):
            if run.state == "armed":
                run.acknowledge(at_ns, message.frontiers, message.control)
            run.report(message.statistics)
            run.stopped(at_ns, "the client stopped the run")
            self._announce_event(run, run_events.stopped(run))
        elif isinstance(message, messages.TargetFailed):
            what = f"errno {message.errno} at seq {message.seq} of writer {message.writer}: {message.text}"
            run.target_failed(at_ns, what)
            self._announce_event(run, run_events.failed(run, message.text))
        else:
            run.failed(at_ns, message.text)
            self._announce_event(run, run_events.failed(run, message.text))
        self._committer.touch(run)

    def drive_seen(self, run: Run, message: messages.DriveSeen, at_ns: int) -> None:
        """Records the client's report on the state of the drives. `answer` makes it durable."""
        drive = cast(DriveState, message.drive)  # the message's field allows no other word
        run.drive_seen(at_ns, age_ns=message.error_age_us * 1000, drive=drive, text=message.text)
        self._committer.touch(run)

    def watch(self, run: Run, now_ns: int, interval_ns: int) -> None:
        """Saves the time of the last receipt regularly. The client's next heartbeat is due in
        `interval_ns`."""
        run.heartbeat(interval_ns)
        if now_ns - run.saved_ns > SAVE_INTERVAL_NS and run.session_end in ("live", "target-error"):
            self._committer.touch(run)

    def look_for_silence(self, run: Run, now_ns: int) -> None:
        """Marks the run as silent if no frame has arrived for `limits.SILENCE_NS`."""
        if now_ns - run.last_receipt_ns > limits.SILENCE_NS and run.silent(now_ns):
            run.timeline_wanted = True
            self._committer.touch(run)
            self._announce_event(run, run_events.lost(run, campaign=self.campaign_of(run.id)))

    def kernel_alive(self, run: Run, at_ns: int) -> None:
        """The kernel of the silent client acknowledged sent data at `at_ns`."""
        before_ns = run.sign_of_life_ns
        run.kernel_alive(at_ns)
        if run.sign_of_life_ns // limits.SIGN_OF_LIFE_NS > before_ns // limits.SIGN_OF_LIFE_NS:
            self._committer.touch(run)

    def detach(self, session: Session, end: SessionEnd, text: str) -> None:
        """`session` is over. Its end becomes the end of the run, unless a newer session speaks for the
        run."""
        run = session.run
        if self._registry.session_of(run) is session:
            if run.session_end == "live":
                self._announce_event(run, run_events.closed(run, text))
            run.detached(clock.now_ns(), end, text)
            run.timeline_wanted = run.timeline_wanted or run.timeline_changed
            self._committer.touch(run)
        self._registry.leave(session)

    def _announce_event(self, run: Run | RunHead, what: str) -> None:
        head = run if isinstance(run, RunHead) else run.head
        left_out = self._event_limit.left_out(head.client)
        if left_out is not None:
            before = f" ({left_out:,} events before this one were left out)" if left_out else ""
            self._announce(self._who(head), f"run {format_run(head.run)} {what}{before}")

    def _who(self, head: RunHead) -> str:
        """The run's owner, for people. A client chooses the host name it sends, so the name that this server
        gave the client comes first."""
        known = self._names.get(head.client, head.client) if head.client else ""
        return head.host if known in ("", head.host) and head.host else f"{known} ({head.host or '?'})"

    # Answered with the store.

    async def answer(self, channel: Channel, message: Message) -> Message:
        """The answer to a request. Raises RefusedError, FormatError, ProtocolError or StoreError."""
        caller = _caller(channel)
        self._names[caller.client] = caller.name
        reply: Message
        match message:
            case messages.Register():
                reply = await self._register(channel, message)
            case messages.Resume():
                reply = await self._resume(channel, message)
            case messages.ArmRun():
                reply = await self._arm(channel, message)
            case messages.Stop() | messages.TargetFailed() | messages.ClientFailed() | messages.DriveSeen():
                if channel.session is not None:
                    await self._committer.flush_patiently(channel.session.run)
                seen = isinstance(message, messages.DriveSeen)
                reply = messages.Stored() if seen else messages.Stopped()
            case messages.Fetch() | messages.Examine():
                reply = await self._case_file(await self._fetch(caller, message))
            case messages.Evidence():
                reply = await self._take_evidence(caller, message)
            case messages.GiveVerdict():
                reply = await self._take_verdict(caller, message)
            case messages.List() | messages.ListClaims():
                reply = await self._listing(caller, message)
            case messages.Export():
                reply = await self._case_file(await self._case(caller, message.run))
            case messages.Show():
                reply = await self._show(caller, message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a request")
        return reply

    async def _listing(self, caller: Caller, message: messages.List | messages.ListClaims) -> Message:
        if isinstance(message, messages.ListClaims):
            rows = await self._thread.ask(self._store.claims, message.drives, client=caller.only_of)
            return messages.Listing(rows=rows[: limits.LISTING_ROWS_MAX])
        ask = self._store.drive_listing if message.by == "drive" else self._store.listing
        rows = await self._thread.ask(
            ask, message.limit, client=caller.only_of, drive=message.drive, host=message.host
        )
        return messages.Listing(rows=rows)

    async def _register(self, channel: Channel, message: messages.Register) -> Message:
        plan = Plan.decode(message.plan)
        if plan.run != message.run:
            raise FormatError(
                f"run {format_run(message.run)} comes with the plan of run {format_run(plan.run)}"
            )
        facts = from_value(Facts, message.facts)
        registration = Registration(
            run=message.run,
            client=_caller(channel).client,
            label=message.label,
            plan=message.plan,
            secret=message.secret,
            facts=facts,
            keys=target_keys(facts),
            path=facts.path,
            host=facts.host.hostname,
            wall=clock.wall(),
            writers=plan.writers,
        )
        self._require_writers_left(message.run, registration.client, plan.writers)
        await self._given.require_left(registration.client, "runs")  # checked before the prefill
        register = partial(self._store.register, registration, force=message.force)
        await self._given.give(registration.client, register)
        async with self._registry.holding(message.run, "resume") as run:
            self._require_writers_left(run.id, registration.client, plan.writers)  # may be more by now
            self._announce_event(run, run_events.connected(run, facts, name=channel.name))
            return self._accept(channel, run)

    async def _resume(self, channel: Channel, message: messages.Resume) -> Message:
        known = await self._owned(_caller(channel), message.run)  # checked before another server gives it up
        if not auth.equal(known.secret, message.secret):
            raise RefusedError("fenced", f"run {format_run(known.run)} belongs to another process")
        _require_not_ended(known)
        async with self._registry.holding(message.run, "resume") as run:
            _require_not_ended(run.head)
            self._require_writers_left(run.id, run.stored.client, run.plan.writers)
            if run.credits_in_doubt > IN_DOUBT_RESUMED_MAX:
                raise RefusedError(
                    "quota",
                    f"the client of run {format_run(run.id)} has not shown which of {run.credits_in_doubt:,}"
                    " credits reached it: verify the run, and begin a new one",
                )
            self._announce_event(run, run_events.back(run))
            return self._accept(channel, run)

    def _require_writers_left(self, run_id: int, client: str, writers: int) -> None:
        """Raises RefusedError "busy" if the run would give its client too many writers at this server. They
        would slow the commits of all clients. The operator's own runs are not limited in this way."""
        others = self._registry.writers_beside(run_id, client) if client else 0
        if others + writers > limits.WRITERS_OF_CLIENT_MAX:
            raise RefusedError(
                "busy",
                f"the runs of this client that go on have {others:,} writers, and this one has {writers:,}."
                f" One client may have {limits.WRITERS_OF_CLIENT_MAX:,} at one server: give this run fewer"
                " with --writers, or wait until another one has ended",
            )

    def _accept(self, channel: Channel, run: Run) -> Message:
        """The client on `channel` speaks for `run` from now on. An older session is fenced."""
        session = Session(run, channel)
        older = self._registry.enter(session)  # first, so that the older session's end is not the run's end
        run.attached(clock.now_ns(), channel.name)
        channel.session = session
        if older is not None:
            older.channel.fail("fenced", f"run {format_run(run.id)} continues on a newer connection")
        self._committer.touch(run)
        if self._committer.failure is not None:
            # After the answer, because the protocol allows no notice before it.
            asyncio.get_running_loop().call_soon(session.notice_outage, True)
        return run.accepted()

    async def _arm(self, channel: Channel, message: messages.ArmRun) -> Message:
        session = channel.session
        assert session is not None  # the protocol's tables: no ArmRun before Accepted
        run = session.run
        # Checked before the store is asked: a Stop that arrives meanwhile is not an error.
        if run.state not in ("registered", "armed") or any(run.frontiers.acked):
            raise ProtocolError(
                f"ArmRun for run {format_run(run.id)}, which is {run.state} and has acknowledged operations"
            )
        await self._given.require_left(run.stored.client, "runs")
        facts = from_value(Facts, message.facts)
        armed = replace(
            run.stored, armed=message.facts, keys=target_keys(facts), series=series_key(run.plan, facts)
        )
        async with self._committer.in_order:
            if run.lost:  # the commit that was under way may have found this
                raise MovedError(run.id)
            stored = replace(armed, snapshot=run.snapshot(timeline=False))
            await self._given.give(stored.client, partial(self._store.arm, stored))
            run.arm(clock.now_ns(), stored)
        self._announce_event(run, run_events.armed(run))
        self._committer.touch(run)
        # The client has seen the machine and drives of runs before this one, which may be unverified.
        seen = _look(run.id, facts, boot_id=self._registry.boot_id)
        await self._keep_looks(stored.client, seen, of_others=True)
        return messages.Armed()

    async def _owned(self, caller: Caller, run_id: int) -> RunHead:
        """The head of a run of the caller. Raises RefusedError "fenced" for a run of another client."""
        head = await self._registry.head(run_id)
        if not caller.owns(head.client):
            raise _fenced(run_id)
        return head

    async def _take_evidence(self, caller: Caller, message: messages.Evidence) -> Message:
        head = await self._owned(caller, message.run)
        await self._given.require_left(head.client, "evidence")
        piece = (message.run, message.name, message.data)
        others = await self._thread.ask(self._store.other_evidence, *piece)
        if others is not None:
            await self._given.give(head.client, partial(self._store.add_evidence, *piece, others=others))
        return messages.Stored()

    async def _take_verdict(self, caller: Caller, message: messages.GiveVerdict) -> Message:
        past = _past_verdict(message)
        head = await self._owned(caller, message.run)
        if head.state != "ended":
            raise RefusedError(
                "bad-request",
                f"run {past.run} is {head.state}: a verdict is for a run that verify has ended",
            )
        await self._given.require_left(head.client, "losses" if past.verdict == "loss" else "verdicts")
        await self._given.give(head.client, partial(self._store.add_verdict, past, message.document))
        if head.client and head.client not in self._names:  # this client has sent no request here yet
            self._names |= await self._thread.ask(self._store.client_names)
        self._announce_event(head, f"verdict: {past.verdict}")
        return messages.Stored()

    async def _fetch(self, caller: Caller, message: messages.Fetch | messages.Examine) -> Case:
        run_id = message.run
        facts = from_value(Facts, message.facts) if message.facts else None
        keys = target_keys(facts) if facts is not None else None
        if run_id == 0:
            if keys is None:
                raise FormatError("Fetch names neither a run nor the facts of a target")
            run_id = await self._thread.ask(self._store.newest_on_target, keys, client=caller.only_of)
        head = await self._owned(caller, run_id)
        self._require_not_live(head)
        if (removal := await self.removal_of(run_id)) is not None:  # a removed target would look like a loss
            raise RefusedError("run-ended", removal.text)
        if isinstance(message, messages.Fetch) and not message.end:
            return await self._case_of(await self._registry.as_it_is(run_id), keys)
        # A client of release 0.1.0 sends Fetch.
        said = message if isinstance(message, messages.Examine) else None
        look = None if facts is None else _look(run_id, facts, said, boot_id=self._registry.boot_id)
        try:
            return await self._end(head, keys, look)
        except MovedError:  # another server had just taken the run: ask that server
            return await self._end(head, keys, look)

    async def _end(self, head: RunHead, keys: TargetKeys | None, look: Look | None) -> Case:
        run_id = head.run
        async with self._registry.holding(run_id, "end") as run:
            self._require_not_live(run.head)
            run.ended(clock.now_ns())
            session = self._registry.session_of(run)
            if session is not None:
                session.channel.fail("run-ended", "verify has begun")
            await self._committer.flush(run)
            if look is not None:
                await self._keep_looks(head.client, look)
            return await self._case_of(run, keys)

    async def _keep_looks(self, client: str, look: Look, *, of_others: bool = False) -> None:
        """Keeps the look for each run that it concerns, if there is room. With `of_others`, its own run does
        not keep it. A client that has used up its quota may still verify."""
        await self._registry.save_not_live(client)  # a look counts only with the last receipt of its run
        with suppress(RefusedError):
            await self._given.require_left(client, "verdicts")
            # Not in the thread of commits: this is slow if many runs are on many drives. A run that is armed
            # does not wait for long reads either.
            search = self._thread.look_up if of_others else self._thread.ask
            looks = await search(self._store.looks_to_keep, look)
            if looks := [one for one in looks if one.run != look.run or not of_others]:
                await self._given.give(client, partial(self._store.keep_looks, looks))

    def _require_not_live(self, head: RunHead) -> None:
        """Raises RefusedError "run-live"."""
        run = self._registry.in_memory(head.run)
        if run is None:
            if head.session_end == "live":
                raise RefusedError("run-live", run_live(head.run, "a client of another server"))
            return
        session = self._registry.live_session_of(run)
        if session is not None:
            raise RefusedError("run-live", run_live(run.id, session.channel.name))

    async def _case(self, caller: Caller, run_id: int) -> Case:
        if not caller.sees((await self._registry.head(run_id)).client):
            raise _fenced(run_id)
        return await self.case(run_id)

    async def case(self, run_id: int) -> Case:
        """The current case of a run, for use by the server itself. Raises RefusedError and StoreError."""
        return await self._case_of(await self._registry.as_it_is(run_id))

    async def _case_of(self, run: Run, found: TargetKeys | None = None) -> Case:
        relations = await self._thread.ask(self._store.relations, run.stored, found)
        case = run.case(now_ns=clock.now_ns(), relations=relations)
        removal = await self.removal_of(run.id)
        return case if removal is None else replace(case, events=(*case.events, removal))

    async def _show(self, caller: Caller, message: messages.Show) -> Message:
        case = await self._case(caller, message.run)
        value = await self._thread.ask(case_to_value, case)
        verdicts, evidence = await self._thread.ask(self._store.documents, message.run)
        return messages.Shown(document={"case": value, "verdicts": verdicts, "evidence": evidence})

    async def _case_file(self, case: Case) -> messages.CaseFile:
        return messages.CaseFile(case=await self._thread.ask(case_to_value, case))


async def _nothing_removed(_: int) -> Event | None:
    return None


def _caller(channel: Channel) -> Caller:
    assert channel.caller is not None  # the protocol's tables: no request before Welcome
    return channel.caller


def _fenced(run: int) -> RefusedError:
    return RefusedError(
        "fenced",
        f"run {format_run(run)} belongs to another client, or to this machine before it joined anew: an"
        " operator can verify it (`durability clients invite --role operator` on the server's machine)",
    )


def _require_not_ended(head: RunHead) -> None:
    if head.state == "ended":
        raise RefusedError("run-ended", f"run {format_run(head.run)} was ended by verify; begin a new one")


def _look(run: int, facts: Facts, said: messages.Examine | None = None, *, boot_id: str) -> Look:
    """The facts of machine and drives that the run's client reported, at arming or before a `verify`. `said`
    is None if the client did not report what its operator attests, nor whether the target answers."""
    named = said.cut_class if said is not None and said.attested else ""
    return Look(
        run=format_run(run),
        at_ns=clock.now_ns(),
        boot_id=boot_id,
        wall=clock.wall(),
        facts=replace(
            facts,
            host=replace(facts.host, hostname="", kernel=""),
            path="",
            path_in_file_system="",
            file_system=None,
            layers=(),
            warnings=(),
            named="",
        ),
        answers=said is not None and said.answers,
        attested=said.attested if said is not None else "",
        cut_class=next((one for one in PROVABLE_CUT_CLASSES if one == named), None),
    )


def _past_verdict(message: messages.GiveVerdict) -> PastVerdict:
    """The parts of a verdict document (the output of `verify --json`) that the store needs. Raises
    FormatError."""
    match message.document:
        case {
            "verdict": str(verdict),
            "cut": {"class": str(cut_class)},
            "at_risk": {"ms1000": int(at_risk)},
            "reasons": list(reasons),
        } if (
            verdict in get_args(VerdictWord)
            and cut_class in CUT_CLASSES
            and type(at_risk) is int  # a bool matches int() too, but not every database stores it as a number
            and 0 <= at_risk <= limits.SEQ_MAX
        ):
            return PastVerdict(
                run=format_run(message.run),
                verdict=verdict,
                cut_class=cut_class,
                at_risk_ms1000=at_risk,
                wall=clock.wall(),
                reasons=_codes(reasons),
            )
    raise FormatError(
        "not a verdict: expected verdict, reasons, cut.class and at_risk.ms1000 as in docs/reference/cli.md"
    )


def _codes(reasons: list[Value]) -> tuple[str, ...]:
    """The known codes among the reasons of a verdict, each once. A later verify uses them. Raises
    FormatError."""
    codes: list[str] = []
    for reason in reasons:
        match reason:
            case {"code": str(code), "text": str()}:
                codes.append(code)
            case _:
                raise FormatError(
                    "not a verdict: expected each of its reasons to have code and text, which are strings"
                )
    return tuple(dict.fromkeys(code for code in codes if code in REASONS))
