"""What each request means: the server's answers, given a run registry and a store.

Knows nothing of sockets. Refuses with RefusedError and a code of docs/reference/protocol.md whatever would
mix up evidence: a second run on a target whose first was never verified, a claim to a run without its secret,
a verify of a live run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from durability import auth, limits
from durability.case import Case, PastVerdict, SessionEnd, case_to_value
from durability.documents import from_value
from durability.errors import FormatError, ProtocolError, RefusedError
from durability.facts import Facts
from durability.messages import (
    Accepted,
    Ack,
    Arm,
    Armed,
    CaseFile,
    ClientFailed,
    Evidence,
    Export,
    Fetch,
    List,
    Listing,
    Message,
    Progress,
    Register,
    Resume,
    Show,
    Shown,
    Stop,
    Stopped,
    Stored,
    TargetFailed,
    Verdict,
)
from durability.packing import Value
from durability.plan import Plan
from durability.units import format_run
from durability.verdict import REASONS
from durability_server import clock
from durability_server.registry import Registry
from durability_server.runs import Run
from durability_server.store import Registration, Store
from durability_server.store_thread import StoreThread
from durability_server.targets import series_key, target_keys

if TYPE_CHECKING:
    from durability_server.peer import Peer

SAVE_INTERVAL_NS = (
    1_000_000_000  # how stale the stored time of the last receipt may be while nothing is acknowledged
)
VERDICTS = ("durable", "loss", "inconclusive")
CUT_CLASSES = ("power", "vm", "os", "none")


class Desk:
    """Answers the requests of all peers."""

    def __init__(self, store: Store, thread: StoreThread, registry: Registry) -> None:
        self._store = store
        self._thread = thread
        self._registry = registry
        self._committer = registry.committer

    # At once, without the store.

    def acknowledge(self, run: Run, ack: Ack, at_ns: int) -> None:
        """Takes in an acknowledgement that came at `at_ns`."""
        if run.state != "armed":
            raise ProtocolError(f"Ack for run {format_run(run.id)}, which is {run.state}, not armed")
        urgent = run.acknowledge(at_ns, ack.frontiers, ack.control)
        self._committer.touch(run, urgent=urgent)

    def report(self, run: Run, message: Progress) -> None:
        """Takes in what the client says of the run so far; nothing is granted for it. Raises FormatError."""
        run.report(message.statistics)
        self._committer.touch(run)

    def finish(self, run: Run, message: Stop | TargetFailed | ClientFailed, at_ns: int) -> None:
        """Takes in the end that the client reports; `answer` makes it durable."""
        if isinstance(message, Stop):
            if run.state == "armed":
                run.acknowledge(at_ns, message.frontiers, message.control)
            run.report(message.statistics)
            run.stopped(at_ns, "the client stopped the run")
        elif isinstance(message, TargetFailed):
            what = f"errno {message.errno} at seq {message.seq} of writer {message.writer}: {message.text}"
            run.failed(at_ns, "target-error", what)
        else:
            run.failed(at_ns, "client-error", message.text)
        self._committer.touch(run)

    def watch(self, run: Run, now_ns: int) -> None:
        """Looks for silence, and keeps the stored time of the last receipt fresh."""
        if now_ns - run.last_receipt_ns > limits.SILENCE_NS and run.silent(now_ns):
            run.timeline_wanted = True
            self._committer.touch(run)
        elif now_ns - run.saved_ns > SAVE_INTERVAL_NS and run.session_end == "live":
            self._committer.touch(run)

    def detach(self, run: Run, peer: Peer, end: SessionEnd, text: str) -> None:
        """`peer` no longer speaks for `run`; its end counts unless another peer has taken over."""
        if run.peer is peer:
            run.detached(clock.now_ns(), end, text)
            run.timeline_wanted = True
            self._committer.touch(run)
        self._registry.release(run)

    # With the store.

    async def answer(self, peer: Peer, message: Message) -> Message:
        """The answer to a request. Raises RefusedError, FormatError, ProtocolError or StoreError."""
        reply: Message
        match message:
            case Register():
                reply = await self._register(peer, message)
            case Resume():
                reply = await self._resume(peer, message)
            case Arm():
                reply = await self._arm(peer, message)
            case Stop() | TargetFailed() | ClientFailed():
                if peer.run is not None:
                    await self._committer.flush_patiently(peer.run)
                reply = Stopped()
            case Fetch():
                reply = CaseFile(case=case_to_value(await self._fetch(message)))
            case Evidence():
                await self._thread.call(self._store.add_evidence, message.run, message.name, message.data)
                reply = Stored()
            case Verdict():
                await self._thread.call(self._store.add_verdict, _past_verdict(message), message.document)
                reply = Stored()
            case List():
                reply = Listing(rows=await self._thread.call(self._store.listing, message.limit))
            case Export():
                reply = CaseFile(case=case_to_value(await self._case(message.run)))
            case Show():
                reply = await self._show(message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is no request")
        return reply

    async def _register(self, peer: Peer, message: Register) -> Message:
        plan = Plan.decode(message.plan)
        if plan.run != message.run:
            raise FormatError(
                f"run {format_run(message.run)} comes with the plan of run {format_run(plan.run)}"
            )
        facts = from_value(Facts, message.facts)
        registration = Registration(
            run=message.run,
            label=message.label,
            plan=message.plan,
            secret=message.secret,
            keys=target_keys(facts),
            path=facts.path,
            host=facts.host.hostname,
            wall=clock.wall(),
            writers=plan.writers,
        )
        await self._thread.call(self._store.register, registration, force=message.force)
        async with self._registry.holding(message.run) as run:
            return self._accept(peer, run)

    async def _resume(self, peer: Peer, message: Resume) -> Message:
        client_nonce, server_nonce = peer.nonces
        async with self._registry.holding(message.run) as run:
            proof = auth.resume_proof(
                run.stored.secret, run=run.id, client_nonce=client_nonce, server_nonce=server_nonce
            )
            if not auth.equal(proof, message.proof):
                raise RefusedError("fenced", f"run {format_run(run.id)} belongs to another client")
            if run.state == "ended":
                raise RefusedError(
                    "run-ended", f"run {format_run(run.id)} was ended by verify; begin a new one"
                )
            return self._accept(peer, run)

    def _accept(self, peer: Peer, run: Run) -> Message:
        """`run` is the peer's from now on; who had it before is fenced."""
        older = run.peer
        run.holds += 1
        peer.attach(run)
        if older is not None:
            older.fail("fenced", f"run {format_run(run.id)} goes on over a newer connection")
        self._committer.touch(run)
        if self._committer.failure is not None:
            peer.notice_outage(self._committer.failure)
        return Accepted(run=run.id, frontiers=run.frontiers.acked, grants=run.frontiers.grants)

    async def _arm(self, peer: Peer, message: Arm) -> Message:
        run = peer.run
        assert run is not None  # the session's tables: no Arm before Accepted
        if run.state not in ("registered", "armed") or any(run.frontiers.acked):
            raise ProtocolError(f"Arm for run {format_run(run.id)}, which is {run.state} and has gone on")
        facts = from_value(Facts, message.facts)
        stored = replace(
            run.stored, armed=message.facts, keys=target_keys(facts), series=series_key(run.plan, facts)
        )
        await self._thread.call(self._store.arm, stored)
        run.arm(clock.now_ns(), stored)
        self._committer.touch(run)
        return Armed()

    async def _fetch(self, message: Fetch) -> Case:
        run_id = message.run
        if run_id == 0:
            keys = target_keys(from_value(Facts, message.facts))
            run_id = await self._thread.call(self._store.newest_on_target, keys)
        async with self._registry.holding(run_id) as run:
            now_ns = clock.now_ns()
            if run.peer is not None:
                if now_ns - run.last_receipt_ns <= limits.SILENCE_NS:
                    raise RefusedError(
                        "run-live", f"run {format_run(run.id)} is going on at {run.peer.name}; stop it first"
                    )
                run.silent(now_ns)
            if message.end:
                run.ended(now_ns)
                if run.peer is not None:
                    run.peer.fail("run-ended", "verify has begun")
                await self._committer.flush(run)
            return await self._case_of(run)

    async def _case(self, run_id: int) -> Case:
        async with self._registry.holding(run_id) as run:
            return await self._case_of(run)

    async def _case_of(self, run: Run) -> Case:
        relations = await self._thread.call(self._store.relations, run.stored)
        return run.case(now_ns=clock.now_ns(), relations=relations)

    async def _show(self, message: Show) -> Message:
        case = await self._case(message.run)
        verdicts, evidence = await self._thread.call(self._store.documents, message.run)
        return Shown(document={"case": case_to_value(case), "verdicts": verdicts, "evidence": evidence})


def _past_verdict(message: Verdict) -> PastVerdict:
    """What the store needs to know of a verdict document (the output of `verify --json`)."""
    match message.document:
        case {
            "verdict": str(verdict),
            "cut": {"class": str(cut_class)},
            "at_risk": {"ms1000": int(at_risk)},
            "reasons": list(reasons),
        } if verdict in VERDICTS and cut_class in CUT_CLASSES and 0 <= at_risk <= limits.SEQ_MAX:
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
    """The known codes among the reasons of a verdict; a later pass is judged by them."""
    codes = (reason.get("code") for reason in reasons if isinstance(reason, dict))
    return tuple(code for code in codes if isinstance(code, str) and code in REASONS)
