#include "console/screen.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "console/cost_text.h"
#include "console/text.h"

namespace swarmline {
namespace {

constexpr std::size_t kColumnsMin = 40;
constexpr std::size_t kRowsMin = 8;
constexpr std::size_t kRowsLow = 16;          // with fewer, what matters less is left out
constexpr std::size_t kColumnsOfLayers = 60;  // with fewer, a stage's layers are left out
constexpr std::size_t kSaidLinesMax = 3;
constexpr std::size_t kEventLinesMax = 3;  // of one event
constexpr double kFreshSeconds = 60;       // so long an event is news

constexpr std::string_view kBold = "1";
constexpr std::string_view kDim = "2";
constexpr std::string_view kGreen = "32";
constexpr std::string_view kYellow = "33";
constexpr std::string_view kRed = "31";

class Painter {
 public:
  explicit Painter(const ScreenStyle& style) : style_(style) {}

  std::string paint(std::string_view code, std::string_view text) const {
    return style_.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
  }
  // `left`, and `right` at the end of the line.
  std::string spread(const std::string& left, const std::string& right) const {
    const std::size_t used = display_columns(left) + display_columns(right);
    return left + std::string(used < style_.columns ? style_.columns - used : 1, ' ') + right;
  }
  const ScreenStyle& style() const { return style_; }
  std::string_view arrow() const { return style_.utf8 ? "→" : "->"; }

