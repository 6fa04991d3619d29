// The operator ai.mxattn::FusedAttention, version 1.
//
// Inputs: query f32 [B, H, Sq, D]; key f32 [B, Hkv, Skv, D]; value f32 [B, Hkv, Skv, Dv]; bias f32, broadcastable
// to [B, H, Sq, Skv]; precision i32 [layers], the precision id of every layer for this run.
// Attributes: scale (float), layer (int, index into precision).
// Output: f32 [B, H, Sq, Dv] = softmax(scale * query key^T + bias) value.
#pragma once

#include <memory>
#include <string>

#include "cpu/dispatch.h"
#include "cpu/scratch.h"
#include "ort/library.h"

namespace mxattn::op {

constexpr const char* kDomain = "ai.mxattn";

// Must live as long as any session it is registered with: sessions call back into it.
class FusedAttention : public ort::CustomOp {
 public:
  FusedAttention(const ort::Library& library, cpu::Build build);

  const ort::Functions& ort;
  const cpu::Build build;
  // Shared by all layers, whose calls mostly follow one another.
  mutable cpu::Scratch scratch;
};

}  // namespace mxattn::op
