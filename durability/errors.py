"""Every error that this product raises for a person to read, as one tree, each with its exit code.

    DurabilityError                   1  a defect of this tool
    ├── UsageError                    2  the command line asks for something impossible
    ├── FormatError                   5  bytes that do not fit their format
    │   └── PlanError                 5  a plan that contradicts itself
    └── SetupError                    5  the environment or the peer is not as required
        ├── TargetError               5  the file or device under test
        │   ├── NotOursError          5  it holds something that this tool did not write
        │   ├── UnreadableTargetError 5  an I/O error prevents opening it
        │   ├── TargetBusyError       5  another process holds it
        │   └── WrongTargetError      5  it is not the target of this run
        ├── PeerError                 5  the other machine
        │   ├── ProtocolError         5  it broke the protocol
        │   ├── AuthenticationError   5  it does not know this client
        │   └── RefusedError          5  it refused, with a reason (`code`)
        └── StoreError                5  the server's database

A message names the failure, its place, the expected state and the remedy; the CLI prints it unchanged. Loss
and inconclusive are verdicts, not errors: see `durability.evidence.verdict`.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_LOSS = 3
EXIT_INCONCLUSIVE = 4
EXIT_ENVIRONMENT = 5

# Message of `verify`, with any exit code, if its verdict exists only in its own output.
NOT_STORED = "the server did not store this verdict and its evidence"
# The same, if the connection failed and the server was unreachable for too long to ask.
PERHAPS_NOT_STORED = "the server may not have stored this verdict and its evidence"
# Message of `run` if it ends before it is armed because of its server, so not because of the target. The
# server's code, if there is one, and the reason follow.
NOT_ACCEPTED = "the server did not accept this run"
# The same, if it ends because this machine cannot start its processes.
NOT_STARTED = "the processes of this run cannot be started"


class DurabilityError(Exception):
    """Base of all errors of this product."""

    exit_code = EXIT_INTERNAL


class UsageError(DurabilityError):
    """The command line asks for something impossible."""

    exit_code = EXIT_USAGE


class FormatError(DurabilityError):
    """Bytes that do not fit their format."""

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
    """The target exists, but an I/O error prevents opening it."""


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
    """The peer refused; `code` is the machine-readable reason in its `Failure` message."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class StoreError(SetupError):
    """The server's database cannot be used."""
