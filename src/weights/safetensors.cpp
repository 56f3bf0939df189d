// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <numeric>
#include <utility>

#include "base/integers.h"
#include "weights/safetensors_header.h"

namespace snug {

namespace {

struct StoredDType {
  const char* name;
  uint64_t num_bits;
  std::optional<DType> dtype;
};

constexpr StoredDType kStoredDTypes[] = {
    {"BF16", 16, DType::bf16},
    {"F16", 16, DType::f16},
    {"F32", 32, DType::f32},
    {"F64", 64, DType::f64},
    {"I32", 32, DType::s32},
    {"I64", 64, DType::s64},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::s8},
    {"F8_E4M3", 8, DType::e4m3},
    {"F8_E8M0", 8, DType::e8m0},
    {"F4", 4, DType::e2m1x2},
    {"F4_E2M1", 4, DType::e2m1x2},
    {"BOOL", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},
    {"C64", 64, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
};

const StoredDType* find_stored_dtype(std::string_view name) {
  for (const StoredDType& candidate : kStoredDTypes) {
    if (name == candidate.name) return &candidate;
  }
  return nullptr;
}

/// Bytes that the shape needs; none when the product overflows or ends inside a byte.
std::optional<uint64_t> shape_nbytes(const HeaderEntry& entry, uint64_t num_bits) {
  Checked bits(num_bits);
  // A dimension of zero makes the whole product zero, whatever the others are.
  for (int32_t i = 0; i < entry.rank; ++i) {
    if (entry.shape[i] == 0) return 0;
  }
  for (int32_t i = 0; i < entry.rank; ++i) bits = bits * static_cast<uint64_t>(entry.shape[i]);
  if (!bits.ok() || bits.value() % 8 != 0) return std::nullopt;
  return bits.value() / 8;
}

/// Checks one entry against itself and the size of the data, and makes its view (without a name).
Result<TensorView> check_entry(const char* file, const HeaderEntry& entry, const uint8_t* data,
                               uint64_t data_nbytes) {
  const char* name = entry.name.c_str();
  const auto [begin, end] = entry.data_offsets;
  const StoredDType* stored = find_stored_dtype(entry.dtype);
  if (stored == nullptr) {
    return make_error(Code::corrupt_checkpoint, "%.80s: %.100s: unknown dtype '%.20s'", file, name,
                      entry.dtype.c_str());
  }
  if (begin > end) {
    return make_error(Code::corrupt_checkpoint,
                      "%.80s: %.100s: data_offsets [%" PRIu64 ", %" PRIu64 "] are reversed", file,
                      name, begin, end);
  }
  if (end > data_nbytes) {
    return make_error(Code::corrupt_checkpoint,
                      "%.80s: %.100s: data_offsets end at %" PRIu64 ", file has %" PRIu64
                      " data bytes",
                      file, name, end, data_nbytes);
  }
  const std::optional<uint64_t> need = shape_nbytes(entry, stored->num_bits);
  if (!need.has_value()) {
    return make_error(Code::corrupt_checkpoint,
                      "%.80s: %.100s: shape of %s is not a whole number of bytes below 2^64, "
                      "data_offsets span %" PRIu64,
                      file, name, stored->name, end - begin);
  }
  if (*need != end - begin) {
    return make_error(Code::corrupt_checkpoint,
                      "%.80s: %.100s: shape needs %" PRIu64 " bytes, data_offsets span %" PRIu64,
                      file, name, *need, end - begin);
  }
  TensorView view;
  view.stored_dtype = stored->name;
  view.dtype = stored->dtype;
  view.rank = entry.rank;
  std::copy_n(entry.shape, kMaxTensorRank, view.shape);
  view.data = data + begin;
  view.nbytes = end - begin;
  if (stored->num_bits == 4) {
    int64_t* last = view.rank > 0 ? &view.shape[view.rank - 1] : nullptr;
    if (last == nullptr || *last % 2 != 0) {
      view.dtype = std::nullopt;  // pairs straddle rows: nothing of ours reads that
    } else {
      *last /= 2;
    }
  }
  return view;
}

/// The tensors, ordered by offset, must cover the data exactly.
Status check_coverage(const char* file, const std::vector<HeaderEntry>& entries,
                      uint64_t data_nbytes) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return entries[a].data_offsets < entries[b].data_offsets; });
  uint64_t covered = 0;
  for (const size_t i : order) {
    const auto [begin, end] = entries[i].data_offsets;
    if (begin != covered) {
      return make_error(Code::corrupt_checkpoint,
                        "%.80s: %.100s: data starts at %" PRIu64
                        ", the tensor before it ends at %" PRIu64 " (%s)",
                        file, entries[i].name.c_str(), begin, covered,
                        begin < covered ? "overlap" : "hole");
    }
    covered = end;
  }
  if (covered != data_nbytes) {
    return make_error(Code::corrupt_checkpoint,
                      "%.80s: tensors end at data byte %" PRIu64 ", file has %" PRIu64
                      " data bytes",
                      file, covered, data_nbytes);
  }
  return {};
}

/// The header's text, after its length has been checked against the file.
Result<std::string_view> header_text(const MappedFile& file) {
  const char* name = file.name().c_str();
  if (file.nbytes() < 8) {
    return make_error(Code::corrupt_checkpoint,
                      "%.80s: has %" PRIu64 " bytes, a safetensors file needs at least 8", name,
                      file.nbytes());
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | file.data()[i];
  if (length > kMaxHeaderNbytes) {
    return make_error(Code::corrupt_checkpoint,
                      "%.80s: header length is %" PRIu64 ", at most %" PRIu64 " are allowed", name,
                      length, kMaxHeaderNbytes);
  }
  if (length > file.nbytes() - 8) {
    return make_error(Code::corrupt_checkpoint,
                      "%.80s: header length is %" PRIu64 ", file has %" PRIu64
                      " bytes after the length",
                      name, length, file.nbytes() - 8);
  }
  return file.text().substr(8, length);
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  SNUG_ASSIGN_OR_RETURN(result.file_, MappedFile::open(path));
  const char* file = result.file_.name().c_str();
  SNUG_ASSIGN_OR_RETURN(const std::string_view header, header_text(result.file_));
  SNUG_ASSIGN_OR_RETURN(std::vector<HeaderEntry> entries, parse_header(file, header));

  const uint8_t* data = result.file_.data() + 8 + header.size();
  const uint64_t data_nbytes = result.file_.nbytes() - 8 - header.size();
  std::sort(entries.begin(), entries.end(),
            [](const HeaderEntry& a, const HeaderEntry& b) { return a.name < b.name; });
  result.tensors_.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0 && entries[i].name == entries[i - 1].name) {
      return make_error(Code::corrupt_checkpoint, "%.80s: %.120s: appears twice in the header",
                        file, entries[i].name.c_str());
    }
    SNUG_ASSIGN_OR_RETURN(const TensorView view, check_entry(file, entries[i], data, data_nbytes));
    result.tensors_.push_back(view);
  }
  SNUG_RETURN_IF_ERROR(check_coverage(file, entries, data_nbytes));
  result.names_.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    result.names_.push_back(std::move(entries[i].name));
    result.tensors_[i].name = result.names_.back();  // reserved above: the strings stay put
  }
  return result;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorView& view, std::string_view n) { return view.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

}  // namespace snug
