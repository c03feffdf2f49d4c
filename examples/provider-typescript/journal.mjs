// The journal of operations: a call that is delivered more than once runs once.
import { canonical } from "./codec.mjs";
import { Failure, conflict, failed } from "./failure.mjs";

/** For how long an operation is remembered after what it made ended. */
const RETENTION = 24 * 60 * 60 * 1000;
/** What is on the disk too, where there is a log: the operations whose answers are references, and outlive what they name. */
const KEPT = new Set(["provision", "snapshot", "clone_snapshot", "release", "resume"]);

/**
 * An answer; what is streamed has no body, and is never kept.
 * @typedef {{ status: number, framed: boolean, body: Buffer, streamed?: import("./answer.mjs").Streamed, endpoint?: string }} Answer
 * @typedef {import("./log.mjs").Log} Log
 * @typedef {import("./log.mjs").Entry} Entry
 */

/** One entry. */
export class Operation {
  /** What it answers, once it has. @type {Promise<Answer> | undefined} */
  answer;
  /** What it answered, where that is kept. @type {Answer | undefined} */
  answered;
  done = false;
  /** Of what it allocated. @type {(() => Promise<void>) | undefined} */
  undo;
  /** That it made, or made active. @type {string | undefined} */
  instance;
  /** That it made. @type {string | undefined} */
  snapshot;
  /** Somebody has named what it allocated. */
  owned = false;
  rolledBack = false;
  /** Of its last change. */
  since = Date.now();
  /** A rollback that runs, or did. @type {Promise<void> | undefined} */
  rolling;

  /**
   * @param {string} id @param {string} endpoint @param {string} digest of the request, empty for a tombstone
   * @param {Journal} [journal] where it is kept
   */
  constructor(id, endpoint, digest, journal) {
    this.id = id;
    this.endpoint = endpoint;
    this.digest = digest;
    this.journal = journal;
  }

  get log() {
    return this.journal?.log;
  }

  /** Says what it is about to make, and until when that is to live, before it does. @param {{ instance: string } | { snapshot: string }} what @param {string} [deadline] */
  async makes(what, deadline) {
    Object.assign(this, what);
    if (this.log && this.instance && deadline) this.journal?.deadlines.set(this.instance, deadline);
    await this.log?.keep({ makes: this.id, ...what, ...(deadline && { deadline }) });
  }

  /** Somebody names what it made. */
  own() {
    if (this.owned) return;
    this.owned = true;
    this.log?.append({ owned: this.id });
  }

  /** The records that say what it is. @returns {Entry[]} */
  entries() {
    const { id, endpoint, digest, instance, snapshot, answered } = this;
    if (this.rolledBack) return [{ undone: id, endpoint }];
    if (!this.log) return [];
    return [
      { begins: id, endpoint, digest },
      ...(instance || snapshot ? [{ makes: id, ...(instance && { instance }), ...(snapshot && { snapshot }) }] : []),
      ...(this.owned ? [{ owned: id }] : []),
      ...(answered ? [{ answers: id, status: answered.status, body: answered.body.toString() }] : []),
    ];
  }
}

export class Journal {
  /** @type {Map<string, Operation>} */
  operations = new Map();
  /** The highest epoch of each lease. @type {Map<string, number>} */
  epochs = new Map();
  /** Of every instance that was made and is not known to be gone: what of these an earlier provider made ended with it. @type {Map<string, string>} */
  deadlines = new Map();
  swept = Date.now();

  /** @param {(operation: Operation) => boolean} lives says whether what it made is there @param {Log} [log] that outlives this program */
  constructor(lives, log) {
    this.lives = lives;
    this.log = log;
    for (const entry of log?.read() ?? []) this.load(entry);
    for (const operation of this.operations.values()) {
      if (operation.done) continue;
      // What it made, if anything, is found by a rollback.
      const body = Buffer.from(canonical(failed("indeterminate").body(operation.endpoint)));
      this.settle(operation, { status: 500, framed: false, body });
    }
    log?.rewrite(this.entries());
  }

  /** @param {Entry} entry */
  load(entry) {
    if ("epoch" in entry) this.epochs.set(entry.lease, entry.epoch);
    else if ("begins" in entry) this.operations.set(entry.begins, new Operation(entry.begins, entry.endpoint, entry.digest, this));
    else if ("gone" in entry) this.deadlines.delete(entry.gone);
    else if ("undone" in entry) {
      const tombstone = this.operations.get(entry.undone) ?? new Operation(entry.undone, entry.endpoint, "");
      tombstone.rolledBack = tombstone.done = true;
      tombstone.answer = undefined;
      this.operations.set(entry.undone, tombstone);
    } else if ("makes" in entry) {
      const { makes, deadline, ...what } = entry;
      Object.assign(this.operations.get(makes) ?? {}, what);
      if (entry.instance && deadline) this.deadlines.set(entry.instance, deadline);
    } else if ("owned" in entry) Object.assign(this.operations.get(entry.owned) ?? {}, { owned: true });
    else {
      const operation = this.operations.get(entry.answers);
      if (operation) this.settle(operation, { status: entry.status, framed: false, body: Buffer.from(entry.body) });
    }
  }

