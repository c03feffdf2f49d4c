"""What is remembered: operations by their id, the highest epoch of each lease,
and snapshots. docs/wire.md says why, "Operations" and "Fencing".

It is one database (SQLite, of the standard library): a file in the tier durable,
memory in the others. Instances end with this program, so what only they knew may
end with it too. A snapshot does not, and neither does who took it, under which
id and with which answer: those are one transaction, of which a crash leaves all
or nothing. A rollback and an epoch are on the disk before they are answered."""
import json
import os
import sqlite3
import threading
import time

from failure import Failure, conflict, failed, unavailable
from machine import now

RETENTION = 24 * 60 * 60  # seconds for which an operation is remembered after what it made ended
TABLES = """
CREATE TABLE IF NOT EXISTS leases (id TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS operations (id TEXT PRIMARY KEY, endpoint TEXT NOT NULL, digest BLOB, body BLOB,
    snapshot TEXT, owned INTEGER NOT NULL, rolled_back INTEGER NOT NULL, since REAL NOT NULL);
CREATE TABLE IF NOT EXISTS snapshots (id TEXT PRIMARY KEY, record TEXT NOT NULL, seen TEXT NOT NULL);
"""


class Operation:
    """One call that changes something. What it made is named here, so that it can
    be undone by this alone."""

    def __init__(self, identifier, endpoint, digest):
        self.id, self.endpoint, self.digest = identifier, endpoint, digest
        self.lock = threading.Lock()  # held by its rollback
        self.done = threading.Event()
        self.answer = None  # status, framed, body
        self.instance = self.snapshot = self.process = None  # the id of what it made, or made active
        self.owned = self.rolled_back = False
        self.since = time.time()  # of its last change


class Snapshot:
    """One snapshot: its reference, the mount plan of its instance, the operation
    that took it, the digest of its file."""

    def __init__(self, record, seen):
        self.record, self.seen = record, seen
        self.reference = record["reference"]
        self.id = self.reference["snapshot_id"]


