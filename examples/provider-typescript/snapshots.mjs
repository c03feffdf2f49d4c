// Snapshots on the disk of this host, each a file that comes by its name when it is
// whole: until then there is none.
import { randomBytes } from "node:crypto";
import { closeSync, fsync, mkdirSync, openSync, readdirSync, renameSync, rmSync, statSync, utimesSync } from "node:fs";
import { promisify } from "node:util";

import { about, copy, damaged, pack, unpack } from "./archive.mjs";
import { canonical } from "./codec.mjs";
import { codeOf, full } from "./contained.mjs";
import { Failure, conflict } from "./failure.mjs";
import { Pace } from "./listing.mjs";
import { now } from "./machine.mjs";
import { plan } from "./places.mjs";
import { NAME } from "./settings.mjs";

/** @typedef {import("./journal.mjs").Operation} Operation */
/** What is known of a snapshot. @typedef {{ reference: Wire.Snapshot, mounts: Wire.Mount[], disk_bytes: number }} Kept */

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

export class Snapshots {
  /** @type {Map<string, Snapshot>} */
  all = new Map();

  /**
   * Takes up what is there, and erases what was never finished.
   * @param {string} directory
   * @param {(id: string) => boolean} made says whether an operation is known that made one
   */
  constructor(directory, made) {
    this.directory = directory;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    for (const id of readdirSync(directory)) {
      const path = this.path(id);
      try {
        if (id.startsWith(".")) throw damaged();
        const file = openSync(path, "r");
        try {
          const kept = /** @type {Kept} */ (about(file));
          if (kept.reference.snapshot_id !== id) throw damaged();
          this.all.set(id, new Snapshot(kept, statSync(path).mtime.toISOString()));
        } finally {
          closeSync(file);
        }
      } catch (why) {
        if (made(id)) console.error(`${NAME}: ${path} is damaged: ${why}`); // it stays, for whoever can make something of it
        else rmSync(path, { recursive: true });
      }
    }
  }

  /** @param {string} id */
  path(id) {
    return `${this.directory}/${id}`;
  }

  /**
   * Makes a snapshot, whole and durable or not at all. The operation says first what it
   * makes, so that a rollback finds it whatever happens meanwhile.
   * @param {Operation} operation
   * @param {Kept} what without its id
   * @param {(file: number, kept: Kept) => Promise<void>} fill writes the archive
   * @returns {Promise<Wire.Snapshot>}
   */
  async keep(operation, what, fill) {
    const id = "snap-" + randomBytes(16).toString("hex"), hidden = this.path("." + id);
    const kept = { ...what, reference: { ...what.reference, snapshot_id: id } };
    await operation.makes({ snapshot: id });
    try {
      const file = openSync(hidden, "wx", 0o600);
      try {
        await fill(file, kept);
      } finally {
        closeSync(file);
      }
      await sync(hidden);
      renameSync(hidden, this.path(id));
      await sync(this.directory);
    } catch (why) {
      for (const path of [hidden, this.path(id)]) rmSync(path, { force: true });
      throw full(why);
    }
    const snapshot = new Snapshot(kept, now());
    snapshot.handoffs.push(operation);
    this.all.set(id, snapshot);
    return kept.reference;
  }

  /** Captures the places of a disk. @param {Operation} operation @param {Kept} what @param {string} disk @param {Pace} pace */
  capture(operation, what, disk, pace) {
    return this.keep(operation, what, async (file, kept) => {
      await pack(disk, plan(what.mounts), file, kept, what.disk_bytes, pace);
      pace.wanted(); // what went meanwhile may have been captured in part
    });
  }

  /** Copies one, so that they share nothing. @param {Operation} operation @param {Snapshot} source @param {Wire.Snapshot} reference */
  clone(operation, source, reference) {
    return this.keep(operation, { ...source.kept, reference }, (to, kept) =>
      this.opened(source, (from) => copy(from, to, kept, new Pace(() => {}))));
  }

  /** Puts its files into the places of a new disk. @param {Snapshot} snapshot @param {string} disk @param {Pace} pace */
  restore(snapshot, disk, pace) {
    return this.opened(snapshot, (file) => unpack(file, disk, pace));
  }

  /** Once it is open, a destroy takes nothing of it away. @param {Snapshot} snapshot @param {(file: number) => Promise<void>} use */
  async opened({ kept: { reference: { snapshot_id } } }, use) {
    if (!this.all.has(snapshot_id)) throw new Failure("SandboxSnapshotNotFound", { snapshot_id });
    let file;
    try {
      file = openSync(this.path(snapshot_id), "r");
    } catch (why) {
      throw codeOf(why) === "ENOENT" ? damaged() : why;
    }
    try {
      await use(file);
    } finally {
      closeSync(file);
    }
  }

  /** The one that a reference names: it is no authority, and has to agree. @param {Wire.Snapshot} reference */
  named(reference) {
    const { snapshot_id } = reference, snapshot = this.all.get(snapshot_id);
    if (!snapshot || now() >= snapshot.kept.reference.expires_at) throw new Failure("SandboxSnapshotNotFound", { snapshot_id });
    for (const operation of snapshot.handoffs.splice(0)) operation.own();
    const is = canonical(snapshot.kept.reference), said = canonical(reference);
    if (is !== said) throw conflict("snapshot " + is, said);
    snapshot.seen = now();
    try {
      utimesSync(this.path(snapshot_id), new Date(), new Date()); // a sweep after a restart goes by this
    } catch (why) {
      throw codeOf(why) === "ENOENT" ? damaged() : why;
    }
    return snapshot;
  }

  /** Erases one, if there is one. @param {string} id */
  async destroy(id) {
    if (!this.all.delete(id)) return;
    rmSync(this.path(id), { force: true });
    await sync(this.directory);
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
