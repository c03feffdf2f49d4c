// A live process: what it wrote, kept from byte 0 whether or not anybody reads; what it
// is to read; how it ended. See docs/wire.md, "A live process".
import { createHash } from "node:crypto";
import { setTimeout as after } from "node:timers/promises";

import { canonical, frame, output } from "./codec.mjs";
import { Failure, failed } from "./failure.mjs";
import { Command, now } from "./machine.mjs";
import { Ring } from "./ring.mjs";
import { CAPABILITIES, INPUT_BUFFER, OUTPUT_WINDOW } from "./settings.mjs";

/** @typedef {import("./instance.mjs").Instance} Instance */
/** @typedef {import("node:net").Socket} Socket */

const ERROR_WINDOW = 64 << 10, BATCH = 256 << 10, PIECE = 32 << 10;
/** How much is read before others have their turn, in bytes. */
const TURN = 256 << 10;
/** How long those that a dead process left may hold its output, in milliseconds. */
const DRAIN = 10000;
const ERROR = 4, OPEN = 0x10, OUT = 0x11, ERR = 0x12, OUT_END = 0x13, ERR_END = 0x14, WINDOW = 0x15, EXIT = 0x16, DETACH = 0x17, TRUNCATED = 0x18, PING = 0x1f;

/** @param {number} type @param {unknown} body */
const message = (type, body) => frame(type, Buffer.from(canonical(body)));

/** One reader. The newest is that of its process. */
export class Attachment {
  /** Those of the last frames that it was sent. @type {Set<number>} */
  said = new Set();
  /** Why it is sent no more. @type {Record<string, unknown> | undefined} */
  detach;

  /** @param {string} lease @param {number} epoch @param {number} cursor @param {number} errors */
  constructor(lease, epoch, cursor, errors) {
    this.lease = lease;
    this.epoch = epoch;
    this.at = cursor;
    this.errors = errors;
  }
}

/** @typedef {{ exit_code: number } | { signal: string }} Exit */

export class Process {
  out = new Ring(OUTPUT_WINDOW);
  err = new Ring(ERROR_WINDOW);
  sum = createHash("sha256");
  /** @type {{ digest: string, forced: boolean, offset: number } | undefined} */
  outEnd;
  /** @type {{ offset: number } | undefined} */
  errEnd;
  /** @type {Exit | undefined} */
  exit;
  /** Nobody knows how it ended. */
  lost = false;
  /** Its output has a hole for somebody. */
  truncated = false;
  /** Of its input: how much was taken, how much of that it was given. */
  taken = 0;
  written = 0;
  /** @type {Buffer[]} */
  waiting = [];
  ended = false;
  /** Why it takes no more input. @type {string | undefined} */
  closed;
  /** @type {Attachment | undefined} */
  reader;
  /** The ids of the newest attachments, the last last. @type {string[]} */
  readers = [];
  /** Those that wait for a change. @type {Set<() => void>} */
  watchers = new Set();
  evidence = {};

  /** @param {Instance} instance @param {string} id @param {Wire.Program} request */
  constructor(instance, id, request) {
    this.instance = instance;
    this.id = id;
    this.request = request;
    this.command = new Command(instance);
  }

  /** Whether it holds the one place that its instance has. */
  get live() {
    return this.exit === undefined && !this.lost;
  }

  /** Starts it. Nothing is left of one that cannot be. */
  async begin() {
    const started = now(), { command, request } = this;
    try {
      await command.begin(request);
      this.pump(command.out, (data) => {
        this.sum.update(data);
        this.out.write(data);
        if (this.reader && this.reader.at < this.out.low) this.truncate();
      }, () => this.endOutput(false));
      this.pump(command.err, (data) => this.err.write(data), () => this.endErrors());
      if (await command.started(request)) { // it has ended already, or was never the program
        await Promise.race([this.until(() => this.errEnd), after(1000)]);
        await command.ended(request, this.err.at(this.err.low, 4096));
      }
    } catch (why) {
      this.lost = true;
      await command.kill();
      command.close();
      throw why;
    }
    this.evidence = evidence(this.instance.value, this.id, started);
    command.input?.on("error", () => this.stopInput("guest_closed"));
    void this.reap();
    void this.feed();
  }

  // --- what goes on by itself ---

  /**
   * Reads a stream to its end. It is read as fast as it comes, and nobody who reads it
   * from here holds it up; but others have their turn.
   * @param {Socket | undefined} stream
   * @param {(data: Buffer) => void} each
   * @param {() => void} end
   */
  pump(stream, each, end) {
    let read = 0;
    stream?.on("data", (/** @type {Buffer} */ data) => {
      each(data);
      this.changed();
      read += data.length;
      if (read < TURN) return;
      read = 0;
      stream.pause();
      setImmediate(() => stream.resume());
    }).on("error", () => {}).on("close", end);
  }

