#include "tools/plot/line_plot.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace swarmline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

LinePlot rising() {
  return {
      .title = "a < b & c",
      .x_label = "x",
      .y_label = "percent",
      .log_x = true,
      .y_range = {{0, 100}},
      .lines = {{.label = "up", .points = {{100, 0}, {1000, 50}, {10000, 100}}, .style = 0},
                {.label = "flat", .points = {{100, 50}, {10000, 50}}, .style = 1, .dashed = true}}};
}

TEST(LinePlot, PutsPointsWhereTheAxesSay) {
  const std::string svg = to_svg(rising());
  // The field reaches from 64 to 570 and from 40 to 384: a decade is half of its width.
  EXPECT_THAT(svg, HasSubstr("points=\"64.0,384.0 317.0,212.0 570.0,40.0\""));
  EXPECT_THAT(svg, HasSubstr("points=\"64.0,212.0 570.0,212.0\" fill=\"none\" stroke=\"#d55e00\" "
                             "stroke-width=\"2\" stroke-dasharray=\"6 4\""));
  EXPECT_THAT(svg, HasSubstr(">a &lt; b &amp; c</text>"));
  for (const char* tick : {">100</text>", ">200</text>", ">1000</text>", ">5000</text>"})
    EXPECT_THAT(svg, HasSubstr(tick));
}

TEST(LinePlot, IsAsWideAsTheNamesInItsLegendTake) {
  LinePlot plot = rising();
  EXPECT_THAT(to_svg(plot), HasSubstr("width=\"720\""));
  plot.lines[1].label = std::string(40, 'w');
  const std::string svg = to_svg(plot);
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 910 440\" width=\"910\""));
  EXPECT_THAT(svg, HasSubstr("points=\"64.0,212.0 570.0,212.0\"")) << "the field is as it was";
}

TEST(LinePlot, DrawsOnATerminalWhatIsSolid) {
  EXPECT_THAT(to_text(rising(), 20, 5), ElementsAre("a < b & c", "percent",
                                                    "        |         oo",  //
                                                    "        |       oo",
                                                    "        |    ooo",  //
                                                    "        |  oo",
                                                    "      0 |oo",  //
                                                    "        +-----------", "         100  1000",
                                                    "                   x", "   o up"));
}

TEST(LinePlot, LeavesOutWhatNoAxisShows) {
  LinePlot plot = rising();
  plot.lines[0].points = {{-1, 3},   {0, 3},        {100, std::nan("")},
                          {100, 20}, {INFINITY, 3}, {10000, 300}};
  const std::string svg = to_svg(plot);
  EXPECT_THAT(svg, HasSubstr("points=\"64.0,315.2 570.0,40.0\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LinePlot, NothingAndASinglePointHaveAxes) {
  LinePlot plot;
  EXPECT_THAT(to_svg(plot), HasSubstr(">0.2</text>"));
  EXPECT_EQ(to_text(plot, 40, 5).size(), 2 + 5 + 4U);
  plot.lines = {{.label = "one", .points = {{5, 8}}}};
  EXPECT_THAT(to_svg(plot), HasSubstr("points=\"317.0,212.0\""));
  for (const std::string& line : to_text(plot, 40, 5)) EXPECT_LE(line.size(), 40U);
}

}  // namespace
}  // namespace swarmline
