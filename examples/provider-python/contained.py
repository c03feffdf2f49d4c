"""Files of an instance, from outside. Containment is physical: every component
is opened from the descriptor of the one before, and no link is followed. Text
is compared nowhere."""
import hashlib
import os
import stat

import codec
from failure import failed, unavailable

DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refusal(Exception):
    """Why a file is not read, in the word of the contract."""


def descend(base, names, make=None):
    """The descriptor of a directory below base; the caller closes it. make is
    the owner of what is missing, None where nothing is made."""
    at = os.open(base, DIRECTORY)
    try:
        for name in names:
            try:
                below = os.open(name, DIRECTORY, dir_fd=at)
            except FileNotFoundError:
                if make is None:
                    raise Refusal("not_found")
                os.mkdir(name, 0o755, dir_fd=at)
                below = os.open(name, DIRECTORY, dir_fd=at)
                os.chown("/proc/self/fd/%d" % below, make, make)
            except NotADirectoryError:
                raise Refusal("outside_root" if is_link(name, at) else "not_directory")
            os.close(at)
            at = below
        return at
    except BaseException:
        os.close(at)
        raise


def is_link(name, directory):
    """What is a link or nothing is never followed. It may change as we look."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return True


def read(base, names, most, path):
    """The bytes of a regular file, at most most of them."""
    try:
        directory = descend(base, names[:-1])
    except Refusal as why:
        raise Refusal("not_found" if str(why) == "not_directory" else str(why))
    try:
        try:
            # O_PATH opens nothing: a pipe or a device is never touched.
            found = os.open(names[-1], os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            raise Refusal("not_found")
    finally:
        os.close(directory)
    try:
        mode = os.fstat(found).st_mode
        if stat.S_ISLNK(mode):
            raise Refusal("outside_root")
        if not stat.S_ISREG(mode):
            raise Refusal("not_regular")
        # The file that was looked at, whatever its name is now. A workload may hold a
        # lease on it, and an open that waits for it waits for 45 seconds.
        with open("/proc/self/fd/%d" % found, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK)) as file:
            data = file.read(most + 1)
    except BlockingIOError:
        raise failed("changed", path)
    finally:
        os.close(found)
    if len(data) > most:
        raise Refusal("too_large")
    return data


def write(base, names, data, executable, owner, path):
    """Puts a file, whole or not at all."""
    try:
        directory = descend(base, names[:-1], make=owner)
    except Refusal as why:
        raise failed(str(why), path)
    except OSError as why:
        raise full(why, path)
    temporary = b".checkfu-" + os.urandom(8).hex().encode()
    try:
        try:
            mode = os.stat(names[-1], dir_fd=directory, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode):
                raise failed("outside_root" if stat.S_ISLNK(mode) else "not_regular", path)
        except FileNotFoundError:
            pass
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fchown(fd, owner, owner)
                os.fchmod(fd, 0o755 if executable else 0o644)
            os.rename(temporary, names[-1], src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as why:
            try:
                os.unlink(temporary, dir_fd=directory)
            except OSError:
                pass  # it was never made, or somebody took it
            raise full(why, path)
    finally:
        os.close(directory)


def full(why, path):
    if why.errno in (28, 122):  # no space, quota
        return unavailable("resources", "room for the file", "disk_bytes")
    return failed("provider_error", path, str(why))


def listing(base, names, most, skip, root, over):
    """Every regular file below a directory: path, size and digest, by path.
    skip are directories that belong to another mount. over says that nobody waits
    for it any more: a file of nothing but zeros costs days."""
    try:
        os.close(descend(base, names))
    except Refusal as why:
        raise failed(str(why), root)
    entries, waiting = [], [[]]
    while waiting:
        below = waiting.pop()
        if over():
            raise failed("instance_lost", root)
        try:
            path = descend(base, names + below)
        except Refusal:
            continue  # it went meanwhile
        at = os.open("/proc/self/fd/%d" % path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.close(path)
        try:
            inner = [(os.fsencode(n), mode_of(n, at)) for n in os.listdir(at)]
        finally:
            os.close(at)
        for name, mode in inner:
            here = below + [name]
            if stat.S_ISDIR(mode) and tuple(names + here) not in skip:
                waiting.append(here)
            elif stat.S_ISREG(mode):
                if len(entries) == most:
                    raise failed("too_many_entries", root)
                size, digest = summed(base, names + here, root, over)
                if digest:
                    entries.append((b"/".join(here), size, digest))
    entries.sort()
    return [{"path": codec.escape(p), "size": s, "digest": d} for p, s, d in entries]


def mode_of(name, directory):
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def summed(base, names, root, over):
    try:
        directory = descend(base, names[:-1])
        try:
            fd = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        finally:
            os.close(directory)
    except BlockingIOError:  # the workload holds a lease on it
        raise failed("changed", root)
    except (Refusal, OSError):
        return 0, None  # it is another thing by now
    total, size = hashlib.sha256(), 0
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return 0, None
        while part := file.read(1 << 20):
            if over():
                raise failed("instance_lost", root)
            total.update(part)
            size += len(part)
    return size, "sha256:" + total.hexdigest()