 private:
  const ScreenStyle& style_;
};

std::string_view state_color(const RunStatus& status) {
  if (status.state == "failed" || status.state == "died") return kRed;
  if (status.state == "training" || status.state == "done") return kGreen;
  return kYellow;
}

std::string or_dash(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string progress_line(const RunStatus& status, const Painter& painter) {
  const double fraction =
      status.steps > 0 ? static_cast<double>(status.step) / static_cast<double>(status.steps) : 0;
  const std::string step = fmt::format("step {:>{}} / {}", status.step,
                                       std::to_string(status.steps).size(), status.steps);
  const std::string right = fmt::format(
      "{:3.0f} %  ETA {}", 100 * fraction,
      status.eta_seconds && !status.over() ? human_seconds(*status.eta_seconds) : std::string("-"));
  const std::size_t used = step.size() + right.size() + 4;
  const std::size_t width = painter.style().columns > used ? painter.style().columns - used : 1;
  return fmt::format("{}  {}  {}", painter.paint(kBold, step),
                     painter.paint(kGreen, progress_bar(fraction, width, painter.style().utf8)),
                     right);
}

std::string loss_line(const RunStatus& status, const Painter& painter) {
  std::string line = fmt::format("loss {}", painter.paint(kBold, or_dash(status.loss, 4)));
  const std::size_t room = painter.style().columns > 24 ? painter.style().columns - 24 : 0;
  line += "  " + sparkline(status.losses, std::min<std::size_t>(room, 60), painter.style().utf8);
  return line;
}

std::string compare_line(const RunStatus& status) {
  return fmt::format("held-out {}   data entropy: unigram {}, bigram {} nats a token",
                     or_dash(status.held_out_loss, 4), or_dash(status.unigram_entropy, 3),
                     or_dash(status.bigram_entropy, 3));
}

std::string speed_line(const RunStatus& status) {
  std::string line = fmt::format(
      "{} tokens/s   {} tokens so far",
      status.tokens_per_second ? with_commas(static_cast<std::uint64_t>(*status.tokens_per_second))
                               : std::string("-"),
      human_count(static_cast<double>(status.tokens)));
  if (!status.over()) line += fmt::format("   {} microbatches in flight", status.in_flight);
  return line;
}

// Without colour, too, the dead are told from the living.
std::string_view mark_of(const PeerStatus& peer, bool utf8) {
  if (peer.state == "lost") return utf8 ? "✗" : "x";
  if (peer.state == "ready") return utf8 ? "●" : "*";
  return utf8 ? "○" : "o";
}

std::string peer_text(const PeerStatus& peer, const Painter& painter) {
  const std::string_view color = peer.state == "ready"  ? kGreen
                                 : peer.state == "lost" ? kRed
                                                        : kYellow;
  const std::string how =
      peer.state == "ready" ? fmt::format("{:.0f} %", 100 * peer.share) : peer.state;
  const std::string name = peer.name.empty() ? fmt::format("peer {}", peer.peer) : peer.name;
  return fmt::format("{} {} {}", painter.paint(color, mark_of(peer, painter.style().utf8)), name,
                     how);
}

std::string shadows_text(const StageStatus& stage, const Painter& painter) {
  if (stage.shadows.empty()) return "";
  const auto ready = std::ranges::count(stage.shadows, "ready", &ShadowStatus::state);
  return painter.paint(ready > 0 ? kGreen : kYellow,
                       fmt::format("  {}/{} shadows", ready, stage.shadows.size()));
}

// As many peers as `lines_max` lines have room for; the others are counted.
std::vector<std::string> stage_lines(const StageStatus& stage, const Painter& painter,
                                     std::size_t lines_max) {
  const bool narrow = painter.style().columns < kColumnsOfLayers;
  const std::string head = fmt::format(
      "stage {:<3} {:<{}}", stage.stage,
      narrow ? std::string() : layers_text(stage.first_layer, stage.last_layer), narrow ? 0 : 15);
  if (stage.peers.empty()) return {head + painter.paint(kYellow, "waiting for a peer")};
  const std::string shadows = shadows_text(stage, painter);
  std::vector<std::string> lines{head};
  bool begins = true;
  for (std::size_t i = 0; i < stage.peers.size(); ++i) {
    const std::size_t left = stage.peers.size() - i - 1;
    const bool last_line = lines.size() == lines_max;
    const std::string others = left > 0 && last_line ? fmt::format("  and {} more", left) : "";
    const std::string peer = peer_text(stage.peers[i], painter);
    const std::string longer = lines.back() + (begins ? "" : "  ") + peer;
    const std::string& after = left == 0 ? shadows : others;
    const bool fits =
        display_columns(longer + after + (last_line ? shadows : "")) <= painter.style().columns;
    if (begins || fits) {
      lines.back() = longer;
      begins = false;
    } else if (last_line) {
      lines.back() += fmt::format("  and {} more", left + 1);
      break;
    } else {
      lines.push_back(std::string(display_columns(head), ' ') + peer);
    }
  }
  lines.back() += shadows;
  return lines;
}

// Whoever fetches the run's data, a line each.
void add_data_lines(const StageStatus& stage, const Painter& painter,
                    std::vector<std::string>& lines) {
  for (const PeerStatus& peer : stage.peers)
    if (!peer.data.empty())
      lines.push_back(painter.paint(kYellow, fmt::format("  {} {}", peer.name, peer.data)));
}

double each(std::uint64_t bytes, std::uint64_t microbatches) {
  return microbatches == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(microbatches);
}

std::string boundary_line(const BoundaryStatus& boundary, const Painter& painter) {
  const std::uint64_t forward =
      boundary.forward_codec_bytes + boundary.forward_token_bytes + boundary.forward_framing_bytes;
  const std::uint64_t backward = boundary.backward_codec_bytes + boundary.backward_framing_bytes;
  return fmt::format("boundary {} {} {}   {} forward, {} back a microbatch   {}", boundary.from,
                     painter.arrow(), boundary.to,
                     human_bytes(each(forward, boundary.microbatches)),
                     human_bytes(each(backward, boundary.gradients)),
                     human_bytes(static_cast<double>(forward + backward)));
}

// "12s ago  peer lost: gpu-box (peer 3, stage 1): ...", broken into lines where it is long.
std::vector<std::string> event_lines(const EventStatus& event, double now, const Painter& painter) {
  const std::string ago =
      fmt::format("{:>9}  ", human_seconds(std::max(0.0, now - event.wall_seconds)) + " ago");
  const std::size_t columns = painter.style().columns;
  const std::string sentence = sentence_of(event);
  const std::string_view kind = std::string_view(sentence).substr(0, event.kind.size());
  std::vector<std::string> lines =
      wrap_columns(sentence, columns > ago.size() ? columns - ago.size() : 1);
  if (lines.size() > kEventLinesMax) lines.resize(kEventLinesMax);
  for (std::size_t i = 0; i < lines.size(); ++i)
    lines[i] = (i == 0 ? ago : std::string(ago.size(), ' ')) + lines[i];
  if (event.is_bad() && !lines.empty() && lines[0].substr(ago.size()).starts_with(kind))
    lines[0] = ago + painter.paint(kYellow, kind) + lines[0].substr(ago.size() + kind.size());
  return lines;
}

// The newest that have room, oldest first.
std::vector<std::string> event_lines(const RunStatus& status, const Painter& painter,
                                     std::size_t room) {
  std::deque<std::string> lines;
  for (auto event = status.events.rbegin(); event != status.events.rend(); ++event) {
    std::vector<std::string> more = event_lines(*event, status.wall_seconds, painter);
    if (lines.empty() && more.size() > room) more.resize(room);
    if (lines.size() + more.size() > room) break;
    lines.insert(lines.begin(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  }
  return {std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end())};
}

// What is said at the bottom: of several things the most urgent.
std::string said(const RunStatus& status, bool low) {
  if (!status.journal.empty()) return status.journal;
  if (!status.sentence.empty()) return status.sentence;
  const bool fresh = !status.events.empty() && status.events.back().is_bad() &&
                     status.wall_seconds - status.events.back().wall_seconds < kFreshSeconds;
  if (low && fresh) return sentence_of(status.events.back());  // there are no lines for events
  if (!status.segment_sentence.empty())
    return status.segment_sentence +
           (status.era_sentence.empty() ? "" : "; " + status.era_sentence);
  if (!status.era_sentence.empty()) return status.era_sentence;
  return low && !status.unprotected.empty() ? "unprotected: " + status.unprotected : "";
}

std::string arrivals_line(const RunStatus& status) {
  const std::size_t wanted = status.wanted();
  return fmt::format("{} of {} peers are here", wanted - status.missing(), wanted);
}

// The middle gives way first when the terminal is low.
void add_limited(std::vector<std::string>& lines, const std::vector<std::string>& more,
                 std::size_t room) {
  if (more.size() <= room) {
    lines.insert(lines.end(), more.begin(), more.end());
  } else if (room > 0) {
    lines.insert(lines.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(room - 1));
    lines.push_back(fmt::format("and {} more", more.size() - room + 1));
  }
}

}  // namespace

bool output_is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

ScreenStyle terminal_style() {
  ScreenStyle style;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    style.columns = std::max<std::size_t>(size.ws_col, kColumnsMin);
    style.rows = std::max<std::size_t>(size.ws_row, kRowsMin);
  }
  const char* no_color = std::getenv("NO_COLOR");
  style.color = no_color == nullptr || *no_color == '\0';
  style.utf8 = false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale(value);
    style.utf8 = locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
    break;
  }
  return style;
}

std::vector<std::string> render_screen(const RunStatus& status, const std::string& note,
                                       const ScreenStyle& style) {
  const Painter painter(style);
  const std::string state = status.state.empty() ? "starting" : status.state;
  std::vector<std::string> lines{
      painter.spread(painter.paint(kBold, "swarmline  " + status.run),
                     fmt::format("{}  {}", painter.paint(state_color(status), state),
                                 human_seconds(status.elapsed_seconds))),
      progress_line(status, painter), loss_line(status, painter)};
  const bool low = style.rows < kRowsLow;
  if (!low) lines.push_back(compare_line(status));
  if (status.state == "waiting" && status.wanted() > 0) {
    lines.push_back(arrivals_line(status));
  } else {
    lines.push_back(speed_line(status));
  }
  if (status.cost) lines.push_back("cost " + cost_amounts(status));
  if (!low && !status.page.empty()) lines.push_back("page " + status.page);
  if (!low && !status.unprotected.empty())
    for (const std::string& line :
         wrap_columns("unprotected: " + status.unprotected, style.columns))
      lines.push_back(painter.paint(kYellow, line));
  if (!low) lines.emplace_back();

  std::vector<std::string> last = wrap_columns(said(status, low), style.columns);
  if (last.size() > (low ? 1 : kSaidLinesMax)) last.resize(low ? 1 : kSaidLinesMax);
  if (last.empty()) last.emplace_back();
  for (std::string& line : last) line = painter.paint(kDim, line);
  last.push_back(painter.paint(kDim, note));

  const std::size_t taken = lines.size() + last.size();
  const std::size_t room = style.rows - 1 > taken ? style.rows - 1 - taken : 0;
  const std::size_t kept_for_events =
      low ? 0 : std::min<std::size_t>(status.events.size(), room / 3);
  const std::size_t stages = std::max<std::size_t>(status.stages.size(), 1);
  const std::size_t kept_for_boundaries = low ? 0 : status.boundaries.size();
  const std::size_t of_stages = room - std::min(room, kept_for_events + kept_for_boundaries);
  std::vector<std::string> middle;
  for (const StageStatus& stage : status.stages) {
    for (std::string& line :
         stage_lines(stage, painter, std::max<std::size_t>(of_stages / stages, 1)))
      middle.push_back(std::move(line));
    add_data_lines(stage, painter, middle);
  }
  const std::size_t stage_room = std::min(middle.size(), room - kept_for_events);
  add_limited(lines, middle, stage_room);
  std::vector<std::string> boundaries;
  for (const BoundaryStatus& boundary : status.boundaries)
    boundaries.push_back(boundary_line(boundary, painter));
  const std::size_t boundary_room =
      std::min(boundaries.size(), room - kept_for_events - stage_room);
  add_limited(lines, boundaries, boundary_room);
  for (std::string& line : event_lines(status, painter, room - stage_room - boundary_room))
    lines.push_back(std::move(line));
  lines.insert(lines.end(), last.begin(), last.end());
  for (std::string& line : lines) line = cut_columns(line, style.columns);
  if (lines.size() > style.rows - 1) lines.resize(style.rows - 1);
  return lines;
}

LiveScreen::LiveScreen() {
  std::fputs("\x1b[?25l", stdout);
  std::fflush(stdout);
}

LiveScreen::~LiveScreen() {
  std::fputs("\x1b[?25h", stdout);
  std::fflush(stdout);
}

// One write a frame, between the marks of a synchronized update: no half-drawn frame is shown.
void LiveScreen::draw(const std::vector<std::string>& lines) {
  std::string out = "\x1b[?2026h";
  const ScreenStyle now = terminal_style();
  const std::pair size(now.columns, now.rows);
  // A terminal of another size has moved the lines that it had.
  if (std::exchange(size_, size) != size && drawn_lines_ > 0) {
    out += "\x1b[2J\x1b[H";
    drawn_lines_ = 0;
  }
  if (drawn_lines_ > 0) out += fmt::format("\x1b[{}A", drawn_lines_);
  out += '\r';
  for (const std::string& line : lines) out += line + "\x1b[K\n";
  out += "\x1b[J\x1b[?2026l";
  drawn_lines_ = lines.size();
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

}  // namespace swarmline
