// What links are measured by: the same bytes over a plain blocking socket of loopback, between this
// thread and one of its own, and copied within memory.
//   Ownership: the thread ends with the object. Thread: one.
//   Errors:    a system without loopback is a broken invariant (CHECK).
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "base/bytes.h"

namespace swarmline {

class RawLink {
 public:
  RawLink();
  ~RawLink();
  RawLink(const RawLink&) = delete;
  RawLink& operator=(const RawLink&) = delete;

  void receive(std::uint64_t count, MutableBytes into);  // the far end sends it so many times
  void round_trip(MutableBytes message);                 // there and back

 private:
  struct Request {
    std::uint64_t count, bytes;  // count 0: an echo
  };
  static void serve(int socket);

  int near_ = -1;
  std::thread far_;
};

}  // namespace swarmline
