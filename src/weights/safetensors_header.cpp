// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors_header.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "weights/safetensors.h"

namespace snug {

namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

/// Receives the parser's events. A handler that returns false stops the parse with status_ set.
class HeaderReader {
 public:
  explicit HeaderReader(const char* file) : file_(file) {}

  const Status& status() const { return status_; }
  std::vector<HeaderEntry> take() { return std::move(entries_); }

  bool null() { return refuse("null"); }
  bool boolean(bool) { return refuse("a boolean"); }
  bool number_integer(int64_t value) { return refuse_number(std::to_string(value)); }
  bool number_float(double, const std::string& text) { return refuse_number(text); }
  bool binary(nlohmann::json::binary_t&) { return refuse("binary"); }
  bool number_unsigned(uint64_t value);
  bool string(std::string& value);
  bool start_object(size_t);
  bool key(std::string& text);
  bool end_object();
  bool start_array(size_t);
  bool end_array();

  template <class Exception>
  bool parse_error(size_t position, const std::string&, const Exception&) {
    if (!status_.ok()) return false;
    status_ =
        make_error(Code::corrupt_checkpoint, "%.80s: header: malformed JSON at byte %zu%s%.100s",
                   file_, position, entries_.empty() ? "" : ", after ", current().c_str());
    return false;
  }

 private:
  enum class Where { before, top, metadata, entry, shape, offsets };
  enum Field : unsigned { kNone = 0, kDType = 1, kShape = 2, kOffsets = 4, kAll = 7 };

  std::string current() const { return entries_.empty() ? std::string() : entries_.back().name; }
  const char* field_name() const {
    return field_ == kDType ? "dtype" : field_ == kShape ? "shape" : "data_offsets";
  }
  bool refuse(const char* have);
  bool refuse_number(const std::string& text) {
    const std::string shown = "the number " + text.substr(0, 24);
    return refuse(shown.c_str());
  }
  bool fail(const char* what, const char* detail = "") {
    status_ = make_error(Code::corrupt_checkpoint, "%.80s: %.100s: %s%.40s", file_,
                         current().c_str(), what, detail);
    return false;
  }
  bool top_key(std::string& text);

  const char* file_;
  Status status_;
  std::vector<HeaderEntry> entries_;
  Where where_ = Where::before;
  bool next_is_metadata_ = false;
  bool had_metadata_ = false;
  Field field_ = kNone;  // of the entry: the one whose value comes next
  unsigned fields_ = 0;  // of the entry: those seen
  int num_offsets_ = 0;
};

/// Says what stands where something else must stand.
bool HeaderReader::refuse(const char* have) {
  const std::string name = next_is_metadata_ ? "__metadata__" : current();
  const char* n = name.c_str();
  switch (where_) {
    case Where::before:
      status_ =
          make_error(Code::corrupt_checkpoint, "%.80s: header is %s, need an object", file_, have);
      break;
    case Where::top:
      status_ = make_error(Code::corrupt_checkpoint, "%.80s: %.100s: is %s, need an object", file_,
                           n, have);
      break;
    case Where::metadata:
      status_ = make_error(Code::corrupt_checkpoint, "%.80s: __metadata__: has %s, need strings",
                           file_, have);
      break;
    case Where::entry:
      status_ = make_error(Code::corrupt_checkpoint, "%.80s: %.100s: %s is %s, need %s", file_, n,
                           field_name(), have, field_ == kDType ? "a string" : "an array");
      break;
    case Where::shape:
    case Where::offsets:
      status_ = make_error(Code::corrupt_checkpoint,
                           "%.80s: %.100s: %s has %s, need integers from 0 to 2^63-1", file_, n,
                           field_name(), have);
      break;
  }
  return false;
}

bool HeaderReader::number_unsigned(uint64_t value) {
  if (where_ != Where::shape && where_ != Where::offsets) {
    return refuse_number(std::to_string(value));
  }
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return refuse_number(std::to_string(value));
  }
  HeaderEntry& entry = entries_.back();
  if (where_ == Where::shape) {
    if (entry.rank == kMaxTensorRank) return fail("shape has more than 8 dimensions");
    entry.shape[entry.rank++] = static_cast<int64_t>(value);
    return true;
  }
  if (num_offsets_ == 2) return fail("data_offsets has more than 2 numbers");
  (num_offsets_++ == 0 ? entry.data_offsets.first : entry.data_offsets.second) = value;
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (where_ == Where::metadata) return true;
  if (where_ != Where::entry || field_ != kDType) return refuse("a string");
  std::replace_if(value.begin(), value.end(), is_control, '?');
  entries_.back().dtype = std::move(value);
  return true;
}

