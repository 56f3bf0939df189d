// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "commands.h"

namespace snug::cli {

std::string Table::text() const {
  std::vector<size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      out += c == 0 ? fmt::format("{:<{}}", rows_[r][c], widths[c])
                    : fmt::format("  {:>{}}", rows_[r][c], widths[c]);
    }
    out += "\n";
    if (r > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c) {
      out += std::string(c == 0 ? 0 : 2, ' ') + std::string(widths[c], '-');
    }
    out += "\n";
  }
  return out;
}

std::string bytes_text(uint64_t nbytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (nbytes < 1024) return fmt::format("{} B", nbytes);
  double value = static_cast<double>(nbytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string grouped(uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

int report(const Error& error) {
  return report(fmt::format("{}: {}", error.code_name(), error.message()));
}

int report(const std::string& message) {
  fmt::print(stderr, "snug: {}\n", message);
  return kExitError;
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::draw(int64_t done, int64_t total) {
  if (!terminal_ || total <= 0) return;
  constexpr int64_t kWidth = 40;
  const auto filled = static_cast<size_t>(kWidth * done / total);
  fmt::print(stderr, "\r\033[K{} [{:<40}] {}/{}", label_, std::string(filled, '#'), done, total);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace snug::cli
