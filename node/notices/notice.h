// What says that a machine will be taken away, and what it says. A provider is pure: it names the
// next request to its metadata server and reads the answer; NoticeWatch does the asking.
//   Units:  seconds since 1970 for times that others name, Duration for what is left.
//   Thread: one. Errors: an answer that can't be read is one (kCorrupt, with a sentence); the next
//           request is asked all the same.
//   Bounds: of a provider's memory: the names of the events that it has told of (kEventsMax).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/http/http_client.h"

namespace swarmline {

inline constexpr int kHttpOk = 200;

struct Notice {
  enum class Kind : std::uint8_t {
    kAtRisk,  // it may be taken soon: nothing is to be left in its hands alone
    kLeave,   // it is taken, in `left`
  };
  Kind kind = Kind::kLeave;
  Duration left{};  // of kLeave
  std::string words;
};

class NoticeProvider {
 public:
  virtual ~NoticeProvider() = default;
  virtual std::string name() const = 0;
  // What is asked next, how long its answer may take, and how long to rest before it.
  virtual HttpClientRequest next() const = 0;
  virtual Duration patience() const { return std::chrono::seconds(2); }
  virtual Duration rest() const = 0;
  // At most one notice comes of an answer; it is told once.
  virtual Result<std::optional<Notice>> on_answer(const HttpClientAnswer& answer, double now) = 0;
  // What is said once this machine has nothing left to do, where the cloud takes such a word.
  virtual std::optional<HttpClientRequest> farewell() const { return std::nullopt; }
};

// How long is left until `at`. Clocks of machines differ: what is not between 0 and `longest`, the
// most that the provider gives, is taken for `usual`.
Duration time_left(double at, double now, Duration longest, Duration usual);

// The text of a member, empty where there is none.
std::string text_at(const boost::json::object& object, std::string_view key);

// "2026-09-18T08:22:00Z" and "Fri, 18 Sep 2026 08:22:00 GMT" as seconds since 1970.
std::optional<double> parse_iso_time(const std::string& text);
std::optional<double> parse_http_time(const std::string& text);

}  // namespace swarmline