  /** @param {Operation} operation @param {Answer} answer */
  settle(operation, answer) {
    operation.answered = answer;
    operation.answer = Promise.resolve(answer);
    operation.done = true;
  }

  /** Everything that a restart has to know. @returns {Entry[]} */
  entries() {
    const epochs = [...this.epochs].map(([lease, epoch]) => ({ lease, epoch }));
    const deadlines = [...this.deadlines].map(([instance, deadline]) => ({ makes: "", instance, deadline }));
    return [...epochs, ...[...this.operations.values()].flatMap((operation) => operation.entries()), ...deadlines];
  }

  /** That an instance is no more. @param {string} instance */
  gone(instance) {
    if (!this.deadlines.delete(instance)) return;
    try {
      this.log?.append({ gone: instance });
    } catch {} // a later provider names it once more
  }

  /** Keeps the highest epoch of a lease, before anything is done under it. @param {string} lease @param {number} epoch */
  async raise(lease, epoch) {
    this.epochs.set(lease, epoch);
    await this.log?.keep({ lease, epoch });
  }

  /**
   * Runs an operation, or waits for the one that runs and gives its bytes.
   * @param {string} id
   * @param {string} endpoint
   * @param {string} digest of the raw request
   * @param {(operation: Operation) => Promise<Answer>} run
   */
  async perform(id, endpoint, digest, run) {
    this.forget();
    let operation = this.operations.get(id);
    if (operation?.rolledBack) throw new Failure("WireOperationRolledBack");
    if (operation && (operation.endpoint !== endpoint || operation.digest !== digest)) throw new Failure("WireOperationMismatch");
    if (!operation) {
      const fresh = operation = new Operation(id, endpoint, digest, KEPT.has(endpoint) ? this : undefined);
      this.operations.set(id, fresh);
      fresh.answer = this.run(fresh, run).finally(() => {
        fresh.done = true;
        fresh.since = Date.now();
      });
    }
    const answer = await operation.answer;
    if (operation.rolledBack || !answer) throw new Failure("WireOperationRolledBack");
    return answer;
  }

  /** @param {Operation} operation @param {(operation: Operation) => Promise<Answer>} run */
  async run(operation, run) {
    const { id, endpoint, digest, log } = operation;
    if (!log) return run(operation);
    await log.keep({ begins: id, endpoint, digest }); // what cannot be remembered does not happen
    const answer = operation.answered = await run(operation);
    // Without this record its answer after a crash is indeterminate, which is no lie.
    await log.keep({ answers: id, status: answer.status, body: answer.body.toString() }).catch(() => {});
    return answer;
  }

  /** @param {string} id @param {string} member */
  async rollback(id, member) {
    let operation = this.operations.get(id);
    if (!operation) { // the late original allocates nothing
      operation = new Operation(id, member, "");
      operation.rolledBack = operation.done = true;
      this.operations.set(id, operation);
      await this.log?.keep({ undone: id, endpoint: member });
    }
    if (operation.endpoint !== member) throw new Failure("WireOperationMismatch");
    await operation.answer?.catch(() => {}); // one that failed has made nothing, or undoes it now
    if (operation.rolledBack) return;
    if (operation.owned && !operation.rolling) throw conflict("an allocation that nobody named yet", "owned").during(member + "_rollback");
    await (operation.rolling ??= this.unwind(operation).catch((why) => {
      operation.rolling = undefined; // for whoever tries again
      throw why;
    }));
  }

  /** @param {Operation} operation */
  async unwind(operation) {
    await operation.undo?.();
    await this.log?.keep({ undone: operation.id, endpoint: operation.endpoint });
    operation.rolledBack = true;
    operation.answer = operation.answered = undefined;
    operation.since = Date.now();
  }

  /** What ended a day ago, once a minute. */
  forget() {
    const now = Date.now();
    if (now - this.swept < 60000) return;
    this.swept = now;
    for (const operation of this.operations.values()) {
      if (this.lives(operation)) operation.since = now;
      if (operation.done && now - operation.since > RETENTION) this.operations.delete(operation.id);
    }
    if (this.log?.grown(3 * this.operations.size + this.epochs.size)) this.log.rewrite(this.entries());
  }
}
