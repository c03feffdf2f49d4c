"""Instances: their directories, and the commands that run in them."""
import ctypes
import datetime
import marshal
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import codec
import contained
import guest
from failure import Failure, failed
from settings import ROOTLESS

OUTPUTS = "/mnt/session/outputs"
RESERVED = ["/dev", "/proc", "/run", "/sys", "/tmp", "/home/checkfu", "/workspace/.checkfu", OUTPUTS]
# Who the workload is, outside. Nobody else has this number.
OWNER = os.geteuid() if ROOTLESS else 101000
DRAIN = 5  # seconds that reading what a dead command wrote may take
GUEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest.py")


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def within(path, root):
    return path == root or path.startswith(root + "/")


def parts(path, root):
    """The components of a path of the wire below root, as bytes."""
    return [codec.unescape(p) for p in path[len(root):].strip("/").split("/") if p]


class Instance:
    """One machine that may run commands. lock guards what changes. fill may put
    something into its places before anybody else sees them."""

    def __init__(self, state, value, fill=None):
        self.value, self.id = value, value["instance_id"]
        self.lock = threading.RLock()
        self.gone = self.erased = False  # nobody is let in any more; nothing is left
        self.running = set()
        self.handoffs = []  # operations that made it, until somebody named it
        self.seen = now()
        self.base = os.path.join(state, self.id)
        os.mkdir(self.base, 0o711)
        try:
            if not ROOTLESS:
                # Its size is the disk limit; it is memory, and gone with this program.
                size = value["profile"]["resource_limits"]["disk_bytes"]
                guest.mount(b"tmpfs", self.base.encode(), b"tmpfs", guest.NOSUID | guest.NODEV, b"size=%d,mode=711" % size)
            self.prepare(fill)
        except BaseException:
            self.erase()
            raise

    def prepare(self, fill):
        """The roots that a workload may see, each a directory here. Longest last:
        the deepest owns a path."""
        self.roots, self.binds = {}, []
        plan = [(m["mount_path"], m["access"] == "read_only") for m in self.value["mounts"]]
        plan += [(OUTPUTS, False), ("/tmp", False), ("/home/checkfu", False), ("/workspace/.checkfu", True), ("/dev/shm", False)]
        os.mkdir(os.path.join(self.base, "root"), 0o711)
        for number, (path, read_only) in enumerate(sorted(plan, key=lambda p: len(p[0]))):
            directory = os.path.join(self.base, "mount-%d" % number)
            os.mkdir(directory, 0o755)
            os.chown(directory, OWNER, OWNER)
            self.roots[path] = directory
            self.binds.append([os.fsencode(directory), codec.unescape(path), read_only])
        if fill:
            fill(self.roots)
        for path in self.roots:
            outer = max((r for r in self.roots if r != path and within(path, r)), key=len, default=None)
            if outer:  # where it is mounted has to be there, and stays
                os.close(contained.descend(self.roots[outer], parts(path, outer), make=OWNER))

    def owner(self, path, reserved=False):
        """The deepest root that holds path, or None; of those that files can be
        staged in and read from."""
        known = [r for r in self.roots if within(path, r) and (reserved or r == OUTPUTS or r in self.mounts())]
        return max(known, key=len, default=None)

    def mounts(self):
        return {m["mount_path"] for m in self.value["mounts"]}

    def inner(self, root):
        """What of root belongs to deeper mounts, as components."""
        return {tuple(parts(r, root)) for r in self.roots if r != root and within(r, root)}

    def destroy(self):
        """Ends everything and erases every trace. Safe to repeat."""
        self.end()
        with self.lock:
            self.erased = True
            self.erase()

    def end(self):
        """Lets nobody in any more; returns once nothing of it lives."""
        with self.lock:
            self.gone = True
            running = list(self.running)
        for command in running:
            command.kill()

    def erase(self):
        if not os.path.isdir(self.base):
            return
        if not ROOTLESS:
            guest.libc.umount2(self.base.encode(), guest.DETACH)
        shutil.rmtree(self.base, ignore_errors=True)

    def start(self, request, linger):
        """Starts a command; raises the Failure of one that cannot be."""
        with self.lock:
            if self.gone:
                raise failed("instance_lost")
            command = Command(self, request, linger)
            self.running.add(command)
        try:
            command.begin()
        except BaseException:
            command.kill()
            raise
        return command


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIGRTMIN+%d" % (number - signal.SIGRTMIN)


