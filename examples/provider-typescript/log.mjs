// What has to be known after a restart, on the disk: one record a line. It is there
// where the provider retains something that its operations speak of.
import { closeSync, fdatasync, fstatSync, fsyncSync, ftruncateSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";

import { canonical, strict } from "./codec.mjs";
import { full } from "./contained.mjs";

/**
 * A record: the epoch of a lease; an operation that begins, what it makes, that somebody
 * named that, what it answers, that it was undone; an instance that is gone.
 * @typedef {{ epoch: number, lease: string }
 *   | { begins: string, endpoint: string, digest: string }
 *   | { makes: string, instance?: string, deadline?: string, snapshot?: string }
 *   | { owned: string }
 *   | { answers: string, status: number, body: string }
 *   | { undone: string, endpoint: string }
 *   | { gone: string }} Entry
 */

/** How many records there may be before they are written anew without those that say nothing any more. */
const SLACK = 10000;

export class Log {
  count = 0;
  file = -1;
  /** @type {Set<Promise<void>>} */
  syncing = new Set();

  /** @param {string} path */
  constructor(path) {
    this.path = path;
  }

  /** Everything that was written, but for a last line that a crash cut off. @returns {Entry[]} */
  read() {
    let text;
    try {
      text = readFileSync(this.path);
    } catch (why) {
      if (/** @type {NodeJS.ErrnoException} */ (why).code === "ENOENT") return [];
      throw why;
    }
    const lines = text.subarray(0, text.lastIndexOf("\n") + 1).toString().split("\n").slice(0, -1);
    return lines.map((line, i) => {
      try {
        return strict(Buffer.from(line));
      } catch (why) {
        throw new Error(`${this.path} is damaged in line ${i + 1}`);
      }
    });
  }

  /** Puts records in the place of all that there are. @param {Entry[]} entries */
  rewrite(entries) {
    const path = this.path + ".new", fresh = openSync(path, "w", 0o600);
    writeFileSync(fresh, entries.map((entry) => canonical(entry) + "\n").join(""));
    fsyncSync(fresh);
    renameSync(path, this.path);
    const directory = openSync(dirname(this.path), "r");
    fsyncSync(directory);
    closeSync(directory);
    const { file: old, syncing } = this;
    if (old >= 0) void Promise.allSettled(syncing).then(() => closeSync(old));
    this.file = fresh;
    this.count = 0;
  }

  /** Whether it is time for that. @param {number} needed records that still say something */
  grown(needed) {
    return this.count > SLACK + 2 * needed;
  }

  /** Writes a record; it survives the end of this program. @param {Entry} entry */
  append(entry) {
    const line = Buffer.from(canonical(entry) + "\n"), before = fstatSync(this.file).size;
    try {
      for (let done = 0; done < line.length; ) done += writeSync(this.file, line, done);
    } catch (why) {
      ftruncateSync(this.file, before); // a disk that is full takes a part of it
      throw full(why);
    }
    this.count++;
  }

  /** Writes a record that survives the end of the host. @param {Entry} entry */
  async keep(entry) {
    this.append(entry);
    const synced = promisify(fdatasync)(this.file);
    this.syncing.add(synced);
    try {
      await synced;
    } finally {
      this.syncing.delete(synced);
    }
  }

  close() {
    if (this.file >= 0) closeSync(this.file);
    this.file = -1;
  }
}
