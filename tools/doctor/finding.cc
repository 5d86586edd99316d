#include "tools/doctor/finding.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/printable.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr int kDoctorFormat = 1;

std::size_t count_of(std::span<const Finding> findings, CheckOutcome verdict) {
  return static_cast<std::size_t>(std::ranges::count(findings, verdict, &Finding::verdict));
}

}  // namespace

std::string_view to_string(CheckOutcome verdict) {
  constexpr std::string_view kNames[] = {"ok", "warn", "fail", "skipped"};
  return kNames[static_cast<std::size_t>(verdict)];
}

bool any_failed(std::span<const Finding> findings) {
  return count_of(findings, CheckOutcome::kFail) > 0;
}

std::string findings_text(std::span<const Finding> findings) {
  std::string out;
  for (const Finding& finding : findings)
    out += fmt::format("{:<7} {:<12} {}{}{}\n", to_string(finding.verdict), finding.check,
                       printable_lines(finding.what), finding.advice.empty() ? "" : ": ",
                       printable_lines(finding.advice));
  out += fmt::format("{} checks: {} ok, {} warnings, {} failed, {} skipped\n", findings.size(),
                     count_of(findings, CheckOutcome::kOk), count_of(findings, CheckOutcome::kWarn),
                     count_of(findings, CheckOutcome::kFail),
                     count_of(findings, CheckOutcome::kSkipped));
  return out;
}

std::string findings_json(std::span<const Finding> findings) {
  JsonWriter json(2);
  json.begin_object().member("format", kDoctorFormat);
  json.member("failed", any_failed(findings)).key("checks").begin_array();
  for (const Finding& finding : findings)
    json.begin_object()
        .member("check", finding.check)
        .member("verdict", to_string(finding.verdict))
        .member("what", finding.what)
        .member("advice", finding.advice)
        .end_object();
  return json.end_array().end_object().take() + "\n";
}

}  // namespace swarmline
