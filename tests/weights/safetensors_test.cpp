// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/safetensors_writer.h"

namespace snug {
namespace {

using test::raw_safetensors;
using test::safetensors_bytes;
using test::TempDir;

/// The message for a file of these bytes; empty when it opens.
std::string error_of(const TempDir& dir, const std::string& bytes) {
  const auto result = SafetensorsFile::open(dir.write("m.safetensors", bytes));
  if (result.has_value()) return "";
  EXPECT_EQ(result.error().code, Code::corrupt_checkpoint) << result.error().message;
  EXPECT_NE(std::string(result.error().message).find("m.safetensors: "), std::string::npos);
  return result.error().message;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\": {\"dtype\": \"" + dtype + "\", \"shape\": " + shape +
         ", \"data_offsets\": " + offsets + "}";
}

TEST(Safetensors, FindsTensorsByName) {
  TempDir dir;
  const std::string path =
      dir.write("m.safetensors", safetensors_bytes({{"z", "F32", {2, 1}, "abcdefgh"},
                                                    {"a", "U8", {3}, "xyz"},
                                                    {"s", "F32", {}, "1234"},
                                                    {"none", "F16", {0, 7}, ""},
                                                    {"p", "F4", {2, 6}, "pairs!"},
                                                    {"odd", "F4", {2, 3}, "abc"},
                                                    {"e5", "F8_E5M2", {1}, "e"}}));
  Result<SafetensorsFile> opened = SafetensorsFile::open(path);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const SafetensorsFile file = std::move(opened).value();  // views survive the move
  EXPECT_EQ(file.name(), "m.safetensors");
  ASSERT_EQ(file.tensors().size(), 7u);
  for (size_t i = 1; i < 7; ++i) EXPECT_LT(file.tensors()[i - 1].name, file.tensors()[i].name);
  const TensorView* z = file.find("z");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->dtype, DType::f32);
  EXPECT_EQ(z->rank, 2);
  EXPECT_EQ(z->shape[0], 2);
  EXPECT_EQ(std::string(z->data, z->data + z->nbytes), "abcdefgh");
  EXPECT_EQ(file.find("a")->nbytes, 3u);
  EXPECT_EQ(file.find("s")->rank, 0);
  EXPECT_EQ(file.find("none")->nbytes, 0u);
  EXPECT_EQ(file.find("p")->dtype, DType::e2m1x2);
  EXPECT_EQ(file.find("p")->shape[1], 3);  // pairs
  EXPECT_EQ(file.find("odd")->dtype, std::nullopt);
  EXPECT_EQ(file.find("e5")->dtype, std::nullopt);
  EXPECT_EQ(file.find("e5")->stored_dtype, "F8_E5M2");
  EXPECT_EQ(file.find("y"), nullptr);
  EXPECT_EQ(file.find(""), nullptr);
}

TEST(Safetensors, MissingFileAndFolder) {
  TempDir dir;
  EXPECT_EQ(SafetensorsFile::open(dir.path() + "/no").error().code, Code::io);
  EXPECT_EQ(SafetensorsFile::open(dir.path()).error().code, Code::io);
  EXPECT_NE(error_of(dir, "").find("empty"), std::string::npos);
}

TEST(Safetensors, HeaderLength) {
  TempDir dir;
  EXPECT_NE(error_of(dir, "1234567").find("has 7 bytes"), std::string::npos);
  for (const uint64_t length : {~uint64_t{0}, ~uint64_t{7}, uint64_t{1} << 63}) {
    EXPECT_NE(error_of(dir, raw_safetensors(length, "{}", "")).find(std::to_string(length)),
              std::string::npos);
  }
  EXPECT_NE(error_of(dir, raw_safetensors(100'000'001, "{}", "")).find("100000001"),
            std::string::npos);
  EXPECT_NE(error_of(dir, raw_safetensors(3, "{}", "")).find("header length is 3"),
            std::string::npos);
  EXPECT_EQ(error_of(dir, raw_safetensors(2, "{}", "")), "");
}

struct Malformed {
  std::string entries;
  size_t data_nbytes;
  std::vector<std::string> named;
};

TEST(Safetensors, RefusesTheCorpusByName) {
  const Malformed kCorpus[] = {
      {entry("w", "F32", "[32, 8]", "[0, 65536]"), 1024, {"w: ", "65536", "1024"}},
      {entry("w", "F32", "[32, 8]", "[0, 65536]"), 65536, {"w: ", "65536", "1024"}},
      {entry("w", "F32", "[2]", "[8, 0]"), 8, {"w: ", "[8, 0]", "reversed"}},
      {entry("w", "F31", "[2]", "[0, 8]"), 8, {"w: ", "unknown dtype 'F31'"}},
      {entry("w", "F32", "[3]", "[0, 8]"), 8, {"w: ", "12", "8"}},
      {entry("w", "F32", "[4611686018427387904, 4]", "[0, 0]"), 0, {"w: ", "2^64"}},
      {entry("w", "F32", "[4294967296, 4294967296]", "[0, 0]"), 0, {"w: ", "2^64"}},
      {entry("w", "U8", "[9223372036854775807]", "[0, 9223372036854775807]"),
       8,
       {"w: ", "9223372036854775807"}},
      {entry("w", "F4", "[3]", "[0, 1]"), 1, {"w: ", "whole number of bytes"}},
      {entry("w", "F32", "[1]", "[0, 4]") + ", " + entry("w", "F32", "[1]", "[4, 8]"),
       8,
       {"w: ", "appears twice"}},
      {entry("a", "U8", "[4]", "[0, 4]") + ", " + entry("b", "U8", "[4]", "[2, 6]"),
       6,
       {"b: ", "starts at 2", "ends at 4", "overlap"}},
      {entry("a", "U8", "[4]", "[0, 4]") + ", " + entry("b", "U8", "[4]", "[0, 4]"),
       4,
       {": ", "overlap"}},
      {entry("a", "U8", "[4]", "[0, 4]") + ", " + entry("b", "U8", "[4]", "[6, 10]"),
       10,
       {"b: ", "starts at 6", "ends at 4", "hole"}},
      {entry("a", "U8", "[4]", "[2, 6]"), 6, {"a: ", "starts at 2", "hole"}},
      {entry("a", "U8", "[4]", "[0, 4]"), 9, {"end at data byte 4", "9 data bytes"}},
      {"", 3, {"end at data byte 0", "3 data bytes"}},
  };
  TempDir dir;
  for (const Malformed& m : kCorpus) {
    const std::string header = "{" + m.entries + "}";
    const std::string message =
        error_of(dir, raw_safetensors(header, std::string(m.data_nbytes, 'x')));
    for (const std::string& part : m.named) {
      EXPECT_NE(message.find(part), std::string::npos)
          << header << "\n gives: " << message << "\n lacks: " << part;
    }
  }
}

TEST(Safetensors, TruncatedAtEveryByte) {
  TempDir dir;
  const std::string bytes =
      safetensors_bytes({{"a", "U8", {2, 3}, "abcdef"}, {"b", "F32", {1}, "1234"}});
  ASSERT_EQ(error_of(dir, bytes), "");
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_NE(error_of(dir, bytes.substr(0, n)), "") << n;
}

TEST(Safetensors, EveryBitFlippedIsOkOrNamed) {
  TempDir dir;
  const std::string bytes =
      safetensors_bytes({{"a", "U8", {2, 3}, "abcdef"}, {"b", "F32", {1}, "1234"}});
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 9; ++bit) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(bit == 8 ? ~bytes[i] : bytes[i] ^ (1 << bit));
      const auto result = SafetensorsFile::open(dir.write("m.safetensors", flipped));
      if (!result.has_value()) {
        EXPECT_EQ(result.error().code, Code::corrupt_checkpoint);
        continue;
      }
      for (const TensorView& t : result->tensors()) {  // whatever opens must be readable
        uint64_t sum = 0;
        for (uint64_t k = 0; k < t.nbytes; ++k) sum += t.data[k];
        EXPECT_LE(sum, 255 * t.nbytes);
      }
    }
  }
}

}  // namespace
}  // namespace snug
