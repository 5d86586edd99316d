#include "tools/measure/bench_ratio_report.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr double kMega = 1e6, kGiga = 1e9, kMilli = 1e-3, kPercent = 100;

double total_bytes(const RatioWire& wire) {
  return static_cast<double>(wire.forward_bytes + wire.backward_bytes);
}
double total_seconds(const RatioStage& stage) {
  return stage.forward_seconds + stage.backward_seconds;
}

// What a stage with a codec makes of a link.
struct Utilization {
  double one = 0, many = 0;
};

Utilization utilization(const RatioReport& report, const RatioStage& stage, const RatioWire& wire,
                        const LinkSpeed& link) {
  const StageLoad load = stage.load(wire);
  return {.one = one_in_flight(load, link), .many = many_in_flight(load, link, report.chain)};
}

// A number of a stage that was not measured stands behind a "~".
std::string figure(const RatioStage& stage, double value, int width, int decimals) {
  const char* mark = stage.source == RatioSource::kMeasured ? "" : "~";
  return fmt::format("{:>{}}", fmt::format("{}{:.{}f}", mark, value, decimals), width);
}

std::string stage_table(const RatioReport& report) {
  std::string text = fmt::format(
      "A stage on {}, {} thread{}: a microbatch of {} sequence{}, median of {} rounds\n"
      "{:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      report.device, report.threads, report.threads == 1 ? "" : "s", report.microbatch,
      report.microbatch == 1 ? "" : "s", report.rounds, "hidden", "layers", "tokens", "M params",
      "GFLOP", "GFLOP/s", "product's", "fwd ms", "bwd ms");
  for (const RatioStage& stage : report.stages) {
    const auto product = stage.product_flops_per_second;
    text += fmt::format("{:>6} {:>6} {:>6} {:>9.2f} {:>9.1f} {} {:>9} {} {}\n", stage.shape.hidden,
                        stage.shape.layers, stage.shape.sequence,
                        static_cast<double>(stage.parameters) / kMega, stage.flops / kGiga,
                        figure(stage, stage.flops / total_seconds(stage) / kGiga, 9, 1),
                        product ? fmt::format("{:.1f}", *product / kGiga) : "-",
                        figure(stage, stage.forward_seconds / kMilli, 9, 1),
                        figure(stage, stage.backward_seconds / kMilli, 9, 1));
  }
  return text;
}

std::string remarks(const RatioReport& report) {
  const auto has = [&](RatioSource source) {
    return std::ranges::any_of(report.stages, [&](const auto& s) { return s.source == source; });
  };
  std::string text = "product's: GFLOP/s of a plain matrix product of the stage's widest shape\n";
  if (has(RatioSource::kNoTime))
    text += "~ from the trend of the measured ones: more time than given (--seconds)\n";
  if (has(RatioSource::kNoMemory))
    text += "~ from the trend of the measured ones: more memory than is free\n";
  return text;
}

std::string wire_table(const RatioReport& report) {
  std::string text = fmt::format(
      "On the wire, bytes of all messages counted at a socket\n"
      "{:>6} {:>6} {:>6} {:<10} {:>8} {:>9} {:>9} {:>9} {:>9}\n",
      "hidden", "layers", "tokens", "codec", "codec ms", "KB forth", "KB back", "FLOP/byte",
      "even Mb/s");
  for (const RatioStage& stage : report.stages) {
    for (const RatioWire& wire : stage.wires) {
      text += fmt::format(
          "{:>6} {:>6} {:>6} {:<10} {:>8.2f} {:>9.1f} {:>9.1f} {:>9.0f} {}\n", stage.shape.hidden,
          stage.shape.layers, stage.shape.sequence, to_string(wire.codec),
          wire.codec_seconds / kMilli, static_cast<double>(wire.forward_bytes) / 1e3,
          static_cast<double>(wire.backward_bytes) / 1e3, stage.flops / total_bytes(wire),
          figure(stage, break_even_bits_per_second(stage.load(wire)) / kMega, 9, 1));
    }
  }
  return text + "even: bandwidth each way from which on a middle stage can compute all the time\n";
}

// All links of one bandwidth, and where they begin in the report.
std::vector<std::vector<LinkSpeed>> by_bandwidth(const RatioReport& report) {
  std::vector<std::vector<LinkSpeed>> groups;
  for (const LinkSpeed& link : report.links) {
    if (groups.empty() || groups.back().front().bits_per_second != link.bits_per_second)
      groups.emplace_back();
    groups.back().push_back(link);
  }
  return groups;
}

std::string utilization_line(const RatioReport& report, const RatioStage& stage,
                             const RatioWire& wire, const std::vector<LinkSpeed>& links) {
  std::string shares;
  for (const LinkSpeed& link : links) {
    const Utilization u = utilization(report, stage, wire, link);
    shares +=
        fmt::format(" {:>10}", fmt::format("{:.1f}/{:.1f}", kPercent * u.one, kPercent * u.many));
  }
  const char* mark = stage.source == RatioSource::kMeasured ? "" : "~";
  return fmt::format("{:>6} {:>2} {:>4} {:<9}{:>5g}{}\n",
                     fmt::format("{}{}", mark, stage.shape.hidden), stage.shape.layers,
                     stage.shape.sequence, to_string(wire.codec),
                     links.front().bits_per_second / kMega, shares);
}

