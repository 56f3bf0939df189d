// SPDX-License-Identifier: Apache-2.0
// The snug command.
#include <snug/snug.h>

#include <cstdio>
#include <exception>

#include "commands.h"

int main(int argc, char** argv) {
  CLI::App app("Routed-expert layers with 4-bit weights, in an arena priced to the byte", "snug");
  app.set_version_flag("--version", std::string("snug ") + snug_version());
  app.require_subcommand(1);
  int exit_code = snug::cli::kExitOk;
  snug::cli::add_inspect(app, exit_code);
  snug::cli::add_plan(app, exit_code);
  snug::cli::add_run(app, exit_code);
  snug::cli::add_verify(app, exit_code);
  snug::cli::add_bench(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? snug::cli::kExitOk : snug::cli::kExitError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "snug: %s\n", error.what());
    return snug::cli::kExitError;
  }
  return exit_code;
}
