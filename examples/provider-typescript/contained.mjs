// Files of an instance, from outside. Containment is physical: every component is
// opened from the descriptor of the one before, and no link is followed. Text is
// compared nowhere. Node has no openat; a path through /proc/self/fd is one.
import { randomBytes } from "node:crypto";
import {
  chownSync, closeSync, constants, fchmodSync, fchownSync, fstatSync, lstatSync, mkdirSync, openSync, readSync, renameSync, unlinkSync, writeSync,
} from "node:fs";

import { failed, unavailable } from "./failure.mjs";
import { OWNER } from "./settings.mjs";

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY, O_CREAT, O_EXCL } = constants;
const O_PATH = 0o10000000; // Node has no name for it; the same on every architecture that it runs on

/** @param {unknown} why */
export const codeOf = (why) => /** @type {NodeJS.ErrnoException} */ (why).code;

/** Why a file is refused, in the word of the contract. @param {unknown} why */
export const reasonOf = (why) => /** @type {{ fields?: { reason?: string } }} */ (why).fields?.reason;

/** What an open descriptor is of, as a path. @param {number} fd */
export const numbered = (fd) => `/proc/self/fd/${fd}`;

/** A name in an open directory. @param {number} directory @param {Buffer} name */
export const at = (directory, name) => Buffer.concat([Buffer.from(numbered(directory) + "/"), name]);

/** What has a name, opened without touching it: a pipe or a device hears nothing. @param {number} directory @param {Buffer} name */
export const look = (directory, name) => openSync(at(directory, name), O_PATH | O_NOFOLLOW);

/** What is under a name, never followed. @param {Buffer} path */
function found(path) {
  try {
    return lstatSync(path);
  } catch (why) {
    if (codeOf(why) === "ENOENT") return undefined;
    throw why;
  }
}

/**
 * The descriptor of a directory below base; the caller closes it.
 * @param {string} base
 * @param {Buffer[]} names
 * @param {string | undefined} path for the failure
 * @param {number} [owner] of what is made where it is missing; nothing is made without
 */
