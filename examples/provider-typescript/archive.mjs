// The files of an instance in one file, and back. It is made of the frames of the wire:
// what it is of; then an item for each directory, file and link, and behind that of a
// file its bytes by their offsets, without those that are zero; in the end the digest of
// all that. Pipes, sockets and extended attributes are not in it, and hard links become
// files.
import { createHash } from "node:crypto";
import {
  chmodSync, chownSync, closeSync, constants, fchmodSync, fchownSync, ftruncateSync, futimesSync, lchownSync, mkdirSync, openSync, readSync, symlinkSync,
  writeSync,
} from "node:fs";

import { canonical, escape, frame, output, strict, unescape } from "./codec.mjs";
import { Descent, at, look, numbered } from "./contained.mjs";
import { failed, unavailable } from "./failure.mjs";
import { contents, key, target, walk } from "./listing.mjs";
import { parts } from "./places.mjs";
import { OWNER } from "./settings.mjs";

/** @typedef {import("./listing.mjs").Pace} Pace */
/** @typedef {import("./places.mjs").Place} Place */
/** @typedef {{ place: string, path: string, type: "directory" | "regular" | "symlink", mode: number, size?: number, modified?: number, target?: string }} Item */

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
const ITEM = 0x03, ABOUT = 0x10, BYTES = 0x11, END = 0x13, HEAD = 5, OFFSET = 8, MAX_FRAME = 1 << 20;
const NOTHING = Buffer.alloc(MAX_FRAME);

export const damaged = () => failed("changed", undefined, "it is not what was kept");

/** Writes all of it. @param {number} fd @param {Buffer} data @param {number} [offset] */
function put(fd, data, offset) {
  for (let done = 0; done < data.length; ) done += writeSync(fd, data, done, data.length - done, offset === undefined ? null : offset + done);
}

/** An archive that is written. */
class Writer {
  sum = createHash("sha256");

  /** @param {number} file open for writing @param {unknown} about */
  constructor(file, about) {
    this.file = file;
    this.say(frame(ABOUT, Buffer.from(canonical(about))));
  }

  /** @param {Buffer} whole frame */
  say(whole) {
    this.sum.update(whole);
    put(this.file, whole);
  }

  end() {
    put(this.file, frame(END, this.sum.digest()));
  }
}

/** One that is read. What is not what was written is damaged, which is known at its end. */
class Reader {
  sum = createHash("sha256");

  /** @param {number} file open for reading */
  constructor(file) {
    this.file = file;
    const first = this.next();
    if (first?.type !== ABOUT) throw damaged();
    this.about = read(first.payload);
  }

  /** @param {number} size */
  take(size) {
    const data = Buffer.allocUnsafe(size);
    for (let done = 0; done < size; ) {
      const count = readSync(this.file, data, done, size - done, null);
      if (count === 0) throw damaged();
      done += count;
    }
    return data;
  }

  /** The next frame, or nothing behind the last. */
  next() {
    const head = this.take(HEAD), type = head[0], size = head.readUInt32BE(1);
    if (size > MAX_FRAME) throw damaged();
    const payload = this.take(size);
    if (type === END) {
      if (!payload.equals(this.sum.digest()) || readSync(this.file, head) > 0) throw damaged();
      return undefined;
    }
    this.sum.update(head).update(payload);
    return { type, payload };
  }
}

/** @param {Buffer} payload @returns {any} */
function read(payload) {
  try {
    return strict(payload);
  } catch {
    throw damaged();
  }
}

/** What an archive says that it is of. @param {number} file open for reading */
export const about = (file) => new Reader(file).about;

/**
 * Writes the places of a disk that are kept. A command that runs meanwhile goes on: each
 * file is as it was when it was read.
 * @param {string} disk
 * @param {Place[]} places
 * @param {number} file open for writing
 * @param {unknown} about what it is of
 * @param {number} most that the files may hold, in bytes, but for their zeros
 * @param {Pace} pace
 */
export async function pack(disk, places, file, about, most, pace) {
  const archive = new Writer(file, about);
  let left = most;
  /** @param {Item} item */
  const name = (item) => archive.say(frame(ITEM, Buffer.from(canonical(item))));
  for (const { name: place } of places.filter((p) => p.kept)) {
    for await (const { names, stats, fd, directory } of walk(`${disk}/${place}`, [], undefined, { pace })) {
      const path = escape(Buffer.from(key(names), "latin1")), mode = stats.mode & 0o7777;
      if (stats.isDirectory()) name({ place, path, type: "directory", mode });
      else if (stats.isSymbolicLink()) name({ place, path, type: "symlink", mode, target: escape(target(directory, names)) });
      else if (stats.isFile()) {
        name({ place, path, type: "regular", mode, size: stats.size, modified: Math.floor(stats.mtimeMs) });
        await contents(fd, pace, undefined, (part, offset) => {
          if (part.equals(NOTHING.subarray(0, part.length))) return;
          left -= part.length;
          if (left < 0) throw unavailable("resources", "room for a copy of its files", "disk_bytes");
          archive.say(output(BYTES, offset, part));
        });
      }
    }
  }
  archive.end();
}

/** Copies an archive under another heading. @param {number} from open for reading @param {number} to open for writing @param {unknown} about @param {Pace} pace */
export async function copy(from, to, about, pace) {
  const reader = new Reader(from), archive = new Writer(to, about);
  for (let next = reader.next(); next; next = reader.next()) {
    archive.say(frame(next.type ?? 0, next.payload));
    await pace.rest();
  }
  archive.end();
}

/**
 * Puts the files of an archive into the places of a new disk, which nobody else has yet.
 * @param {number} file open for reading
 * @param {string} disk
 * @param {Pace} pace
 */
export async function unpack(file, disk, pace) {
  const reader = new Reader(file), descent = new Descent(disk);
  /** @type {{ fd: number, item: Item } | undefined} */
  let open;
  const finish = () => {
    if (!open) return;
    const { fd, item: { mode, size = 0, modified = 0 } } = open;
    open = undefined;
    try {
      ftruncateSync(fd, size);
      fchownSync(fd, OWNER, OWNER);
      fchmodSync(fd, mode);
      futimesSync(fd, modified / 1000, modified / 1000);
    } finally {
      closeSync(fd);
    }
  };
  try {
    for (let next = reader.next(); next; next = reader.next()) {
      await pace.rest();
      if (next.type === BYTES && open && next.payload.length > OFFSET) {
        put(open.fd, next.payload.subarray(OFFSET), Number(next.payload.readBigUInt64BE()));
        continue;
      }
      finish();
      if (next.type !== ITEM) throw damaged();
      const item = /** @type {Item} */ (read(next.payload)), names = parts(unescape(item.path)), last = names.pop();
      if (!last || !/^place-[0-9]+$/.test(item.place)) throw damaged();
      const parent = descent.open([Buffer.from(item.place), ...names]), path = at(parent, last);
      if (item.type === "regular") open = { item, fd: openSync(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600) };
      else if (item.type === "symlink") {
        symlinkSync(unescape(item.target ?? ""), path);
        lchownSync(path, OWNER, OWNER);
      } else directory(parent, last, item.mode);
    }
    finish();
  } finally {
    if (open) closeSync(open.fd);
    descent.close();
  }
}

/** @param {number} parent @param {Buffer} name @param {number} mode */
function directory(parent, name, mode) {
  mkdirSync(at(parent, name), 0o700);
  const fd = look(parent, name);
  try {
    chownSync(numbered(fd), OWNER, OWNER);
    chmodSync(numbered(fd), mode);
  } finally {
    closeSync(fd);
  }
}
