// A peer's way to the folder in which a run's checkpoints are put together, where it sees that.
//   What:      proves that the folder here is the coordinator's, by a file in it that says what the
//              coordinator says; writes parts there under names made of numbers alone.
//   Ownership: outlives the peer. A part's file that is dropped unfinished is removed.
//   Thread:    run() on the control thread; its bodies, and what they call here, on a thread for
//              them alone, one after the other; `done` on the control thread, later.
//   Errors:    kNotFound: the folder is not seen here. kIo, kRefused.
//   Bounds:    one job at a time is asked for by each stage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace swarmline {

class PartWriter {
 public:
  virtual ~PartWriter() = default;
  virtual Result<void> append(BytesView bytes) = 0;
  virtual Result<void> finish() = 0;  // synced, and under its name
};

class PartFolder {
 public:
  struct Place {
    std::string folder;  // of all checkpoints
    std::string token;   // what the file in it says
    std::uint64_t version = 0;
    std::uint64_t attempt = 0;
    StageId stage;
    std::uint32_t part = 0;
    std::uint32_t parts = 1;
  };
  virtual ~PartFolder() = default;
  virtual void run(std::function<Result<void>()> body, std::function<void(Result<void>)> done) = 0;
  // In a body. The coordinator has made what it is put into.
  virtual Result<void> prove(const Place& place) = 0;
  virtual Result<std::unique_ptr<PartWriter>> create(const Place& place) = 0;
};

}  // namespace swarmline