class Command:
    """A command in a machine of its own, with three pipes. Whoever starts it has
    to kill() it in the end, also where it ended by itself."""

    def __init__(self, instance, request, linger):
        self.instance = instance
        self.ended = threading.Lock()
        self.dead = False
        raw = codec.unescape
        spec = {
            "root": os.fsencode(os.path.join(instance.base, "root")), "binds": instance.binds,
            "rootless": ROOTLESS, "owner": OWNER, "linger": linger, "limits": instance.value["profile"]["resource_limits"],
            "argv": [raw(a) for a in [request["executable"]] + request["arguments"]],
            "environment": {k.encode(): raw(v) for k, v in request["environment"].items()},
            "directory": raw(request["working_directory"]),
        }
        told = os.memfd_create("specification")
        self.status, status = os.pipe()
        self.control, control = socket.socketpair()
        inside, outside = [], []
        for writes in (True, False, False):
            r, w = os.pipe()
            os.fchown(w, OWNER, OWNER)  # so that it can open /dev/stderr again
            os.fchown(r, OWNER, OWNER)
            inside.append(r if writes else w)
            outside.append(w if writes else r)
        self.stdin, self.stdout, self.stderr = outside
        try:
            with os.fdopen(os.dup(told), "wb") as file:
                marshal.dump(spec, file)
            os.lseek(told, 0, os.SEEK_SET)
            self.guest = subprocess.Popen(
                [sys.executable, "-I", "-S", GUEST, str(told), str(status), str(control.fileno())],
                stdin=inside[0], stdout=inside[1], stderr=inside[2], pass_fds=(told, status, control.fileno()), cwd="/", env={},
            )
        finally:
            for fd in inside + [told, status]:
                os.close(fd)
            control.close()
        self.told = b""

    def begin(self):
        told, _, rest = self.line().partition(" ")
        if told != "started":
            reason, _, why = rest.partition(" ")
            raise failed(reason if reason == "not_found" else "start_failed", message=why or "it was ended")

    def report(self, deadline=None):
        """How the command ended; {} where nobody can say, None where it has not
        until the deadline."""
        line = self.line(deadline)
        if not line:
            return None if line is None else {}
        how, number = line.split()
        return {"signal": signal_name(int(number))} if how == "signaled" else {"exit_code": int(number)}

    def line(self, deadline=None):
        """The next line of the guest, "" at its end, None at the deadline."""
        while b"\n" not in self.told:
            ready = select.poll()
            ready.register(self.status, select.POLLIN)
            if not ready.poll(None if deadline is None else max(deadline - time.monotonic(), 0) * 1000):
                return None
            more = os.read(self.status, 4096)
            if not more:
                return ""
            self.told += more
        line, _, self.told = self.told.partition(b"\n")
        return line.decode()

    def signal(self, number):
        try:
            self.control.sendall(bytes([number]))
        except OSError:
            pass  # it has ended

    def kill(self):
        """Returns once nothing in the machine lives."""
        with self.ended:
            if not self.dead:
                self.dead = True
                self.control.shutdown(socket.SHUT_RDWR)
                self.guest.wait()
                self.control.close()
        with self.instance.lock:
            self.instance.running.discard(self)

    def close(self):
        for fd in (self.stdin, self.stdout, self.stderr, self.status):
            if fd is not None:
                os.close(fd)


def execute(instance, request, stdin):
    """Runs a command to its end: its streams and the result of the wire."""
    most = request["output_limit_bytes"]
    started = now()
    command = instance.start(request, linger=False)
    try:
        deadline = time.monotonic() + request["timeout_seconds"]
        kept, finished = exchange(command, stdin, most, deadline)
        for stream, data in kept.items():
            if len(data) > most:
                raise Failure("SandboxOutputLimitExceeded", stream=stream, limit_bytes=most)
        how = command.report(deadline) if finished else None
        if how == {}:
            raise failed("instance_lost" if instance.gone else "provider_error")
        how = how or {"timed_out": True}
        return bytes(kept["stdout"]), bytes(kept["stderr"]), dict(how, started_at=started, finished_at=max(now(), started))
    finally:
        command.kill()
        command.close()


def exchange(command, stdin, most, deadline):
    """Writes and reads until both outputs ended, one is over its limit, or the
    time is: then everything is killed, and what is left is read. Not for long: a
    command can have handed its ends to another of its instance, which lives."""
    kept, finished = {"stdout": bytearray(), "stderr": bytearray()}, True
    left = memoryview(stdin)
    with selectors.DefaultSelector() as ready:
        for name in kept:
            ready.register(getattr(command, name), selectors.EVENT_READ, name)
        for fd in (command.stdin, command.stdout, command.stderr):
            os.set_blocking(fd, False)  # the workload can open them, and be faster
        ready.register(command.stdin, selectors.EVENT_WRITE, "stdin")
        while any(key.data != "stdin" for key in ready.get_map().values()):
            wait = deadline - time.monotonic()
            if finished and (wait <= 0 or max(map(len, kept.values())) > most):
                finished = False
                command.kill()
                wait, deadline = DRAIN, time.monotonic() + DRAIN
            elif wait <= 0:
                break
            for key, _ in ready.select(wait):
                if key.data == "stdin":
                    try:
                        left = left[os.write(key.fd, left[: 1 << 16]):]
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:
                        left = left[:0]
                    if not left:
                        ready.unregister(key.fd)
                        os.close(key.fd)
                        command.stdin = None
                    continue
                try:
                    data = os.read(key.fd, 1 << 16)
                except BlockingIOError:
                    continue
                if not data:
                    ready.unregister(key.fd)
                elif len(kept[key.data]) <= most:
                    kept[key.data] += data[: most + 1 - len(kept[key.data])]
    return kept, finished


def probe(state):
    """Runs a command as any other would run, before anything is promised. Returns
    why there can be no machine, or None."""
    try:
        if not ROOTLESS:
            guest.private_mounts()
        value = {
            "instance_id": "probe", "mounts": [],
            "profile": {"resource_limits": {"disk_bytes": 1 << 20, "max_processes": 64}},
        }
        instance = Instance(state, value)
        try:
            request = {"executable": "/bin/sh", "arguments": ["-c", "exit 7"], "working_directory": "/", "environment": {}}
            command = instance.start(request, linger=False)
            try:
                how = command.report()
            finally:
                command.kill()
                command.close()
            return None if how == {"exit_code": 7} else "a command ended with %s" % how
        finally:
            instance.destroy()
    except (OSError, Failure, AttributeError, ctypes.ArgumentError) as why:
        return str(why)
