// SPDX-License-Identifier: Apache-2.0
#include "floors.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <snug/snug.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "layer_runner.h"

namespace snug::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kStreams = 4;

/// Runs body(thread) on all threads at once and returns the seconds from the first start to the
/// last end.
double time_together(int threads, const std::function<void(int)>& body) {
  std::atomic<int> ready = 0;
  std::vector<std::thread> helpers;
  Clock::time_point start;
  const auto meet = [&] {
    ready.fetch_add(1);
    while (ready.load() < threads) std::this_thread::yield();
  };
  for (int t = 1; t < threads; ++t) {
    helpers.emplace_back([&, t] {
      meet();
      body(t);
    });
  }
  meet();
  start = Clock::now();
  body(0);
  for (std::thread& helper : helpers) helper.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Keeps a value alive without storing it anywhere.
template <class T>
void use(const T& value) {
  __asm__ volatile("" : : "m"(value) : "memory");
}

uint64_t read_streams(const uint8_t* data, uint64_t nbytes) {
  const uint64_t part = nbytes / kStreams / 64 * 64;
  uint64_t sums[kStreams][8] = {};
  for (uint64_t at = 0; at < part; at += 64) {
    for (int s = 0; s < kStreams; ++s) {
      uint64_t words[8];
      std::memcpy(words, data + s * part + at, 64);
      for (int i = 0; i < 8; ++i) sums[s][i] += words[i];
    }
  }
  uint64_t sum = 0;
  for (const auto& stream : sums) {
    for (const uint64_t word : stream) sum += word;
  }
  return sum;
}

constexpr int64_t kRounds = 200000;

/// FLOPs of one core; rates divide by the time.
double fma_scalar() {
  float sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = static_cast<float>(i);
  for (int64_t r = 0; r < kRounds; ++r) {
    for (float& s : sums) s = s * 0.999f + 0.5f;
    use(sums);
  }
  return 2.0 * 16 * kRounds;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double fma_ymm() {
  __m256 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.5f);
  for (int64_t r = 0; r < kRounds; ++r) {
    for (__m256& s : sums) s = _mm256_fmadd_ps(s, a, b);
  }
  use(sums);
  return 2.0 * 8 * 12 * kRounds;
}

__attribute__((target("avx512f"))) double fma_zmm() {
  __m512 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.5f);
  for (int64_t r = 0; r < kRounds; ++r) {
    for (__m512& s : sums) s = _mm512_fmadd_ps(s, a, b);
  }
  use(sums);
  return 2.0 * 16 * 12 * kRounds;
}

double amx_tiles() {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_nbytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  const Config config;
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
  for (int64_t r = 0; r < kRounds; ++r) {
    __asm__ volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n\ttdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n\ttdpbf16ps %tmm7, %tmm5, %tmm3");
  }
  __asm__ volatile("tilerelease");
  return 4.0 * 2 * 16 * 16 * 32 * kRounds;
}

__attribute__((target("avx512f,avx512bw"))) void decode_zmm(const uint8_t* codes, uint64_t nbytes,
                                                            uint8_t* to) {
  const __m512i table = _mm512_set1_epi16(0x3F80), scale = _mm512_set1_epi16(128);
  for (uint64_t at = 0; at < nbytes; at += 64) {
    const __m512i word = _mm512_loadu_si512(codes + at);
    for (int r = 0; r < 4; ++r) {
      const __m512i value =
          _mm512_permutexvar_epi16(_mm512_srli_epi16(word, static_cast<unsigned>(4 * r)), table);
      _mm512_storeu_si512(to + (at * 4 + static_cast<uint64_t>(r) * 64) % 8192,
                          _mm512_add_epi16(value, scale));
    }
  }
}
#endif

void decode_scalar(const uint8_t* codes, uint64_t nbytes, uint8_t* to) {
  for (uint64_t at = 0; at < nbytes; ++at) {
    const uint16_t pair[2] = {static_cast<uint16_t>((codes[at] & 15) << 7),
                              static_cast<uint16_t>((codes[at] >> 4) << 7)};
    std::memcpy(to + at * 4 % 8192, pair, sizeof pair);
  }
}

}  // namespace

const char* matrix_unit_name(MatrixUnit unit) {
  constexpr const char* kNames[] = {"scalar", "fma-ymm", "fma-zmm", "amx-bf16"};
  return kNames[static_cast<int>(unit)];
}

MatrixUnit best_matrix_unit() {
  const Result<snug_device> here = device_by_name("cpu");
  if (!here || here->arch <= SNUG_CPU_PORTABLE) return MatrixUnit::scalar;
  if (here->arch == SNUG_CPU_AVX2) return MatrixUnit::fma_ymm;
  return here->arch == SNUG_CPU_AMX ? MatrixUnit::amx : MatrixUnit::fma_zmm;
}

double read_gbps(int threads, uint64_t nbytes) {
  static Memory buffer;  // kept: filling it costs more than reading it
  if (buffer.nbytes() < nbytes) {
    buffer = Memory(nbytes, 4096);
    buffer.fill(1);
  }
  const uint64_t share = nbytes / static_cast<uint64_t>(threads) / 4096 * 4096;
  const auto* data = static_cast<const uint8_t*>(buffer.data());
  const double seconds = time_together(threads, [&](int t) {
    const uint64_t sum = read_streams(data + static_cast<uint64_t>(t) * share, share);
    use(sum);
  });
  return static_cast<double>(share) * threads / seconds * 1e-9;
}

double copy_gbps(uint64_t nbytes) {
  Memory from(nbytes, 4096), to(nbytes, 4096);
  from.fill(1);
  to.fill(2);
  const Clock::time_point start = Clock::now();
  std::memcpy(to.data(), from.data(), nbytes);
  use(to);
  const std::chrono::duration<double> seconds = Clock::now() - start;
  return static_cast<double>(nbytes) / seconds.count() * 1e-9;
}

double matrix_gflops(int threads, MatrixUnit unit) {
  std::atomic<double> flops = 0;
  const double seconds = time_together(threads, [&](int) {
    double done = 0;
#if defined(__x86_64__)
    if (unit == MatrixUnit::amx) done = amx_tiles();
    if (unit == MatrixUnit::fma_zmm) done = fma_zmm();
    if (unit == MatrixUnit::fma_ymm) done = fma_ymm();
#endif
    if (unit == MatrixUnit::scalar) done = fma_scalar();
    flops.fetch_add(done);
  });
  return flops.load() / seconds * 1e-9;
}

double decode_gbps() {
  const uint64_t nbytes = kMiB / 2;
  const int rounds = 40;
  std::vector<uint8_t> codes(nbytes, 0x5A);
  std::vector<uint8_t> to(8192);
  const bool zmm = best_matrix_unit() >= MatrixUnit::fma_zmm;
  const Clock::time_point start = Clock::now();
  for (int r = 0; r < rounds; ++r) {
#if defined(__x86_64__)
    if (zmm) {
      decode_zmm(codes.data(), nbytes, to.data());
      continue;
    }
#endif
    (void)zmm;
    decode_scalar(codes.data(), nbytes, to.data());
  }
  use(to);
  const std::chrono::duration<double> seconds = Clock::now() - start;
  return static_cast<double>(nbytes) * rounds / seconds.count() * 1e-9;
}

}  // namespace snug::cli
