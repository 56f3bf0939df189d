// SPDX-License-Identifier: Apache-2.0
// Memory whose neighbours are unmapped pages: one byte too far, read or written, is a crash.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace snug::test {

/// `nbytes` bytes at an address aligned to `alignment`, filled with 0xFF, right after an unmapped
/// page (Edge::front) or right before one (Edge::back). At the back, alignment can leave up to
/// alignment - 1 bytes before the page: they hold a canary, and check_canary() looks at it.
class GuardedMemory {
 public:
  enum class Edge { front, back };

  GuardedMemory(uint64_t nbytes, uint64_t alignment, Edge edge) : nbytes_(nbytes) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t inner = (nbytes + alignment + page - 1) / page * page;
    mapped_nbytes_ = inner + 2 * page;
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, mapped_nbytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base_, MAP_FAILED);
    EXPECT_EQ(mprotect(base_, page, PROT_NONE), 0);
    EXPECT_EQ(mprotect(base_ + page + inner, page, PROT_NONE), 0);
    end_ = base_ + page + inner;
    data_ = edge == Edge::front ? base_ + page
                                : end_ - (nbytes + alignment - 1) / alignment * alignment;
    std::memset(base_ + page, kCanary, inner);
    fill(0xFF);
  }
  ~GuardedMemory() {
    if (base_ != nullptr) munmap(base_, mapped_nbytes_);
  }
  GuardedMemory(GuardedMemory&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        end_(other.end_),
        data_(other.data_),
        nbytes_(other.nbytes_),
        mapped_nbytes_(other.mapped_nbytes_) {}
  GuardedMemory& operator=(GuardedMemory&&) = delete;

  void* data() const { return data_; }
  uint64_t nbytes() const { return nbytes_; }
  void fill(int byte) { std::memset(data_, byte, nbytes_); }

  /// Fails the test when a byte past the end, up to the unmapped page, has changed.
  void check_canary() const {
    for (const uint8_t* p = data_ + nbytes_; p < end_; ++p) {
      ASSERT_EQ(*p, kCanary) << (p - data_ - static_cast<ptrdiff_t>(nbytes_))
                             << " bytes past the end";
    }
  }

 private:
  static constexpr uint8_t kCanary = 0xA5;
  uint8_t* base_ = nullptr;
  uint8_t* end_ = nullptr;
  uint8_t* data_ = nullptr;
  uint64_t nbytes_ = 0;
  uint64_t mapped_nbytes_ = 0;
};

}  // namespace snug::test
