"""The members of the contract that keep what an instance holds: snapshot,
clone_snapshot, release, resume, destroy_snapshot.

A snapshot is a file of the state directory, and a line of the journal with its
digest. The file is there first and durable, the line makes it a snapshot: a
crash or a full disk leaves a file that no line names, which the next start
erases. Nothing is made of a file whose digest is another one."""
import contextlib
import os

import archive
import codec
import contained
from admit import TARGET, admit, check_clone, check_snapshot, in_time
from failure import Failure, conflict, failed, invalid, unavailable
from journal import Snapshot
from machine import OWNER, Instance, now
from settings import DURABLE

VOLATILE = ("/tmp", "/dev/shm")  # are in no snapshot


def absent(identifier):
    return Failure("SandboxSnapshotNotFound", snapshot_id=identifier)


def sync(directory):
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Snapshots:
    """Part of a provider, which has a journal, and folder for their files."""

    def tidy(self):
        """Erases what was never published, or whose end was never finished. Nothing
        may be under way: the journal is not used yet, or closed."""
        os.makedirs(self.folder, 0o700, exist_ok=True)
        for name in os.listdir(self.folder):
            if name not in self.journal.snapshots:
                os.unlink(os.path.join(self.folder, name))

    # --- the members ---

    def snapshot(self, call):
        instance, deadline = self.named(call, "active"), call.request["expires_at"]
        if instance.value["profile"]["retention_mode"] != "durable":
            raise Failure("SandboxSnapshotForbidden", instance_id=instance.id)
        in_time(instance.value["expires_at"])
        in_time(deadline)
        return self.keep(call, self.reference(instance, deadline), instance.value["mounts"], lambda file: self.capture(instance, file), instance)

    def clone_snapshot(self, call):
        if not DURABLE:
            raise unavailable("snapshot_clone")
        check_clone(call.request)
        source = self.used(call.request["snapshot"])
        reference = dict(
            source.reference, session_id=call.request["target_session_id"], created_at=max(now(), source.reference["created_at"])
        )

        def copy(file):
            with self.opened(source) as bytes_:
                return self.whole(source, archive.summed(bytes_, file))

        return self.keep(call, reference, source.record["mounts"], copy)

    def release(self, call):
        instance = self.named(call, "active")
        deadline, durable = call.request.get("expires_at"), instance.value["profile"]["retention_mode"] == "durable"
        if durable != (deadline is not None):
            raise invalid("expires_at: expected a deadline exactly where a snapshot is settled")
        if durable:
            in_time(deadline)
        with instance.lock:
            if instance.gone:  # of two releases one wins
                raise Failure("SandboxInstanceNotFound", instance_id=instance.id)
            instance.gone = True
        answer = call.handoff({"disposition": "destroyed"})
        if durable:
            try:
                instance.end()
                reference, mounts = self.reference(instance, deadline), instance.value["mounts"]
                answer = self.keep(call, reference, mounts, lambda file: self.capture(instance, file), instance, released=True)
            except BaseException:
                instance.gone = instance.erased  # it stays, for another release
                raise
        self.take(instance.id)
        return answer

    def resume(self, call):
        if not DURABLE:
            raise unavailable("snapshots")
        request, reference = call.request["request"], call.request["snapshot"]
        call.admit(request["lease_id"], request["lease_epoch"])
        check_snapshot("snapshot", reference)
        admit(request)
        snapshot, profile = self.used(reference), request["profile"]
        value = self.described(request, "active")
        for field, got in (
            ("workspace_id", request["workspace_id"]), ("session_id", request["session_id"]), ("profile_id", profile["profile_id"]),
            ("profile_version", profile["profile_version"]), ("profile_digest", value["materialization"]["profile_digest"]),
        ):
            if snapshot.reference[field] != got:
                raise conflict("snapshot.%s %s" % (field, snapshot.reference[field]), str(got))
        if profile["retention_mode"] != "durable":
            raise unavailable("retention", profile["retention_mode"], "durable")
        if request["mounts"] != snapshot.record["mounts"]:
            raise unavailable("mounts", "another mount plan", "the plan of the snapshot")

        def fill(places):
            with self.opened(snapshot) as file:
                self.whole(snapshot, archive.summed(file))
                file.seek(0)
                archive.unpack(file, places, OWNER)

        try:
            instance = Instance(self.state, value, fill)
        except (OSError, contained.Refusal) as why:
            raise contained.full(why, None) if isinstance(why, OSError) else failed(str(why))
        return self.hand_over(call, instance)

    def destroy_snapshot(self, call):
        self.erase(call.request["snapshot_id"])
        return {}

    # --- what they have in common ---

    def reference(self, instance, deadline):
        value = instance.value
        return {
            "provider": value["provider"], "placement": value["placement"], "source_instance_id": value["instance_id"],
            "workspace_id": value["workspace_id"], "session_id": value["session_id"], "profile_id": value["profile"]["profile_id"],
            "profile_version": value["profile"]["profile_version"], "profile_digest": value["materialization"]["profile_digest"],
            "created_at": now(), "expires_at": deadline,
        }

    def capture(self, instance, file):
        """Commands that run meanwhile go on."""
        places = {place: directory for place, directory in instance.roots.items() if place not in VOLATILE}
        return archive.pack(file, places, instance.value["profile"]["resource_limits"]["disk_bytes"])

    def keep(self, call, reference, mounts, fill, instance=None, released=False):
        """Makes a snapshot of what fill writes, and the answer that hands it over.
        One of an instance that was destroyed meanwhile would be of a part of it."""
        identifier = "snap-" + os.urandom(16).hex()
        reference = dict(reference, snapshot_id=identifier)
        path = os.path.join(self.folder, identifier)
        try:
            with open(path, "xb", opener=lambda p, flags: os.open(p, flags | os.O_CLOEXEC, 0o600)) as file:
                digest = fill(file)
                file.flush()
                os.fsync(file.fileno())
            sync(self.folder)
            kept = Snapshot({"reference": reference, "mounts": mounts, "digest": digest, "operation": call.operation.id}, now())
            with instance.lock if instance else contextlib.nullcontext():
                if instance and instance.erased:
                    raise Failure("SandboxInstanceNotFound", instance_id=instance.id)
                answer = call.handoff({"disposition": "released", "snapshot": reference} if released else reference)
                self.journal.keep(kept, call.operation, codec.canonical(answer))
            return answer
        except BaseException as why:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise contained.full(why, None) if isinstance(why, OSError) else why

    def used(self, reference):
        """The snapshot that a caller refers to. A reference that disagrees with it
        is refused: it is not an authority."""
        snapshot = self.journal.named(reference["snapshot_id"])
        if snapshot is None or now() >= snapshot.reference["expires_at"]:
            raise absent(reference["snapshot_id"])
        if snapshot.reference != reference:
            raise conflict("the reference as it was given", "another")
        return snapshot

    def opened(self, snapshot):
        try:
            return open(os.path.join(self.folder, snapshot.id), "rb")
        except FileNotFoundError:
            if snapshot.id in self.journal.snapshots:
                raise failed("changed", message="the bytes of snapshot %s are not there" % snapshot.id)
            raise absent(snapshot.id)  # destroyed meanwhile; what is open stays whole

    def whole(self, snapshot, digest):
        if digest != snapshot.record["digest"]:
            raise failed("changed", message="snapshot %s: expected %s, got %s" % (snapshot.id, snapshot.record["digest"], digest))
        return digest

    def old_snapshots(self, request):
        """What a sweep takes: past its own deadline, or not used since the cutoff and
        not pinned."""
        pinned, before = set(request.get("pinned_snapshots", ())), request["orphaned_before"]
        with self.journal.lock:
            return sorted(
                s.id for s in self.journal.snapshots.values()
                if request["now"] >= s.reference["expires_at"] or s.seen < before and s.id not in pinned
            )

    def erase(self, identifier):
        """Destroys a snapshot, if there is one."""
        if self.journal.drop(identifier):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, identifier))
