"""The bytes of a snapshot: one file, made of the frames that the wire has too. A
directory is an item {place, mode} or {name, mode}, then what lies in it, then
{leave}. A link is an item; so is a file, and behind it are its bytes, each piece
at its offset. Holes stay holes. Pipes and sockets have no bytes and are left out;
a file that has two names becomes two.

No path is ever followed, in or out: each name is taken in the descriptor of its
directory. And no directory costs more than its own names, however deep it is."""
import hashlib
import json
import os
import stat

import codec
import contained
from failure import failed

ITEM, PIECE = 0x03, 0x11
STEP = 256 << 10
MAX_ENTRIES, MAX_DEPTH = 1 << 20, 2048
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Summed:
    """What is digested, and written to a file where there is one."""

    def __init__(self, file):
        self.file, self.sum = file, hashlib.sha256()

    def write(self, data):
        if self.file:
            self.file.write(data)
        self.sum.update(data)

    def item(self, value):
        self.write(codec.frame(ITEM, codec.canonical(value)))

    @property
    def digest(self):
        return "sha256:" + self.sum.hexdigest()


def pack(file, places, most):
    """Writes the directories of places, {path of the machine: directory here}, and
    returns the digest of what it wrote. The workload may change them meanwhile:
    each file is as it was when it was read. most bounds their bytes."""
    out, left, entries = Summed(file), most, 0
    inside = []  # the descriptors of a directory and of those around it, and the names yet to come
    try:
        for place, base in places.items():
            enter(out, inside, {"place": place}, os.open(base, DIRECTORY))
            while inside:
                at, names = inside[-1]
                if not names:
                    out.item({"leave": True})
                    os.close(inside.pop()[0])
                    continue
                name = names.pop()
                entries += 1
                if entries > MAX_ENTRIES or len(inside) > MAX_DEPTH:
                    raise failed("too_many_entries", place)
                mode = contained.mode_of(name, at)
                if stat.S_ISDIR(mode):
                    try:
                        below = os.open(name, DIRECTORY, dir_fd=at)
                    except (FileNotFoundError, NotADirectoryError):
                        continue  # it went meanwhile
                    enter(out, inside, {"name": codec.escape(name)}, below)
                elif stat.S_ISLNK(mode):
                    link(out, name, at)
                elif stat.S_ISREG(mode):
                    left -= pack_file(out, name, at, left, place)
    finally:
        for at, _ in inside:
            os.close(at)
    return out.digest


def enter(out, inside, item, at):
    inside.append((at, []))
    out.item(dict(item, mode=os.fstat(at).st_mode & 0o7777))
    inside[-1][1].extend({os.fsencode(n) for n in os.listdir(at)})  # while it changes, one can be listed twice


def link(out, name, at):
    try:
        out.item({"name": codec.escape(name), "link": codec.escape(os.readlink(name, dir_fd=at))})
    except OSError:
        pass  # it is another thing by now


def pack_file(out, name, at, left, place):
    """Returns how many bytes it wrote."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except BlockingIOError:  # the workload holds a lease on it
        raise failed("changed", place)
    except OSError:
        return 0  # it is another thing by now
    try:
        info, written = os.fstat(fd), 0
        if not stat.S_ISREG(info.st_mode):
            return 0
        changed = min(max(info.st_mtime_ns // 1000, -codec.MAX_INTEGER), codec.MAX_INTEGER)
        out.item({"name": codec.escape(name), "mode": info.st_mode & 0o7777, "size": info.st_size, "changed": changed})
        for offset, data in pieces(fd, info.st_size):
            written += len(data)
            if written > left:
                raise OSError(28, "more than the limit of the instance")
            out.write(codec.output(PIECE, offset, data))
        return written
    finally:
        os.close(fd)


def pieces(fd, size):
    """The bytes of a file, but for its holes: a file of those has any length."""
    at = 0
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
            end = min(os.lseek(fd, at, os.SEEK_HOLE), size)
        except OSError:  # there is no more
            return
        while at < end:
            data = os.pread(fd, min(STEP, end - at), at)
            if not data:
                return  # it became shorter
            yield at, data
            at += len(data)


def summed(file, other=None):
    """The digest of a file from where it stands, copied to another on the way."""
    out = Summed(other)
    while data := file.read(1 << 20):
        out.write(data)
    return out.digest


def unpack(file, places, owner):
    """Makes what pack read, in directories that nobody else has yet."""
    inside, made = [], None  # as above, with the mode that a directory gets; the file that is being written
    try:
        for kind, payload in frames(file):
            if kind == PIECE:
                write(made[0], payload[8:], int.from_bytes(payload[:8], "big"))
                continue
            item, made = json.loads(payload), finish(made)
            name, at = codec.unescape(item.get("name", "")), inside[-1][0] if inside else None
            if "place" in item:
                inside.append((os.open(places[item["place"]], DIRECTORY), item["mode"]))
            elif "leave" in item:  # at last: a mode may forbid to write
                os.fchmod(*inside[-1])
                os.close(inside.pop()[0])
            elif "link" in item:
                os.symlink(codec.unescape(item["link"]), name, dir_fd=at)
                os.chown(name, owner, owner, dir_fd=at, follow_symlinks=False)
            elif "size" in item:
                made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at), item, owner
            else:
                os.mkdir(name, 0o700, dir_fd=at)
                inside.append((os.open(name, DIRECTORY, dir_fd=at), item["mode"]))
                os.fchown(inside[-1][0], owner, owner)
    finally:
        for fd, *_ in inside + [made] * (made is not None):
            os.close(fd)


def finish(made):
    """What belongs to a file once it has its bytes. A write would take away the
    time and the bits that say as whom it runs."""
    if made:
        fd, item, owner = made
        os.ftruncate(fd, item["size"])
        os.fchown(fd, owner, owner)
        os.fchmod(fd, item["mode"])
        os.utime(fd, ns=(item["changed"] * 1000,) * 2)
        os.close(fd)


def write(fd, data, offset):
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def frames(file):
    """Those of a file whose digest was checked."""
    while head := file.read(5):
        yield head[0], file.read(int.from_bytes(head[1:], "big"))