  async feed() {
    const { input } = this.command;
    for (;;) {
      await this.until(() => this.waiting.length > 0 || this.ended || this.closed);
      const data = this.waiting[0];
      if (this.closed || !data) break;
      const piece = data.subarray(0, PIECE);
      this.waiting.splice(0, 1, ...(data.length > PIECE ? [data.subarray(PIECE)] : []));
      await new Promise((taken) => input ? input.write(piece, taken) : taken(undefined));
      this.written += piece.length;
      this.changed();
    }
    input?.destroy(); // the end of file, behind the last byte
  }

  async reap() {
    try {
      this.exit = await this.command.ended(this.request);
    } catch {
      if (this.command.killing) this.exit = { signal: "SIGKILL" }; // process 1 went, and all with it
      else this.lost = true;
    }
    this.stopInput("exited");
    await Promise.race([this.until(() => this.outEnd && this.errEnd), after(DRAIN, undefined, { ref: false })]);
    await this.command.kill(); // whoever held a stream longer than that
    this.endOutput(true);
    this.endErrors();
    this.command.close();
  }

  /** @param {boolean} forced */
  endOutput(forced) {
    this.outEnd ??= { digest: "sha256:" + this.sum.copy().digest("hex"), forced: forced || this.command.killing !== undefined, offset: this.out.end };
    this.changed();
  }

  endErrors() {
    this.errEnd ??= { offset: this.err.end };
    this.changed();
  }

  changed() {
    for (const watcher of this.watchers) watcher();
  }

  /** Waits for a change. @param {number} [most] milliseconds */
  change(most) {
    return /** @type {Promise<void>} */ (new Promise((settle) => {
      const done = () => {
        clearTimeout(timer);
        this.watchers.delete(done);
        settle();
      };
      const timer = most === undefined ? undefined : setTimeout(done, most).unref();
      this.watchers.add(done);
    }));
  }

  /** @param {() => unknown} holds */
  async until(holds) {
    while (!holds()) await this.change();
  }

  // --- the calls; each is done before anybody else has a turn ---

  opened() {
    return { ...this.window(), process_id: this.id, evidence: this.evidence, low_water: this.out.low, output_window_bytes: OUTPUT_WINDOW };
  }

  window() {
    return { input_offset: this.taken, input_credit: this.written + INPUT_BUFFER - this.taken };
  }

  /** Takes all of it or nothing; what came before is passed over. @param {number} offset @param {Buffer} data @param {boolean} end */
  input(offset, data, end) {
    if (offset > this.taken) throw new Failure("WireInputGap", this.window());
    const fresh = data.subarray(this.taken - offset);
    if (fresh.length > 0 && (this.ended || this.closed)) throw new Failure("WireInputClosed", { cause: this.closed ?? "ended", ...this.window() });
    if (fresh.length > this.window().input_credit) throw new Failure("WireInputBufferFull", this.window());
    if (fresh.length > 0 && !this.closed) this.waiting.push(Buffer.from(fresh));
    this.taken += fresh.length;
    this.ended ||= end;
    this.changed();
    return this.window();
  }

  /** @param {string} cause */
  stopInput(cause) {
    this.closed ??= cause;
    this.waiting = [];
    this.changed();
  }

  /** Nobody is ever told less than everything. */
  truncate() {
    this.truncated = true;
    void this.destroy();
    this.changed();
  }

  /** The newest reader wins. @param {string} lease @param {number} epoch @param {Wire.StreamRequest} request */
  attach(lease, epoch, { attach_id, cursor }) {
    if (this.lost) throw failed("process_lost");
    if (this.readers.slice(0, -1).includes(attach_id)) { // late: it takes the place of nobody
      const late = new Attachment(lease, epoch, cursor, this.err.low);
      late.detach = { reason: "superseded", attach_id: this.readers[this.readers.length - 1] };
      return late;
    }
    if (cursor > this.out.end) {
      void this.destroy();
      throw new Failure("WireCursorAhead", { end: this.out.end });
    }
    if (cursor < this.out.low) this.truncate();
    if (this.truncated) throw new Failure("WireOutputTruncated", { low_water: this.out.low });
    if (this.reader) this.reader.detach = { reason: "superseded", attach_id };
    this.readers = [...this.readers.filter((id) => id !== attach_id).slice(-32), attach_id];
    this.reader = new Attachment(lease, epoch, cursor, this.err.low);
    this.changed();
    return this.reader;
  }

