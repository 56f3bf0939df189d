// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace snug::cpu {
namespace {

TEST(Workers, SyncStartsFromAnyBytes) {
  alignas(64) unsigned char memory[sizeof(Sync)];
  std::memset(memory, 0xFF, sizeof memory);
  const Sync& sync = *make_sync(memory);
  EXPECT_EQ(static_cast<const void*>(&sync), memory);
  EXPECT_EQ(sync.fc1_task.load(), 0);
  EXPECT_EQ(sync.fc2_task.load(), 0);
  EXPECT_EQ(sync.arrived.load(), 0);
  EXPECT_EQ(sync.phase.load(), 0);
  EXPECT_EQ(sync.num_active, 0);
}

TEST(Workers, CountersHaveCacheLinesOfTheirOwn) {
  alignas(64) unsigned char memory[sizeof(Sync)];
  const Sync& sync = *make_sync(memory);
  const auto line = [](const void* p) { return reinterpret_cast<uintptr_t>(p) / 64; };
  EXPECT_NE(line(&sync.fc1_task), line(&sync.fc2_task));
  EXPECT_NE(line(&sync.fc2_task), line(&sync.arrived));
  EXPECT_NE(line(&sync.fc1_task), line(&sync.arrived));
}

TEST(Workers, OneWorkerWaitsForNobody) {
  alignas(64) unsigned char memory[sizeof(Sync)];
  Sync& sync = *make_sync(memory);
  wait_for_all(sync, 1);
  EXPECT_EQ(sync.phase.load(), 0);
}

/// Every worker writes a plain int a round, and after the barrier reads what all the others wrote:
/// a barrier that lets one through early, or orders too little, shows (ThreadSanitizer sees both).
void run_rounds(int num_workers, int rounds) {
  alignas(64) unsigned char memory[sizeof(Sync)];
  Sync& sync = *make_sync(memory);
  std::vector<int> written(static_cast<size_t>(num_workers), -1);
  std::vector<int> stale(static_cast<size_t>(num_workers), 0);
  const auto work = [&](int worker) {
    for (int round = 0; round < rounds; ++round) {
      written[static_cast<size_t>(worker)] = round;
      wait_for_all(sync, num_workers);
      for (const int seen : written) stale[static_cast<size_t>(worker)] += seen != round;
      wait_for_all(sync, num_workers);
    }
  };
  std::vector<std::thread> threads;
  for (int w = 1; w < num_workers; ++w) threads.emplace_back(work, w);
  work(0);
  for (std::thread& thread : threads) thread.join();
  for (const int count : stale) EXPECT_EQ(count, 0) << num_workers << " workers";
  EXPECT_EQ(sync.phase.load(), 2 * rounds);
  EXPECT_EQ(sync.arrived.load(), 0);
}

TEST(Workers, TheBarrierHoldsEverybodyEveryRound) {
  for (const int num_workers : {2, 3, 4}) run_rounds(num_workers, 300);
}

TEST(Workers, MoreWorkersThanCoresStillPass) {
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  run_rounds(std::min(4 * cores + 1, 64), 50);
}

}  // namespace
}  // namespace snug::cpu
