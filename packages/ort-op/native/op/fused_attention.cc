#include "op/fused_attention.h"

#include <array>
#include <stdexcept>
#include <vector>

#include "cpu/problem.h"
#include "op/cache_layer.h"

namespace mxattn::op {
namespace {

enum Input : size_t { kQuery, kKey, kValue, kBias, kPrecision, kCache, kInputs };

struct Tensor {
  void* data;
  std::vector<int64_t> dims;
};

std::string describe(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); i++) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

class Kernel {
 public:
  Kernel(const FusedAttention& op, const ort::KernelInfo* info) : op_(op) {
    op.ort.check(op.ort.KernelInfoGetAttribute_float(info, "scale", &scale_));
    op.ort.check(op.ort.KernelInfoGetAttribute_int64(info, "layer", &layer_));
    if (ort::Status* missing = op.ort.KernelInfoGetAttribute_float(info, "softcap", &softcap_)) {
      op.ort.ReleaseStatus(missing);
      softcap_ = 0;
    }
    causal_ = optionalInteger(info, "causal", 0) != 0;
    windowLeft_ = optionalInteger(info, "window_left", -1);
    windowRight_ = optionalInteger(info, "window_right", -1);
  }

  void compute(ort::KernelContext* context) const {
    std::array<Tensor, kInputs> in;
    size_t given;
    op_.ort.check(op_.ort.KernelContext_GetInputCount(context, &given));
    for (size_t i = 0; i < given; i++) in[i] = input(context, i);
    cpu::Problem problem = describeProblem(in);
    CacheLayer* cache = given > kCache ? cacheOf(in[kCache]) : nullptr;
    if (cache) useCache(problem, *cache);
    setBias(problem, in[kBias]);
    int64_t outDims[] = {problem.batch, problem.heads, problem.queryLength, problem.valueHeadSize};
    ort::Value* out;
    op_.ort.check(op_.ort.KernelContext_GetOutput(context, 0, outDims, 4, &out));
    void* data;
    op_.ort.check(op_.ort.GetTensorMutableData(out, &data));

    struct Context {
      const ort::Functions& ort;
      const ort::KernelContext* kernel;
    } parallelContext{op_.ort, context};
    cpu::Parallel parallel{&parallelContext, [](void* c, size_t count, void* task, void (*call)(void*, size_t)) {
                             auto& self = *static_cast<Context*>(c);
                             self.ort.check(self.ort.KernelContext_ParallelFor(self.kernel, call, count, 0, task));
                           }};
    if (op_.element == ort::kFloat32) {
      problem.out = static_cast<float*>(data);
      attend(problem, cache, parallel);
    } else {
      computeInHalf(problem, cache, in, static_cast<uint16_t*>(data), parallel);
    }
  }

 private:
  // Query, key and value become floats first, a small part of the work; f16 has too few digits for the softmax.
  void computeInHalf(cpu::Problem problem, CacheLayer* cache, const std::array<Tensor, kInputs>& in, uint16_t* out,
                     const cpu::Parallel& parallel) const {
    size_t queries = problem.batch * problem.heads * problem.queryLength;
    // Without those in a cache.
    size_t keys = problem.batch * problem.kvHeads * (problem.keyLength - problem.firstNewKey);
    size_t sizes[] = {queries * problem.headSize, keys * problem.headSize, keys * problem.valueHeadSize};
    size_t outSize = queries * problem.valueHeadSize;
    cpu::Scratch::Lease memory(op_.scratch, (sizes[0] + sizes[1] + sizes[2] + outSize) * sizeof(float));
    auto* next = reinterpret_cast<float*>(memory.data());
    const float** operands[] = {&problem.query, &problem.key, &problem.value};
    for (size_t i = 0; i < 3; i++) {
      op_.build.fromHalf(static_cast<const uint16_t*>(in[kQuery + i].data), next, sizes[i]);
      *operands[i] = next;
      next += sizes[i];
    }
    problem.out = next;
    attend(problem, cache, parallel);
    op_.build.toHalf(problem.out, out, outSize);
  }

  void attend(cpu::Problem problem, CacheLayer* cache, const cpu::Parallel& parallel) const {
    std::shared_ptr<GpuUse> gpu = op_.gpu.lock();
    hip::LayerCache* onGpu = cache ? cache->onGpu() : nullptr;
    int64_t count = problem.keyLength - problem.firstNewKey;
    if (gpu && onGpu) {
      cpu::Problem cached = problem;
      onGpu->describe(cached, count);
      if (gpu->attend(cached, onGpu)) return;
    } else if (gpu && !cache && gpu->attend(problem, nullptr)) {
      return;
    }
    if (!cache) return op_.build.kernel(problem, parallel, op_.scratch);
    cpu::LayerCache& onHost = cache->toHost(parallel, op_.scratch);
    onHost.prepare(problem, count);
    op_.build.kernel(problem, parallel, op_.scratch);
    onHost.appended(count);
  }