std::string utilization_table(const RatioReport& report) {
  const Chain& chain = report.chain;
  std::string text = fmt::format(
      "Utilization in percent by round trip: one microbatch in flight, and\n"
      "{} in flight in a chain of {} such stages{}\n"
      "{:>6} {:>2} {:>4} {:<9}{:>5}",
      chain.in_flight, chain.stages,
      chain.microbatches > 0 ? fmt::format(", steps of {} microbatches", chain.microbatches) : "",
      "hidden", "ly", "tok", "codec", "Mb/s");
  const auto groups = by_bandwidth(report);
  for (const LinkSpeed& link : groups.front())
    text += fmt::format(" {:>10}", fmt::format("{:g} ms", link.rtt_seconds / kMilli));
  text += "\n";
  for (const RatioStage& stage : report.stages) {
    for (const RatioWire& wire : stage.wires) {
      for (const auto& links : groups) text += utilization_line(report, stage, wire, links);
    }
  }
  return text;
}

std::string fit_lines(const RatioReport& report) {
  std::string text;
  for (const RatioFit& fit : ratio_fits(report)) {
    text += fmt::format(
        "Fit, {} layer{}, {} tokens, {}, {} measured sizes: seconds a byte x product's FLOP/s\n"
        "  = {:.2f} x hidden {:+.0f}, r2 {:.4f};  counted FLOP a byte: {:.2f} x hidden {:+.0f}\n",
        fit.layers, fit.layers == 1 ? "" : "s", fit.sequence, to_string(fit.codec), fit.sizes,
        fit.measured.slope, fit.measured.intercept, fit.measured.r2, fit.counted.slope,
        fit.counted.intercept);
  }
  return text;
}

const char* name_of(RatioSource source) {
  switch (source) {
    case RatioSource::kMeasured:
      return "measured";
    case RatioSource::kNoTime:
      return "no_time";
    case RatioSource::kNoMemory:
      return "no_memory";
  }
  return "";
}

void write_wire(JsonWriter& json, const RatioReport& report, const RatioStage& stage,
                const RatioWire& wire) {
  json.begin_object().member("codec", to_string(wire.codec));
  json.member("codec_seconds", wire.codec_seconds).member("forward_bytes", wire.forward_bytes);
  json.member("backward_bytes", wire.backward_bytes);
  json.member("flops_per_byte", stage.flops / total_bytes(wire));
  json.member("break_even_bits_per_second", break_even_bits_per_second(stage.load(wire)));
  json.key("links").begin_array();
  for (const LinkSpeed& link : report.links) {
    const Utilization u = utilization(report, stage, wire, link);
    json.begin_object().member("bits_per_second", link.bits_per_second);
    json.member("rtt_seconds", link.rtt_seconds).member("one_in_flight", u.one);
    json.member("many_in_flight", u.many).end_object();
  }
  json.end_array().end_object();
}

void write_fit(JsonWriter& json, std::string_view key, const LineFit& fit) {
  json.key(key).begin_object().member("slope", fit.slope).member("intercept", fit.intercept);
  json.member("r2", fit.r2).end_object();
}

}  // namespace

std::vector<RatioFit> ratio_fits(const RatioReport& report) {
  using Points = std::vector<std::pair<double, double>>;
  struct Group {
    RatioFit fit;
    Points measured, counted;
  };
  std::vector<Group> groups;
  for (const RatioStage& stage : report.stages) {
    if (stage.source != RatioSource::kMeasured || !stage.product_flops_per_second) continue;
    for (const RatioWire& wire : stage.wires) {
      const auto same = [&](const Group& group) {
        return std::tie(group.fit.layers, group.fit.sequence, group.fit.codec) ==
               std::tie(stage.shape.layers, stage.shape.sequence, wire.codec);
      };
      auto group = std::ranges::find_if(groups, same);
      if (group == groups.end()) {
        group = groups.insert(groups.end(), {.fit = {.layers = stage.shape.layers,
                                                     .sequence = stage.shape.sequence,
                                                     .codec = wire.codec}});
      }
      const double ratio =
          total_seconds(stage) / total_bytes(wire) * *stage.product_flops_per_second;
      group->measured.emplace_back(stage.shape.hidden, ratio);
      group->counted.emplace_back(stage.shape.hidden, stage.flops / total_bytes(wire));
    }
  }
  std::vector<RatioFit> fits;
  for (Group& group : groups) {
    group.fit.sizes = group.measured.size();
    if (group.fit.sizes < kRatioFitSizesMin) continue;
    group.fit.measured = fit_line(group.measured);
    group.fit.counted = fit_line(group.counted);
    fits.push_back(group.fit);
  }
  return fits;
}

