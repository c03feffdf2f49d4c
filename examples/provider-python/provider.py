"""The members of the contract, and the wire's helpers, as this provider serves
them. Each takes a Call and returns its answer."""
import os
import threading

import codec
import contained
from failure import Failure, conflict, failed, invalid, unavailable
from machine import OUTPUTS, RESERVED, Instance, execute, now, parts, within
from process import Process
from settings import CAPABILITIES, DAY_ONE, IMAGE, MAX_WAIT_MS, WIRE

MAX_FILE, MAX_BATCH = 16 << 20, 128 << 20
TARGET = {k: CAPABILITIES[k] for k in ("provider", "provider_revision", "materialization_revision", "placement")}


class Framed:
    """An answer of frames."""

    def __init__(self, *frames):
        self.body = b"".join(frames)


def data(content):
    return b"".join(codec.frame(2, content[i : i + codec.MAX_FRAME]) for i in range(0, len(content), codec.MAX_FRAME))


def say(kind, value):
    return codec.frame(kind, codec.canonical(value))


def streamed(kind, content):
    step = codec.MAX_FRAME - 8
    return b"".join(codec.output(kind, i, content[i : i + step]) for i in range(0, len(content), step))


class Provider:
    """All instances. lock guards the tables; an instance has its own."""

    def __init__(self, state):
        self.state, self.lock = state, threading.Lock()
        self.instances, self.processes = {}, {}

    # --- what calls have in common ---

    def named(self, call, state=None):
        """The instance that a call names, which proves that its caller has it."""
        with self.lock:
            instance = self.instances.get(call.request["instance_id"])
        if instance is None:
            raise Failure("SandboxInstanceNotFound", instance_id=call.request["instance_id"])
        call.own(instance.value["lease_id"])
        with instance.lock:
            for operation in instance.handoffs:
                operation.owned = True
            instance.handoffs = []
            if state and instance.value["state"] != state:
                raise conflict(state, instance.value["state"])
            if now() >= instance.value["expires_at"] and call.endpoint not in ("release", "snapshot", "process_wait"):
                raise conflict("before expires_at " + instance.value["expires_at"], "expired")
            instance.seen = now()
        return instance

    def take(self, instance_id):
        """Destroys an instance, if there is one."""
        with self.lock:
            instance = self.instances.get(instance_id)
        if instance:
            instance.destroy()
            with self.lock:
                self.instances.pop(instance_id, None)
                for process in [p for p in self.processes if p[0] == instance_id]:
                    del self.processes[process]

    def close(self):
        for instance_id in list(self.instances):
            self.take(instance_id)

    # --- the members ---

    def capabilities(self, call):
        return {"capabilities": CAPABILITIES, "wire": WIRE}

    def provision(self, call):
        request = call.request
        call.lease_is(request["lease_id"], request["lease_epoch"])
        admit(request)
        profile = request["profile"]
        identity = {"base_image": profile["base_image"], "packages": profile["packages"]}
        value = dict(
            request, instance_id="inst-" + os.urandom(16).hex(), provider=TARGET["provider"], placement=TARGET["placement"],
            state="provisioning", output_path=OUTPUTS,
            materialization={
                "profile_digest": codec.digest(codec.canonical(identity)), "image_reference": request["root_image"],
                "image_digest": request["root_image"].rsplit("@", 1)[1], "provider_revision": TARGET["provider_revision"],
                "materialization_revision": TARGET["materialization_revision"],
            },
        )
        instance = Instance(self.state, value)
        instance.handoffs.append(call.operation)
        with self.lock:
            self.instances[instance.id] = instance
        call.operation.undo, call.operation.instance = lambda: self.take(instance.id), instance.id
        return call.handoff(value)

    def write_file(self, call):
        request, path = call.request, call.request["path"]
        clean("path", path)
        instance = self.named(call)
        if "symlink" in request:
            raise invalid("symlink: symlink_staging is not offered")
        with instance.lock:  # between the check and the write nothing is sealed
            root = instance.owner(path)
            if root is None or root == path or instance.gone:
                raise failed("outside_root", path)
            if root != OUTPUTS and instance.value["state"] == "active":
                raise conflict("provisioning", "active")
            owner = os.stat(instance.roots[root]).st_uid
            contained.write(instance.roots[root], parts(path, root), call.data, request.get("executable", False), owner, path)
        return {}

    def activate(self, call):
        instance = self.named(call, "provisioning")
        with instance.lock:
            if instance.value["state"] != "provisioning":
                raise conflict("provisioning", instance.value["state"])
            instance.value = dict(instance.value, state="active")
            instance.handoffs.append(call.operation)
        call.operation.undo, call.operation.instance = lambda: self.take(instance.id), instance.id
        return call.handoff(instance.value)

    def execute(self, call):
        command = call.request["command"]
        check_program(command)
        instance = self.named(call, "active")
        longest = instance.value["profile"]["resource_limits"]["max_duration_seconds"]
        if command["timeout_seconds"] > longest:
            raise unavailable("resources", "timeout_seconds %d" % command["timeout_seconds"], "max_duration_seconds %d" % longest)
        out, err, result = execute(instance, command, call.data)
        return Framed(streamed(0x11, out), streamed(0x12, err), say(1, result))

    def read_file(self, call):
        request = call.request
        check_read(request["path"], request["allowed_root"])
        instance = self.named(call, "active")
        if not DAY_ONE:
            raise unavailable("physically_contained_file_read", "a contained read", "none")
        try:
            content = self.content(instance, request["path"], request["allowed_root"], request["maximum_bytes"])
        except contained.Refusal as why:
            if str(why) == "too_large":
                raise Failure("SandboxFileTooLarge", path=request["path"], maximum_bytes=request["maximum_bytes"])
            raise failed(str(why), request["path"])
        return Framed(data(content), say(1, {"size": len(content), "digest": codec.digest(content)}))

    def content(self, instance, path, root, most):
        owner = instance.owner(root)
        if owner is None or instance.owner(path) != owner:
            raise contained.Refusal("outside_root")
        return contained.read(instance.roots[owner], parts(path, owner), most, path)

    def read_files(self, call):
        request = call.request
        check_batch(request)
        instance = self.named(call, "active")
        frames, total = [], 0
        for index, member in enumerate(request["files"]):
            item = {"index": index, "status": "refused"}
            try:
                content = self.content(instance, member["path"], request["allowed_root"], member["maximum_bytes"])
                frames.append(data(content))
                total += len(content)
                item.update(status="ok", size=len(content), digest=codec.digest(content))
            except contained.Refusal as why:
                item["reason"] = str(why)
            frames.append(say(3, item))
        return Framed(*frames, say(1, {"count": len(request["files"]), "total_bytes": total}))

    def list_dir(self, call):
        root = call.request["root"]
        clean("root", root)
        instance = self.named(call, "active")
        owner = instance.owner(root)
        if owner is None:
            raise failed("outside_root", root)
        entries = contained.listing(instance.roots[owner], parts(root, owner), call.request["max_entries"], instance.inner(owner), root)
        pages = [say(3, {"entries": entries[i : i + 100]}) for i in range(0, len(entries), 100)]
        return Framed(*pages, say(1, {"count": len(entries)}))

    def snapshot(self, call):
        self.named(call, "active")
        raise Failure("SandboxSnapshotForbidden", instance_id=call.request["instance_id"])  # all is zero retention here

    def clone_snapshot(self, call):
        raise unavailable("snapshot_clone")

    def release(self, call):
        instance = self.named(call, "active")
        if "expires_at" in call.request:
            raise invalid("expires_at: expected none with zero retention")
        self.take(instance.id)
        return call.handoff({"disposition": "destroyed"})

    def resume(self, call):
        raise unavailable("snapshots")

    def destroy(self, call):
        self.take(call.request["instance_id"])
        return {}

    def destroy_snapshot(self, call):
        return {}

    def cleanup(self, call):
        request = call.request
        check_cutoff(request)
        with self.lock:
            everything = list(self.instances.values())
        gone = sorted(i.id for i in everything if orphaned(i, request, call.epoch_of(i.value["lease_id"])))
        for instance_id in gone:
            self.take(instance_id)
        return {"instance_ids": gone, "snapshot_ids": []}

    # --- live processes ---

    def open_process(self, call):
        request, key = call.request, (call.request["instance_id"], call.request["process_id"])
        check_program(request["process"])
        instance = self.named(call, "active")
        with instance.lock:
            with self.lock:
                known = self.processes.get(key, ())
                live = [p for k, p in self.processes.items() if k[0] == key[0] and p and p.exit is None and not p.lost]
            if known is None:  # destroyed before it was opened
                raise Failure("WireOperationRolledBack")
            if known:
                raise Failure("WireOperationMismatch")
            if live:
                raise conflict("no_process", "process_already_open")
            process = Process(instance, request["process_id"], request["process"])
            with self.lock:
                self.processes[key] = process
        call.operation.undo = process.destroy
        with process.change:
            return process.opened()

    def process(self, call):
        self.named(call)
        with self.lock:
            process = self.processes.get((call.request["instance_id"], call.request["process_id"]))
        if not process:
            raise Failure("WireProcessNotFound")
        return process

    def process_stream(self, call):
        process = self.process(call)
        with process.change:
            call.fence()  # under the lock under which a fence detaches
            reader = process.attach(*call.lease, call.request)
        return lambda send: process.follow(reader, call.request, send)

    def process_input(self, call):
        process = self.process(call)
        with process.change:
            call.fence()
            return process.input(call.request["offset"], call.data, call.request["end"])

    def process_wait(self, call):
        return self.process(call).wait(min(call.request["wait_ms"], MAX_WAIT_MS) / 1000)

    def process_signal(self, call):
        process = self.process(call)
        number = {"SIGINT": 2, "SIGTERM": 15}.get(call.request["signal"])
        with process.change:
            if process.exit is not None or process.lost:
                return {"delivered": False}
        process.command.signal(number) if number else process.destroy()
        return {"delivered": True}

    def process_destroy(self, call):
        self.named(call)
        key = (call.request["instance_id"], call.request["process_id"])
        with self.lock:
            process = self.processes.setdefault(key, None)  # None is a tombstone
        if process:
            process.destroy()
        return {}

    def fence(self, lease, epoch):
        """Ends the streams of lower epochs."""
        with self.lock:
            processes = [p for p in self.processes.values() if p]
        for process in processes:
            process.fence(lease, epoch)


