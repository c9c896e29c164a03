"""`accept`: the steps from the profile to the report, and the exit code.

The steps are: gather evidence, decide, print, and write the page with its JSON. Output files that cannot be
written are refused before the server is asked. A report replaces only an earlier report, never another file.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import durability
from durability import plain_text
from durability.acceptance.acceptance_document import Report, document_of
from durability.acceptance.decision import EXIT_CODES, decide_on, decided_of_all
from durability.errors import UsageError
from durability.formats.documents import to_json
from durability_client.acceptance import profiles
from durability_client.acceptance.accept_screen import show_report
from durability_client.acceptance.gather import EvidenceWanted, gather
from durability_client.acceptance.sheet import report_page
from durability_client.bench import saved_results
from durability_client.link.endpoint import Endpoint
from durability_client.system import output_files
from durability_client.system.terminal import Terminal, print_json

BY_CHARACTERS_MAX = 80
_JSON = "the JSON of a report"
_JSON_HEAD = b'{"schema":"durability.acceptance/'
_WIDTH_MIN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptOptions:
    """Options from the command line."""

    profile: str  # a name or a file
    wanted: EvidenceWanted
    endpoint: Endpoint | None = None  # the server; None if this machine has none
    output: Path | None = None
    by: str = ""  # the person who requests the report; "": the current user
    json: bool = False


def accept(options: AcceptOptions, out: TextIO, err: TextIO) -> int:
    """Decide and report. Returns the exit code. Raises UsageError, SetupError, FormatError, PeerError."""
    loaded = profiles.load(options.profile)
    by = _by(options.by)
    beside = None if options.output is None else _beside(options.output)
    evidence = asyncio.run(gather(options.endpoint, options.wanted, lambda text: _say(text, err)))
    report = Report(
        profile=loaded.profile,
        profile_sha256=loaded.sha256,
        by=by,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        software=f"durability {durability.__version__}",
        decisions=tuple(decide_on(loaded.profile, one) for one in evidence),
    )
    document = document_of(report)
    if options.output is not None and beside is not None:
        page = report_page(report, str(document["sha256"]))
        evidence_file = output_files.NewFile(
            path=beside, data=f"{to_json(document)}\n".encode(), what=_JSON, is_ours=_is_report
        )
        earlier = " (the earlier report there was replaced)" if _has_content(beside) else ""
        output_files.replace_together([evidence_file, saved_results.page_file(page, options.output)])
        _say(f"the report is in {options.output}, its evidence in {beside}{earlier}", err)
    if options.json:
        print_json(document, out)
    else:
        console = Terminal(file=out)
        console.width = max(console.width, _WIDTH_MIN)
        show_report(report, console)
    return EXIT_CODES[decided_of_all([one.word for one in report.decisions])]


def show_profile(name: str, out: TextIO) -> None:
    """Print the text of a profile, as a template for a file. Raises UsageError, SetupError."""
    print(plain_text.as_text(profiles.load(name).text), end="", file=out)


def _beside(page: Path) -> Path:
    """The path of the JSON file beside the page. Raises UsageError, SetupError if either cannot be
    written."""
    if page.suffix == ".json":
        raise UsageError(
            f"-o {page}: the report is a page; its JSON goes beside it. Name a file such as {page.stem}.html"
        )
    saved_results.check_page(page)  # first, because a directory has no suffix
    # Only the suffix of a page is replaced, so that pages such as report-2026.01.05 have different JSON
    # files.
    is_page = page.suffix.lower() in (".html", ".htm")
    beside = page.with_suffix(".json") if is_page else page.with_name(f"{page.name}.json")
    output_files.check_replaceable(beside, _JSON, _is_report)
    return beside


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _is_report(head: bytes) -> bool:
    return head.startswith(_JSON_HEAD)


def _by(text: str) -> str:
    """The person who requests the report, as one line. Raises UsageError."""
    by = " ".join(text.split())
    if len(by) > BY_CHARACTERS_MAX:
        raise UsageError(f"--by has {len(by)} characters, at most {BY_CHARACTERS_MAX} fit the page")
    return plain_text.as_line(by or f"{_user()} at {socket.gethostname()}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        return f"user {os.getuid()}"


def _say(text: str, err: TextIO) -> None:
    print(plain_text.as_text(f"durability: {text}" if not text.startswith("the report") else text), file=err)