std::string to_tables(const RatioReport& report) {
  const std::string fits = fit_lines(report);
  return fmt::format("{}{}\n{}\n{}{}{}", stage_table(report), remarks(report), wire_table(report),
                     utilization_table(report), fits.empty() ? "" : "\n", fits);
}

LinePlot utilization_plot(const RatioReport& report) {
  const auto groups = by_bandwidth(report);
  const RatioStage& first = report.stages.front();
  const std::size_t middle = groups.front().size() / 2;
  LinePlot plot{
      .title = fmt::format("Utilization: {} layer{}, {} tokens, {}, round trip {:g} ms",
                           first.shape.layers, first.shape.layers == 1 ? "" : "s",
                           first.shape.sequence, to_string(first.wires.front().codec),
                           groups.front()[middle].rtt_seconds / kMilli),
      .x_label = "hidden size",
      .y_label = fmt::format("percent, {} in flight (dashed: one)", report.chain.in_flight),
      .log_x = true,
      .y_range = {{0, kPercent}},
      .lines = {}};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const LinkSpeed& link = groups[i][middle];
    const std::string label = fmt::format("{:g} Mb/s", link.bits_per_second / kMega);
    PlotLine many{.label = label, .points = {}, .style = i};
    PlotLine one{.label = label + ", one", .points = {}, .style = i, .dashed = true};
    for (const RatioStage& stage : report.stages) {
      if (stage.shape.layers != first.shape.layers || stage.shape.sequence != first.shape.sequence)
        continue;
      const Utilization u = utilization(report, stage, stage.wires.front(), link);
      many.points.emplace_back(stage.shape.hidden, kPercent * u.many);
      one.points.emplace_back(stage.shape.hidden, kPercent * u.one);
    }
    std::ranges::sort(many.points);
    std::ranges::sort(one.points);
    plot.lines.push_back(std::move(many));
    plot.lines.push_back(std::move(one));
  }
  return plot;
}

std::string to_json(const RatioReport& report) {
  JsonWriter json(1);
  json.begin_object().member("format", kRatioBenchFormat).member("kind", "ratio");
  json.member("wall_seconds", report.wall_seconds).member("machine", report.machine);
  json.member("device", report.device).member("threads", report.threads);
  json.member("rounds", report.rounds).member("microbatch", report.microbatch);
  json.key("chain").begin_object().member("stages", report.chain.stages);
  json.member("in_flight", report.chain.in_flight);
  json.member("microbatches", report.chain.microbatches).end_object();
  json.key("stages").begin_array();
  for (const RatioStage& stage : report.stages) {
    json.begin_object().member("hidden", stage.shape.hidden).member("layers", stage.shape.layers);
    json.member("sequence", stage.shape.sequence).member("parameters", stage.parameters);
    json.member("flops", stage.flops).member("source", name_of(stage.source));
    json.member("forward_seconds", stage.forward_seconds);
    json.member("backward_seconds", stage.backward_seconds);
    json.member("flops_per_second", stage.flops / total_seconds(stage));
    json.member("product_flops_per_second", stage.product_flops_per_second);
    json.key("wires").begin_array();
    for (const RatioWire& wire : stage.wires) write_wire(json, report, stage, wire);
    json.end_array().end_object();
  }
  json.end_array().key("fits").begin_array();
  for (const RatioFit& fit : ratio_fits(report)) {
    json.begin_object().member("layers", fit.layers).member("sequence", fit.sequence);
    json.member("codec", to_string(fit.codec)).member("sizes", fit.sizes);
    write_fit(json, "measured", fit.measured);
    write_fit(json, "counted", fit.counted);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

std::string to_csv(const RatioReport& report) {
  std::string text =
      "hidden,layers,sequence,parameters,flops,source,forward_seconds,backward_seconds,"
      "flops_per_second,product_flops_per_second,codec,codec_seconds,forward_bytes,backward_bytes,"
      "flops_per_byte,break_even_bits_per_second,bits_per_second,rtt_seconds,one_in_flight,"
      "many_in_flight\n";
  const auto cell = [](const std::optional<double>& value) {
    return value ? fmt::format("{}", *value) : "";
  };
  for (const RatioStage& stage : report.stages) {
    for (const RatioWire& wire : stage.wires) {
      for (const LinkSpeed& link : report.links) {
        const Utilization u = utilization(report, stage, wire, link);
        text += fmt::format(
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", stage.shape.hidden,
            stage.shape.layers, stage.shape.sequence, stage.parameters, stage.flops,
            name_of(stage.source), stage.forward_seconds, stage.backward_seconds,
            stage.flops / total_seconds(stage), cell(stage.product_flops_per_second),
            to_string(wire.codec), wire.codec_seconds, wire.forward_bytes, wire.backward_bytes,
            stage.flops / total_bytes(wire), break_even_bits_per_second(stage.load(wire)),
            link.bits_per_second, link.rtt_seconds, u.one, u.many);
      }
    }
  }
  return text;
}

}  // namespace swarmline
