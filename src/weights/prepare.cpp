// SPDX-License-Identifier: Apache-2.0
#include "weights/prepare.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/bf16.h"
#include "geometry/panel_codes.h"
#include "geometry/scale_swizzle.h"

namespace snug {

namespace {

/// One projection on its way into a record.
struct Job {
  const PackedLayout& layout;
  const MatrixLayout& matrix;
  const MatrixSource& source;
  const char* projection;  // "gate", "up", "down"
  int32_t expert;
  bool fc1;
  bool up;
  int64_t rows;  // logical rows of this projection
};

Status fail(const Job& job, const char* what) {
  return make_error(Code::invalid_argument, "expert %d %s: %s", job.expert, job.projection, what);
}

Status check_job(const Job& job) {
  const MatrixSource& s = job.source;
  const FormatInfo info = format_info(job.layout.format);
  if (s.codes == nullptr) return fail(job, "codes are missing");
  if (s.scales == nullptr) return fail(job, "scales are missing");
  if (job.layout.has_bias != (s.bias != nullptr)) {
    // Under tensor parallelism only rank 0 has the down bias; elsewhere it is zero.
    if (!(job.layout.has_bias && !job.fc1)) {
      return fail(job, job.layout.has_bias ? "bias is missing" : "has a bias, the layer has none");
    }
  }
  if (s.rows.first_row < 0 || s.rows.row_step < 1 || s.rows.first_k < 0 ||
      s.rows.first_k % info.group_size != 0) {
    return fail(job,
                "row map needs first_row >= 0, row_step >= 1, first_k a multiple of the group");
  }
  const int64_t k_end = s.rows.first_k + job.matrix.k;
  if (s.code_row_nbytes < k_end / 2) return fail(job, "code_row_nbytes is shorter than a row");
  const bool swizzled = s.scale_order == ScaleOrder::swizzled_128x4;
  if (s.scale_row_nbytes < k_end / info.group_size || (swizzled && s.scale_row_nbytes % 4 != 0)) {
    return fail(job, swizzled ? "scale_row_nbytes must be the groups of a row padded to 4"
                              : "scale_row_nbytes is shorter than a row");
  }
  if (s.bias != nullptr && s.bias_dtype != DType::bf16 && s.bias_dtype != DType::f32) {
    return fail(job, "bias dtype must be bf16 or f32");
  }
  const bool e8m0 = info.e8m0_scales;
  if (e8m0 ? s.e8m0_bias < 0 || s.e8m0_bias > 254 : s.e8m0_bias != 127) {
    return fail(job,
                e8m0 ? "e8m0_bias must be 0..254" : "e8m0_bias is for E8M0 scales (leave 127)");
  }
  if (info.has_global_scale == (s.global_scale_use == GlobalScaleUse::none)) {
    return fail(job, info.has_global_scale ? "global scale is missing (nvfp4 has one)"
                                           : "has a global scale, mxfp4 has none");
  }
  if (info.has_global_scale && !(std::isfinite(s.global_scale) && s.global_scale > 0)) {
    return make_error(Code::corrupt_checkpoint,
                      "expert %d %s: global scale is %g, need a finite value above 0", job.expert,
                      job.projection, static_cast<double>(s.global_scale));
  }
  return {};
}

/// The stored scale byte, with the standard exponent bias. A byte that another bias moves out of
/// range becomes NaN (0xFF), which check_scale refuses.
uint8_t source_scale(const Job& job, int64_t stored_row, int64_t group) {
  const MatrixSource& s = job.source;
  const int64_t at = s.scale_order == ScaleOrder::swizzled_128x4
                         ? swizzled_scale_offset(stored_row, group, s.scale_row_nbytes)
                         : stored_row * s.scale_row_nbytes + group;
  const uint8_t byte = s.scales[at];
  if (s.e8m0_bias == 127 || byte == 0xFF) return byte;
  const int32_t moved = byte + 127 - s.e8m0_bias;
  return moved >= 0 && moved <= 254 ? static_cast<uint8_t>(moved) : 0xFF;
}

/// Refuses a scale that is NaN or with which a code of its group is not finite.
Status check_scale(const Job& job, int64_t row, int64_t group, uint8_t byte,
                   const uint8_t* row_codes) {
  const float scale = scale_to_f32(job.layout.format, byte);
  // The largest code is 6: below this no product can overflow.
  if (std::fabs(scale) <= 0x1p124f) return {};
  const int size = format_info(job.layout.format).group_size;
  bool finite = std::isfinite(scale);
  for (int64_t k = group * size; finite && k < (group + 1) * size; ++k) {
    finite = std::isfinite(e2m1_to_f32(unpack_code(row_codes, k)) * scale);
  }
  if (finite) return {};
  return make_error(
      Code::corrupt_checkpoint, "expert %d %s row %lld: scale byte 0x%02x of group %lld %s",
      job.expert, job.projection, static_cast<long long>(row), byte, static_cast<long long>(group),
      std::isnan(scale) ? "is NaN" : "makes a weight infinite");
}

uint32_t swap_nibbles(uint32_t pairs) {
  return (pairs & 0x0F0F0F0Fu) << 4 | (pairs >> 4 & 0x0F0F0F0Fu);
}

/// Copies one row's codes and scales in the file's order.
Status pack_plain_row(const Job& job, int64_t row, uint8_t* record) {
  const MatrixSource& s = job.source;
  const int group_size = format_info(job.layout.format).group_size;
  const int64_t stored = s.rows.first_row + row * s.rows.row_step;
  const int64_t packed = packed_row(job.layout, job.fc1, job.up, row);
  const uint8_t* codes = s.codes + stored * s.code_row_nbytes;
  uint8_t* to_codes = record + job.matrix.codes_offset;
  uint8_t* to_scales = record + job.matrix.scales_offset;
  const int64_t first_group = s.rows.first_k / group_size;
  for (int64_t k = 0; k < job.matrix.k; k += 8) {
    uint32_t eight;
    std::memcpy(&eight, codes + (s.rows.first_k + k) / 2, sizeof eight);
    if (s.nibble_order == NibbleOrder::high_first) eight = swap_nibbles(eight);
    std::memcpy(to_codes + code_byte_offset(job.layout, job.matrix, packed, k), &eight,
                sizeof eight);
  }
  for (int64_t g = 0; g < job.matrix.k / group_size; ++g) {
    const uint8_t byte = source_scale(job, stored, first_group + g);
    SNUG_RETURN_IF_ERROR(check_scale(job, row, first_group + g, byte, codes));
    to_scales[scale_byte_offset(job.layout, job.matrix, packed, g * group_size)] = byte;
  }
  return {};
}

/// Sixteen rows on their way into a column of tiles.
struct TileRows {
  const uint8_t* codes[kTileRows];  // each row's first code; null = padding
  int64_t stored[kTileRows];        // the file's row
  int count = 0;                    // rows that exist
};

/// The scale bytes of one group of sixteen rows, as stored, and what they do to the codes.
struct GroupScales {
  uint8_t stored[kTileRows];
  uint32_t flip[kTileRows];  // xor-ed: the signs, where the scale is negative
  uint32_t keep[kTileRows];  // and-ed: 0 where the scale is zero
};

/// What a file's scale byte becomes, looked up: there is one for every 16 or 32 weights.
struct ScaleRules {
  enum Flag : uint8_t { kJudge = 1, kNegative = 2, kZero = 4, kTiny = 8 };
  uint8_t stored[256];
  uint8_t flags[256];  // kJudge: check_scale must look at the group's codes, or refuse it
};

constexpr ScaleRules make_rules(Format format) {
  ScaleRules rules = {};
  for (int byte = 0; byte < 256; ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    const float scale = scale_to_f32(format, b);
    const bool judge = !(scale <= 0x1p124f && scale >= -0x1p124f);
    int flags = judge ? ScaleRules::kJudge : 0;
    if (format == Format::mxfp4) {
      rules.stored[byte] = panel_scale(format, b);
      if (b < kLeastNormalE8m0) flags |= ScaleRules::kTiny;
    } else {
      const uint8_t positive = b & 0x7F;
      rules.stored[byte] = positive == 0 ? kPanelOne : panel_scale(format, positive);
      if (b != positive) flags |= ScaleRules::kNegative;
      if (positive == 0) flags |= ScaleRules::kZero;
    }
    rules.flags[byte] = static_cast<uint8_t>(flags);
  }
  return rules;
}
constexpr ScaleRules kNvfp4Rules = make_rules(Format::nvfp4);
constexpr ScaleRules kMxfp4Rules = make_rules(Format::mxfp4);

/// Sixteen rows' bytes of one group, as the file has them (its bias aside).
void load_scales(const Job& job, const TileRows& rows, int64_t file_group, uint8_t* bytes) {
  const MatrixSource& s = job.source;
  if (s.scale_order == ScaleOrder::linear && s.e8m0_bias == 127) {
    const uint8_t* at = s.scales + file_group;
    for (int n = 0; n < rows.count; ++n) bytes[n] = at[rows.stored[n] * s.scale_row_nbytes];
    return;
  }
  for (int n = 0; n < rows.count; ++n) bytes[n] = source_scale(job, rows.stored[n], file_group);
}

Status read_group(const Job& job, const TileRows& rows, int64_t first_row, int64_t group,
                  GroupScales* to, bool* tiny) {
  const Format format = job.layout.format;
  const ScaleRules& rules = format == Format::mxfp4 ? kMxfp4Rules : kNvfp4Rules;
  const int64_t file_group = job.source.rows.first_k / format_info(format).group_size + group;
  uint8_t bytes[kTileRows];
  load_scales(job, rows, file_group, bytes);
  int any = 0;
  for (int n = 0; n < kTileRows; ++n) {
    const bool inside = n < rows.count;
    to->stored[n] = inside ? rules.stored[bytes[n]] : 0;
    to->flip[n] = 0;
    to->keep[n] = ~0u;
    any |= inside ? rules.flags[bytes[n]] : 0;
  }
  if (any == 0) return {};
  for (int n = 0; n < rows.count; ++n) {
    const int flags = rules.flags[bytes[n]];
    if ((flags & ScaleRules::kJudge) != 0) {
      const uint8_t* file_row = rows.codes[n] - job.source.rows.first_k / 2;
      SNUG_RETURN_IF_ERROR(check_scale(job, first_row + n, file_group, bytes[n], file_row));
    }
    if ((flags & ScaleRules::kNegative) != 0) to->flip[n] = 0x88888888u;
    if ((flags & ScaleRules::kZero) != 0) to->keep[n] = 0;
    if ((flags & ScaleRules::kTiny) != 0) *tiny = true;
  }
  return {};
}

/// Eight codes of each of sixteen rows; the compiler splits it into the machine's vectors.
typedef uint32_t Words __attribute__((vector_size(4 * kTileRows)));

/// Turns sixteen rows' eight codes into one vector of a tile.
void pack_vector(const Job& job, const uint32_t* codes, const GroupScales& scales, uint8_t* to) {
  Words words, flip, keep;
  std::memcpy(&words, codes, sizeof words);
  if (job.source.nibble_order == NibbleOrder::high_first) {
    words = (words & 0x0F0F0F0Fu) << 4 | (words >> 4 & 0x0F0F0F0Fu);
  }
  if (job.layout.format == Format::nvfp4) {
    std::memcpy(&flip, scales.flip, sizeof flip);
    std::memcpy(&keep, scales.keep, sizeof keep);
    words = (words ^ flip) & keep;
    // panel_code of eight nibbles: the low bit turns where the two above it are clear.
    words ^= ~(words >> 1 | words >> 2) & 0x11111111u;
  }
  // Even k to the low half, odd k to the high one: 0a0b0c0d -> abcd for both.
  Words even = words & 0x0F0F0F0Fu, odd = words >> 4 & 0x0F0F0F0Fu;
  even = (even | even >> 4) & 0x00FF00FFu;
  odd = (odd | odd >> 4) & 0x00FF00FFu;
  words = ((even | even >> 8) & 0xFFFFu) | (odd | odd >> 8) << 16;
  std::memcpy(to, &words, sizeof words);
}

/// Packs sixteen rows, the last of which may be padding, over all of k.
Status pack_tile_rows(const Job& job, int64_t first_row, uint8_t* record, bool* tiny) {
  const MatrixSource& s = job.source;
  const int group_size = format_info(job.layout.format).group_size;
  TileRows rows;
  rows.count = static_cast<int>(std::clamp<int64_t>(job.rows - first_row, 0, kTileRows));
  for (int n = 0; n < kTileRows; ++n) {
    rows.stored[n] = s.rows.first_row + (first_row + n) * s.rows.row_step;
    rows.codes[n] = n < rows.count
                        ? s.codes + rows.stored[n] * s.code_row_nbytes + s.rows.first_k / 2
                        : nullptr;
  }
  const int64_t packed = packed_row(job.layout, job.fc1, job.up, first_row);
  GroupScales scales = {};
  for (int64_t k = 0; k < job.matrix.padded_k; k += 8) {
    const bool inside = k < job.matrix.k;
    if (k % group_size == 0) {
      TileRows none;
      SNUG_RETURN_IF_ERROR(
          read_group(job, inside ? rows : none, first_row, k / group_size, &scales, tiny));
      std::memcpy(
          record + job.matrix.scales_offset + scale_byte_offset(job.layout, job.matrix, packed, k),
          scales.stored, kTileRows);
    }
    uint32_t codes[kTileRows] = {};
    for (int n = 0; inside && n < rows.count; ++n) std::memcpy(&codes[n], rows.codes[n] + k / 2, 4);
    pack_vector(
        job, codes, scales,
        record + job.matrix.codes_offset + code_byte_offset(job.layout, job.matrix, packed, k));
  }
  return {};
}

/// Rows of this projection that its part of the matrix stores.
int64_t stored_rows(const Job& job) {
  return job.matrix.padded_rows.value / (job.fc1 && job.layout.gated ? 2 : 1);
}

Status pack_rows(const Job& job, uint8_t* record) {
  if (job.layout.tag == LayoutTag::plain) {
    for (int64_t row = 0; row < job.rows; ++row) {
      SNUG_RETURN_IF_ERROR(pack_plain_row(job, row, record));
    }
    return {};
  }
  bool tiny = false;
  for (int64_t row = 0; row < stored_rows(job); row += kTileRows) {
    SNUG_RETURN_IF_ERROR(pack_tile_rows(job, row, record, &tiny));
  }
  if (tiny) {
    reinterpret_cast<uint32_t*>(record + job.layout.globals_offset)[3] |=
        static_cast<uint32_t>(RecordFlag::tiny_scales);
  }
  return {};
}

/// Files need not align their tensors, so elements are copied out.
float load_bias(const MatrixSource& s, int64_t index) {
  const uint8_t* at = static_cast<const uint8_t*>(s.bias) + index * dtype_nbytes(s.bias_dtype);
  if (s.bias_dtype == DType::bf16) {
    bf16 value;
    std::memcpy(&value, at, sizeof value);
    return bf16_to_f32(value);
  }
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Status pack_bias(const Job& job, uint8_t* record) {
  const MatrixSource& s = job.source;
  if (s.bias == nullptr) return {};
  float* to = reinterpret_cast<float*>(record + job.matrix.bias_offset);
  for (int64_t row = 0; row < job.rows; ++row) {
    const int64_t stored = s.rows.first_row + row * s.rows.row_step;
    const float value = load_bias(s, stored);
    if (!std::isfinite(value)) {
      return make_error(Code::corrupt_checkpoint, "expert %d %s row %lld: bias is not finite",
                        job.expert, job.projection, static_cast<long long>(row));
    }
    to[packed_row(job.layout, job.fc1, job.up, row)] = value;
  }
  return {};
}

/// Zeroes what no projection writes in full: the gaps after scales, biases and global scales.
void zero_rest(const PackedLayout& layout, uint8_t* record) {
  const auto zero = [record](int64_t first, int64_t last) {
    std::memset(record + first, 0, static_cast<size_t>(last - first));
  };
  if (layout.tag == LayoutTag::plain) return zero(0, layout.expert_nbytes);
  zero(layout.fc1.codes_offset + layout.fc1.codes_nbytes, layout.fc1.scales_offset);
  zero(layout.fc1.scales_offset + layout.fc1.scales_nbytes, layout.fc2.codes_offset);
  zero(layout.fc2.codes_offset + layout.fc2.codes_nbytes, layout.fc2.scales_offset);
  zero(layout.fc2.scales_offset + layout.fc2.scales_nbytes, layout.expert_nbytes);
}

Status pack_matrix(const Job& job, int global_index, uint8_t* record) {
  SNUG_RETURN_IF_ERROR(check_job(job));
  SNUG_RETURN_IF_ERROR(pack_rows(job, record));
  const float global =
      job.source.global_scale_use == GlobalScaleUse::divide     ? 1.0f / job.source.global_scale
      : job.source.global_scale_use == GlobalScaleUse::multiply ? job.source.global_scale
                                                                : 1.0f;
  if (!std::isfinite(global)) return fail(job, "the reciprocal of the global scale is infinite");
  reinterpret_cast<float*>(record + job.layout.globals_offset)[global_index] = global;
  return pack_bias(job, record);
}

}  // namespace

Status prepare_expert(const PackedLayout& layout, const ExpertSource& source, int32_t expert,
                      uint8_t* record) {
  if (layout.tag == LayoutTag::record_16x64) {
    return make_error(Code::unsupported, "layout: %s is packed by the CUDA backend",
                      layout_name(layout.tag));
  }
  zero_rest(layout, record);
  const int64_t intermediate = layout.intermediate;
  SNUG_RETURN_IF_ERROR(pack_matrix(
      {layout, layout.fc1, source.gate, "gate", expert, true, false, intermediate}, 0, record));
  if (layout.gated) {
    SNUG_RETURN_IF_ERROR(pack_matrix(
        {layout, layout.fc1, source.up, "up", expert, true, true, intermediate}, 1, record));
  } else if (source.up.codes != nullptr) {
    return make_error(Code::invalid_argument,
                      "expert %d up: is given, but the activation is not gated", expert);
  }
  return pack_matrix({layout, layout.fc2, source.down, "down", expert, false, false, layout.hidden},
                     2, record);
}

Result<ExpertSource> shard_expert(const ExpertSource& source, Format format, int64_t intermediate,
                                  int32_t rank, int32_t num_ranks) {
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks) {
    return make_error(Code::invalid_argument, "rank: have %d of %d", rank, num_ranks);
  }
  const int group = format_info(format).group_size;
  const int64_t share = intermediate / num_ranks;
  if (intermediate % num_ranks != 0 || share % group != 0) {
    return make_error(Code::unsupported,
                      "intermediate: %lld over %d ranks cuts a group, %s needs shares that are "
                      "multiples of %d",
                      static_cast<long long>(intermediate), num_ranks, format_info(format).name,
                      group);
  }
  ExpertSource shard = source;
  shard.gate.rows.first_row += rank * share * shard.gate.rows.row_step;
  shard.up.rows.first_row += rank * share * shard.up.rows.row_step;
  shard.down.rows.first_k += rank * share;
  if (rank > 0) shard.down.bias = nullptr;
  return shard;
}

Result<WeightsBuilder> WeightsBuilder::make(const PackedLayout& layout, uint8_t* storage,
                                            uint64_t storage_nbytes) {
  const uint64_t need = static_cast<uint64_t>(layout.total_nbytes());
  if (storage_nbytes < need) {
    return make_error(Code::arena_too_small, "storage_nbytes: have %llu, the weights need %llu",
                      static_cast<unsigned long long>(storage_nbytes),
                      static_cast<unsigned long long>(need));
  }
  if (need > 0 && storage == nullptr) {
    return make_error(Code::invalid_argument, "storage: is null");
  }
  if (reinterpret_cast<uintptr_t>(storage) % kRecordAlignment != 0) {
    return make_error(Code::misaligned, "storage: have address %p, need a multiple of %lld",
                      static_cast<void*>(storage), static_cast<long long>(kRecordAlignment));
  }
  WeightsBuilder builder;
  builder.layout_ = layout;
  builder.storage_ = storage;
  builder.arrived_.assign(static_cast<size_t>(layout.num_local_experts), 0);
  return builder;
}

Status WeightsBuilder::put(int32_t expert, const ExpertSource& source) {
  if (expert < 0 || expert >= layout_.num_local_experts) {
    return make_error(Code::invalid_argument, "expert: have %d, need 0..%d", expert,
                      layout_.num_local_experts - 1);
  }
  if (arrived_[static_cast<size_t>(expert)] != 0) {
    return make_error(Code::invalid_argument, "expert %d: has already arrived", expert);
  }
  SNUG_RETURN_IF_ERROR(
      prepare_expert(layout_, source, expert, storage_ + expert * layout_.expert_nbytes));
  arrived_[static_cast<size_t>(expert)] = 1;
  return {};
}

Status WeightsBuilder::update(int32_t expert, const ExpertSource& source) {
  const bool known = expert >= 0 && expert < layout_.num_local_experts;
  if (!known || arrived_[static_cast<size_t>(expert)] == 0) {
    return make_error(Code::invalid_argument, "expert: have %d, only a prepared expert is updated",
                      expert);
  }
  arrived_[static_cast<size_t>(expert)] = 0;  // stays so if packing fails half-way
  return put(expert, source);
}

Status WeightsBuilder::check_complete() const {
  const auto missing = std::find(arrived_.begin(), arrived_.end(), 0);
  if (missing == arrived_.end()) return {};
  return make_error(Code::invalid_argument, "weights: expert %d of %d has not been prepared",
                    static_cast<int>(missing - arrived_.begin()), layout_.num_local_experts);
}

namespace {

/// What the threads of prepare_all share.
struct Shared {
  std::atomic<int32_t> next{0};
  std::atomic<int32_t> done{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Status first_error;

  void fail(const Status& status) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (first_error.ok()) first_error = status;
    stop = true;
  }
};

}  // namespace

Status prepare_all(WeightsBuilder& builder,
                   const std::function<Result<ExpertSource>(int32_t)>& source_of,
                   int32_t num_threads, const Progress& progress) {
  const int32_t total = builder.layout().num_local_experts;
  Shared shared;
  const auto put_next = [&]() {
    const int32_t expert = shared.next.fetch_add(1);
    if (expert >= total || shared.stop) return false;
    const Result<ExpertSource> source = source_of(expert);
    const Status status = source.has_value() ? builder.put(expert, *source) : source.error();
    if (!status.ok()) shared.fail(status);
    shared.done.fetch_add(1);
    return status.ok();
  };
  std::vector<std::thread> helpers;
  for (int32_t t = 1; t < std::min(num_threads, total); ++t) {
    helpers.emplace_back([&] {
      while (put_next()) {
      }
    });
  }
  int32_t reported = 0;
  while (put_next()) {
    if (!progress) continue;
    reported = shared.done.load();
    if (progress(reported, total) != 0) {
      shared.fail(make_error(Code::cancelled, "prepare: cancelled by the progress callback"));
    }
  }
  for (std::thread& helper : helpers) helper.join();
  if (!shared.first_error.ok()) return shared.first_error;
  // The helpers may have finished last.
  if (progress && reported < total && progress(total, total) != 0) {
    return make_error(Code::cancelled, "prepare: cancelled by the progress callback");
  }
  return builder.check_complete();
}

}  // namespace snug