export function descend(base, names, path, owner) {
  let here = openSync(base, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  try {
    for (const name of names) {
      const below = at(here, name);
      let next;
      try {
        next = openSync(below, O_PATH | O_DIRECTORY | O_NOFOLLOW);
      } catch (why) {
        // It may change as we look: what is a link or nothing is never followed.
        if (codeOf(why) === "ENOTDIR" || codeOf(why) === "ELOOP") throw failed(found(below)?.isSymbolicLink() === false ? "not_directory" : "outside_root", path);
        if (codeOf(why) !== "ENOENT") throw why;
        if (owner === undefined) throw failed("not_found", path);
        mkdirSync(below, 0o755);
        next = openSync(below, O_PATH | O_DIRECTORY | O_NOFOLLOW);
        chownSync(numbered(next), owner, owner);
      }
      closeSync(here);
      here = next;
    }
    return here;
  } catch (why) {
    closeSync(here);
    throw full(why, path);
  }
}

/**
 * Opens directories one after the other, and holds the last: one in that is opened
 * below it, any other from the base again. So a tree costs what it has, and not the
 * square of how deep a workload nested it.
 */
export class Descent {
  /** @type {{ names: Buffer[], fd: number } | undefined} */
  last;

  /** @param {string} base @param {string} [path] for the failure */
  constructor(base, path) {
    this.base = base;
    this.path = path;
  }

  /** The descriptor of a directory, until the next. @param {Buffer[]} names below the base */
  open(names) {
    const { last, base, path } = this, below = last?.names.every((name, i) => names[i]?.equals(name)) ? names.slice(last.names.length) : undefined;
    if (last && below?.length === 0) return last.fd;
    const fd = last && below?.length === 1 ? descend(numbered(last.fd) + "/.", below, path) : descend(base, names, path);
    this.close();
    this.last = { names, fd };
    return fd;
  }

  close() {
    if (this.last) closeSync(this.last.fd);
    this.last = undefined;
  }
}

/**
 * Opens a regular file for reading; the caller closes it.
 * @param {string} base
 * @param {Buffer[]} names
 * @param {string} path for the failure
 */
export function regular(base, names, path) {
  const last = names[names.length - 1];
  if (!last) throw failed("not_regular", path);
  let directory;
  try {
    directory = descend(base, names.slice(0, -1), path);
  } catch (why) {
    throw reasonOf(why) === "not_directory" ? failed("not_found", path) : why;
  }
  try {
    const file = look(directory, last);
    try {
      return reopen(file, path);
    } finally {
      closeSync(file);
    }
  } catch (why) {
    throw codeOf(why) === "ENOENT" ? failed("not_found", path) : full(why, path);
  } finally {
    closeSync(directory);
  }
}

/**
 * Opens for reading what was looked at, whatever its name is now. A workload may hold
 * a lease on it, and an open that waits for that waits for 45 seconds.
 * @param {number} fd
 * @param {string} [path] for the failure
 */
export function reopen(fd, path) {
  const stats = fstatSync(fd);
  if (!stats.isFile()) throw failed(stats.isSymbolicLink() ? "outside_root" : "not_regular", path);
  try {
    return openSync(numbered(fd), O_RDONLY | O_NONBLOCK);
  } catch (why) {
    throw codeOf(why) === "EAGAIN" ? failed("changed", path) : why;
  }
}

/**
 * The bytes of a regular file.
 * @param {string} base
 * @param {Buffer[]} names
 * @param {number} most that there may be
 * @param {string} path for the failure
 */
export function read(base, names, most, path) {
  const file = regular(base, names, path), parts = [];
  try {
    for (let left = Math.min(most, fstatSync(file).size) + 1; left > 0; ) {
      const part = Buffer.allocUnsafe(left), size = readSync(file, part);
      if (size === 0) return Buffer.concat(parts);
      parts.push(part.subarray(0, size));
      left -= size;
      if (left === 0) left = Math.min(most + 1 - parts.reduce((sum, p) => sum + p.length, 0), 1 << 20); // it has grown
    }
    throw failed("too_large", path);
  } finally {
    closeSync(file);
  }
}

/**
 * Puts a file, whole or not at all.
 * @param {string} base
 * @param {Buffer[]} names components below base
 * @param {Buffer} data
 * @param {boolean} executable
 * @param {string} path for the failure
 */
export function write(base, names, data, executable, path) {
  const directory = descend(base, names.slice(0, -1), path, OWNER);
  const last = names[names.length - 1] ?? Buffer.alloc(0), temporary = at(directory, Buffer.from(".checkfu-" + randomBytes(8).toString("hex")));
  try {
    const there = found(at(directory, last));
    if (there && !there.isFile()) throw failed(there.isSymbolicLink() ? "outside_root" : "not_regular", path);
    try {
      put(temporary, data, executable);
      renameSync(temporary, at(directory, last));
    } catch (why) {
      try {
        unlinkSync(temporary);
      } catch {} // it was never made, or somebody took it
      throw why;
    }
  } catch (why) {
    throw full(why, path);
  } finally {
    closeSync(directory);
  }
}

/** @param {Buffer} path @param {Buffer} data @param {boolean} executable */
function put(path, data, executable) {
  const file = openSync(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    for (let done = 0; done < data.length; ) done += writeSync(file, data, done);
    fchownSync(file, OWNER, OWNER);
    fchmodSync(file, executable ? 0o755 : 0o644);
  } finally {
    closeSync(file);
  }
}

/** The failure that a member answers with. @param {unknown} why @param {string} [path] */
export function full(why, path) {
  const code = codeOf(why);
  if (code === undefined) return why;
  if (code === "ENOSPC" || code === "EDQUOT" || code === "EFBIG") return unavailable("resources", "room for it", "disk_bytes");
  return failed("provider_error", path, String(why));
}