  int64_t optionalInteger(const ort::KernelInfo* info, const char* name, int64_t otherwise) const {
    int64_t value;
    ort::Status* missing = op_.ort.KernelInfoGetAttribute_int64(info, name, &value);
    if (!missing) return value;
    op_.ort.ReleaseStatus(missing);
    return otherwise;
  }

  Tensor input(const ort::KernelContext* context, size_t index) const {
    const ort::Value* value;
    op_.ort.check(op_.ort.KernelContext_GetInput(context, index, &value));
    ort::TensorInfo* info;
    op_.ort.check(op_.ort.GetTensorTypeAndShape(value, &info));
    Tensor tensor;
    size_t rank = 0;
    ort::Status* status = op_.ort.GetDimensionsCount(info, &rank);
    if (!status) {
      tensor.dims.resize(rank);
      status = op_.ort.GetDimensions(info, tensor.dims.data(), rank);
    }
    op_.ort.ReleaseTensorTypeAndShapeInfo(info);
    op_.ort.check(status);
    op_.ort.check(op_.ort.GetTensorMutableData(const_cast<ort::Value*>(value), &tensor.data));
    return tensor;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("FusedAttention, layer " + std::to_string(layer_) + ": " + what);
  }

  cpu::Problem describeProblem(const std::array<Tensor, kInputs>& in) const {
    const auto &q = in[kQuery].dims, &k = in[kKey].dims, &v = in[kValue].dims;
    std::string shapes = "query " + describe(q) + ", key " + describe(k) + ", value " + describe(v);
    if (q.size() != 4 || k.size() != 4 || v.size() != 4) fail("query, key and value must have 4 axes: " + shapes);
    if (k[0] != q[0] || v[0] != q[0]) fail("different batch sizes: " + shapes);
    if (k[1] != v[1] || k[1] == 0 || q[1] % k[1] != 0) fail("heads must be a multiple of key/value heads: " + shapes);
    if (k[2] != v[2]) fail("key and value of different lengths: " + shapes);
    if (k[3] != q[3]) fail("query and key of different head sizes: " + shapes);
    cpu::Problem problem{};
    problem.query = static_cast<const float*>(in[kQuery].data);
    problem.key = static_cast<const float*>(in[kKey].data);
    problem.value = static_cast<const float*>(in[kValue].data);
    problem.batch = q[0];
    problem.heads = q[1];
    problem.kvHeads = k[1];
    problem.queryLength = q[2];
    problem.keyLength = k[2];
    problem.headSize = q[3];
    problem.valueHeadSize = v[3];
    problem.scale = scale_;
    problem.softcap = softcap_;
    problem.causal = causal_;
    problem.windowLeft = windowLeft_;
    problem.windowRight = windowRight_;
    problem.precision = precision(in[kPrecision]);
    if (problem.precision != cpu::Precision::kFloat32 && problem.headSize > cpu::kLargestHeadSize) {
      fail("head size " + std::to_string(problem.headSize) + " is above " + std::to_string(cpu::kLargestHeadSize) +
           "; use precision f32");
    }
    return problem;
  }

  CacheLayer* cacheOf(const Tensor& addresses) const {
    if (addresses.dims.size() != 1 || layer_ >= addresses.dims[0]) {
      fail("cache has shape " + describe(addresses.dims) + ", expected one address per layer");
    }
    return reinterpret_cast<CacheLayer*>(static_cast<const int64_t*>(addresses.data)[layer_]);
  }

  void useCache(cpu::Problem& problem, const CacheLayer& cache) const {
    const cpu::CacheShape& shape = cache.shape();
    if (shape.batch != problem.batch || shape.kvHeads != problem.kvHeads || shape.headSize != problem.headSize ||
        shape.valueHeadSize != problem.valueHeadSize) {
      fail("the cache was made for other sizes");
    }
    if (!cpu::canRead(problem.precision, shape.format)) {
      fail("the precision of this run cannot read the format of the cache; choose another kvCacheFormat");
    }
    bool floats = shape.format == cpu::CacheFormat::kFloat32 || shape.format == cpu::CacheFormat::kFloat16;
    if (!floats && shape.headSize > cpu::kLargestHeadSize) {
      fail("head size " + std::to_string(shape.headSize) + " is above " + std::to_string(cpu::kLargestHeadSize) +
           "; use kvCacheFormat f32 or f16");
    }
    problem.firstNewKey = cache.length();
    problem.keyLength += cache.length();
  }

