// What a member answers, where that is more than one value.
import { canonical, frame, output } from "./codec.mjs";
import { failed } from "./failure.mjs";

/** An answer of frames. */
export class Framed {
  /** @param {Buffer[]} frames */
  constructor(...frames) {
    this.body = Buffer.concat(frames);
  }
}

/** An answer of frames that is made while it is sent. Up to its first frame it can still be a refusal. */
export class Streamed {
  /** @param {AsyncIterable<Buffer>} frames @param {() => void} [leave] is told when the connection is gone */
  constructor(frames, leave = () => {}) {
    this.frames = frames;
    this.leave = leave;
  }
}

const MAX_FRAME_DATA = (1 << 20) - 8;
/** The most that a page and all pages of a listing may take, in bytes. */
const PAGE = 512 << 10, LISTING = 60 << 20;

/** @param {Buffer} content */
export function* data(content) {
  for (let at = 0; at < content.length; at += 1 << 20) yield frame(2, content.subarray(at, at + (1 << 20)));
}

/** @param {number} type @param {unknown} value */
export const say = (type, value) => frame(type, Buffer.from(canonical(value)));

/** @param {number} type @param {Buffer} content */
export function streamed(type, content) {
  const frames = [];
  for (let at = 0; at < content.length; at += MAX_FRAME_DATA) frames.push(output(type, at, content.subarray(at, at + MAX_FRAME_DATA)));
  return Buffer.concat(frames);
}

/** Names can be long, and are longer when they are escaped. @param {unknown[]} entries @param {string} root */
export function pages(entries, root) {
  /** @type {Buffer[]} */
  const frames = [];
  let page = "", count = 0, total = 0;
  const turn = () => {
    if (count > 0) frames.push(frame(3, Buffer.from(`{"entries":[${page}]}`)));
    page = "";
    count = 0;
  };
  for (const entry of entries) {
    const text = canonical(entry), size = Buffer.byteLength(text);
    total += size;
    if (total > LISTING) throw failed("too_many_entries", root, "the listing is too long");
    if (count === 1000 || page.length + text.length > PAGE / 2) turn();
    page += count++ > 0 ? "," + text : text;
  }
  turn();
  return frames;
}
