// A sink of checkpoints that keeps nothing, and fails when it is told to.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/coordinator/run/coordinator_options.h"

namespace swarmline {

// Carries out what it is asked for when it is told to.
class FakeSink final : public CheckpointSink {
 public:
  void begin(const Description& description, Done done) override {
    begun = description.name;
    later([=, this] { done(wrong(begin_error)); });
  }
  void write_piece(CheckpointPart, std::uint64_t, SharedBytes bytes, Done done) override {
    later([=, this] {
      written += bytes.size();
      done(wrong(write_error));
    });
  }
  void finish_part(CheckpointPart, std::uint64_t, const std::string& sha256, Done done) override {
    later([=] {
      done(sha256 == "wrong" ? fail(ErrorCode::kCorrupt, "other bytes") : Result<void>());
    });
  }
  void adopt_part(CheckpointPart part, std::uint64_t, const std::string&, Done done) override {
    later([=, this] {
      adopted.push_back(part);
      done(wrong(write_error));
    });
  }
  std::optional<Shared> shared() const override { return Shared{.path = "/x", .token = "t"}; }
  void commit(Committed done) override {
    later([=, this] {
      if (commit_error.empty()) return done("checkpoints/" + begun);
      done(fail(ErrorCode::kIo, commit_error));
    });
  }
  void abandon() override { ++abandoned; }

  // Everything that was asked for, and what follows from it.
  void work() {
    while (!todo.empty()) {
      const auto now = std::exchange(todo, {});
      for (const auto& what : now) what();
    }
  }

  std::string begun, begin_error, write_error, commit_error;
  std::uint64_t written = 0;
  int abandoned = 0;
  std::vector<CheckpointPart> adopted;
  std::vector<std::function<void()>> todo;

 private:
  static Result<void> wrong(const std::string& error) {
    return error.empty() ? Result<void>() : fail(ErrorCode::kIo, error);
  }
  void later(std::function<void()> what) { todo.push_back(std::move(what)); }
};

}  // namespace swarmline
