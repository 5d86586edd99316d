// A run on a terminal: what to show (pure), and drawing it in place without flicker.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/protocol/run_status.h"

namespace swarmline {

struct ScreenStyle {
  std::size_t columns = 80;
  std::size_t rows = 24;
  bool color = true;
  bool utf8 = true;
};
// Of the terminal on standard output: its size now, NO_COLOR, TERM and the locale.
ScreenStyle terminal_style();
bool output_is_terminal();

// At most rows - 1 lines of at most `columns` columns. `note` is the last line: what Ctrl-C does.
std::vector<std::string> render_screen(const RunStatus& status, const std::string& note,
                                       const ScreenStyle& style);

// Owns the terminal's part below the cursor while it lives; hides the cursor.
//   Thread: one.
class LiveScreen {
 public:
  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;
  void draw(const std::vector<std::string>& lines);

 private:
  std::size_t drawn_lines_ = 0;
  std::pair<std::size_t, std::size_t> size_;  // of the terminal: columns, rows
};

}  // namespace swarmline
