// What lies below a directory of a place, from outside: the walk, and the two listings.
// It holds one directory open at a time, however deep a workload has nested them.
import { createHash } from "node:crypto";
import { closeSync, fstatSync, readSync, readdirSync, readlinkSync } from "node:fs";
import { setImmediate } from "node:timers/promises";

import { escape } from "./codec.mjs";
import { Descent, at, codeOf, full, look, numbered, reasonOf, reopen } from "./contained.mjs";
import { failed } from "./failure.mjs";

/** How many directories are walked, and how long a path may be: what is made of nothing has an end too. */
const MAX_DIRECTORIES = 100000, MAX_PATH = 4096;
/** How much of a file is read at once, in bytes: it has room in a frame. */
const PART = 1 << 19;
/** How long others wait for this, in milliseconds. */
const SLICE = 10;

/** Lets others in now and then, and ends where nobody waits any more. */
export class Pace {
  began = performance.now();

  /** @param {() => void} wanted throws where it is not */
  constructor(wanted) {
    this.wanted = wanted;
  }

  async rest() {
    if (performance.now() - this.began < SLICE) return;
    await setImmediate();
    this.wanted();
    this.began = performance.now();
  }
}

/**
 * What is below a directory: its path; what it is; how to reach it, as long as the walk
 * has not gone on.
 * @typedef {{ names: Buffer[], stats: import("node:fs").Stats, fd: number, directory: number }} Found
 */

/**
 * Everything below a directory, a directory before what is in it, by name.
 * @param {string} base
 * @param {Buffer[]} names of the directory, below base
 * @param {string | undefined} path for the failure
 * @param {{ pace: Pace, skip?: Set<string>, whole?: boolean }} o skip are directories of
 *   other places; a whole walk is of one moment, or fails
 * @returns {AsyncGenerator<Found>}
 */
export async function* walk(base, names, path, { pace, skip, whole = false }) {
  const descent = new Descent(base, path);
  /** @type {Buffer[][]} */
  const waiting = [[]];
  /** @type {[Buffer[], string][]} */
  const seen = [];
  try {
    for (let below = waiting.pop(); below; below = waiting.pop()) {
      let directory;
      try {
        directory = descent.open([...names, ...below]);
      } catch (why) {
        if (below.length > 0 && gone(why)) why = whole ? failed("changed", path) : undefined;
        if (why) throw why;
        continue; // it went meanwhile
      }
      seen.push([below, state(directory)]);
      if (seen.length > MAX_DIRECTORIES) throw failed("too_many_entries", path, "too many directories");
      /** @type {Buffer[][]} */
      const inner = [];
      for (const name of readdirSync(numbered(directory), { encoding: "buffer" }).sort(Buffer.compare)) {
        await pace.rest();
        const here = [...below, name];
        if (here.reduce((sum, { length }) => sum + length + 1, -1) > MAX_PATH) throw failed("too_many_entries", path, "a path is longer than its bound");
        if (skip?.has(key([...names, ...here]))) continue;
        let fd;
        try {
          fd = look(directory, name);
        } catch (why) {
          if (!whole && codeOf(why) === "ENOENT") continue;
          throw codeOf(why) === "ENOENT" ? failed("changed", path) : full(why, path);
        }
        try {
          const stats = fstatSync(fd);
          yield { names: here, stats, fd, directory };
          if (stats.isDirectory()) inner.push(here);
        } finally {
          closeSync(fd);
        }
      }
      waiting.push(...inner.reverse());
    }
    // Whoever moves something from where we have not been to where we have been changes
    // both directories.
    for (const [below, was] of whole ? seen : []) {
      await pace.rest();
      try {
        if (state(descent.open([...names, ...below])) === was) continue;
      } catch (why) {
        if (!gone(why)) throw why;
      }
      throw failed("changed", path);
    }
  } finally {
    descent.close();
  }
}

/** A directory as it is; no workload can set the time of its last change. @param {number} fd */
function state(fd) {
  const { dev, ino, ctimeNs } = fstatSync(fd, { bigint: true });
  return [dev, ino, ctimeNs].join(" ");
}

/** That what had a name is another thing by now. @param {unknown} why */
const gone = (why) => ["not_found", "not_directory", "outside_root"].includes(reasonOf(why) ?? "");

/** Components as one text, for a set. @param {Buffer[]} names */
export const key = (names) => names.map((name) => name.toString("latin1")).join("/");

/** Size and digest of a regular file. @param {number} fd of look @param {Pace} pace @param {string} path for the failure */
async function digested(fd, pace, path) {
  const sum = createHash("sha256"), size = await contents(fd, pace, path, (part) => void sum.update(part));
  return { size, digest: "sha256:" + sum.digest("hex") };
}

/**
 * Reads a regular file, as long as it was when it was opened: what is appended
 * meanwhile is not read, for there may be no end of it. Returns how long that is.
 * @param {number} fd of look
 * @param {Pace} pace
 * @param {string | undefined} path for the failure
 * @param {(part: Buffer, offset: number) => void} each
 */
export async function contents(fd, pace, path, each) {
  const file = reopen(fd, path);
  try {
    const most = fstatSync(file).size, part = Buffer.allocUnsafe(Math.min(most, PART));
    let size = 0;
    while (size < most) {
      const count = readSync(file, part, 0, Math.min(part.length, most - size), null);
      if (count === 0) break;
      each(part.subarray(0, count), size);
      size += count;
      await pace.rest();
    }
    return size;
  } finally {
    closeSync(file);
  }
}

/** @typedef {{ path: string, size?: number, digest?: string, type?: string, executable?: true, target?: string }} Entry */

/**
 * The regular files below a directory; or, of a project, every leaf, with what is
 * special named by what it is. In the order of their bytes.
 * @param {string} base
 * @param {Buffer[]} names
 * @param {string} path for the failure
 * @param {{ most: number, project: boolean, skip: Set<string>, pace: Pace }} o
 */
export async function list(base, names, path, { most, project, skip, pace }) {
  /** @type {{ raw: Buffer, entry: Entry }[]} */
  const all = [];
  for await (const { names: below, stats, fd, directory } of walk(base, names, path, { pace, skip, whole: project })) {
    if (stats.isDirectory() || (!project && !stats.isFile())) continue;
    if (all.length === most) throw failed("too_many_entries", path);
    const raw = Buffer.from(key(below), "latin1");
    /** @type {Entry} */
    const entry = { path: escape(raw) };
    if (stats.isFile()) {
      Object.assign(entry, await digested(fd, pace, path));
      if (project) Object.assign(entry, { type: "regular" }, stats.mode & 0o111 ? { executable: true } : {});
    } else if (stats.isSymbolicLink()) {
      Object.assign(entry, { type: "symlink", target: escape(target(directory, below, path)) });
    } else entry.type = stats.isFIFO() ? "fifo" : stats.isSocket() ? "socket" : stats.isCharacterDevice() || stats.isBlockDevice() ? "device" : "other";
    all.push({ raw, entry });
  }
  return all.sort((a, b) => Buffer.compare(a.raw, b.raw)).map(({ entry }) => entry);
}

/** Where a link leads. It is read by its name, so that it can be another by now. @param {number} directory @param {Buffer[]} names @param {string} [path] */
export function target(directory, names, path) {
  try {
    return readlinkSync(at(directory, names[names.length - 1] ?? Buffer.alloc(0)), { encoding: "buffer" });
  } catch (why) {
    throw codeOf(why) === "EINVAL" || codeOf(why) === "ENOENT" ? failed("changed", path) : full(why, path);
  }
}
