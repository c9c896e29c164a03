"""Every bound of the formats and the protocol, in one place.

A length that comes from outside is checked against these before anything is allocated for it.
"""

from __future__ import annotations

SECTOR_BYTES = 512
RECORD_BYTES_MAX = 1 << 20
BLOCK_BYTES_MAX = 16 << 20
SUPERBLOCK_BYTES = 64 << 10  # each of the two copies; also keeps the first slot aligned to any block size
WRITERS_MAX = 256
WRITERS_OF_CLIENT_MAX = 2048  # of all runs of one client at one server: each may be in each group commit
SLOTS_MAX = 1 << 48
SEQ_MAX = (1 << 63) - 1
GROUP_MAX = 4096
CREDIT_MAX = 32768  # operations that one writer may have in flight beyond its last grant
CREDIT_GROUPS_MIN = 2  # credit >= 2 groups
SLOTS_PER_CREDIT = 4  # slots per writer >= 4 credits, so a slot has at most two in-flight versions

COUNT_MAX = 1 << 45  # 400 million per second for a day; the sum of 100 of them is exact in a float64
ELEMENTS_FROM_CLIENT_MAX = 64 << 10  # maps, lists and members in one document of a message
FACTS_ELEMENTS_MAX = 16 << 10  # the same for facts: real ones have a third of it
STATISTICS_ELEMENTS_MAX = 8 << 10
AGENT_ELEMENTS_MAX = 16 << 10
SUMMARY_ELEMENTS_MAX = 8 << 10
MEMBERS_FROM_CLIENT_MAX = 8 << 10  # of one map or list
MEMBERS_OF_HELLO_MAX = 64  # of one list, before authentication
FRAME_BYTES_MAX = 16 << 20  # after authentication
FRAME_BYTES_HELLO_MAX = 1024  # before authentication
TEXT_BYTES_MAX = 768  # a failure must fit a frame before authentication
NAME_BYTES_MAX = 256
PLAN_BYTES_MAX = 4096
FACTS_BYTES_MAX = 512 << 10
FACTS_DRIVES_MAX = 128  # below one target
FACTS_LAYERS_MAX = 512  # a partition and a disk for each drive, and what joins them
FACTS_WARNINGS_MAX = 512
MOUNT_OPTIONS_MAX = 16 << 10  # characters: an overlay names all its directories there
VERDICT_BYTES_MAX = 1 << 20
STATISTICS_BYTES_MAX = 64 << 10
AGENT_DOCUMENT_BYTES_MAX = 128 << 10  # a task, or a status
RESULT_BYTES_MAX = 16 << 20  # a file of the benchmark
RESULT_SUMMARY_BYTES_MAX = 64 << 10  # of one that is kept on the server
ERROR_AGE_US_MAX = 86_400_000_000  # a day
DOCUMENT_BYTES_MAX = FRAME_BYTES_MAX - 64  # only what a server sends
EVIDENCE_BYTES_MAX = 4 << 20  # one piece; more is split over names
EVIDENCE_PIECES_MAX = 4096  # of one run
LOOKS_MAX = 8  # of one run: calls of `verify` that told more than the one before
DRIVE_NAME_MAX = 100  # characters of a model or serial in listings: 40 and 20 for NVMe
LISTING_ROWS_MAX = 10_000
MARKS_MAX = 64  # drives of one target whose claims are asked for
CAMPAIGNS_MAX = 1000  # that a store keeps
CAMPAIGN_ENTRIES_MAX = 1_000_000  # of the log of one campaign
MACHINES_OF_CODE_MAX = 1000  # that may join by one code for machines
MACHINE_CODE_S_MAX = 10 * 366 * 86_400
SERVERS_MAX = 8  # addresses of one store's servers that a client knows
SERVERS_BYTES_MAX = 400  # of them in `Welcome`, which must fit a frame before authentication
HANDSHAKE_TIMEOUT_S = 5.0
# What may be under way to each end of a run's connection: so little that an end sees where nobody reads it. A
# process that is frozen leaves it unread, while its kernel still acknowledges it.
RUN_WINDOW_BYTES = 16 << 10
HEARTBEAT_NS = 50_000_000  # between two of the server's to one client, unless it has very many
CLIENT_PING_NS = 1_000_000_000  # between two of a client's, which only ask for the round trip
SILENCE_NS = 1_000_000_000  # no frame for this long: the session is recorded as ended in silence
DEAD_PEER_NS = 10_000_000_000  # no frame for this long: the connection is closed
LEFT_PEER_NS = 3_000_000_000  # the same for a run that can go on at another server
SIGN_OF_LIFE_NS = (
    1_000_000_000  # between two times that until when a silent client's kernel was heard is saved
)
COMMIT_INTERVAL_NS = 50_000_000  # the server's group commit

EXAMPLES_FIRST = 64  # of a kind
EXAMPLES_LAST = 64
EXAMPLES_BYTES_MAX = 4 << 20  # of the first of a kind, and of the last: fewer of long records
SCAN_STALL_S_MIN = 120.0  # a read that returns nothing for this long is abandoned, never counted as loss