# --- what a schema cannot see ---


def clean(name, path):
    raw = codec.unescape(path)
    if len(raw) > 4096 or b"\0" in raw or any(len(p) > 255 for p in raw.split(b"/")):
        raise invalid(name + ": expected at most 4096 bytes without NUL, each component at most 255")


def check_read(path, root):
    clean("path", path)
    clean("allowed_root", root)
    if not within(path, root) or path == root:
        raise invalid("path: expected a path below allowed_root")


def check_batch(request):
    for member in request["files"]:
        check_read(member["path"], request["allowed_root"])
    if sum(m["maximum_bytes"] for m in request["files"]) != request["aggregate_maximum_bytes"]:
        raise invalid("aggregate_maximum_bytes: expected the sum of the members")


def check_cutoff(request):
    if request["orphaned_before"] > request["now"]:
        raise invalid("orphaned_before: expected no later than now")


def check_program(program):
    for name, text, most in (
        [("executable", program["executable"], 4096), ("working_directory", program["working_directory"], 4096)]
        + [("arguments", a, 65536) for a in program["arguments"]]
        + [("environment", v, 131072) for v in program["environment"].values()]
    ):
        raw = codec.unescape(text)
        if len(raw) > most or b"\0" in raw:
            raise invalid("%s: expected at most %d bytes without NUL" % (name, most))


