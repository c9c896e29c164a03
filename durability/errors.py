"""Every error that this product raises for a person to read, as one tree, each with its exit code.

    DurabilityError                 1  a defect of this tool
    ├── UsageError                  2  the command line asks for something that cannot be
    ├── FormatError                 5  bytes that are not what their format says
    │   └── PlanError               5  a plan that contradicts itself
    └── SetupError                  5  the environment or the peer is not as required
        ├── TargetError             5  the file or device under test
        │   ├── NotOursError        5  it holds something that this tool did not write
        │   ├── TargetBusyError     5  another process holds it
        │   └── WrongTargetError    5  it is not the target of this run
        ├── PeerError               5  the other machine
        │   ├── ProtocolError       5  it broke the protocol
        │   ├── AuthenticationError 5  it does not know this client
        │   └── RefusedError        5  it said no, and why (`code`)
        └── StoreError              5  the server's database

A message names what failed, where, what was expected and what to do; the CLI prints it as it is.
Loss and inconclusive are verdicts, not errors: see `durability.evidence.verdict`.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_LOSS = 3
EXIT_INCONCLUSIVE = 4
EXIT_ENVIRONMENT = 5

# What `verify` says, whatever its exit code, if its verdict is nowhere but in its own output.
NOT_STORED = "the server did not store this verdict and its evidence"
# The same, if the connection failed and the server was away for too long to ask.
PERHAPS_NOT_STORED = "the server may not have stored this verdict and its evidence"
# What `run` says, with the server's code if there is one, before why, if it ends because of its server before
# it is armed: so the target is not to blame.
NOT_ACCEPTED = "the server did not accept this run"
# The same, if it ends because this machine starts no process for it.
NOT_STARTED = "the processes of this run cannot be started"


class DurabilityError(Exception):
    """Base of all errors of this product."""

    exit_code = EXIT_INTERNAL


class UsageError(DurabilityError):
    """The command line asks for something that cannot be."""

    exit_code = EXIT_USAGE


class FormatError(DurabilityError):
    """Bytes that are not what their format says."""

    exit_code = EXIT_ENVIRONMENT


class PlanError(FormatError):
    """A plan that contradicts itself."""


class SetupError(DurabilityError):
    """The environment or the peer is not as required."""

    exit_code = EXIT_ENVIRONMENT


class TargetError(SetupError):
    """The file or device under test cannot be used."""


class NotOursError(TargetError):
    """The target holds something that this tool did not write."""


class UnreadableTargetError(TargetError):
    """The target is there, and an I/O error keeps it from being opened."""


class TargetBusyError(TargetError):
    """Another process holds the target."""


class WrongTargetError(TargetError):
    """The target is not the one that this run was made on."""


class PeerError(SetupError):
    """The other machine cannot be reached or does not answer as it should."""


class ProtocolError(PeerError):
    """The peer broke the protocol."""


class AuthenticationError(PeerError):
    """The peer does not know this client."""


class RefusedError(PeerError):
    """The peer said no; `code` is the machine-readable reason of its `Failure` message."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class StoreError(SetupError):
    """The server's database cannot be used."""
