"""The machine around one command. The provider starts this as a program of its
own, once for each command:

    python3 -I -S guest.py SPECIFICATION STATUS CONTROL     (three descriptors)

It makes namespaces (mount, pid, network, ipc, uts), builds a root of the host's
own system and the instance's directories, and runs the command in it under a
user that has no privilege anywhere. Three processes:

  this one        waits, so that its end is the end of all
  process 1       builds the root, starts the command, passes signals on, reaps;
                  its end kills everything in the machine, whatever it is
  the command     in a user namespace of its own: no capability, no way to gain one

What becomes of it goes to STATUS, a line each: "started", or "failed" with
not_found, start_failed or no_namespaces and why; then "exited" or "signaled" with
the number. On CONTROL, a byte is a signal for the command; its end kills all. So
nothing outlives a provider that was killed.

It imports little, for it starts with every command.
"""
import ctypes
import errno
import marshal
import os
import resource
import select
import sys

USER = 1000  # of the command, inside
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE, RELATIME = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18, 1 << 21
DETACH = 2
SET_DUMPABLE, CAPBSET_DROP, SET_NO_NEW_PRIVS = 4, 24, 38

libc = ctypes.CDLL(None, use_errno=True)


def system(name, *args):
    """Calls what Python 3.11 has no function for."""
    if getattr(libc, name)(*args) != 0:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (name, os.strerror(code)))


def mount(source, target, kind=None, flags=0, data=None):
    system("mount", source, target, kind, ctypes.c_ulong(flags), data)


def private_mounts():
    """Mounts of this process are its own from now on, and end with it."""
    system("unshare", NEWNS)
    mount(None, b"/", None, REC | PRIVATE)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def main(specification, status, control):
    for fd in (status, control):
        os.set_inheritable(fd, False)
    with os.fdopen(specification, "rb") as file:
        spec = marshal.loads(file.read())  # of the provider, which is as trusted as this

    def say(*what):
        os.write(status, " ".join(map(str, what)).replace("\n", " ").encode(errors="replace")[:4000] + b"\n")

    try:
        namespaces()
        first = os.fork()
        if first == 0:
            try:
                process_1(spec, say, control)
            except Exception as why:
                say("failed start_failed", repr(why))
            os._exit(0)
    except OSError as why:
        say("failed no_namespaces", why)
        return
    for fd in (0, 1, 2, status, control):  # only the machine holds its streams
        os.close(fd)
    os.waitpid(first, 0)


def namespaces():
    uid, gid = os.geteuid(), os.getegid()
    system("unshare", (NEWUSER if uid else 0) | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS)
    if uid:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", "0 %d 1" % uid)
        write("/proc/self/gid_map", "0 %d 1" % gid)
    mount(None, b"/", None, REC | PRIVATE)


# --- process 1 ---------------------------------------------------------------


def process_1(spec, say, control):
    build(spec)
    system("sethostname", b"machine", 7)
    lo = libc.socket(2, 2, 0)  # loopback is the whole network
    system("ioctl", lo, 0x8914, b"lo".ljust(16, b"\0") + b"\1\0".ljust(24, b"\0"))
    os.close(lo)
    report, error = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        command(spec, wait, error)
    for fd in (0, 1, 2, error, wait):
        os.close(fd)
    os.read(report, 1)  # it has its namespace now; who it is there, only this one may say
    owner = spec["owner"] if os.geteuid() == 0 and not spec["rootless"] else 0
    write("/proc/%d/uid_map" % child, "%d %d 1" % (USER, owner))
    write("/proc/%d/gid_map" % child, "%d %d 1" % (USER, owner))
    os.close(go)
    failure = os.read(report, 4096)
    if failure:
        say("failed", failure.decode(errors="replace"))
        return
    say("started")
    serve(child, spec["linger"], say, control)


def serve(child, linger, say, control):
    """Until the command ended, and with linger until everything has."""
    poll = select.poll()
    ending = os.pidfd_open(child)
    poll.register(control, select.POLLIN)
    poll.register(ending, select.POLLIN)
    over = False
    while True:
        for fd, _ in poll.poll(100 if over else 1000):
            if fd == control:
                asked = os.read(control, 64)
                if not asked:
                    return
                for number in asked:
                    if not over:
                        os.kill(child, number)
        while True:  # whatever lost its parent is ours
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                if over:
                    return
                break
            if pid == 0:
                break
            if pid == child:
                over = True
                poll.unregister(ending)
                if os.WIFSIGNALED(status):
                    say("signaled", os.WTERMSIG(status))
                else:
                    say("exited", os.WEXITSTATUS(status))
                if not linger:
                    return


