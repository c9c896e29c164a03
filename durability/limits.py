"""All limits of the formats and the protocol, in one place.

Every length that comes from outside is checked against these limits before memory is allocated for it.
"""

from __future__ import annotations

SECTOR_BYTES = 512
RECORD_BYTES_MAX = 1 << 20
BLOCK_BYTES_MAX = 16 << 20
SUPERBLOCK_BYTES = 64 << 10  # size of each of the two copies; keeps the first slot aligned to any block size
WRITERS_MAX = 256
# Writers in all runs of one client at one server. Each of them can be in each group commit.
WRITERS_OF_CLIENT_MAX = 2048
SLOTS_MAX = 1 << 48
SEQ_MAX = (1 << 63) - 1
GROUP_MAX = 4096
CREDIT_MAX = 32768  # operations that one writer may have in flight beyond its last grant
CREDIT_GROUPS_MIN = 2  # credit >= 2 groups
SLOTS_PER_CREDIT = 4  # slots per writer >= 4 credits, so a slot has at most two in-flight versions

COUNT_MAX = 1 << 45  # 400 million per second for a day; a float64 holds the sum of 100 such counts exactly
ELEMENTS_FROM_CLIENT_MAX = 64 << 10  # maps, lists and members in one document of a message
FACTS_ELEMENTS_MAX = 16 << 10  # the same for facts; real facts have a third of this number
STATISTICS_ELEMENTS_MAX = 8 << 10
AGENT_ELEMENTS_MAX = 16 << 10
SUMMARY_ELEMENTS_MAX = 8 << 10
MEMBERS_FROM_CLIENT_MAX = 8 << 10  # members of one map or list
MEMBERS_OF_HELLO_MAX = 64  # members of one list, before authentication
FRAME_BYTES_MAX = 16 << 20  # after authentication
FRAME_BYTES_HELLO_MAX = 1024  # before authentication
TEXT_BYTES_MAX = 768  # a `Failure` must fit in a frame before authentication
NAME_BYTES_MAX = 256
PLAN_BYTES_MAX = 4096
FACTS_BYTES_MAX = 512 << 10
FACTS_DRIVES_MAX = 128  # drives below one target
FACTS_LAYERS_MAX = 512  # a partition and a disk for each drive, and the layers that join them
FACTS_WARNINGS_MAX = 512
MOUNT_OPTIONS_MAX = 16 << 10  # characters; the options of an overlay list all its directories
VERDICT_BYTES_MAX = 1 << 20
STATISTICS_BYTES_MAX = 64 << 10
AGENT_DOCUMENT_BYTES_MAX = 128 << 10  # a task, or a status
RESULT_BYTES_MAX = 16 << 20  # result file of the benchmark
RESULT_SUMMARY_BYTES_MAX = 64 << 10  # summary of a result that is stored on the server
ERROR_AGE_US_MAX = 86_400_000_000  # one day
DOCUMENT_BYTES_MAX = FRAME_BYTES_MAX - 64  # for documents that only a server sends
EVIDENCE_BYTES_MAX = 4 << 20  # one piece of evidence; larger evidence is split into several named pieces
EVIDENCE_PIECES_MAX = 4096  # pieces of evidence per run
LOOKS_MAX = 8  # stored observations of verify calls per run
DRIVE_NAME_MAX = 100  # characters of a model or serial in listings; NVMe allows 40 and 20
LISTING_ROWS_MAX = 10_000
MARKS_MAX = 64  # drives of one target in a request for claims
CAMPAIGNS_MAX = 1000  # campaigns that a store keeps
CAMPAIGN_ENTRIES_MAX = 1_000_000  # entries in the log of one campaign
MACHINES_OF_CODE_MAX = 1000  # machines that may join with one code for machines
MACHINE_CODE_S_MAX = 10 * 366 * 86_400
SERVERS_MAX = 8  # addresses of one store's servers that a client stores
# Bytes of these addresses in `Welcome`, which must fit in a frame before authentication.
SERVERS_BYTES_MAX = 400
HANDSHAKE_TIMEOUT_S = 5.0
# Socket receive buffer at each end of a run's connection. It is small so that the sender notices when the
# peer process stops reading. The kernel of a frozen process still acknowledges data that fit in its buffer.
RUN_WINDOW_BYTES = 16 << 10
HEARTBEAT_NS = 50_000_000  # interval of server heartbeats to one client; longer with very many clients
CLIENT_PING_NS = 1_000_000_000  # interval of a client's pings, which only measure the round trip
SILENCE_NS = 1_000_000_000  # no frame for this long: the session is recorded as ended in silence
DEAD_PEER_NS = 10_000_000_000  # no frame for this long: the connection is closed
LEFT_PEER_NS = 3_000_000_000  # the same limit for a run that can continue at another server
SIGN_OF_LIFE_NS = (
    1_000_000_000  # interval of saving the time at which a silent client's kernel last acknowledged data
)
COMMIT_INTERVAL_NS = 50_000_000  # interval of the server's group commits

EXAMPLES_FIRST = 64  # first examples kept per kind
EXAMPLES_LAST = 64  # last examples kept per kind
# Bytes of the first examples of a kind, and of the last ones; fewer examples are kept of long records.
EXAMPLES_BYTES_MAX = 4 << 20
SCAN_STALL_S_MIN = 120.0  # a read that returns nothing for this long is abandoned; it never counts as loss
