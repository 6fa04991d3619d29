// Lanes of a workgroup as fibers: each has a stack and runs until it waits for others.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace mxattn::hip::emulated {

// Room for a kernel's registers as a compiler without optimisation spills them.
constexpr size_t kStackBytes = 256 * 1024;

#if defined(__x86_64__)

// swapcontext asks the kernel for the signal mask at every switch, which costs more than a lane computes between two.
extern "C" void mxattn_switch_stack(void** from, void* to);

class Fiber {
 public:
  void start(uint8_t* stack, void (*entry)()) {
    auto top = reinterpret_cast<void**>(stack + kStackBytes);
    // What mxattn_switch_stack pops: six registers and the address to return to; the stack is 8 past a multiple of 16 then,
    // as after a call.
    top[-2] = reinterpret_cast<void*>(entry);
    for (int i = 3; i <= 8; i++) top[-i] = nullptr;
    at_ = top - 8;
  }
  static void switchTo(Fiber& from, Fiber& to) { mxattn_switch_stack(&from.at_, to.at_); }

 private:
  void* at_ = nullptr;
};

#else

class Fiber {
 public:
  void start(uint8_t* stack, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  static void switchTo(Fiber& from, Fiber& to) { swapcontext(&from.context_, &to.context_); }

 private:
  ucontext_t context_;
};

#endif

}  // namespace mxattn::hip::emulated