bool HeaderReader::start_object(size_t) {
  if (where_ == Where::before) {
    where_ = Where::top;
    return true;
  }
  if (where_ != Where::top) return refuse("an object");
  where_ = next_is_metadata_ ? Where::metadata : Where::entry;
  fields_ = 0;
  num_offsets_ = 0;
  return true;
}

bool HeaderReader::top_key(std::string& text) {
  next_is_metadata_ = text == "__metadata__";
  if (next_is_metadata_) {
    if (std::exchange(had_metadata_, true)) {
      status_ = make_error(Code::corrupt_checkpoint, "%.80s: __metadata__: appears twice", file_);
      return false;
    }
    return true;
  }
  if (text.empty() || std::any_of(text.begin(), text.end(), is_control)) {
    status_ = make_error(Code::corrupt_checkpoint, "%.80s: a tensor name after '%.100s' %s", file_,
                         current().c_str(), text.empty() ? "is empty" : "has a control character");
    return false;
  }
  entries_.emplace_back().name = std::move(text);
  return true;
}

bool HeaderReader::key(std::string& text) {
  if (where_ == Where::top) return top_key(text);
  if (where_ == Where::metadata) return true;
  field_ = text == "dtype"          ? kDType
           : text == "shape"        ? kShape
           : text == "data_offsets" ? kOffsets
                                    : kNone;
  if (field_ == kNone) {
    std::replace_if(text.begin(), text.end(), is_control, '?');  // it ends on a terminal
    return fail("unknown field ", text.c_str());
  }
  if ((fields_ & field_) != 0) return fail("appears twice: ", field_name());
  fields_ |= field_;
  return true;
}

bool HeaderReader::end_object() {
  if (where_ == Where::entry && fields_ != kAll) {
    return fail("lacks ", (fields_ & kDType) == 0   ? "dtype"
                          : (fields_ & kShape) == 0 ? "shape"
                                                    : "data_offsets");
  }
  where_ = Where::top;
  next_is_metadata_ = false;
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (where_ != Where::entry || field_ == kDType) return refuse("an array");
  where_ = field_ == kShape ? Where::shape : Where::offsets;
  return true;
}

bool HeaderReader::end_array() {
  if (where_ == Where::offsets && num_offsets_ != 2) return fail("data_offsets needs 2 numbers");
  where_ = Where::entry;
  return true;
}

}  // namespace

Result<std::vector<HeaderEntry>> parse_header(const char* file, std::string_view header) {
  // The parser takes a NUL byte for the end of its input and skips a byte-order mark.
  if (const size_t nul = header.find('\0'); nul != std::string_view::npos) {
    return make_error(Code::corrupt_checkpoint, "%.80s: header: NUL byte at byte %zu", file, nul);
  }
  const size_t first = header.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || static_cast<unsigned char>(header[first]) == 0xEF) {
    return make_error(Code::corrupt_checkpoint, "%.80s: header is %s, need an object", file,
                      first == std::string_view::npos ? "blank" : "text with a byte-order mark");
  }
  HeaderReader reader(file);
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &reader)) {
    SNUG_ASSERT(!reader.status().ok());
    return reader.status();
  }
  return reader.take();
}

}  // namespace snug
