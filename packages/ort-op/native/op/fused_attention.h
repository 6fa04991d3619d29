// The operator ai.mxattn::FusedAttention, version 1.
//
// Inputs: query T [B, H, Sq, D]; key T [B, Hkv, Skv, D]; value T [B, Hkv, Skv, Dv]; bias f32, broadcastable to
// [B, H, Sq, Skv]; precision i32 [layers], the precision id of every layer for this run. T: f32 or f16.
// cache i64 [layers], optional: addresses of a CacheLayer for every layer; key and value are then the new tokens, which
// are appended, and Skv is their number with those before.
// Attributes: scale (float), layer (int, index into precision), softcap (float, default 0: none), and what a
// query sees by position, where query i of Sq stands at key i + Skv - Sq: causal (int, default 0; 1: no key after its
// own), window_left and window_right (int, default -1: no limit; else so many keys before and after its own).
// Output: T [B, H, Sq, Dv] = softmax(cap(scale * query key^T) + bias) value, cap(s) = softcap * tanh(s / softcap).
#pragma once

#include <memory>
#include <string>

#include "cpu/dispatch.h"
#include "cpu/scratch.h"
#include "op/gpu.h"
#include "ort/api.h"

namespace mxattn::op {

constexpr const char* kDomain = "ai.mxattn";

// The operator for one element type T; ONNX Runtime takes several of one name. Must live as long as any session it is
// registered with: sessions call back into it.
class FusedAttention : public ort::CustomOp {
 public:
  // Without a GPU, or when it is gone, attention is the CPU kernel's.
  FusedAttention(const ort::Functions& ort, cpu::Build build, ort::ElementType element, std::weak_ptr<GpuUse> gpu = {});

  const ort::Functions ort;
  const cpu::Build build;
  const ort::ElementType element;
  const std::weak_ptr<GpuUse> gpu;
  // Shared by all layers, whose calls mostly follow one another.
  mutable cpu::Scratch scratch;
};

}  // namespace mxattn::op
