// The files of an instance in one file, and back. It is made of the frames of the wire:
// an item for each directory, file and link, and behind that of a file its data. Pipes,
// sockets and extended attributes are not in it, and hard links become files.
import { createHash } from "node:crypto";
import {
  chmodSync, chownSync, closeSync, constants, fchmodSync, fchownSync, futimesSync, lchownSync, mkdirSync, openSync, readSync, symlinkSync, writeSync,
} from "node:fs";

import { canonical, escape, frame, strict, unescape } from "./codec.mjs";
import { at, descend, look, numbered } from "./contained.mjs";
import { failed, unavailable } from "./failure.mjs";
import { digested, key, target, walk } from "./listing.mjs";
import { parts } from "./places.mjs";
import { OWNER } from "./settings.mjs";

/** @typedef {import("./listing.mjs").Pace} Pace */
/** @typedef {import("./places.mjs").Place} Place */
/** @typedef {{ place: string, path: string, type: "directory" | "regular" | "symlink", mode: number, modified?: number, target?: string }} Item */

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
const RESULT = 1, DATA = 2, ITEM = 3, HEAD = 5, MAX_FRAME = 1 << 20;
const BEGIN = Buffer.from("checkfu example archive 1\n");

const tooMuch = () => unavailable("resources", "room for a copy of its files", "disk_bytes");

/** Writes all of it. @param {number} fd @param {Buffer} data */
function put(fd, data) {
  for (let done = 0; done < data.length; ) done += writeSync(fd, data, done);
}

/**
 * Writes the places of a disk that are kept. A command that runs meanwhile goes on: each
 * file is as it was when it was read.
 * @param {string} disk
 * @param {Place[]} places
 * @param {number} file open for writing
 * @param {number} most that the files may hold, in bytes: one with holes is copied with its zeros
 * @param {Pace} pace
 * @returns {Promise<string>} the digest of what was written
 */
export async function pack(disk, places, file, most, pace) {
  const sum = createHash("sha256");
  let left = most;
  /** @param {number} type @param {Buffer} payload */
  const say = (type, payload) => {
    const whole = frame(type, payload);
    sum.update(whole);
    put(file, whole);
  };
  /** @param {Item} item */
  const name = (item) => say(ITEM, Buffer.from(canonical(item)));
  sum.update(BEGIN);
  put(file, BEGIN);
  for (const { name: place } of places.filter((p) => p.kept)) {
    for await (const { names, stats, fd, directory } of walk(`${disk}/${place}`, [], undefined, { pace })) {
      const path = escape(Buffer.from(key(names), "latin1")), mode = stats.mode & 0o7777;
      if (stats.isDirectory()) name({ place, path, type: "directory", mode });
      else if (stats.isSymbolicLink()) name({ place, path, type: "symlink", mode, target: escape(target(directory, names)) });
      else if (stats.isFile()) {
        name({ place, path, type: "regular", mode, modified: Math.floor(stats.mtimeMs) });
        await digested(fd, pace, undefined, (part) => {
          left -= part.length;
          if (left < 0) throw tooMuch();
          say(DATA, part);
        });
      }
    }
  }
  say(RESULT, Buffer.alloc(0));
  return "sha256:" + sum.digest("hex");
}

/** The frames of a file, and the digest of all of it when it is over. */
class Reader {
  sum = createHash("sha256");

  /** @param {number} file open for reading */
  constructor(file) {
    this.file = file;
  }

  /** @param {number} size */
  take(size) {
    const data = Buffer.allocUnsafe(size);
    for (let done = 0; done < size; ) {
      const count = readSync(this.file, data, done, size - done, null);
      if (count === 0) throw damaged();
      done += count;
    }
    this.sum.update(data);
    return data;
  }

  next() {
    const head = this.take(HEAD), size = head.readUInt32BE(1);
    if (size > MAX_FRAME) throw damaged();
    return { type: head[0], payload: this.take(size) };
  }
}

export const damaged = () => failed("provider_error", undefined, "the snapshot is damaged");

/**
 * Puts the files of an archive into the places of a new disk, which nobody else has yet.
 * What is not what was written is damaged, also where it can be read.
 * @param {number} file open for reading
 * @param {string} digest of what was written
 * @param {string} disk
 * @param {Pace} pace
 */
export async function unpack(file, digest, disk, pace) {
  const reader = new Reader(file);
  /** @type {{ key: string, fd: number } | undefined} */
  let parent;
  /** @type {{ fd: number, item: Item } | undefined} */
  let open;
  const finish = () => {
    if (!open) return;
    const { fd, item: { mode, modified = 0 } } = open;
    open = undefined;
    try {
      fchownSync(fd, OWNER, OWNER);
      fchmodSync(fd, mode);
      futimesSync(fd, modified / 1000, modified / 1000);
    } finally {
      closeSync(fd);
    }
  };
  try {
    if (!reader.take(BEGIN.length).equals(BEGIN)) throw damaged();
    for (;;) {
      await pace.rest();
      const { type, payload } = reader.next();
      if (type === DATA && open) {
        put(open.fd, payload);
        continue;
      }
      finish();
      if (type === RESULT) break;
      if (type !== ITEM) throw damaged();
      const item = /** @type {Item} */ (strict(payload)), names = parts(unescape(item.path)), last = names.pop();
      const base = `${disk}/${item.place}`, place = `${item.place}/${key(names)}`;
      if (!last || !/^place-[0-9]+$/.test(item.place)) throw damaged();
      if (parent?.key !== place) {
        if (parent) closeSync(parent.fd);
        parent = undefined;
        parent = { key: place, fd: descend(base, names, undefined) };
      }
      const path = at(parent.fd, last);
      if (item.type === "regular") open = { item, fd: openSync(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600) };
      else if (item.type === "symlink") {
        symlinkSync(unescape(item.target ?? ""), path);
        lchownSync(path, OWNER, OWNER);
      } else directory(parent.fd, last, item.mode);
    }
  } finally {
    if (open) closeSync(open.fd);
    if (parent) closeSync(parent.fd);
  }
  if ("sha256:" + reader.sum.digest("hex") !== digest) throw damaged();
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
