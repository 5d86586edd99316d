#include "tools/plot/line_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

namespace swarmline {
namespace {

// Okabe and Ito's colours, told apart by colour-blind eyes; all visible on white and on black.
constexpr std::array<std::string_view, kPlotStyles> kColours = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#888888"};
constexpr std::array<char, kPlotStyles> kMarks = {'o', '+', 'x', '*', '#', '@', '%', '='};

constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 64, kRight = 150, kTop = 40, kBottom = 56;  // around the field
// The legend begins so far right of the field with its lines; letters are about so wide.
constexpr double kLegendGap = 12, kLegendLine = 28, kLetterWidth = 7.5;
constexpr int kTicksWanted = 6;
constexpr int kDecadesFine = 3;  // up to so many, a logarithmic axis has ticks at 2 and 5, too

struct Axis {
  double low = 0, high = 1;
  bool log = false;

  // 0 at the low end, 1 at the high one.
  double place(double value) const {
    return log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  }
  double value_at(double part) const {
    return log ? low * std::pow(high / low, part) : low + part * (high - low);
  }
};

bool can_show(const LinePlot& plot, const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second) &&
         (!plot.log_x || point.first > 0);
}

std::vector<std::pair<double, double>> shown_points(const LinePlot& plot, const PlotLine& line) {
  auto points = line.points;
  std::erase_if(points, [&](const auto& point) { return !can_show(plot, point); });
  return points;
}

// Never empty, never a point: an axis of nothing is 0 to 1.
Axis axis_over(double low, double high, bool log) {
  if (low > high) return {.low = log ? 1.0 : 0.0, .high = log ? 10.0 : 1.0, .log = log};
  if (low < high) return {.low = low, .high = high, .log = log};
  if (log) return {.low = low / 2, .high = high * 2, .log = true};
  const double margin = low == 0 ? 1 : std::abs(low) / 2;
  return {.low = low - margin, .high = high + margin, .log = false};
}

std::pair<Axis, Axis> axes_of(const LinePlot& plot) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::pair<double, double> x{kInfinity, -kInfinity}, y{kInfinity, -kInfinity};
  for (const PlotLine& line : plot.lines) {
    for (const auto& point : shown_points(plot, line)) {
      x = {std::min(x.first, point.first), std::max(x.second, point.first)};
      y = {std::min(y.first, point.second), std::max(y.second, point.second)};
    }
  }
  if (plot.y_range) y = *plot.y_range;
  return {axis_over(x.first, x.second, plot.log_x), axis_over(y.first, y.second, false)};
}

std::vector<double> linear_ticks(const Axis& axis) {
  const double rough = (axis.high - axis.low) / kTicksWanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough > 5 * power   ? 10
                               : rough > 2 * power ? 5
                               : rough > power     ? 2
                                                   : 1);
  std::vector<double> ticks;
  const double first = std::ceil(axis.low / step - 1e-9);
  for (double i = first; i * step <= axis.high + step * 1e-9; ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<double> log_ticks(const Axis& axis) {
  const bool fine = std::log10(axis.high / axis.low) <= kDecadesFine;
  std::vector<double> ticks;
  for (double power = std::floor(std::log10(axis.low)); std::pow(10, power) <= axis.high; ++power) {
    for (const int digit : {1, 2, 5}) {
      const double tick = digit * std::pow(10, power);
      if (tick >= axis.low && tick <= axis.high && (digit == 1 || fine)) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::vector<double> ticks_of(const Axis& axis) {
  return axis.log ? log_ticks(axis) : linear_ticks(axis);
}

// Ticks are sums of steps; six digits leave out what summing added.
std::string number(double value) {
  return fmt::format("{:.6g}", value == 0 ? 0 : value);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

// The field is as wide in every plot: long names in the legend make the picture wider.
double width_for(const LinePlot& plot) {
  std::size_t letters = 0;
  for (const PlotLine& line : plot.lines) letters = std::max(letters, line.label.size());
  return std::max(kWidth, kWidth - kRight + kLegendGap + kLegendLine +
                              std::ceil(kLetterWidth * static_cast<double>(letters)));
}

class SvgWriter {
 public:
  explicit SvgWriter(const LinePlot& plot) : plot_(plot) {
    std::tie(x_, y_) = axes_of(plot);
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#808080\">\n",
        width_for(plot), kHeight);
  }

  std::string write() {
    text((kLeft + kWidth - kRight) / 2, kTop / 2, "middle", plot_.title);
    draw_axes();
    for (const PlotLine& line : plot_.lines) draw_line(line);
    draw_legend();
    return svg_ + "</svg>\n";
  }

 private:
  double x_at(double value) const { return kLeft + x_.place(value) * (kWidth - kLeft - kRight); }
  double y_at(double value) const {
    return kHeight - kBottom - y_.place(value) * (kHeight - kTop - kBottom);
  }
  void text(double x, double y, std::string_view anchor, std::string_view words,
            std::string_view more = "") {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                        anchor, more, escaped(words));
  }
  void rule(double x1, double y1, double x2, double y2, std::string_view style) {
    svg_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                        y1, x2, y2, style);
  }

  void draw_axes() {
    constexpr std::string_view kGrid = "stroke=\"#808080\" stroke-opacity=\"0.25\"";
    const double bottom = kHeight - kBottom, right = kWidth - kRight;
    for (const double tick : ticks_of(x_)) {
      rule(x_at(tick), kTop, x_at(tick), bottom, kGrid);
      text(x_at(tick), bottom + 18, "middle", number(tick));
    }
    for (const double tick : ticks_of(y_)) {
      rule(kLeft, y_at(tick), right, y_at(tick), kGrid);
      text(kLeft - 8, y_at(tick) + 4, "end", number(tick));
    }
    svg_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#808080\"/>\n",
        kLeft, kTop, right - kLeft, bottom - kTop);
    text((kLeft + right) / 2, kHeight - 14, "middle", plot_.x_label);
    text(16, (kTop + bottom) / 2, "middle", plot_.y_label,
         fmt::format(" transform=\"rotate(-90 16 {:.1f})\"", (kTop + bottom) / 2));
  }

  // What leaves the field is drawn at its edge: y_range may be narrower than the points.
  void draw_line(const PlotLine& line) {
    const std::string_view colour = kColours[line.style % kPlotStyles];
    std::string path, dots;
    for (const auto& [x, y] : shown_points(plot_, line)) {
      const double at_x = x_at(x), at_y = y_at(std::clamp(y, y_.low, y_.high));
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", at_x, at_y);
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", at_x,
                          at_y, colour);
    }
    svg_ += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n{}", path,
        colour, line.dashed ? " stroke-dasharray=\"6 4\"" : "", dots);
  }

  void draw_legend() {
    constexpr double kRowHeight = 18;
    double y = kTop + 8;
    const double x = kWidth - kRight + kLegendGap;
    for (const PlotLine& line : plot_.lines) {
      rule(x, y - 4, x + 22, y - 4,
           fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", kColours[line.style % kPlotStyles],
                       line.dashed ? " stroke-dasharray=\"6 4\"" : ""));
      text(x + kLegendLine, y, "start", line.label);
      y += kRowHeight;
    }
  }

  const LinePlot& plot_;
  Axis x_, y_;
  std::string svg_;
};

