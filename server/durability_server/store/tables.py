"""The tables of the store. Times are nanoseconds of the server's CLOCK_BOOTTIME; run ids 16 hex digits.

    meta       one row: format of the store, id of the server, its key and certificate (PEM), the release that
               made the store or gave it this format
    clients    one row per client: its id, name, role and the hash of its secret; none is removed
    invitations one row per join code: its hash, its role and name, when it expires, when it was used
    machine_codes one row per code for machines without a disk: its hash and name, when it expires or ended
    machines   one row per machine that joined by such a code: which client it is
    servers    one row per server that runs on the store, renewed until it ends (`lease_store`)
    wants      one row per run that a server wants from another one (`lease_store`)
    runs       one row per run: its registration, and its changing state
    run_drives one row per drive below a run's target
    registrations one row per run that was never armed: the place of its target, as facts without long fields
    frontiers  one row per run and writer, updated in place: never a row per record
    timelines  one row per run: which frontiers were received when (`protocol.timeline`)
    credits    one row per run: each credit that may be the last to have arrived (`runs.credits`)
    statistics one row per run: the newest statistics of the client (`formats.run_statistics`)
    errors     one row per run whose target failed: time, and state of the drives (`case.TargetFailure`)
    events     the newest events of each run, for people
    verdicts   every verdict ever given, complete; none is replaced
    evidence   the bytes behind the findings
    looks      what calls of `verify` found before they read the target (`case.Look`), for each run that they
               concern
    power_offs confirmations of power controllers, one row per run and power-off (`case.PowerOff`)
    results    one row per kept benchmark result of a client; none is changed
    result_drives one row per drive of a kept result
    campaigns  one row per campaign: its name, and the server that conducts it
    campaign_entries  the log of each campaign (`durability.campaign.log_entries`); no entry is changed
    campaign_signs  how often the servers of a shared store have heard each machine of a campaign

Documents (facts, statistics, errors, verdicts, entries) are msgpack: exactly the values that came over the
wire. Each change of a table and each new table needs a step in `migrations`.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, MetaData, Table
from sqlalchemy.types import BigInteger, Integer, LargeBinary, String, Text

metadata = MetaData()


def _run() -> Column[str]:
    return Column("run", String(16), ForeignKey("runs.run"), primary_key=True, nullable=False)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, default="")


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, default=0)


meta = Table(
    "meta",
    metadata,
    Column("format", Integer, primary_key=True),
    Column("server_id", String(64), nullable=False),
    Column("key", LargeBinary, nullable=True),
    Column("certificate", LargeBinary, nullable=True),
    _text("software"),
)

clients = Table(
    "clients",
    metadata,
    Column("id", String(32), primary_key=True),
    _text("name"),
    _text("role"),
    Column("hash", LargeBinary, nullable=False),
    _text("joined"),
    _text("revoked"),
)

invitations = Table(
    "invitations",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    _text("name"),
    _text("role"),
    _number("expires"),  # Unix seconds
    _text("created"),
    _text("used"),
)

machine_codes = Table(
    "machine_codes",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    _text("name"),
    _number("machines"),  # number of machines that may join by the code
    _number("expires"),  # Unix seconds
    _text("created"),
    _text("revoked"),
)

machines = Table(
    "machines",
    metadata,
    Column("hash", LargeBinary(32), ForeignKey("machine_codes.hash"), primary_key=True),
    Column("machine", String(256), primary_key=True),
    Column("client", String(32), ForeignKey("clients.id"), nullable=False),
)

servers = Table(
    "servers",
    metadata,
    Column("id", String(32), primary_key=True),
    _text("address"),
    _text("boot_id"),
    _number("expires"),  # Unix milliseconds on the database's clock
)

runs = Table(
    "runs",
    metadata,
    Column("run", String(16), primary_key=True),
    Column("number", Integer, nullable=False, unique=True),  # in order of registration
    _text("client"),  # owner of the run; "" is the operator on the server's machine
    _text("label"),
    Column("plan", LargeBinary, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    _text("drive_key"),
    _text("file_system_key"),
    _text("path_key"),
    _text("path"),
    _text("host"),
    _text("registered_wall"),
    Column("armed", LargeBinary, nullable=True),
    Column("series", String(64), nullable=False, default=""),
    Column("drive_set", String(64), nullable=False, default=""),  # hash of the run's drives in `run_drives`
    _text("enumerations"),  # enumerations of its drives; runs with a common one met the same cut
    _text("finish"),
    _text("session_end"),
    _number("control"),
    _number("last_receipt_ns"),
    _text("receipt_boot_id"),
    _text("receipt_wall"),
    _number("rtt_max_ns"),
    _number("gap_max_ns"),
    _text("tainted"),
    _text("holder"),  # server that holds the run, "" for none
    _number("epoch"),  # rises whenever a server takes the run
    _number("saves"),  # number of the last save, higher than that of each earlier one
    Index("runs_by_drive", "drive_key"),
    Index("runs_by_file_system", "file_system_key"),
    Index("runs_by_path", "path_key"),
    Index("runs_by_series", "series"),
    Index("runs_by_client", "client"),
    Index("runs_by_session_end", "session_end"),  # live runs are few, and are queried all the time
)

run_drives = Table(
    "run_drives",
    metadata,
    _run(),
    Column("number", Integer, primary_key=True),
    Column("identity", String(64), nullable=False),
    _text("model"),
    _text("serial"),
    Index("run_drives_by_identity", "identity"),
)

registrations = Table("registrations", metadata, _run(), Column("data", LargeBinary, nullable=False))

wants = Table(
    "wants",
    metadata,
    _run(),
    _text("server"),
    _text("purpose"),
    _number("expires"),  # Unix milliseconds on the database's clock
)

frontiers = Table(
    "frontiers",
    metadata,
    _run(),
    Column("writer", Integer, primary_key=True),
    _number("acked"),
)

timelines = Table("timelines", metadata, _run(), Column("data", LargeBinary, nullable=False))

credits = Table("credits", metadata, _run(), Column("data", LargeBinary, nullable=False))

statistics = Table("statistics", metadata, _run(), Column("data", LargeBinary, nullable=False))

errors = Table("errors", metadata, _run(), Column("data", LargeBinary, nullable=False))

events = Table(
    "events",
    metadata,
    _run(),
    Column("number", Integer, primary_key=True),
    _number("at_ns"),
    _text("wall"),
    _text("kind"),
    _text("text"),
)

verdicts = Table(
    "verdicts",
    metadata,
    _run(),
    Column("number", Integer, primary_key=True),
    _text("verdict"),
    _text("cut_class"),
    _number("at_risk_ms1000"),
    _text("wall"),
    _text("reasons"),
    Column("document", LargeBinary, nullable=False),
)

evidence = Table(
    "evidence",
    metadata,
    _run(),
    Column("name", String(255), primary_key=True),
    _number("bytes"),
    Column("data", LargeBinary, nullable=False),
)

looks = Table(
    "looks",
    metadata,
    _run(),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    # The run's last receipt at the time of the look. The look counts until the run receives more.
    _number("receipt_ns"),
    _text("receipt_boot_id"),
)

power_offs = Table(
    "power_offs",
    metadata,
    _run(),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

# Stores of earlier releases get these two tables when they are opened.
results = Table(
    "results",
    metadata,
    Column("result", String(16), primary_key=True),
    Column("number", Integer, nullable=False, unique=True),  # in order of arrival
    _text("client"),  # owner of the result; "" is the operator on the server's machine
    _text("wall"),
    _text("host"),
    _text("sha256"),  # hash of the file in the body
    _number("file_bytes"),
    _number("bytes"),
    Column("summary", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("results_by_client", "client"),
)

result_drives = Table(
    "result_drives",
    metadata,
    Column("result", String(16), ForeignKey("results.result"), primary_key=True, nullable=False),
    Column("number", Integer, primary_key=True),
    Column("identity", String(64), nullable=False),
    _text("model"),
    _text("serial"),
    Index("result_drives_by_identity", "identity"),
)

campaigns = Table(
    "campaigns",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("number", Integer, nullable=False, unique=True),  # in order of their beginning
    _text("home"),  # machine whose server conducts the campaign, because its switches are reached there
    _text("conductor"),  # server that conducts the campaign
    _number("told"),  # number of the last entry with sent notifications
)

campaign_entries = Table(
    "campaign_entries",
    metadata,
    Column("campaign", String(64), ForeignKey("campaigns.name"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

campaign_signs = Table(
    "campaign_signs",
    metadata,
    Column("campaign", String(64), ForeignKey("campaigns.name"), primary_key=True),
    Column("machine", Text, primary_key=True),
    _number("signs"),
)
