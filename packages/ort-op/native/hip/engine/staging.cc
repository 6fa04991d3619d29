#include "hip/engine/staging.h"

#include <algorithm>
#include <cstring>

namespace mxattn::hip {
namespace {

constexpr size_t kSlots = 4;
// Large enough that the cost of queuing a copy is small beside it, small enough that a few overlap.
constexpr size_t kSlotBytes = size_t{2} << 20;

}  // namespace

Staging::Staging(Device& device) : device_(device) {
  for (size_t i = 0; i < kSlots; i++) slots_.push_back({nullptr, device.createEvent()});
  memory_ = static_cast<char*>(device.allocatePinned(kSlots * kSlotBytes));
  for (size_t i = 0; i < kSlots; i++) slots_[i].memory = memory_ + i * kSlotBytes;
}

Staging::~Staging() { device_.freePinned(memory_); }

Staging::Slot& Staging::next() {
  Slot& slot = slots_[at_++ % kSlots];
  device_.wait(*slot.done);
  return slot;
}

void Staging::copyIn(Address to, const std::vector<Piece>& pieces, size_t bytes) {
  for (size_t begin = 0; begin < bytes; begin += kSlotBytes) {
    size_t end = std::min(begin + kSlotBytes, bytes);
    Slot& slot = next();
    for (const Piece& piece : pieces) {
      size_t first = std::max(begin, piece.offset), last = std::min(end, piece.offset + piece.bytes);
      if (first >= last) continue;
      std::memcpy(slot.memory + (first - begin), static_cast<const char*>(piece.from) + (first - piece.offset),
                  last - first);
    }
    device_.copyIn(to + begin, slot.memory, end - begin);
    device_.record(*slot.done);
  }
}

void Staging::copyOut(void* to, Address from, size_t bytes) {
  size_t chunks = (bytes + kSlotBytes - 1) / kSlotBytes;
  size_t first = at_;
  auto sizeOf = [&](size_t chunk) { return std::min(kSlotBytes, bytes - chunk * kSlotBytes); };
  for (size_t queued = 0, taken = 0; taken < chunks; taken++) {
    for (; queued < chunks && queued < taken + kSlots; queued++) {
      Slot& slot = next();
      device_.copyOut(slot.memory, from + queued * kSlotBytes, sizeOf(queued));
      device_.record(*slot.done);
    }
    Slot& slot = slots_[(first + taken) % kSlots];
    device_.wait(*slot.done);
    std::memcpy(static_cast<char*>(to) + taken * kSlotBytes, slot.memory, sizeOf(taken));
  }
}

}  // namespace mxattn::hip