class Journal:
    """lock guards everything, also the order in which it is written."""

    def __init__(self, path):
        self.lock = threading.RLock()
        self.operations, self.epochs, self.snapshots = {}, {}, {}
        self.swept = time.monotonic()
        if path != ":memory:":
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))  # before SQLite makes it for everybody
        # Its lock says that one provider has a state directory.
        self.database = sqlite3.connect(path, timeout=0, check_same_thread=False)
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            self.database.execute("PRAGMA " + setting)
        self.database.executescript(TABLES)
        self.load()

    def load(self):
        for lease, epoch in self.database.execute("SELECT id, epoch FROM leases"):
            self.epochs[lease] = [epoch, time.monotonic()]
        for record, seen in self.database.execute("SELECT record, seen FROM snapshots"):
            snapshot = Snapshot(json.loads(record), seen)
            self.snapshots[snapshot.id] = snapshot
        columns = "id, endpoint, digest, body, snapshot, owned, rolled_back, since"
        for identifier, endpoint, digest, body, snapshot, owned, rolled_back, since in self.database.execute("SELECT %s FROM operations" % columns):
            operation = self.operations[identifier] = Operation(identifier, endpoint, digest)
            operation.answer, operation.snapshot, operation.since = (200, False, body), snapshot, since
            operation.owned, operation.rolled_back = bool(owned), bool(rolled_back)
            operation.done.set()

    def close(self):
        with self.lock:
            self.database.close()

    def commit(self, *changes):
        """All of them or none, on the disk when it returns."""
        try:
            with self.lock, self.database:
                for sql, *values in changes:
                    self.database.execute(sql, values)
        except sqlite3.Error as why:
            if "full" in str(why):
                raise unavailable("resources", "room for the journal", "the state directory")
            raise failed("provider_error", message="journal: %s" % why)

    # --- leases ---

    def admit(self, lease, epoch):
        """Refuses an epoch below the highest; says whether it overtakes one."""
        with self.lock:
            have = self.epoch(lease)
            if epoch < have:
                raise Failure("WireLeaseFenced", lease_epoch=have)
            if epoch > have:
                self.commit(("INSERT OR REPLACE INTO leases VALUES (?, ?)", lease, epoch))
            self.epochs[lease] = [epoch, time.monotonic()]
        return -1 < have < epoch

    def epoch(self, lease):
        """The highest that was seen of a lease, -1 where there is none."""
        return self.epochs.get(lease, (-1,))[0]

    # --- operations ---

    def begin(self, identifier, endpoint, digest):
        """The operation of a delivery, and whether it is the first."""
        with self.lock:
            operation = self.operations.get(identifier)
            if operation is None:
                operation = self.operations[identifier] = Operation(identifier, endpoint, digest)
                return operation, True
        if operation.rolled_back:
            raise Failure("WireOperationRolledBack")
        if (operation.endpoint, operation.digest) != (endpoint, digest):
            raise Failure("WireOperationMismatch")
        return operation, False

    def rollback(self, identifier, member, undo):
        """Settles an operation so that nothing of it is left, and nothing comes."""
        with self.lock:
            operation = self.operations.get(identifier)
            if operation is None:  # the late original allocates nothing
                operation = Operation(identifier, member, None)
                operation.done.set()
                self.roll_back(operation)
                self.operations[identifier] = operation
        if operation.endpoint != member:
            raise Failure("WireOperationMismatch")
        with operation.lock:
            operation.done.wait()
            if operation.rolled_back:
                return
            if operation.owned:
                raise conflict("an allocation that nobody named yet", "owned").during(member + "_rollback")
            undo(operation)
            self.roll_back(operation)

    def roll_back(self, operation):
        self.commit((
            "INSERT OR REPLACE INTO operations VALUES (?, ?, ?, NULL, NULL, 0, 1, ?)",
            operation.id, operation.endpoint, operation.digest, time.time(),
        ))
        operation.rolled_back, operation.answer, operation.since = True, None, time.time()

    def forget(self, instances):
        """What ended a day ago, once a minute. instances are those that are there."""
        with self.lock:
            if time.monotonic() - self.swept < 60:
                return
            self.swept, at = time.monotonic(), time.time()
            gone, leases = [], {i.value["lease_id"] for i in instances.values()}
            for operation in self.operations.values():
                if operation.instance in instances or operation.snapshot in self.snapshots:
                    operation.since = at
                if operation.done.is_set() and at - operation.since > RETENTION:
                    gone.append(operation.id)
            idle = [k for k, (_, seen) in self.epochs.items() if k not in leases and self.swept - seen > RETENTION]
            self.commit(
                *(("DELETE FROM operations WHERE id = ?", o) for o in gone), *(("DELETE FROM leases WHERE id = ?", l) for l in idle)
            )
            for identifier in gone:
                del self.operations[identifier]
            for lease in idle:
                del self.epochs[lease]

    # --- snapshots ---

    def keep(self, snapshot, operation, body):
        """Publishes a snapshot with the operation that made it and its answer."""
        with self.lock:
            self.commit(
                ("INSERT INTO snapshots VALUES (?, ?, ?)", snapshot.id, json.dumps(snapshot.record), snapshot.seen),
                ("INSERT INTO operations VALUES (?, ?, ?, ?, ?, 0, 0, ?)",
                 operation.id, operation.endpoint, operation.digest, body, snapshot.id, operation.since),
            )
            self.snapshots[snapshot.id], operation.snapshot = snapshot, snapshot.id

    def named(self, identifier):
        """A snapshot that a caller names, which proves that somebody has it; None
        where there is none."""
        with self.lock:
            snapshot = self.snapshots.get(identifier)
            if snapshot is None:
                return None
            self.commit(
                ("UPDATE snapshots SET seen = ? WHERE id = ?", now(), identifier),
                ("UPDATE operations SET owned = 1 WHERE snapshot = ?", identifier),
            )
            snapshot.seen = now()
            if operation := self.operations.get(snapshot.record["operation"]):
                operation.owned = True
            return snapshot

    def drop(self, identifier):
        """From here on nobody is given the snapshot. Says whether it was there."""
        with self.lock:
            if identifier not in self.snapshots:
                return False
            at = time.time()
            self.commit(
                ("DELETE FROM snapshots WHERE id = ?", identifier), ("UPDATE operations SET since = ? WHERE snapshot = ?", at, identifier)
            )
            operation = self.operations.get(self.snapshots.pop(identifier).record["operation"])
            if operation:
                operation.since = at
            return True
