// The journal of operations: a call that is delivered more than once runs once.
import { Failure, conflict } from "./failure.mjs";

/** For how long an operation is remembered after what it made ended. */
const RETENTION = 24 * 60 * 60 * 1000;

/**
 * An answer; what is streamed has no body, and is never kept.
 * @typedef {{ status: number, framed: boolean, body: Buffer, streamed?: import("./provider.mjs").Streamed, endpoint?: string }} Answer
 */

/** One entry. It lies in memory, and so do the instances: both are gone together. */
export class Operation {
  /** What it answers, once it has. @type {Promise<Answer> | undefined} */
  answer;
  done = false;
  /** Of what it allocated. @type {(() => Promise<void>) | undefined} */
  undo;
  /** That it made, or made active. @type {string | undefined} */
  instance;
  /** Somebody has named what it allocated. */
  owned = false;
  rolledBack = false;
  /** Of its last change. */
  since = Date.now();
  /** A rollback that runs, or did. @type {Promise<void> | undefined} */
  rolling;

  /** @param {string} id @param {string} endpoint @param {string} digest of the request, empty for a tombstone */
  constructor(id, endpoint, digest) {
    this.id = id;
    this.endpoint = endpoint;
    this.digest = digest;
  }
}

export class Journal {
  /** @type {Map<string, Operation>} */
  operations = new Map();
  swept = Date.now();

  /** @param {(id: string) => boolean} lives says whether an instance is there */
  constructor(lives) {
    this.lives = lives;
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
      const fresh = operation = new Operation(id, endpoint, digest);
      this.operations.set(id, fresh);
      fresh.answer = run(fresh).finally(() => {
        fresh.done = true;
        fresh.since = Date.now();
      });
    }
    const answer = await operation.answer;
    if (operation.rolledBack || !answer) throw new Failure("WireOperationRolledBack");
    return answer;
  }

  /** @param {string} id @param {string} member */
  async rollback(id, member) {
    let operation = this.operations.get(id);
    if (!operation) { // the late original allocates nothing
      operation = new Operation(id, member, "");
      operation.rolledBack = operation.done = true;
      this.operations.set(id, operation);
    }
    if (operation.endpoint !== member) throw new Failure("WireOperationMismatch");
    await operation.answer;
    if (operation.rolledBack) return;
    if (operation.owned && !operation.rolling) throw conflict("an allocation that nobody named yet", "owned").during(member + "_rollback");
    const { undo } = operation;
    await (operation.rolling ??= (undo ? undo() : Promise.resolve()).catch((why) => {
      operation.rolling = undefined; // for whoever tries again
      throw why;
    }));
    operation.rolledBack = true;
    operation.answer = undefined;
    operation.since = Date.now();
  }

  /** What ended a day ago, once a minute. */
  forget() {
    const now = Date.now();
    if (now - this.swept < 60000) return;
    this.swept = now;
    for (const operation of this.operations.values()) {
      if (operation.instance !== undefined && this.lives(operation.instance)) operation.since = now;
      if (operation.done && now - operation.since > RETENTION) this.operations.delete(operation.id);
    }
  }
}
