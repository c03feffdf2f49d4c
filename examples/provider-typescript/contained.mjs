// Files of an instance, from outside. Containment is physical: every component is
// opened from the descriptor of the one before, and no link is followed. Text is
// compared nowhere. Node has no openat; a path through /proc/self/fd is one.
import { randomBytes } from "node:crypto";
import { chownSync, closeSync, constants, fchmodSync, fchownSync, lstatSync, mkdirSync, openSync, renameSync, unlinkSync, writeSync } from "node:fs";

import { failed, unavailable } from "./failure.mjs";
import { OWNER } from "./root.mjs";

const { O_DIRECTORY, O_NOFOLLOW, O_WRONLY, O_CREAT, O_EXCL } = constants;
const O_PATH = 0o10000000; // Node has no name for it; the same on every architecture that it runs on

/** @param {unknown} why */
const codeOf = (why) => /** @type {NodeJS.ErrnoException} */ (why).code;

/** A name in an open directory. @param {number} directory @param {Buffer} name */
const at = (directory, name) => Buffer.concat([Buffer.from(`/proc/self/fd/${directory}/`), name]);

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
 * The descriptor of a directory below base, made where it is missing; the caller
 * closes it.
 * @param {string} base
 * @param {Buffer[]} names
 * @param {string} path for the failure
 */
function descend(base, names, path) {
  let here = openSync(base, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  try {
    for (const name of names) {
      const below = at(here, name);
      let next;
      try {
        next = openSync(below, O_PATH | O_DIRECTORY | O_NOFOLLOW);
      } catch (why) {
        if (codeOf(why) === "ENOTDIR" || codeOf(why) === "ELOOP") throw failed(found(below)?.isSymbolicLink() === false ? "not_directory" : "outside_root", path);
        if (codeOf(why) !== "ENOENT") throw why;
        mkdirSync(below, 0o755);
        next = openSync(below, O_PATH | O_DIRECTORY | O_NOFOLLOW);
        chownSync(`/proc/self/fd/${next}`, OWNER, OWNER);
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
 * Puts a file, whole or not at all.
 * @param {string} base
 * @param {Buffer[]} names components below base
 * @param {Buffer} data
 * @param {boolean} executable
 * @param {string} path for the failure
 */
export function write(base, names, data, executable, path) {
  const directory = descend(base, names.slice(0, -1), path);
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

/** The failure that a member answers with. @param {unknown} why @param {string} path */
function full(why, path) {
  const code = codeOf(why);
  if (code === undefined) return why;
  if (code === "ENOSPC" || code === "EDQUOT") return unavailable("resources", "room for the file", "disk_bytes");
  return failed("provider_error", path, String(why));
}
