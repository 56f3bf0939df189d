// SPDX-License-Identifier: Apache-2.0
#include "weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace snug {

namespace {

Status io_error(const std::string& path, const char* what, int native) {
  return make_native_error(Code::io, native, "%.160s: %s: %s", path.c_str(), what,
                           std::generic_category().message(native).c_str());
}

/// The size of an open file, refusing everything that is not a regular, non-empty one.
Result<uint64_t> regular_file_nbytes(int descriptor, const std::string& path) {
  struct stat info = {};
  if (fstat(descriptor, &info) != 0) return io_error(path, "cannot stat", errno);
  if (S_ISDIR(info.st_mode)) return io_error(path, "cannot map", EISDIR);
  if (!S_ISREG(info.st_mode)) {
    return make_native_error(Code::io, EINVAL, "%.160s: is not a regular file", path.c_str());
  }
  if (info.st_size <= 0) {
    return make_error(Code::corrupt_checkpoint, "%.160s: is empty", path.c_str());
  }
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

std::string base_name(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash != std::string_view::npos && path.size() > 1) path.remove_prefix(slash + 1);
  return std::string(path);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return io_error(path, "cannot open", errno);
  const Result<uint64_t> nbytes = regular_file_nbytes(descriptor, path);
  if (!nbytes) {
    ::close(descriptor);
    return nbytes.error();
  }
  void* data = mmap(nullptr, *nbytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int native = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) return io_error(path, "cannot map", native);
  MappedFile file;
  file.data_ = static_cast<const uint8_t*>(data);
  file.nbytes_ = *nbytes;
  file.name_ = base_name(path);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      nbytes_(std::exchange(other.nbytes_, 0)),
      name_(std::move(other.name_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(nbytes_, other.nbytes_);
  std::swap(name_, other.name_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), nbytes_);
}

}  // namespace snug
