// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

namespace snug {
namespace {

static_assert(std::is_trivially_copyable_v<Status>);

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.native_code, 0);
  EXPECT_STREQ(status.message, "");
}

TEST(Status, MakeErrorFormats) {
  const Status status = make_error(Code::arena_too_small, "arena_nbytes: have %d, need %d", 3, 7);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code, Code::arena_too_small);
  EXPECT_EQ(status.native_code, 0);
  EXPECT_STREQ(status.message, "arena_nbytes: have 3, need 7");
}

TEST(Status, NativeCodeIsKept) {
  const Status status = make_native_error(Code::io, 2, "open %s", "a file");
  EXPECT_EQ(status.code, Code::io);
  EXPECT_EQ(status.native_code, 2);
  EXPECT_STREQ(status.message, "open a file");
}

TEST(Status, LongMessagesAreCutAndTerminated) {
  const std::string text(1000, 'x');
  for (const int length : {246, 247, 248, 249, 1000}) {
    const Status status = make_error(Code::internal, "%.*s", length, text.c_str());
    const size_t expected = std::min(length, Status::kMessageCapacity - 1);
    EXPECT_EQ(strnlen(status.message, sizeof status.message), expected);
  }
}

TEST(Status, CodesHaveTheirAbiValuesAndNames) {
  const char* names[] = {"ok",          "invalid_argument",
                         "unsupported", "arena_too_small",
                         "misaligned",  "corrupt_checkpoint",
                         "io",          "device",
                         "cancelled",   "internal"};
  ASSERT_EQ(std::size(names), static_cast<size_t>(kNumCodes));
  for (int i = 0; i < kNumCodes; ++i) EXPECT_STREQ(code_name(static_cast<Code>(i)), names[i]);
  EXPECT_EQ(static_cast<int>(Code::invalid_argument), 1);
  EXPECT_EQ(static_cast<int>(Code::corrupt_checkpoint), 5);
  EXPECT_EQ(static_cast<int>(Code::internal), 9);
  EXPECT_STREQ(code_name(static_cast<Code>(-1)), "unknown");
  EXPECT_STREQ(code_name(static_cast<Code>(kNumCodes)), "unknown");
}

Status fail_if(bool fail, int& reached) {
  const auto inner = [fail] { return fail ? make_error(Code::device, "inner") : Status{}; };
  SNUG_RETURN_IF_ERROR(inner());
  ++reached;
  return {};
}

TEST(Status, ReturnIfErrorStopsOnErrorsOnly) {
  int reached = 0;
  EXPECT_TRUE(fail_if(false, reached).ok());
  EXPECT_EQ(reached, 1);
  const Status status = fail_if(true, reached);
  EXPECT_EQ(status.code, Code::device);
  EXPECT_STREQ(status.message, "inner");
  EXPECT_EQ(reached, 1);
}

}  // namespace
}  // namespace snug
