// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/path.h"

#include "backend/cpu/isa/target.h"

namespace snug::cpu {

const Path& path_of(CpuPath path) {
  switch (path) {
#if defined(__x86_64__)
    case CpuPath::amx:
      return amx::kPath;
    case CpuPath::bf16:
      return bf16dot::kPath;
    case CpuPath::vnni:
      return vnni::kPath;
    case CpuPath::avx512:
      return avx512::kPath;
    case CpuPath::avx2:
      return avx2::kPath;
#else
    case CpuPath::amx:
    case CpuPath::bf16:
    case CpuPath::vnni:
    case CpuPath::avx512:
    case CpuPath::avx2:
#endif
    case CpuPath::portable:
    case CpuPath::automatic:
      break;
  }
  return portable::kPath;
}

}  // namespace snug::cpu
