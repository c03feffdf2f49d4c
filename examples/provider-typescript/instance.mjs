// Instances: what each of them holds, and how it goes.
import { unescape } from "./codec.mjs";
import { key } from "./listing.mjs";
import { execute } from "./machine.mjs";
import { around, parts, plan, within } from "./places.mjs";
import { makeDisk, makeRoot, unmake } from "./root.mjs";
import { NAME } from "./settings.mjs";

/** @typedef {import("./journal.mjs").Operation} Operation */

/** One machine that may run commands. */
export class Instance {
  /** Commands that run. @type {Set<{ kill(): Promise<void> }>} */
  running = new Set();
  /** Operations that made it, until somebody named it. @type {Operation[]} */
  handoffs = [];
  /** Nothing is let in any more, and nothing is left of it soon. */
  gone = false;
  /** Nothing runs in it any more. */
  stopped = false;
  /** It is being released. */
  releasing = false;
  seen = new Date().toISOString();
  /** @type {Promise<void> | undefined} */
  ending;
  /** @type {NodeJS.Timeout | undefined} */
  timer;

  /**
   * @param {string} state the directory of this provider
   * @param {Wire.Instance} value
   */
  constructor(state, value) {
    this.state = state;
    this.value = value;
    this.id = value.instance_id;
    this.places = plan(value.mounts);
    this.disk = `${state}/${this.id}`;
    this.root = this.disk + "/root";
    this.table = this.disk + ".mounts";
  }

  /** Makes its disk and its root; nothing is left of one that fails. @param {() => Promise<void> | undefined} [fill] puts something in its places */
  async begin(fill) {
    try {
      await makeDisk(this.disk, this.value.profile.resource_limits.disk_bytes, this.places);
      await fill?.();
      await makeRoot(this.disk, this.places);
    } catch (why) {
      await this.end();
      throw why;
    }
    this.watch();
  }

  /** The place that owns a path, of those that files are staged in and read from. @param {string} path */
  owner(path) {
    return around(this.places.filter((place) => place.open), path);
  }

  /** Where a path of a place lies: a directory here, and components below it. @param {import("./places.mjs").Place} place @param {string} path */
  below(place, path) {
    return { base: `${this.disk}/${place.name}`, names: parts(unescape(path)).slice(parts(unescape(place.path)).length) };
  }

  /** What below a place belongs to deeper ones. @param {import("./places.mjs").Place} place */
  inner(place) {
    const deeper = this.places.filter((p) => p !== place && within(p.path, place.path));
    return new Set(deeper.map((p) => key(this.below(place, p.path).names)));
  }

  /** Whether its files are to outlive it. */
  get durable() {
    return this.value.profile.retention_mode === "durable";
  }

  /** Ends what runs in it at its deadline; it stays until it is swept, and the files of a durable one until then. */
  watch() {
    const left = Date.parse(this.value.expires_at) - Date.now();
    if (left > 0) this.timer = setTimeout(() => this.watch(), Math.min(left, 2 ** 31 - 1)).unref(); // the longest that a timer takes
    else (this.durable ? this.stop() : this.end()).catch((why) => console.error(`${NAME}: ${this.id} ends later: ${why}`));
  }

  /** Ends what runs in it; nothing starts any more. */
  async stop() {
    this.stopped = true;
    await Promise.all([...this.running].map((command) => command.kill()));
  }

  /** Ends everything and erases every trace. Safe to repeat. */
  end() {
    this.gone = true;
    return (this.ending ??= (async () => {
      clearTimeout(this.timer);
      await this.stop();
      await unmake(this.disk);
    })().catch((why) => {
      this.ending = undefined; // for whoever tries again
      throw why;
    }));
  }

  /** @param {Wire.Command} command @param {Buffer} stdin */
  execute(command, stdin) {
    return execute(this, command, stdin);
  }
}
