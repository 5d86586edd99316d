// What monitors read: every name is on the page that tells of them, and the other way round.
#include "node/page/run_metrics.h"

#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace swarmline {
namespace {

bool is_name(const std::string& name, bool label) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
  return std::ranges::all_of(name, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (!label && c == ':');
  });
}

// Prometheus' text format 0.0.4, strictly: HELP and TYPE before the series of each name, which
// stand together; names, labels with their escapes, a number; no series twice.
struct Parsed {
  std::map<std::string, std::string> types;
  std::map<std::string, double> series;  // by name and labels as written
  std::set<std::string> names_with_series;
  std::string problem;
};

class Parser {
 public:
  Parsed parse(const std::string& text) {
    if (!text.ends_with('\n')) parsed_.problem = "no line's end at the end";
    std::istringstream lines(text);
    for (std::string line; parsed_.problem.empty() && std::getline(lines, line);)
      if (!take(line)) parsed_.problem = line;
    return parsed_;
  }

 private:
  bool take(const std::string& line) {
    if (line.starts_with("# HELP ")) return take_help(line.substr(7));
    if (line.starts_with("# TYPE ")) return take_type(line.substr(7));
    return take_series(line);
  }
  bool take_help(const std::string& rest) {
    help_ = rest.substr(0, rest.find(' '));
    return is_name(help_, false) && rest.size() > help_.size() + 1;
  }
  bool take_type(const std::string& rest) {
    const std::string name = rest.substr(0, rest.find(' '));
    const std::string type = rest.substr(name.size() + 1);
    current_ = name;
    return name == help_ && (type == "counter" || type == "gauge") &&
           parsed_.types.emplace(name, type).second;
  }
  bool take_series(const std::string& line) {
    std::size_t at = line.find_first_of("{ ");
    if (at == line.npos || line.substr(0, at) != current_) return false;
    if (line[at] == '{' && !take_labels(line, at)) return false;
    const std::string key = line.substr(0, at);
    if (line[at] != ' ') return false;
    std::size_t used = 0;
    const std::string number = line.substr(at + 1);
    const double value = std::stod(number, &used);
    parsed_.names_with_series.insert(current_);
    return used == number.size() && parsed_.series.emplace(key, value).second;
  }
  static bool take_labels(const std::string& line, std::size_t& at) {
    ++at;
    while (at < line.size() && line[at] != '}') {
      const std::size_t equals = line.find("=\"", at);
      if (equals == line.npos || !is_name(line.substr(at, equals - at), true)) return false;
      for (at = equals + 2; at < line.size() && line[at] != '"'; ++at)
        if (line[at] == '\\' && std::string("\\\"n").find(line[++at]) == std::string::npos)
          return false;
      ++at;
      if (at < line.size() && line[at] == ',') ++at;
    }
    return at++ < line.size();
  }

  Parsed parsed_;
  std::string help_, current_;
};

RunStatus full_status() {
  auto status = parse_status(read_golden("cli/status.json"));
  EXPECT_TRUE(status);
  status->held_out_loss = 2.5;
  status->boundaries[0].backward_error = 0.01;
  return *status;
}

RunSeries some_series() {
  RunSeries series;
  series.add(LoggedStep{.step = 142,
                        .loss = 2.4312,
                        .tokens = 4096,
                        .seconds = 0.25,
                        .gradient_norm = 1.5,
                        .learning_rate = 3e-4});
  series.add(LoggedEvent{.kind = "peer_lost", .detail = "peer 3", .wall_seconds = 1});
  series.add(LoggedEvent{.kind = "peer_lost", .detail = "peer 4", .wall_seconds = 2});
  series.add(LoggedEvent{.kind = "checkpoint", .detail = "step-100", .wall_seconds = 3});
  return series;
}

// The first column of the table in docs/metrics.md, with the second, its type.
std::map<std::string, std::string> documented() {
  std::ifstream file(std::string(SWARMLINE_SOURCE_DIR) + "/docs/metrics.md");
  std::map<std::string, std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `swarmline_")) continue;
    const std::size_t end = line.find('`', 3);
    const std::size_t type = line.find("| ", end) + 2;
    names[line.substr(3, end - 3)] = line.substr(type, line.find(' ', type) - type);
  }
  return names;
}

