// SPDX-License-Identifier: Apache-2.0
#include "weights/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "support/safetensors_writer.h"

namespace snug {
namespace {

using test::TempDir;

TEST(MappedFile, MapsTheBytesAndSurvivesMoves) {
  TempDir dir;
  Result<MappedFile> file = MappedFile::open(dir.write("a.bin", "hello"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const uint8_t* data = file->data();
  MappedFile moved = std::move(file).value();
  EXPECT_EQ(moved.text(), "hello");
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.name(), "a.bin");
  MappedFile other;
  other = std::move(moved);
  EXPECT_EQ(other.text(), "hello");
  EXPECT_EQ(moved.data(), nullptr);
}

TEST(MappedFile, MissingFileIsIoWithErrno) {
  TempDir dir;
  const Status status = MappedFile::open(dir.path() + "/absent").error();
  EXPECT_EQ(status.code, Code::io);
  EXPECT_EQ(status.native_code, ENOENT);
  EXPECT_NE(std::string(status.message).find("absent"), std::string::npos);
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  TempDir dir;
  EXPECT_EQ(MappedFile::open(dir.path()).error().native_code, EISDIR);
  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(pipe).error().code, Code::io);  // and does not wait for a writer
  EXPECT_EQ(MappedFile::open(dir.write("empty", "")).error().code, Code::corrupt_checkpoint);
}

TEST(MappedFile, BaseName) {
  EXPECT_EQ(base_name("a/b/c.st"), "c.st");
  EXPECT_EQ(base_name("c.st"), "c.st");
  EXPECT_EQ(base_name("/a/b//"), "b");
  EXPECT_EQ(base_name("/"), "/");
  EXPECT_EQ(base_name(""), "");
}

}  // namespace
}  // namespace snug
