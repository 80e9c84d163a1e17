"""Every limit of the format in one place, each with its reason.

- A limit is checked when a call is made, when a batch is sealed and when one is read, so that
  nothing is queued that a peer would refuse.
- Readers refuse what is beyond a limit; they never cut it down.
"""

from __future__ import annotations

from walstore.canon import VALUE_DEPTH_MAX
from walstore.crdt.clock import REPLICA_SIZE_MAX as REPLICA_SIZE_MAX

# The largest element, as canonical JSON text: what a relay takes in one message.
ELEMENT_BYTES_MAX = 2**20

# The stock Starfish server refuses larger bodies unless its operator raises the limit.
STARFISH_ELEMENT_BYTES_MAX = 60 * 1024

# Version-1 ops, or packed rows and the runs in them, in one batch: bounds the time that one element
# can take.
BATCH_OPS_MAX = 4096

# Elements that one packed batch removes: each of them is looked up.
BATCH_REMOVES_MAX = 2**16

# JSON values in one element that a relay takes, about: each costs it microseconds. 4,096 version-1
# ops are some 40,000, and a MiB of values of eight bytes each is as many as this.
ELEMENT_VALUES_MAX = 2**17

# The depth of `data`: what the stock server takes in a body, less the body itself.
DATA_DEPTH_MAX = 63

# The depth of a value in a map. A version-1 snapshot spells maps out three levels deeper than
# lists, and still has to fit a body.
MAP_VALUE_DEPTH_MAX = VALUE_DEPTH_MAX - 3

# `ts` values are integers that every peer reads exactly.
TS_MAX = 2**53 - 1

# How far a `ts` may be ahead of a reader's clock, in milliseconds. A cursor that followed it would
# pass everything to come. A relay's clock may be a day ahead, and a reader's a day behind.
TS_AHEAD_MS_MAX = 2 * 24 * 3600 * 1000

# How far a writer may jump above every counter seen so far. Honest counters grow by one an op;
# without a bound, one hostile op would use up all counters there are.
COUNTER_JUMP_MAX = 2**32

# Session nonces are 32 hex digits; others' are other text, but not without end.
SESSION_SIZE_MAX = 128

# The id of an element: a counter, an at sign and a replica.
ID_SIZE_MAX = len(str(2**53 - 1)) + 1 + REPLICA_SIZE_MAX

# Sessions that one element can report as seen; the rest is reported by later elements.
SEEN_SESSIONS_MAX = 64

# What a commit says of itself, in characters: a title and a paragraph.
MESSAGE_SIZE_MAX = 2000

# Elements in one page of a pull.
PULL_ELEMENTS_MAX = 1000

# Bytes in one page of a pull, about: what is shown while the next page is on its way.
PULL_BYTES_MAX = 2**20

# One message: an element and what stands around it.
FRAME_BYTES_MAX = ELEMENT_BYTES_MAX + 4096

# Brackets, and other values, in a message, but for those of an element: bounds the time and the
# memory that reading it can take. What asks for a thousand documents has three brackets; their keys
# may have some, too.
FRAME_BRACKETS_MAX = 2**14

# A snapshot's text, in all its pieces. The state of a book is a few MiB.
SNAPSHOT_BYTES_MAX = 64 * 2**20

# JSON values in one, about. As lists or objects, so many take a process of a relay up to ten
# seconds and 1.3 GiB, and nothing else runs in a client that parses them for about a second. A
# table of 80,000 rows of 100 cells is as many; a text is one.
SNAPSHOT_VALUES_MAX = 2**23

# What a snapshot counts, by writer, as text: some 40,000 sessions. The changes feed shows it beside
# the snapshot, in one message.
COUNTS_BYTES_MAX = 4 * 2**20

# The same, as a number: as many as fit if they are named by keys. Short names, which only somebody
# hostile makes up, would take a relay five times the memory.
COUNTS_MAX = 2**16

# One message of a relay: a page of elements and one that made it pass its size, or such counts.
FRAME_OF_RELAY_BYTES_MAX = COUNTS_BYTES_MAX + FRAME_BYTES_MAX

# JSON values in one such message, about. What is not large alone comes in messages of 256 KiB, and
# nothing is sent along that has more values than an element may: an honest relay sends 200,000 at
# most. To read one that says more would take a client 30 bytes and more for each of its own.
FRAME_VALUES_MAX = 2**18

# One piece of a snapshot's text, in characters: at six bytes each, escaped, it still fits a frame.
SNAPSHOT_PIECE_SIZE = 2**17

# A small signed document beside a log: a keyring or a roster of about a thousand members.
RECORD_BYTES_MAX = 256 * 2**10

# What a record is called.
RECORD_NAME_SIZE_MAX = 32

# What a client calls a request.
REF_SIZE_MAX = 64

# A document key is a path; it stands in indexes, logs and file names.
DOCUMENT_KEY_SIZE_MAX = 512

# Events in one frame of the changes feed, and in one answer to a request by id.
EVENTS_PER_FRAME_MAX = 128
REQUEST_IDS_MAX = 1024

# Events in one answer of the changes feed.
CHANGES_MAX = 10_000

# What somebody's presence may say: a name, a colour, a selection.
PRESENCE_BYTES_MAX = 4096

# A challenge can be answered for this long.
CHALLENGE_MS_MAX = 600_000
