// Instances: what each of them holds, and how it goes.
import { execute } from "./machine.mjs";
import { makeDisk, unmake } from "./root.mjs";
import { NAME } from "./settings.mjs";

/** @typedef {import("./journal.mjs").Operation} Operation */

/** One machine that may run commands. */
export class Instance {
  /** Commands that run. @type {Set<{ kill(): Promise<void> }>} */
  running = new Set();
  /** Operations that made it, until somebody named it. @type {Operation[]} */
  handoffs = [];
  gone = false;
  seen = new Date().toISOString();
  /** @type {Promise<void> | undefined} */
  ending;
  /** @type {NodeJS.Timeout | undefined} */
  timer;

  /**
   * @param {string} state the directory of this provider
   * @param {string} root of its machines
   * @param {Wire.Instance} value
   */
  constructor(state, root, value) {
    this.state = state;
    this.root = root;
    this.value = value;
    this.id = value.instance_id;
    this.disk = `${state}/${this.id}`;
    this.table = `${this.disk}.mounts`;
  }

  /** Makes its disk; nothing is left of one that fails. */
  async begin() {
    try {
      await makeDisk(this.disk, this.value.profile.resource_limits.disk_bytes, this.root, this.table);
    } catch (why) {
      await this.end();
      throw why;
    }
    this.watch();
  }

  /** Ends what runs in it at its deadline; it stays until it is swept. */
  watch() {
    const left = Date.parse(this.value.expires_at) - Date.now();
    if (left <= 0) this.end().catch((why) => console.error(`${NAME}: ${this.id} ends later: ${why}`));
    else this.timer = setTimeout(() => this.watch(), Math.min(left, 2 ** 31 - 1)).unref(); // the longest that a timer takes
  }

  /** Ends everything and erases every trace. Safe to repeat. */
  end() {
    this.gone = true;
    return (this.ending ??= (async () => {
      clearTimeout(this.timer);
      await Promise.all([...this.running].map((command) => command.kill()));
      await unmake(this.disk);
      await unmake(this.table);
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
