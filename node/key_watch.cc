#include "node/key_watch.h"

#include <memory>
#include <utility>

#include "base/log.h"

namespace swarmline {

KeyWatch::KeyWatch(Runtime& runtime, Device& worker, std::string path, const KeyHash& known,
                   OnKey on_key)
    : runtime_(runtime),
      worker_(worker),
      path_(std::move(path)),
      known_(known),
      on_key_(std::move(on_key)) {
  look_later();
}

void KeyWatch::look_later() {
  runtime_.call_after(kKeyLook, guard_.wrap([this] { look(); }));
}

void KeyWatch::look() {
  const auto found = std::make_shared<Result<RunKey>>(fail(ErrorCode::kIo, "not read"));
  const auto submitted = worker_.submit({.estimate = {},
                                         .body = [found, path = path_]() -> Result<void> {
                                           *found = load_run_key(path);
                                           return {};
                                         }},
                                        guard_.wrap([this, found](const JobReport&) {
                                          look_later();
                                          if (!*found) {
                                            if (lines_.happened(runtime_.now()))
                                              log(LogLevel::kWarn, "{}", found->error().what);
                                          } else if ((*found)->identity.hash() != known_) {
                                            on_key_(std::move(**found));
                                          }
                                        }));
  if (!submitted) look_later();  // it is busy with newcomers
}

}  // namespace swarmline
