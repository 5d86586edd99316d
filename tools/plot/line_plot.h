// A plot of lines, as SVG and as text for a terminal. Pure: the same plot gives the same bytes.
//   Values:  points that are not finite, or not above 0 on a logarithmic axis, are left out; the
//            line goes from the point before to the one behind.
//   Bounds:  axes are those of the points unless given. Colours and marks repeat after
//            kPlotStyles lines.
//   Thread:  pure functions. Ownership: values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace swarmline {

inline constexpr std::size_t kPlotStyles = 8;

struct PlotLine {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x rising
  std::size_t style = 0;                          // colour and mark, modulo kPlotStyles
  bool dashed = false;                            // in SVG; a terminal shows solid lines alone
};

struct LinePlot {
  std::string title, x_label, y_label;
  bool log_x = false;
  std::optional<std::pair<double, double>> y_range;
  std::vector<PlotLine> lines;
};

// A document of its own, 720 by 440, readable on light and dark pages, no scripts or fonts.
std::string to_svg(const LinePlot& plot);
// `columns` wide; the field of the plot has `rows`, every fifth with its value (of 21 rows, each is
// 5 % of the axis). ASCII but for what the labels have.
std::vector<std::string> to_text(const LinePlot& plot, std::size_t columns, std::size_t rows);

}  // namespace swarmline
