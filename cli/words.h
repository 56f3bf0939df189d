// SPDX-License-Identifier: Apache-2.0
// The words of the command line for the C ABI's enumerations, each list in one place.
#pragma once

#include <snug/snug.hpp>

#include <map>
#include <string>

namespace snug::cli {

const std::map<std::string, int32_t>& format_words();
const std::map<std::string, int32_t>& activation_words();
const std::map<std::string, int32_t>& dtype_words();  // output: bf16, f32
const std::map<std::string, int32_t>& backend_words();
const std::map<std::string, int32_t>& path_words();  // reference, cpu, cuda

/// The word of a value, "?" when there is none.
std::string word_of(const std::map<std::string, int32_t>& words, int32_t value);

/// The activation of a kind with its customary parameters; limit 0 keeps the kind's default (7 for
/// swiglu_oai, 10 for silu_clamped, none elsewhere).
snug_activation make_activation(int32_t kind, float limit);

}  // namespace snug::cli
