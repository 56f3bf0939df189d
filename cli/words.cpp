// SPDX-License-Identifier: Apache-2.0
#include "words.h"

namespace snug::cli {

const std::map<std::string, int32_t>& format_words() {
  static const std::map<std::string, int32_t> kWords = {{"nvfp4", SNUG_NVFP4},
                                                        {"mxfp4", SNUG_MXFP4}};
  return kWords;
}

const std::map<std::string, int32_t>& activation_words() {
  static const std::map<std::string, int32_t> kWords = {
      {"silu", SNUG_SILU},   {"gelu_tanh", SNUG_GELU_TANH},   {"gelu", SNUG_GELU},
      {"relu2", SNUG_RELU2}, {"swiglu_oai", SNUG_SWIGLU_OAI}, {"silu_clamped", SNUG_SILU_CLAMPED},
      {"situ", SNUG_SITU}};
  return kWords;
}

const std::map<std::string, int32_t>& dtype_words() {
  static const std::map<std::string, int32_t> kWords = {{"bf16", SNUG_BF16}, {"f32", SNUG_F32}};
  return kWords;
}

const std::map<std::string, int32_t>& backend_words() {
  static const std::map<std::string, int32_t> kWords = {{"reference", SNUG_BACKEND_REFERENCE},
                                                        {"cpu", SNUG_BACKEND_CPU},
                                                        {"cuda", SNUG_BACKEND_CUDA}};
  return kWords;
}

const std::map<std::string, int32_t>& path_words() {
  static const std::map<std::string, int32_t> kWords = {{"automatic", SNUG_CPU_AUTOMATIC},
                                                        {"portable", SNUG_CPU_PORTABLE},
                                                        {"avx2", SNUG_CPU_AVX2},
                                                        {"avx512", SNUG_CPU_AVX512},
                                                        {"vnni", SNUG_CPU_VNNI},
                                                        {"bf16", SNUG_CPU_BF16},
                                                        {"amx", SNUG_CPU_AMX}};
  return kWords;
}

std::string word_of(const std::map<std::string, int32_t>& words, int32_t value) {
  for (const auto& [word, v] : words) {
    if (v == value) return word;
  }
  return "?";
}

snug_activation make_activation(int32_t kind, float limit) {
  if (kind == SNUG_SWIGLU_OAI) return {kind, 1.702f, 1, limit > 0 ? limit : 7};
  if (kind == SNUG_SILU_CLAMPED) return {kind, 1, 0, limit > 0 ? limit : 10};
  return {kind, 1, 0, limit};
}

}  // namespace snug::cli
