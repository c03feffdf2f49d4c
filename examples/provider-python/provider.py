"""The members of the contract, and the wire's helpers, as this provider serves
them. Each takes a Call and returns its answer."""
import os
import threading

import codec
import contained
from admit import TARGET, admit, check_batch, check_cutoff, check_program, check_read, clean, in_time
from failure import Failure, conflict, failed, invalid, unavailable
from machine import OUTPUTS, Instance, execute, now, parts
from process import Process
from settings import CAPABILITIES, DAY_ONE, MAX_WAIT_MS, WIRE
from snapshot import Snapshots


class Framed:
    """An answer of frames."""

    def __init__(self, *frames):
        self.body = b"".join(frames)


# What an instance refuses past its deadline. The rest may still be collected.
WORK = {"write_file", "activate", "execute", "open_process"}


def data(content):
    return b"".join(codec.frame(2, content[i : i + codec.MAX_FRAME]) for i in range(0, len(content), codec.MAX_FRAME))


def say(kind, value):
    return codec.frame(kind, codec.canonical(value))


def streamed(kind, content):
    step = codec.MAX_FRAME - 8
    return b"".join(codec.output(kind, i, content[i : i + step]) for i in range(0, len(content), step))


class Provider(Snapshots):
    """All instances. lock guards the tables; an instance has its own. The directory
    state goes with this program, folder and the journal with nobody."""

    def __init__(self, state, folder, journal):
        self.state, self.folder, self.journal = state, folder, journal
        self.lock, self.instances, self.processes = threading.Lock(), {}, {}

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
            if instance.gone:
                raise Failure("SandboxInstanceNotFound", instance_id=instance.id)
            if state and instance.value["state"] != state:
                raise conflict(state, instance.value["state"])
            if call.endpoint in WORK:
                in_time(instance.value["expires_at"])
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
        return self.hand_over(call, Instance(self.state, self.described(request, "provisioning")))

    def described(self, request, state):
        """The instance that a request asks for."""
        profile = request["profile"]
        identity = {"base_image": profile["base_image"], "packages": profile["packages"]}
        return dict(
            request, instance_id="inst-" + os.urandom(16).hex(), provider=TARGET["provider"], placement=TARGET["placement"],
            state=state, output_path=OUTPUTS,
            materialization={
                "profile_digest": codec.digest(codec.canonical(identity)), "image_reference": request["root_image"],
                "image_digest": request["root_image"].rsplit("@", 1)[1], "provider_revision": TARGET["provider_revision"],
                "materialization_revision": TARGET["materialization_revision"],
            },
        )

    def hand_over(self, call, instance):
        instance.handoffs.append(call.operation)
        with self.lock:
            self.instances[instance.id] = instance
        call.operation.instance = instance.id
        return call.handoff(instance.value)

    def undo(self, operation):
        """Takes back what an operation made."""
        with self.lock:
            process = self.processes.get(operation.process)
        if process:
            process.destroy()
        if operation.instance:
            self.take(operation.instance)
        if operation.snapshot:
            self.erase(operation.snapshot)

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
        call.operation.instance = instance.id
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
        entries = contained.listing(
            instance.roots[owner], parts(root, owner), call.request["max_entries"], instance.inner(owner), root,
            lambda: instance.gone or call.left(),
        )
        pages = [say(3, {"entries": entries[i : i + 100]}) for i in range(0, len(entries), 100)]
        return Framed(*pages, say(1, {"count": len(entries)}))

    def destroy(self, call):
        self.take(call.request["instance_id"])
        return {}

    def cleanup(self, call):
        request = call.request
        check_cutoff(request)
        with self.lock:
            everything = list(self.instances.values())
        gone = sorted(i.id for i in everything if orphaned(i, request, call.epoch_of(i.value["lease_id"])))
        for instance_id in gone:
            self.take(instance_id)
        old = self.old_snapshots(request)
        for snapshot_id in old:
            self.erase(snapshot_id)
        return {"instance_ids": gone, "snapshot_ids": old}

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
        call.operation.process = key
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


def orphaned(instance, request, epoch):
    return request["now"] >= instance.value["expires_at"] or (
        epoch > instance.value["lease_epoch"] and instance.seen < request["orphaned_before"]
    )
