// Working memory that outlives a call. A fresh large allocation costs a page fault per 4 KiB at each use, more
// than quantising the data that goes there; so buffers are kept and lent to one user at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace mxattn::cpu {

class Scratch {
 public:
  // A buffer until destruction.
  class Lease {
   public:
    Lease(Scratch& owner, size_t size);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    // 64-byte aligned.
    uint8_t* data() const { return data_; }

   private:
    Scratch& owner_;
    std::vector<uint8_t>* buffer_;
    uint8_t* data_;
  };

  Scratch() = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  std::mutex mutex_;
  std::vector<std::vector<uint8_t>*> free_;
};

}  // namespace mxattn::cpu
