// What is kept of a stream.

/** The newest bytes of a stream, by their offset in all of it. It grows to its limit. */
export class Ring {
  low = 0;
  end = 0;
  kept = Buffer.alloc(4096);

  /** @param {number} limit in bytes */
  constructor(limit) {
    this.limit = limit;
  }

  /** @param {Buffer} data */
  write(data) {
    const held = this.end + data.length - this.low;
    if (held > this.kept.length && this.kept.length < this.limit) {
      const before = this.at(this.low, this.end - this.low);
      this.kept = Buffer.alloc(Math.min(this.limit, Math.max(held, 2 * this.kept.length)));
      this.put(this.low, before);
    }
    const size = this.kept.length, from = Math.max(0, data.length - size);
    this.put(this.end + from, data.subarray(from));
    this.end += data.length;
    this.low = Math.max(this.low, this.end - size);
  }

  /** @param {number} offset @param {Buffer} data no more than there is room for */
  put(offset, data) {
    const start = offset % this.kept.length, size = data.copy(this.kept, start);
    data.copy(this.kept, 0, size);
  }

  /** @param {number} offset from low on @param {number} most */
  at(offset, most) {
    const size = Math.max(0, Math.min(this.end - offset, most)), start = offset % this.kept.length;
    const first = this.kept.subarray(start, start + size);
    return Buffer.concat([first, this.kept.subarray(0, size - first.length)]);
  }
}
