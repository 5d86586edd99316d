#include "node/summary.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "console/cost_text.h"
#include "console/text.h"

namespace swarmline {
namespace {

constexpr std::size_t kEventsOfTheDead = 5;
constexpr std::size_t kBadEventsShown = 5;
constexpr double kTenSeconds = 10;  // less is said to a tenth

std::string nats(std::optional<double> value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

std::string loss_lines(const RunStatus& status) {
  std::string out =
      fmt::format("  loss            {} nats a token in the last step\n", nats(status.loss));
  if (status.held_out_loss) {
    out += fmt::format("  held-out loss   {}\n", nats(status.held_out_loss));
  }
  if (status.unigram_entropy) {
    out += fmt::format("  data            unigram entropy {}, bigram entropy {}\n",
                       nats(status.unigram_entropy), nats(status.bigram_entropy));
  }
  if (status.held_out_loss && status.bigram_entropy) {
    out += *status.held_out_loss < *status.bigram_entropy
               ? "                  below the bigram entropy: it predicts better than any table "
                 "of pairs\n"
               : "                  not yet below the bigram entropy: train for more steps\n";
  }
  return out;
}

double each(std::uint64_t bytes, std::uint64_t messages) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(messages, 1));
}

std::string boundary_lines(const RunStatus& status) {
  std::string out;
  for (const BoundaryStatus& boundary : status.boundaries) {
    const std::uint64_t codec = boundary.forward_codec_bytes + boundary.backward_codec_bytes;
    const std::uint64_t framing = boundary.forward_framing_bytes + boundary.backward_framing_bytes;
    out += fmt::format(
        "  boundary {}->{}   {} forward, {} back a microbatch, target tokens {}, framing {:.2f} "
        "%; {} in all\n",
        boundary.from, boundary.to,
        human_bytes(each(boundary.forward_codec_bytes, boundary.microbatches)),
        human_bytes(each(boundary.backward_codec_bytes, boundary.gradients)),
        human_bytes(each(boundary.forward_token_bytes, boundary.microbatches)),
        100 * each(framing, codec),
        human_bytes(static_cast<double>(codec + framing + boundary.forward_token_bytes)));
  }
  return out;
}

std::string hints(const RunFolder& folder) {
  return fmt::format(
      "Next:\n"
      "  swarmline launch {} --reference\n"
      "  swarmline checkpoint diff {} {}\n"
      "      the same run in one process, and how far the two models are apart\n",
      shell_word(folder.config()), shell_word(folder.path()),
      shell_word(folder.path() + "-reference"));
}

std::string to_go_on(const RunFolder& folder, const RunStatus& status) {
  const bool by_cost =
      status.cost && status.cost->budget > 0 && status.cost->total >= status.cost->budget;
  const char* const more = !status.budget_is_spent() ? ""
                           : by_cost                 ? " --set money.budget=MORE"
                                                     : " --set money.budget_hours=MORE";
  return fmt::format(
      "Next:\n"
      "  swarmline launch {}{}\n"
      "      resumes from there (or coordinator, as it was started)\n",
      shell_word(folder.config()), more);
}

// `label`: what the first line begins with; the others are below it.
std::string cost_block(const RunStatus& status, std::string_view label, std::size_t indent) {
  std::string out;
  for (const std::string& line : cost_lines(status))
    out += fmt::format("{}{}\n", out.empty() ? std::string(label) : std::string(indent, ' '), line);
  return out;
}

// What happened last tells why.
std::string describe_dead(const RunStatus& status) {
  std::string out = fmt::format("{}: {}\n", status.run, status.sentence);
  if (status.loss) out += fmt::format("  loss {} in its last step\n", nats(status.loss));
  const std::size_t shown = std::min(kEventsOfTheDead, status.events.size());
  for (std::size_t i = status.events.size() - shown; i < status.events.size(); ++i) {
    const EventStatus& event = status.events[i];
    out += fmt::format("  {} before  {}\n", human_seconds(status.wall_seconds - event.wall_seconds),
                       sentence_of(event));
  }
  return out;
}

}  // namespace

std::string plain_line(const RunStatus& status) {
  std::string line = fmt::format(
      "step {}/{}  loss {}  {} tokens/s", status.step, status.steps, nats(status.loss),
      status.tokens_per_second ? with_commas(static_cast<std::uint64_t>(*status.tokens_per_second))
                               : std::string("-"));
  if (status.over()) return line;
  return line + fmt::format("  ETA {}  {} in flight",
                            status.eta_seconds ? human_seconds(*status.eta_seconds) : "-",
                            status.in_flight);
}

namespace {

// Tokens, seconds and their quotient are of the same steps.
std::string tokens_in_time(const RunStatus& status) {
  const std::uint64_t counted =
      status.since_step == 0 || status.step == 0
          ? status.tokens
          : status.tokens / status.step * (status.step - std::min(status.since_step, status.step));
  const std::string time = status.elapsed_seconds < kTenSeconds
                               ? fmt::format("{:.1f}s", status.elapsed_seconds)
                               : human_seconds(status.elapsed_seconds);
  std::string out = fmt::format("{} tokens in {}", with_commas(counted), time);
  if (status.mean_tokens_per_second)
    out += fmt::format(" ({} tokens/s)",
                       with_commas(static_cast<std::uint64_t>(*status.mean_tokens_per_second)));
  if (status.since_step > 0) out += fmt::format(" since step {}", status.since_step);
  return out;
}

}  // namespace

