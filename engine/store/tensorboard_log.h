// A run's numbers as TensorBoard event files: TFRecords (length, masked CRC-32C, bytes, masked
// CRC-32C) of Event messages (tensorboard_events.proto).
//   What:   each process writes a file of its own into the folder, as TensorBoard expects it. Where
//           steps begin anew (a restart, a return to a checkpoint), an event says so, and
//           TensorBoard leaves out what was written of these steps before.
//   Errors: kIo, with the system's reason; the file stays usable.
//   Thread: one at a time. Ownership: none. Bounds: none; a point is written when it is given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/store/log_lines.h"

namespace swarmline {

// events.out.tfevents.SECONDS.HOST.PROCESS: TensorBoard reads a folder's files in that order.
std::string tensorboard_file_name(double wall_seconds, std::string_view host, int process);
// One TFRecord.
std::string tensorboard_record(std::string_view bytes);

class TensorboardLog {
 public:
  static Result<TensorboardLog> create(const std::string& path, double wall_seconds);
  TensorboardLog(TensorboardLog&& other) noexcept;
  TensorboardLog& operator=(TensorboardLog&& other) noexcept;
  ~TensorboardLog();

  Result<void> add(const LogPoint& point);

 private:
  explicit TensorboardLog(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Result<void> append(std::string_view event);

  int fd_ = -1;
  std::string path_;
  std::uint64_t newest_step_ = 0;  // of this file; 0: none yet
};

}  // namespace swarmline
