// Snapshots on the disk of this host: of each the files, in one, and beside them what
// they are. The second makes the first a snapshot: it is written last, and goes first.
import { createHash, randomBytes } from "node:crypto";
import { closeSync, fsync, mkdirSync, openSync, readFileSync, readSync, readdirSync, renameSync, rmSync, statSync, utimesSync, writeFileSync, writeSync } from "node:fs";
import { promisify } from "node:util";

import { damaged, pack, unpack } from "./archive.mjs";
import { canonical, digest, strict } from "./codec.mjs";
import { Failure, conflict } from "./failure.mjs";
import { Pace } from "./listing.mjs";
import { now } from "./machine.mjs";
import { plan } from "./places.mjs";
import { NAME } from "./settings.mjs";

/** @typedef {import("./journal.mjs").Operation} Operation */

/**
 * What is known of a snapshot. files is the digest of the archive.
 * @typedef {{ reference: Wire.Snapshot, mounts: Wire.Mount[], disk_bytes: number, files: string }} Kept
 */

/** One that is there. */
class Snapshot {
  /** Operations that made it, until somebody named it. @type {Operation[]} */
  handoffs = [];

  /** @param {Kept} kept @param {string} seen when it was last used */
  constructor(kept, seen) {
    this.kept = kept;
    this.seen = seen;
  }
}

/** The archive that a snapshot copies from. @typedef {(file: number) => Promise<string>} Fill */

export class Snapshots {
  /** @type {Map<string, Snapshot>} */
  all = new Map();

  /** Takes up what is there, and erases what was never finished. @param {string} directory */
  constructor(directory) {
    this.directory = directory;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const names = readdirSync(directory);
    for (const name of names) {
      const path = `${directory}/${name}`, id = name.replace(/\.[a-z]+$/, "");
      if (name.endsWith(".new") || (name.endsWith(".files") && !names.includes(id + ".json"))) rmSync(path);
      if (!name.endsWith(".json")) continue;
      try {
        const { check, ...kept } = strict(readFileSync(path));
        if (check !== digest(canonical(kept)) || kept.reference.snapshot_id !== id) throw new Error("it is not what was written");
        this.all.set(id, new Snapshot(kept, statSync(path).mtime.toISOString()));
      } catch (why) {
        console.error(`${NAME}: ${path}: ${why}`); // it is left there, for whoever can make something of it
      }
    }
  }

  /** @param {string} id */
  paths(id) {
    return { files: `${this.directory}/${id}.files`, kept: `${this.directory}/${id}.json` };
  }

  /**
   * Makes a snapshot, whole and durable or not at all. The operation says first what it
   * makes, so that a rollback finds it whatever happens meanwhile.
   * @param {Operation} operation
   * @param {Omit<Kept, "files">} what without its id
   * @param {Fill} fill writes the archive and returns its digest
   * @returns {Promise<Wire.Snapshot>}
   */
  async keep(operation, what, fill) {
    const id = "snap-" + randomBytes(16).toString("hex"), { files, kept } = this.paths(id);
    await operation.makes({ snapshot: id });
    const file = openSync(files, "wx", 0o600);
    try {
      const whole = { ...what, reference: { ...what.reference, snapshot_id: id }, files: await fill(file) };
      await sync(files);
      writeFileSync(kept + ".new", canonical({ ...whole, check: digest(canonical(whole)) }), { flag: "wx", mode: 0o600 });
      await sync(kept + ".new");
      renameSync(kept + ".new", kept);
      await sync(this.directory);
      const snapshot = new Snapshot(whole, now());
      snapshot.handoffs.push(operation);
      this.all.set(id, snapshot);
      return whole.reference;
    } catch (why) {
      for (const path of [kept, kept + ".new", files]) rmSync(path, { force: true });
      throw why;
    } finally {
      closeSync(file);
    }
  }

  /**
   * Captures the places of a disk.
   * @param {Operation} operation
   * @param {Omit<Kept, "files">} what
   * @param {string} disk
   * @param {Pace} pace
   */
  capture(operation, what, disk, pace) {
    return this.keep(operation, what, async (file) => {
      const written = await pack(disk, plan(what.mounts), file, what.disk_bytes, pace);
      pace.wanted(); // what went meanwhile may have been captured in part
      return written;
    });
  }

  /** Copies one, so that they share nothing. @param {Operation} operation @param {Snapshot} source @param {Wire.Snapshot} reference */
  clone(operation, source, reference) {
    const pace = new Pace(() => {});
    return this.keep(operation, { ...source.kept, reference }, async (to) => {
      const from = this.open(source), sum = createHash("sha256"), part = Buffer.allocUnsafe(1 << 20);
      try {
        for (let size = readSync(from, part); size > 0; size = readSync(from, part)) {
          sum.update(part.subarray(0, size));
          for (let done = 0; done < size; ) done += writeSync(to, part, done, size - done);
          await pace.rest();
        }
      } finally {
        closeSync(from);
      }
      const got = "sha256:" + sum.digest("hex");
      if (got !== source.kept.files) throw damaged();
      return got;
    });
  }

  /** Puts its files into the places of a new disk. @param {Snapshot} snapshot @param {string} disk @param {Pace} pace */
  async restore(snapshot, disk, pace) {
    const file = this.open(snapshot);
    try {
      await unpack(file, snapshot.kept.files, disk, pace);
    } finally {
      closeSync(file);
    }
  }

  /** Once it is open, a destroy takes nothing of it away. @param {Snapshot} snapshot */
  open({ kept: { reference: { snapshot_id } } }) {
    if (!this.all.has(snapshot_id)) throw new Failure("SandboxSnapshotNotFound", { snapshot_id });
    return openSync(this.paths(snapshot_id).files, "r");
  }

  /** The one that a reference names: it is no authority, and has to agree. @param {Wire.Snapshot} reference */
  named(reference) {
    const { snapshot_id } = reference, snapshot = this.all.get(snapshot_id);
    if (!snapshot || now() >= snapshot.kept.reference.expires_at) throw new Failure("SandboxSnapshotNotFound", { snapshot_id });
    for (const operation of snapshot.handoffs.splice(0)) operation.own();
    const [is, said] = [snapshot.kept.reference, reference].map(canonical);
    if (is !== said) throw conflict("snapshot " + is, said ?? "");
    snapshot.seen = now();
    utimesSync(this.paths(snapshot_id).kept, new Date(), new Date()); // a sweep after a restart goes by this
    return snapshot;
  }

  /** Erases one, if there is one. @param {string} id */
  async destroy(id) {
    if (!this.all.delete(id)) return;
    const { files, kept } = this.paths(id);
    rmSync(kept, { force: true });
    await sync(this.directory);
    rmSync(files, { force: true });
  }

  /** Those that have expired, or were not used since the cutoff and are not pinned. @param {Wire.CleanupRequest} request */
  orphans({ now, orphaned_before, pinned_snapshots = [] }) {
    return [...this.all].filter(([id, { kept, seen }]) =>
      now >= kept.reference.expires_at || (seen < orphaned_before && !pinned_snapshots.includes(id))).map(([id]) => id).sort();
  }
}

/** Makes a file, or the names in a directory, durable. @param {string} path */
async function sync(path) {
  const fd = openSync(path, "r");
  try {
    await promisify(fsync)(fd);
  } finally {
    closeSync(fd);
  }
}