std::string summary(const RunStatus& status, const RunFolder& folder, bool hint) {
  std::string out = fmt::format("Run {}: {} of {} steps, {}\n", status.run, status.step,
                                status.steps, tokens_in_time(status));
  out += loss_lines(status);
  out += boundary_lines(status);
  if (!status.boundaries.empty() || status.reduce_bytes > 0) {
    out += fmt::format("  averaging       {} between the peers of a stage; coordinator {}\n",
                       human_bytes(static_cast<double>(status.reduce_bytes)),
                       human_bytes(static_cast<double>(status.control_bytes)));
  }
  if (status.second_tries > 0)
    out += fmt::format("  second tries    {} microbatches, because somebody was late\n",
                       with_commas(status.second_tries));
  out += cost_block(status, "  cost            ", 18);
  if (!status.checkpoint.empty()) {
    out += fmt::format("  model           {}\n", status.checkpoint);
  }
  out += fmt::format("  log             {}\n", folder.log());
  if (hint) out += hints(folder);
  if (!hint && status.step < status.steps && status.state == "done")
    out += to_go_on(folder, status);
  return out;
}

std::string describe_start(RunStart start, const RunFolder& folder, const RunConfig& config) {
  if (start == RunStart::kResumes)
    return fmt::format("{} holds this run already: it resumes from its newest checkpoint\n",
                       folder.path());
  if (start == RunStart::kFinished)
    return fmt::format(
        "{} has finished its {} steps; raise run.steps to train on, or move it aside by --fresh\n",
        folder.path(), config.run.steps);
  return {};
}

namespace {
// What went wrong, newest last.
std::string lately(const RunStatus& status) {
  std::vector<std::string> lines;
  for (auto event = status.events.rbegin();
       event != status.events.rend() && lines.size() < kBadEventsShown; ++event)
    if (event->is_bad())
      lines.push_back(fmt::format(
          "  {} ago  {}\n", human_seconds(std::max(0.0, status.wall_seconds - event->wall_seconds)),
          sentence_of(*event)));
  std::string out;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) out += *line;
  return out;
}

std::string zone_of(const PeerStatus& peer) {
  return peer.zone.empty() ? std::string() : fmt::format("  zone {}", peer.zone);
}

std::string relayed(const PeerStatus& peer) {
  if (peer.relayed_links == 0 && peer.relayed_bytes == 0) return {};
  return fmt::format("  {} links over relays, {:.1f} MB sent", peer.relayed_links,
                     static_cast<double>(peer.relayed_bytes) * 1e-6);
}
// A run that is over tells its peers to end.
std::string_view shown_state(const RunStatus& status, const PeerStatus& peer) {
  return status.over() && peer.state == "ready" ? "ended" : std::string_view(peer.state);
}
}  // namespace

std::string describe(const RunStatus& status) {
  if (status.state == "died") return describe_dead(status);
  std::string out =
      fmt::format("{}: {}{}\n  {}\n", status.run, status.state,
                  status.sentence.empty() ? "" : " (" + status.sentence + ")", plain_line(status));
  if (const std::size_t missing = status.missing(); missing > 0 && !status.over())
    out += fmt::format("  {} of {} peers are here\n", status.wanted() - missing, status.wanted());
  if (!status.page.empty()) out += fmt::format("  page {}\n", status.page);
  if (!status.era_sentence.empty()) out += fmt::format("  {}\n", status.era_sentence);
  if (!status.segment_sentence.empty()) out += fmt::format("  {}\n", status.segment_sentence);
  if (!status.journal.empty()) out += fmt::format("  {}\n", status.journal);
  if (!status.refused.empty() && !status.over()) out += fmt::format("  {}\n", status.refused);
  if (!status.unprotected.empty()) out += fmt::format("  unprotected: {}\n", status.unprotected);
  for (const StageStatus& stage : status.stages) {
    out += fmt::format("  stage {}  {}\n", stage.stage,
                       layers_text(stage.first_layer, stage.last_layer));
    for (const PeerStatus& peer : stage.peers) {
      const std::string number = fmt::format("peer {}", peer.peer);
      out += fmt::format("    {:<24} {:<22} {:<8} share {:5.1f} %  busy {:5.1f} %{}{}{}\n",
                         peer.name.empty() ? number : fmt::format("{} ({})", peer.name, number),
                         peer.address, shown_state(status, peer), 100 * peer.share, 100 * peer.busy,
                         peer.reach == "no" ? "  takes no connections" : "", relayed(peer),
                         zone_of(peer));
      if (!peer.data.empty()) out += fmt::format("              {}\n", peer.data);
    }
  }
  for (const RelayStatus& relay : status.relays)
    out += fmt::format("  relay {} at {}: {} links, {:.1f} MB passed on\n", relay.name,
                       relay.address, relay.links, static_cast<double>(relay.bytes) * 1e-6);
  out += boundary_lines(status);
  out += cost_block(status, "  cost ", 4);
  if (!status.checkpoint.empty()) out += fmt::format("  checkpoint {}\n", status.checkpoint);
  return out + lately(status);
}

}  // namespace swarmline
