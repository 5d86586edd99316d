#include "engine/net/shm/shm_ring.h"

#include <algorithm>
#include <cstring>

namespace swarmline {

std::size_t ShmRingWriter::room() {
  const std::uint64_t held = written_ - head_.read.load();
  broken_ = broken_ || held > ring_.size();
  return broken_ ? 0 : ring_.size() - held;
}

std::size_t ShmRingWriter::write(BytesView bytes) {
  const std::size_t at = written_ % ring_.size();
  const std::size_t count = std::min({bytes.size(), room(), ring_.size() - at});
  if (count == 0) return 0;
  std::memcpy(ring_.data() + at, bytes.data(), count);
  written_ += count;
  head_.written.store(written_);
  return count;
}

// What is said here and what is written are seen in one order by both sides (they are sequentially
// consistent): either this one sees the other's bytes, or the other one sees that this one waits.
bool ShmRingWriter::wait() {
  head_.writer_waits.store(1);
  if (room() == 0 && !broken_) return true;
  head_.writer_waits.store(0);
  return false;
}

bool ShmRingWriter::wakes() {
  return head_.reader_waits.load() != 0 && head_.reader_waits.exchange(0) != 0;
}

std::size_t ShmRingReader::there() {
  const std::uint64_t held = head_.written.load() - read_;
  broken_ = broken_ || held > ring_.size();
  return broken_ ? 0 : held;
}

std::size_t ShmRingReader::read(MutableBytes into) {
  const std::size_t at = read_ % ring_.size();
  const std::size_t count = std::min({into.size(), there(), ring_.size() - at});
  if (count == 0) return 0;
  std::memcpy(into.data(), ring_.data() + at, count);
  read_ += count;
  head_.read.store(read_);
  return count;
}

bool ShmRingReader::wait() {
  head_.reader_waits.store(1);
  if (there() == 0 && !broken_) return true;
  head_.reader_waits.store(0);
  return false;
}

bool ShmRingReader::wakes(bool anyway) {
  if (head_.writer_waits.load() == 0) return false;
  if (!anyway && there() > ring_.size() / 2) return false;
  return head_.writer_waits.exchange(0) != 0;
}

}  // namespace swarmline
