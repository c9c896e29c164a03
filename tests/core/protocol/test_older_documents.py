"""What a peer of the first release does not know is left out of what it gets."""

from __future__ import annotations

from durability.formats.case import NEWER_OF_VERDICTS, PastVerdict
from durability.formats.documents import to_value
from durability.formats.facts import RECOGNITION, RECOGNITION_OF_DRIVES
from durability.formats.packing import Value
from durability.protocol.messages import (
    ArmRun,
    CaseFile,
    Fetch,
    Message,
    Progress,
    Register,
    Revoked,
    Shown,
    Stop,
    Stored,
)
from durability.protocol.older_documents import as_known
from tests.sample_facts import drive, facts

FACTS = to_value(
    facts(volume="LVM-a", named="/dev/mapper/vg-a", file_id="12.3", drives=(drive(wwid="naa.1"),))
)
NEWER = (*RECOGNITION, *RECOGNITION_OF_DRIVES, *NEWER_OF_VERDICTS, "attempts")
PAST = to_value(
    PastVerdict(run="1", verdict="loss", cut_class="os", at_risk_ms1000=1, wall="", enumerations=("a",))
)
VERDICTS: dict[str, Value] = {"verdicts": [PAST], "series": [PAST, PAST]}
CASE: dict[str, Value] = {"run": "1", "armed": FACTS, "attempts": ["0a"], **VERDICTS}
MESSAGES: tuple[Message, ...] = (
    Register(run=1, plan=b"plan", facts=FACTS, secret=bytes(32), label="", force=False),
    ArmRun(facts=FACTS),
    Fetch(run=1, facts=FACTS, end=False),
    CaseFile(case=CASE),
    Shown(document={"case": CASE, "verdicts": []}),
)
STATISTICS: dict[str, Value] = {"elapsed_s": 1.0, "unsafe_shutdowns": [3]}


def test_newer_fields_are_left_out_for_an_older_peer() -> None:
    """Wherever they stand; all else stays, and a peer of this release gets everything."""
    for message in MESSAGES:
        older = as_known(message, 3)
        assert type(older) is type(message)
        assert not any(name in repr(older) for name in NEWER)
        assert repr(older).count("at_risk_ms1000") == repr(message).count("at_risk_ms1000")
        assert "file_system" in repr(older) and "diskseq" in repr(older)
        assert as_known(message, 4) == message


def test_counters_that_were_read_again_are_left_out_for_an_older_peer() -> None:
    """From a client to its server, and from a server that tells of a run."""
    messages: tuple[Message, ...] = (
        Progress(statistics=STATISTICS),
        Stop(frontiers=(1,), control=0, statistics=STATISTICS),
        CaseFile(case={"statistics": STATISTICS}),
        Shown(document={"case": {"statistics": STATISTICS}}),
    )
    for message in messages:
        assert "unsafe_shutdowns" not in repr(as_known(message, 3))
        assert "elapsed_s" in repr(as_known(message, 3))
        assert as_known(message, 4) == message


def test_an_older_peer_gets_the_answer_that_it_knows() -> None:
    """A peer of an older release gets `Stored` in place of the newer message `Revoked`."""
    assert as_known(Revoked(campaigns=("ssd",)), 3) == Stored()
    assert as_known(Revoked(campaigns=("ssd",)), 4) == Revoked(campaigns=("ssd",))


def test_what_is_no_such_document_is_left_alone() -> None:
    """A run that was never armed has no facts, and a question may have none."""
    for message in (CaseFile(case={"armed": None}), Fetch(run=1, facts={}, end=True), Shown(document={})):
        assert as_known(message, 3) == message
