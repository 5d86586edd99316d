// One direction of shared memory between two processes: a ring of bytes, and who waits for what.
// Pure but for the memory. Nothing in the shared memory is believed: each side keeps its own place,
// and reads the other's number once, checks it, and goes by what it has read.
//   Ownership: the memory outlives both.
//   Thread:    one writer, one reader, each on one thread; of one process or of two.
//   Errors:    is_broken(): the other side's number can't be.
//   Wake-ups:  a side that finds nothing to do says so (wait()) and sleeps; the other one looks
//              after each piece (wakes()) whether to ring.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace swarmline {

struct ShmRingHead {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  alignas(64) std::atomic<std::uint32_t> reader_waits;
  alignas(64) std::atomic<std::uint32_t> writer_waits;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

class ShmRingWriter {
 public:
  ShmRingWriter(ShmRingHead& head, MutableBytes ring) : head_(head), ring_(ring) {}
  // As many of these bytes as there is room for, at most; returns how many.
  std::size_t write(BytesView bytes);
  bool wait();   // false: there is room after all
  bool wakes();  // whether the reader waits for what was written; it is told once
  bool is_broken() const { return broken_; }

 private:
  std::size_t room();

  ShmRingHead& head_;
  MutableBytes ring_;
  std::uint64_t written_ = 0;
  bool broken_ = false;
};

class ShmRingReader {
 public:
  ShmRingReader(ShmRingHead& head, BytesView ring) : head_(head), ring_(ring) {}
  std::size_t read(MutableBytes into);  // as many as are there, at most
  bool wait();                          // false: there is something after all
  // Whether the writer waits, and enough of the ring is free to go on; `anyway`: whatever is free.
  bool wakes(bool anyway);
  bool is_broken() const { return broken_; }

 private:
  std::size_t there();

  ShmRingHead& head_;
  BytesView ring_;
  std::uint64_t read_ = 0;
  bool broken_ = false;
};

}  // namespace swarmline
