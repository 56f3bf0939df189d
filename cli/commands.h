// SPDX-License-Identifier: Apache-2.0
// The subcommands. Each adds its options to the parser and leaves its exit code in `exit_code`.
// Exit codes: 0 done, 1 a check was not met, 2 the request could not be done.
#pragma once

#include <CLI/CLI.hpp>

namespace snug::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;
inline constexpr int kExitError = 2;

void add_bench(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);

}  // namespace snug::cli