  cpu::Precision precision(const Tensor& tensor) const {
    if (tensor.dims.size() != 1 || layer_ >= tensor.dims[0]) {
      fail("precision has shape " + describe(tensor.dims) + ", expected one id per layer");
    }
    int32_t id = static_cast<const int32_t*>(tensor.data)[layer_];
    if (id < 0 || id > static_cast<int32_t>(cpu::Precision::kMxfp8)) {
      fail("precision id " + std::to_string(id) + " is not one of the kernels': f32 0, mxfp6 1, mxfp4 2, mxfp8 3");
    }
    return static_cast<cpu::Precision>(id);
  }

  void setBias(cpu::Problem& problem, const Tensor& bias) const {
    std::array<int64_t, 4> full{problem.batch, problem.heads, problem.queryLength, problem.keyLength};
    if (bias.dims.size() > 4) fail("bias " + describe(bias.dims) + " has more than 4 axes");
    std::array<int64_t, 4> strides{};
    int64_t stride = 1;
    for (size_t i = 0; i < bias.dims.size(); i++) {
      int64_t size = bias.dims[bias.dims.size() - 1 - i];
      size_t axis = 3 - i;
      if (size != 1 && size != full[axis]) {
        fail("bias " + describe(bias.dims) + " does not broadcast to " +
             describe(std::vector<int64_t>(full.begin(), full.end())));
      }
      strides[axis] = size == 1 ? 0 : stride;
      stride *= size;
    }
    problem.bias = static_cast<const float*>(bias.data);
    problem.biasBatchStride = strides[0];
    problem.biasHeadStride = strides[1];
    problem.biasQueryStride = strides[2];
    problem.biasKeyStride = strides[3];
  }

  const FusedAttention& op_;
  float scale_;
  float softcap_;
  bool causal_;
  int64_t windowLeft_;
  int64_t windowRight_;
  int64_t layer_;
};

// Runs a callback of ONNX Runtime; an exception becomes a status.
template <typename Body>
ort::Status* guarded(const ort::Functions& ort, Body&& body) {
  try {
    body();
    return nullptr;
  } catch (const std::invalid_argument& error) {
    return ort.CreateStatus(ort::kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return ort.CreateStatus(ort::kFail, error.what());
  }
}

// KernelComputeV2 and KernelDestroy get the kernel alone.
struct KernelHandle {
  const FusedAttention& op;
  Kernel kernel;
};

}  // namespace

FusedAttention::FusedAttention(const ort::Functions& functions, cpu::Build chosen, ort::ElementType type,
                               std::weak_ptr<GpuUse> use)
    : ort::CustomOp{}, ort(functions), build(chosen), element(type), gpu(std::move(use)) {
  version = ort::kApiVersion;
  GetName = [](const CustomOp*) { return "FusedAttention"; };
  GetExecutionProviderType = [](const CustomOp*) -> const char* { return nullptr; };
  GetInputTypeCount = [](const CustomOp*) -> size_t { return kInputs; };
  GetInputType = [](const CustomOp* self, size_t index) {
    ort::ElementType element = static_cast<const FusedAttention*>(self)->element;
    if (index == kCache) return ort::kInt64;
    return index == kPrecision ? ort::kInt32 : index == kBias ? ort::kFloat32 : element;
  };
  GetOutputTypeCount = [](const CustomOp*) -> size_t { return 1; };
  GetOutputType = [](const CustomOp* self, size_t) { return static_cast<const FusedAttention*>(self)->element; };
  GetInputCharacteristic = [](const CustomOp*, size_t index) {
    return index == kCache ? ort::kOptional : ort::kRequired;
  };
  GetOutputCharacteristic = [](const CustomOp*, size_t) { return ort::kRequired; };
  GetInputMemoryType = [](const CustomOp*, size_t) { return ort::kMemoryDefault; };
  GetVariadicInputMinArity = [](const CustomOp*) { return 0; };
  GetVariadicInputHomogeneity = [](const CustomOp*) { return 0; };
  GetVariadicOutputMinArity = [](const CustomOp*) { return 0; };
  GetVariadicOutputHomogeneity = [](const CustomOp*) { return 0; };
  GetStartVersion = [](const CustomOp*) { return 1; };
  GetEndVersion = [](const CustomOp*) { return 1; };
  CreateKernelV2 = [](const CustomOp* self, const ort::Api*, const ort::KernelInfo* info, void** kernel) {
    auto& op = *static_cast<const FusedAttention*>(self);
    return guarded(op.ort, [&] { *kernel = new KernelHandle{op, Kernel(op, info)}; });
  };
  KernelComputeV2 = [](void* kernel, ort::KernelContext* context) {
    auto& handle = *static_cast<KernelHandle*>(kernel);
    return guarded(handle.op.ort, [&] { handle.kernel.compute(context); });
  };
  KernelDestroy = [](void* kernel) { delete static_cast<KernelHandle*>(kernel); };
}

}  // namespace mxattn::op