# --- the root ----------------------------------------------------------------


def build(spec):
    """The host's own programs, read-only, and nothing else of the host."""
    root = spec["root"]
    mount(b"tmpfs", root, b"tmpfs", NOSUID | NODEV, b"size=4m,mode=755")
    os.chdir(root)
    for name in ("proc", "sys", "run", "dev", "etc", "var", "mnt"):
        os.mkdir(name)
    for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), name)
        elif os.path.isdir("/" + name):
            os.mkdir(name)
            bind(b"/" + name.encode(), name.encode(), read_only=True)
    write("etc/passwd", "root:x:0:0::/:/bin/sh\ncheckfu:x:%d:%d::/home/checkfu:/bin/sh\n" % (USER, USER))
    write("etc/group", "root:x:0:\ncheckfu:x:%d:\n" % USER)
    write("etc/hosts", "127.0.0.1 localhost machine\n")
    for name in ("alternatives", "ld.so.cache"):
        source = os.path.join("/etc", name)
        if os.path.isdir(source):
            os.mkdir("etc/" + name)
        elif os.path.exists(source):
            write("etc/" + name, "")
        else:
            continue
        bind(source.encode(), b"etc/" + name.encode(), read_only=True)
    mount(b"proc", b"proc", b"proc", NOSUID | NODEV | NOEXEC)
    devices()
    for source, target, read_only in spec["binds"]:
        at = walk(target)
        # By descriptor: a name could be a link that the workload left there.
        bind(source, b"/proc/self/fd/%d" % at, read_only, walked=target)
        os.close(at)
    mount(None, b".", None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)
    system("pivot_root", b".", b".")
    system("umount2", b".", DETACH)
    os.chdir("/")


def devices():
    mount(b"tmpfs", b"dev", b"tmpfs", NOSUID | NOEXEC, b"size=64k,mode=755")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        write("dev/" + name, "")
        mount(b"/dev/" + name.encode(), b"dev/" + name.encode(), None, BIND)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + target, "dev/" + name)
    os.mkdir("dev/shm")


def bind(source, target, read_only, walked=None):
    mount(source, target, None, BIND | REC)
    if walked:  # the descriptor is of what lies below the new mount
        at = walk(walked)
        target = b"/proc/self/fd/%d" % at
    # What the host forbids on this mount has to be said again.
    held = os.statvfs(target).f_flag
    flags = held & (NOSUID | NODEV | NOEXEC) | (RELATIME if held & 4096 else 0)
    mount(None, target, None, REMOUNT | BIND | flags | NOSUID | NODEV | (RDONLY if read_only else 0))
    if walked:
        os.close(at)


def walk(path):
    """A descriptor of a directory of the new root, made where it is missing. No
    component may be a link."""
    at = os.open(".", os.O_PATH | os.O_DIRECTORY)
    for name in path.strip(b"/").split(b"/"):
        try:
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        except FileNotFoundError:
            os.mkdir(name, 0o755, dir_fd=at)
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        os.close(at)
        at = below
    return at


# --- the command -------------------------------------------------------------


def command(spec, wait, error):
    reason = "start_failed"
    try:
        os.setsid()
        system("unshare", NEWUSER)
        os.write(error, b"x")
        os.read(wait, 1)
        if not spec["rootless"]:
            os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        write("/proc/sys/user/max_user_namespaces", "0")  # in which it could have capabilities again
        limit(spec["limits"])
        for capability in range(64):
            if libc.prctl(CAPBSET_DROP, capability, 0, 0, 0) != 0:
                break
        system("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        argv, environment = spec["argv"], spec["environment"]
        os.umask(0o022)
        os.chdir(spec["directory"])
        for number in (13, 25):
            libc.signal(number, None)  # Python ignores SIGPIPE and SIGXFSZ
        reason = "not_found"
        for path in candidates(argv[0], environment):
            try:
                os.execve(path, argv, environment)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                reason = "start_failed"
                raise
        raise FileNotFoundError(errno.ENOENT, "no such program")
    except BaseException as why:
        os.write(error, (reason + " " + str(why)).encode()[:4000])
    os._exit(127)


def candidates(name, environment):
    if b"/" in name:
        return [name]
    path = environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
    return [os.path.join(d, name) for d in path.split(b":") if d]


def limit(limits):
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["max_processes"],) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["disk_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:4]))
