// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors_header.h"

#include <gtest/gtest.h>

#include <string>

namespace snug {
namespace {

constexpr const char* kGood = R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";

std::string error_of(const std::string& header) {
  const auto result = parse_header("m.safetensors", header);
  if (result.has_value()) return "";
  EXPECT_EQ(result.error().code, Code::corrupt_checkpoint);
  EXPECT_EQ(std::string(result.error().message).rfind("m.safetensors: ", 0), 0u)
      << result.error().message;
  return result.error().message;
}

struct Malformed {
  const char* header;
  const char* named;  // a part of the message
};

TEST(SafetensorsHeader, ReadsEntriesInOrder) {
  const auto result =
      parse_header("f", R"({"b": {"shape": [2, 3], "data_offsets": [8, 32], "dtype": "F32"},
              "__metadata__": {"k": "v"},
              "a": {"dtype": "BF16", "shape": [], "data_offsets": [0, 2]}}   )");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_EQ(result->size(), 2u);
  const HeaderEntry& b = (*result)[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, "F32");
  EXPECT_EQ(b.rank, 2);
  EXPECT_EQ(b.shape[1], 3);
  EXPECT_EQ(b.data_offsets, std::pair(uint64_t{8}, uint64_t{32}));
  EXPECT_EQ((*result)[1].rank, 0);
  EXPECT_TRUE(parse_header("f", "{}").value().empty());
}

TEST(SafetensorsHeader, RefusesTheCorpusByName) {
  const Malformed kCorpus[] = {
      {"", "blank"},
      {"   ", "blank"},
      {"[]", "header is an array"},
      {"7", "header is the number 7"},
      {"\"x\"", "header is a string"},
      {"null", "header is null"},
      {"true", "header is a boolean"},
      {"\xEF\xBB\xBF{}", "byte-order mark"},
      {"{", "malformed JSON at byte"},
      {"{}}", "malformed JSON at byte"},
      {"{} x", "malformed JSON at byte"},
      {R"({"w": 3})", "w: is the number 3"},
      {R"({"w": [1]})", "w: is an array"},
      {R"({"w": null})", "w: is null"},
      {R"({"w": {}})", "w: lacks dtype"},
      {R"({"w": {"dtype": "F32", "shape": [1]}})", "w: lacks data_offsets"},
      {R"({"w": {"dtype": "F32", "data_offsets": [0, 4]}})", "w: lacks shape"},
      {R"({"w": {"dtype": 5, "shape": [1], "data_offsets": [0, 4]}})", "w: dtype is the number 5"},
      {R"({"w": {"dtype": ["F32"]}})", "w: dtype is an array"},
      {R"({"w": {"dtype": "F32", "shape": 1}})", "w: shape is the number 1"},
      {R"({"w": {"dtype": "F32", "shape": "1"}})", "w: shape is a string"},
      {R"({"w": {"dtype": "F32", "shape": {"x": 1}}})", "w: shape is an object"},
      {R"({"w": {"shape": [-1]}})", "w: shape has the number -1"},
      {R"({"w": {"shape": [1.0]}})", "w: shape has the number 1.0"},
      {R"({"w": {"shape": [1e3]}})", "w: shape has the number 1e3"},
      {R"({"w": {"shape": [9223372036854775808]}})", "w: shape has the number 9223372036854775808"},
      {R"({"w": {"shape": [18446744073709551616]}})",
       "w: shape has the number 1844674407370955161"},
      {R"({"w": {"shape": [1e999]}})", "malformed JSON"},
      {R"({"w": {"shape": [true]}})", "w: shape has a boolean"},
      {R"({"w": {"shape": [null]}})", "w: shape has null"},
      {R"({"w": {"shape": [[1]]}})", "w: shape has an array"},
      {R"({"w": {"shape": [{}]}})", "w: shape has an object"},
      {R"({"w": {"shape": ["1"]}})", "w: shape has a string"},
      {R"({"w": {"shape": [1,1,1,1,1,1,1,1,1]}})", "w: shape has more than 8"},
      {R"({"w": {"data_offsets": [0]}})", "w: data_offsets needs 2"},
      {R"({"w": {"data_offsets": []}})", "w: data_offsets needs 2"},
      {R"({"w": {"data_offsets": [0, 1, 2]}})", "w: data_offsets has more than 2"},
      {R"({"w": {"data_offsets": [-8, 4]}})", "w: data_offsets has the number -8"},
      {R"({"w": {"data_offsets": [0.5, 4]}})", "w: data_offsets has the number 0.5"},
      {R"({"w": {"data_offsets": [0, 18446744073709551615]}})", "w: data_offsets has the number"},
      {R"({"w": {"dtype": "F32", "dtype": "F32"}})", "w: appears twice: dtype"},
      {R"({"w": {"stride": [1]}})", "w: unknown field stride"},
      {R"({"__metadata__": 1})", "__metadata__: is the number 1"},
      {R"({"__metadata__": {"a": 1}})", "__metadata__: has the number 1"},
      {R"({"__metadata__": {"a": {"b": "c"}}})", "__metadata__: has an object"},
      {R"({"__metadata__": {}, "__metadata__": {}})", "__metadata__: appears twice"},
      {R"({"": {}})", "is empty"},
      {R"({"a\u0000b": {}})", "control character"},
      {R"({"a\u001b[0m": {}})", "control character"},
      {"{\"a\nb\": {}}", "malformed JSON"},
      {"{\"\xFF\xFE\": {}}", "malformed JSON"},
      {"{\"\xC3(\": {}}", "malformed JSON"},
  };
  for (const Malformed& m : kCorpus) {
    EXPECT_NE(error_of(m.header).find(m.named), std::string::npos)
        << m.header << "\n gives: " << error_of(m.header) << "\n lacks: " << m.named;
  }
}

TEST(SafetensorsHeader, RefusesNulBytes) {
  std::string header = std::string("{\"w\": ") + kGood + "}";
  header += '\0';
  EXPECT_NE(error_of(header).find("NUL byte"), std::string::npos);
  EXPECT_NE(error_of(std::string(16, '\0')).find("NUL byte at byte 0"), std::string::npos);
}

TEST(SafetensorsHeader, DeepNestingStopsAtOnce) {
  for (const char* open : {"[", "{\"a\":", "[{\"a\":"}) {
    std::string header;
    for (int i = 0; i < 1000000; ++i) header += open;
    EXPECT_NE(error_of(header), "");
    EXPECT_NE(error_of("{\"w\": " + header), "");
    EXPECT_NE(error_of("{\"w\": {\"shape\": " + header), "");
  }
}

TEST(SafetensorsHeader, LongNamesAreCutInMessages) {
  const std::string name(5000, 'n');
  EXPECT_NE(error_of("{\"" + name + "\": 3}").find("is the number 3"), std::string::npos);
  EXPECT_NE(error_of("{\"w\": {\"" + name + "\": 3}}"), "");
}

TEST(SafetensorsHeader, TruncatedAtEveryByte) {
  const std::string header =
      std::string("{\"__metadata__\": {\"a\": \"b\"}, \"w\": ") + kGood + "}";
  ASSERT_TRUE(parse_header("f", header).has_value());
  for (size_t n = 0; n < header.size(); ++n) EXPECT_NE(error_of(header.substr(0, n)), "") << n;
}

}  // namespace
}  // namespace snug