TEST(RunMetrics, ServesWhatIsDocumentedAndNothingElse) {
  const std::string text = metrics_text(full_status(), some_series());
  const Parsed parsed = Parser().parse(text);
  ASSERT_EQ(parsed.problem, "") << text;
  EXPECT_EQ(parsed.types, documented()) << "docs/metrics.md and node/page/run_metrics.cc differ";
  for (const auto& [name, type] : parsed.types) {
    EXPECT_TRUE(parsed.names_with_series.contains(name)) << name;
    EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
  }
}

TEST(RunMetrics, SaysTheNumbersOfTheStatus) {
  const Parsed parsed = Parser().parse(metrics_text(full_status(), some_series()));
  ASSERT_EQ(parsed.problem, "");
  const auto value = [&](const std::string& key) {
    const auto found = parsed.series.find(key);
    return found == parsed.series.end() ? std::optional<double>() : found->second;
  };
  EXPECT_EQ(value("swarmline_step"), 143);
  EXPECT_EQ(value("swarmline_loss"), 2.4312);
  EXPECT_EQ(value("swarmline_tokens_total"), 585728);
  EXPECT_EQ(value("swarmline_step_seconds"), 0.25);
  EXPECT_EQ(value("swarmline_state{state=\"training\"}"), 1);
  EXPECT_EQ(value("swarmline_state{state=\"done\"}"), 0);
  EXPECT_EQ(value("swarmline_stage_peers{stage=\"1\",state=\"ready\"}"), 1);
  EXPECT_EQ(value("swarmline_stage_peers{stage=\"1\",state=\"building\"}"), 1);
  EXPECT_EQ(value("swarmline_stage_peers_wanted{stage=\"1\"}"), 2);
  EXPECT_EQ(value("swarmline_peer_contributions_total{stage=\"1\",peer=\"peer-2\",number=\"2\"}"),
            858);
  EXPECT_EQ(value("swarmline_boundary_bytes_total{from=\"0\",to=\"1\",direction=\"forward\",part="
                  "\"tokens\"}"),
            65536);
  EXPECT_EQ(
      value(
          "swarmline_boundary_codec_info{from=\"0\",to=\"1\",direction=\"forward\",codec=\"h8\"}"),
      1);
  EXPECT_EQ(value("swarmline_events_total{kind=\"peer_lost\"}"), 2);
  EXPECT_EQ(value("swarmline_events_total{kind=\"checkpoint\"}"), 1);
  EXPECT_EQ(value("swarmline_journal_up"), 1);
  EXPECT_EQ(value("swarmline_cost_total{currency=\"USD\",for=\"peers\"}"), 11);
  EXPECT_EQ(value("swarmline_cost_waste_total{currency=\"USD\",part=\"idle\"}"), 2.5);
  EXPECT_EQ(value("swarmline_budget{currency=\"USD\"}"), 20);
}

TEST(RunMetrics, LeavesOutWhatIsNotKnown) {
  RunStatus status;
  status.run = "a";
  status.state = "waiting";
  status.journal = "the journal could not be written for 3 s";
  const std::string text = metrics_text(status, {});
  const Parsed parsed = Parser().parse(text);
  EXPECT_EQ(parsed.problem, "") << text;
  EXPECT_FALSE(parsed.types.contains("swarmline_loss")) << text;
  EXPECT_FALSE(text.contains("cost")) << "nobody says a price";
  EXPECT_FALSE(parsed.types.contains("swarmline_peer_share_ratio")) << text;
  EXPECT_EQ(parsed.series.at("swarmline_journal_up"), 0);
}

TEST(RunMetrics, EscapesWhatOthersCallThemselves) {
  RunStatus status = full_status();
  status.stages[0].peers[0].name = "a\"b\\c\nd";
  const std::string text = metrics_text(status, {});
  EXPECT_EQ(Parser().parse(text).problem, "") << text;
  EXPECT_NE(text.find("peer=\"a\\\"b\\\\c\\nd\""), text.npos) << text;
}

TEST(RunMetrics, TellsPeersOfOneNameApart) {
  RunStatus status = full_status();
  PeerStatus again = status.stages[0].peers[0];
  again.peer = 9;
  status.stages[0].peers.push_back(again);
  EXPECT_EQ(Parser().parse(metrics_text(status, {})).problem, "");
}

}  // namespace
}  // namespace swarmline
