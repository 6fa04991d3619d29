// Copies between a device and the host's ordinary memory, by way of a ring of page-locked slots: while one is on its way, the
// processor fills or empties the next.
#pragma once

#include <memory>
#include <vector>

#include "hip/driver/device.h"

namespace mxattn::hip {

// Host memory that goes to an offset from an address on the device.
struct Piece {
  const void* from;
  size_t bytes;
  size_t offset;
};

class Staging {
 public:
  explicit Staging(Device& device);
  ~Staging();

  // Pieces in order of their offsets, which end at `bytes`. Gaps between them get whatever. The pieces may change
  // afterwards.
  void copyIn(Address to, const std::vector<Piece>& pieces, size_t bytes);
  // Waits for all that was queued before.
  void copyOut(void* to, Address from, size_t bytes);

 private:
  struct Slot {
    char* memory;
    std::unique_ptr<Event> done;
  };

  Slot& next();

  Device& device_;
  char* memory_;
  std::vector<Slot> slots_;
  size_t at_ = 0;
};

}  // namespace mxattn::hip