  /** Ends the reader of an epoch that was overtaken. @param {string} lease @param {number} epoch */
  fence(lease, epoch) {
    if (!this.reader || this.reader.lease !== lease || this.reader.epoch >= epoch) return;
    this.reader.detach = { reason: "fenced", lease_epoch: epoch };
    this.changed();
  }

  /** That its connection is gone: it is overtaken by nothing any more. @param {Attachment} reader */
  leave(reader) {
    if (this.reader === reader) this.reader = undefined;
    reader.detach ??= { reason: "draining" };
    this.changed();
  }

  /** The frames for a reader, until the last. @param {Attachment} reader @param {Wire.StreamRequest} request */
  async *follow(reader, { wait_ms, heartbeat_ms }) {
    let { input_offset, input_credit } = this.window(), told = input_offset + input_credit;
    const due = wait_ms ? performance.now() + wait_ms : Infinity;
    yield message(OPEN, this.opened());
    for (let silent = performance.now(); ; ) {
      const { frames, last, limit, something } = this.fill(reader, told), late = performance.now() >= due;
      told = limit;
      if (!last && wait_ms && (something || late)) frames.push(message(DETACH, { reason: "poll_end" }));
      else if (!last && frames.length === 0) {
        const left = Math.min(silent + heartbeat_ms, due) - performance.now();
        if (left > 0) {
          await this.change(left);
          continue;
        }
        if (!late) frames.push(frame(PING, Buffer.alloc(0)));
      }
      yield Buffer.concat(frames);
      if (last || (wait_ms && (something || late))) return;
      silent = performance.now();
    }
  }

  /**
   * The frames that a reader lacks; whether they are the last; the limit of input that
   * it knows then; whether they say more than that.
   * @param {Attachment} reader @param {number} told
   */
  fill(reader, told) {
    /** @param {Buffer} only */
    const end = (only) => ({ frames: [only], last: true, limit: told, something: true });
    if (reader.detach) return end(message(DETACH, reader.detach));
    if (this.lost) return end(message(ERROR, failed("process_lost").body("process_stream")));
    if (this.truncated) return end(message(TRUNCATED, { low_water: this.out.low }));
    const frames = [];
    reader.errors = Math.max(reader.errors, this.err.low);
    const errors = this.err.at(reader.errors, BATCH), data = this.out.at(reader.at, BATCH);
    if (errors.length > 0) frames.push(output(ERR, reader.errors, errors));
    if (data.length > 0) frames.push(output(OUT, reader.at, data));
    reader.errors += errors.length;
    reader.at += data.length;
    /** @type {[number, unknown][]} */
    const ends = [[OUT_END, reader.at === this.out.end && this.outEnd], [ERR_END, reader.errors === this.err.end && this.errEnd], [EXIT, this.exit]];
    for (const [type, body] of ends) {
      if (!body || reader.said.has(type)) continue;
      reader.said.add(type);
      frames.push(message(type, body));
    }
    const something = frames.length > 0, limit = this.written + INPUT_BUFFER;
    if (limit - told < INPUT_BUFFER / 4 && (limit === told || told - this.taken >= INPUT_BUFFER / 4)) return { frames, last: reader.said.size === ends.length, limit: told, something };
    frames.unshift(message(WINDOW, this.window()));
    return { frames, last: reader.said.size === ends.length, limit, something };
  }

  /** How it ended, if it does within that time. @param {number} most milliseconds */
  async wait(most) {
    const late = performance.now() + most;
    for (let left = most; this.live && left > 0; left = late - performance.now()) await this.change(left);
    if (this.lost) throw failed("process_lost");
    return this.exit ? { exit: this.exit } : { running: true };
  }

  /** @param {string} name @returns whether it was there to be asked */
  signal(name) {
    if (!this.live) return false;
    this.command.signal(name);
    return true;
  }

  /** Returns once nothing of it lives. */
  destroy() {
    return this.command.kill();
  }
}

/** Only what this side knows, and did: nothing of it comes from the machine. @param {Wire.Instance} instance @param {string} process_id @param {string} started_at */
function evidence(instance, process_id, started_at) {
  const { materialization: made, profile } = instance, observed = now();
  return structuredClone({
    schema: "checkfu.sandbox-process-evidence.v1", process_id, instance_id: instance.instance_id, provider: instance.provider,
    provider_revision: made.provider_revision, materialization_revision: made.materialization_revision, root_image: instance.root_image,
    image_digest: made.image_digest, profile_digest: made.profile_digest, platform: instance.platform, network_mode: profile.network_policy.mode,
    resource_limits: profile.resource_limits, enforcement: CAPABILITIES.enforcement, started_at, observed_at: observed > started_at ? observed : started_at,
  });
}
