// SPDX-License-Identifier: Apache-2.0
// What people see: tables, byte counts, errors, a progress bar.
#pragma once

#include <snug/snug.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace snug::cli {

/// A table with a header row; the first column is left-aligned, the others right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "640 B", "8.00 KiB", "1.50 MiB", "2.25 GiB".
std::string bytes_text(uint64_t nbytes);

/// "1,106,622,184".
std::string grouped(uint64_t value);

/// Prints "snug: <code>: <message>" on stderr and returns the exit code for it.
int report(const Error& error);
int report(const std::string& message);

/// A bar on stderr, drawn only when that is a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  void draw(int64_t done, int64_t total);

 private:
  std::string label_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace snug::cli