def orphaned(instance, request, epoch):
    return request["now"] >= instance.value["expires_at"] or (
        epoch > instance.value["lease_epoch"] and instance.seen < request["orphaned_before"]
    )


def admit(request):
    """Holds a request to the envelope, in the order of selection."""
    profile, c, paths = request["profile"], CAPABILITIES, []
    for m in request["mounts"]:
        path = m["mount_path"]
        try:
            clean("mount_path", path)
        except Failure:
            raise unavailable("mounts", path, "a shorter path")
        if path in paths or any(within(path, r) or within(r, path) for r in RESERVED):
            raise unavailable("mounts", path, "no path twice, and no overlap with what is reserved")
        paths.append(path)
    keys = [(p["manager"], p["name"], p.get("version", "")) for p in profile["packages"]]
    if keys != sorted(set(keys)):
        raise invalid("profile.packages: expected ascending order")
    if request["target"] != TARGET:
        raise conflict(" ".join(TARGET.values()), " ".join(request["target"].get(k, "") for k in TARGET))
    limits = profile["resource_limits"]
    outside = [k for k, v in limits.items() if not c["minimum_resources"][k] <= v <= c["maximum_resources"][k]]
    for requirement, lacks, wanted in (
        ("tier", profile["tier"] not in c["tiers"], profile["tier"]),
        ("platform", request["platform"] not in c["platforms"], request["platform"]["architecture"]),
        ("base_image", profile["base_image"] != IMAGE or request["root_image"] != IMAGE, profile["base_image"]),
        ("packages", bool(keys), keys[0][0] if keys else ""),
        ("network_policy", profile["network_policy"]["mode"] != "none", profile["network_policy"]["mode"]),
        ("retention", profile["retention_mode"] not in c["retention_modes"], profile["retention_mode"]),
        ("resources", bool(outside), ", ".join(outside)),
        ("mounts", len(paths) > c["max_mounts"], "%d mounts" % len(paths)),
    ):
        if lacks:
            raise unavailable(requirement, wanted, "")
    if now() >= request["expires_at"]:
        raise conflict("before expires_at " + request["expires_at"], "expired")
