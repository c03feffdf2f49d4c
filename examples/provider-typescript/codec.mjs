// The codec of the wire, as the author kit has it (kit/check.mjs).
import { createHash } from "node:crypto";

// --- the codec -------------------------------------------------------------

const MAX_FRAME = 1 << 20;
const TYPES = new Set([1, 2, 3, 4, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x1f]);
const OUT = 0x11, ERR = 0x12, PING = 0x1f;

/** The other side broke the wire; the message says how. */
export class Refused extends Error {}

/**
 * The one form of a value: sorted keys, no white space. Keys are ASCII.
 * @param {unknown} value
 * @returns {string}
 */
export function canonical(value) {
  if (Array.isArray(value)) return "[" + value.map(canonical).join(",") + "]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const table = /** @type {Record<string, unknown>} */ (value), keys = Object.keys(table).sort();
  return "{" + keys.map((k) => JSON.stringify(k) + ":" + canonical(table[k])).join(",") + "}";
}

/** @param {Uint8Array | string} data */
export const digest = (data) => "sha256:" + createHash("sha256").update(data).digest("hex");

/**
 * Reads JSON as the wire does. JSON.parse keeps the last of two equal keys, turns
 * 2^53 into its neighbour and 1.0 into 1, so this is a reader of its own.
 * @param {Uint8Array} data
 * @returns {any}
 */
export function strict(data) {
  let text = "";
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new Refused("utf-8");
  }
  let at = 0;
  const space = () => { while (" \t\n\r".includes(text[at]) && at < text.length) at++; };
  /** @param {RegExp} pattern */
  const match = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found && found[0];
  };
  const string = () => {
    const token = match(/"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y);
    if (token === null) throw new Refused("json");
    const s = JSON.parse(token);
    if (/\p{Surrogate}/u.test(s)) throw new Refused("lone surrogate");
    return s;
  };
  /** @param {number} depth @returns {unknown} */
  const value = (depth) => {
    space();
    const c = text[at];
    if (c === '"') {
      const s = string();
      unescape(s);
      return s;
    }
    if (c === "{" || c === "[") {
      if (depth === 16) throw new Refused("too deep");
      at++;
      const list = c === "[", end = list ? "]" : "}", out = Object.create(null), items = [];
      for (let first = true; ; first = false) {
        space();
        if (first && text[at] === end) { at++; return list ? items : out; }
        if (list) items.push(value(depth + 1));
        else {
          if (text[at] !== '"') throw new Refused("json");
          const key = string();
          if (key in out) throw new Refused("duplicate key");
          space();
          if (text[at++] !== ":") throw new Refused("json");
          out[key] = value(depth + 1);
        }
        space();
        const next = text[at++];
        if (next === end) return list ? items : out;
        if (next !== ",") throw new Refused("json");
      }
    }
    if (match(/true/y)) return true;
    if (match(/false/y)) return false;
    if (match(/null/y)) throw new Refused("null");
    const token = match(/-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y);
    if (token === null) throw new Refused("json");
    const n = Number(token);
    if (token === "-0") throw new Refused("minus zero");
    if (/[.eE]/.test(token)) throw new Refused("not an integer");
    if (!Number.isSafeInteger(n)) throw new Refused("integer out of range");
    return n;
  };
  const whole = value(0);
  space();
  if (at !== text.length) throw new Refused("trailing data");
  return whole;
}

const MARK = /\0([0-9a-f]{2})/g;

/**
 * Any bytes but as a text: what is no UTF-8, and NUL, as U+0000 and two digits.
 * @param {Buffer} raw
 */
export function escape(raw) {
  let text = "";
  const reader = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  for (let at = 0; at < raw.length; ) {
    const c = raw[at], size = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    let char = "\0";
    try {
      char = reader.decode(raw.subarray(at, at + size));
    } catch {}
    if (char !== "\0") {
      text += char;
      at += size;
    } else text += "\0" + raw[at++].toString(16).padStart(2, "0");
  }
  return text;
}

/**
 * The bytes of a text. One byte string has one form.
 * @param {string} text
 */
export function unescape(text) {
  if (!text.includes("\0")) return Buffer.from(text);
  if (/\0(?![0-9a-f]{2})/.test(text)) throw new Refused("escape");
  const parts = text.split(MARK).map((p, i) => Buffer.from(p, i % 2 ? "hex" : "utf8"));
  const raw = Buffer.concat(parts);
  if (escape(raw) !== text) throw new Refused("escape");
  return raw;
}

/** @param {number} type @param {Uint8Array} payload */
export function frame(type, payload) {
  const head = Buffer.alloc(5);
  head[0] = type;
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
}

/** @param {number} type @param {number} offset @param {Uint8Array} data */
export function output(type, offset, data) {
  const at = Buffer.alloc(8);
  at.writeBigUInt64BE(BigInt(offset));
  return frame(type, Buffer.concat([at, data]));
}

/**
 * Yields [type, payload]. Refuses by the head, before it takes the payload.
 * @param {Buffer} data
 * @returns {Generator<[number, Buffer]>}
 */
export function* frames(data) {
  for (let at = 0; at < data.length; ) {
    const type = data[at];
    if (data.length - at < 5) throw new Refused("truncated");
    const size = data.readUInt32BE(at + 1);
    if (!TYPES.has(type)) throw new Refused("unknown_type");
    if (size > MAX_FRAME) throw new Refused("too_long");
    if ((type === PING && size > 0) || ((type === OUT || type === ERR) && size <= 8)) throw new Refused("payload");
    const payload = data.subarray(at + 5, at + 5 + size);
    if (payload.length < size) throw new Refused("truncated");
    if ((type === OUT || type === ERR) && payload.readBigUInt64BE(0) + BigInt(size - 8) > BigInt(Number.MAX_SAFE_INTEGER)) throw new Refused("payload");
    yield [type, payload];
    at += 5 + size;
  }
}
