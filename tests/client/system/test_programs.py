"""Helper programs of the system: run with a deadline, and never relied upon."""

from __future__ import annotations

import pytest

from durability.errors import TargetError
from durability.program_places import PROGRAM_PLACES
from durability_client.system.programs import output_of, run_tool


def test_output_and_exit_code_come_back() -> None:
    """A program's output and exit code are returned, for any exit code."""
    done = run_tool("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)
    assert output_of("sh", "-c", "echo ' text '; exit 1") == "text"


def test_a_missing_program_is_named() -> None:
    """A program that is not installed is an error that names it, or silence where it is optional."""
    with pytest.raises(TargetError, match="no-such-program is not installed"):
        run_tool("no-such-program")
    assert output_of("no-such-program") == ""


def test_a_program_that_does_not_end_is_given_up() -> None:
    """A program that hangs is killed at its deadline, and the error says so."""
    with pytest.raises(TargetError, match="no answer within"):
        run_tool("sh", "-c", "exec sleep 600", timeout_s=0.05)


def test_programs_are_found_on_systems_without_usr() -> None:
    """NixOS and Guix keep them elsewhere. No place is empty, which would be the working directory."""
    places = PROGRAM_PLACES.split(":")
    assert {"/run/current-system/sw/bin", "/run/current-system/profile/sbin"} < set(places)
    assert all(place.startswith("/") for place in places) and len(places) == len(set(places))