// On the straight line between its neighbours, straight as the axis shows it; nothing outside.
std::optional<double> value_between(const std::vector<std::pair<double, double>>& points,
                                    const Axis& x_axis, double x) {
  constexpr double kRounding = 1 + 1e-12;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& [x0, y0] = points[i];
    if (x <= x0 * kRounding && x >= x0 / kRounding) return y0;
    if (i + 1 == points.size()) break;
    const auto& [x1, y1] = points[i + 1];
    if (x < x0 || x > x1) continue;
    const double part =
        (x_axis.place(x) - x_axis.place(x0)) / (x_axis.place(x1) - x_axis.place(x0));
    return y0 + part * (y1 - y0);
  }
  return std::nullopt;
}

// Marks of a scale below the field, where they find room.
std::string tick_line(const Axis& axis, std::size_t margin, std::size_t width) {
  std::string line(margin + width, ' ');
  std::size_t free = 0;
  for (const double tick : ticks_of(axis)) {
    const std::string label = number(tick);
    const auto at = margin + static_cast<std::size_t>(
                                 std::lround(axis.place(tick) * static_cast<double>(width - 1)));
    const std::size_t begin = std::min(at, margin + width - std::min(width, label.size()));
    if (begin < free) continue;
    line.replace(begin, label.size(), label);
    free = begin + label.size() + 1;
  }
  return line;
}

}  // namespace

std::string to_svg(const LinePlot& plot) {
  return SvgWriter(plot).write();
}

std::vector<std::string> to_text(const LinePlot& plot, std::size_t columns, std::size_t rows) {
  constexpr std::size_t kMargin = 9;  // of the vertical scale
  constexpr std::size_t kFieldMin = 10;
  constexpr std::size_t kRowsLabelled = 5;  // every such row
  const auto [x_axis, y_axis] = axes_of(plot);
  const std::size_t width = std::max(columns, kMargin + kFieldMin) - kMargin;
  rows = std::max<std::size_t>(rows, 2);
  std::vector<std::string> field(rows, std::string(width, ' '));
  for (const PlotLine& line : plot.lines) {
    if (line.dashed) continue;
    const auto points = shown_points(plot, line);
    for (std::size_t column = 0; column < width; ++column) {
      const double part = static_cast<double>(column) / static_cast<double>(width - 1);
      const auto y = value_between(points, x_axis, x_axis.value_at(part));
      if (!y) continue;
      const double height = std::clamp(y_axis.place(*y), 0.0, 1.0) * static_cast<double>(rows - 1);
      field[rows - 1 - static_cast<std::size_t>(std::lround(height))][column] =
          kMarks[line.style % kPlotStyles];
    }
  }

  std::vector<std::string> lines = {plot.title, plot.y_label};
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t height = rows - 1 - row;
    const double part = static_cast<double>(height) / static_cast<double>(rows - 1);
    lines.push_back(
        fmt::format("{:>{}} |{}",
                    height % kRowsLabelled == 0 ? fmt::format("{:.4g}", y_axis.value_at(part)) : "",
                    kMargin - 2, field[row]));
  }
  lines.push_back(std::string(kMargin - 1, ' ') + "+" + std::string(width, '-'));
  lines.push_back(tick_line(x_axis, kMargin, width));
  lines.push_back(fmt::format("{:>{}}", plot.x_label, kMargin + width));
  std::string legend;
  for (const PlotLine& line : plot.lines) {
    if (!line.dashed)
      legend += fmt::format("   {} {}", kMarks[line.style % kPlotStyles], line.label);
  }
  lines.push_back(legend);
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

}  // namespace swarmline
