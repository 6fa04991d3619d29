// The part of ONNX Runtime's C API that mxattn uses.
//
// ONNX Runtime ships no headers through npm. Its function table (OrtApi) is append-only: a function keeps its
// index for ever, so each one is declared here by its index and signature. They are exercised with
// ONNX Runtime 1.17 and 1.30.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mxattn::ort {

struct Env;
struct Status;
struct MemoryInfo;
struct Session;
struct Value;
struct RunOptions;
struct TypeInfo;
struct TensorInfo;
struct SessionOptions;
struct CustomOpDomain;
struct KernelInfo;
struct KernelContext;
struct Allocator;
struct Api;
struct CustomOp;
struct ShapeInferContext;

enum ErrorCode : int { kFail = 1, kInvalidArgument = 2, kNotImplemented = 9 };
enum LoggingLevel : int { kWarning = 2 };
enum AllocatorKind : int { kDeviceAllocator = 0, kArenaAllocator = 1 };
enum MemoryKind : int { kMemoryDefault = 0 };
enum Characteristic : int { kRequired = 0, kOptional = 1 };

// ONNXTensorElementDataType
enum ElementType : int {
  kUndefined = 0,
  kFloat32 = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kFloat64 = 11,
  kUint32 = 12,
  kUint64 = 13,
};

struct ApiBase {
  const Api* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

// The oldest table that has every function below.
constexpr uint32_t kApiVersion = 17;

// name, index in the table, return type, parameters
#define MXATTN_ORT_FUNCTIONS(F)                                                                              \
  F(CreateStatus, 0, Status*, (ErrorCode, const char*))                                                      \
  F(GetErrorMessage, 2, const char*, (const Status*))                                                        \
  F(CreateEnv, 3, Status*, (LoggingLevel, const char*, Env**))                                               \
  F(CreateSessionFromArray, 8, Status*, (const Env*, const void*, size_t, const SessionOptions*, Session**)) \
  F(Run, 9, Status*,                                                                                         \
    (Session*, const RunOptions*, const char* const*, const Value* const*, size_t, const char* const*,       \
     size_t, Value**))                                                                                       \
  F(CreateSessionOptions, 10, Status*, (SessionOptions**))                                                   \
  F(SetSessionExecutionMode, 13, Status*, (SessionOptions*, int))                                            \
  F(EnableMemPattern, 16, Status*, (SessionOptions*))                                                        \
  F(DisableMemPattern, 17, Status*, (SessionOptions*))                                                       \
  F(EnableCpuMemArena, 18, Status*, (SessionOptions*))                                                       \
  F(DisableCpuMemArena, 19, Status*, (SessionOptions*))                                                      \
  F(SetSessionLogId, 20, Status*, (SessionOptions*, const char*))                                            \
  F(SetSessionLogSeverityLevel, 22, Status*, (SessionOptions*, int))                                         \
  F(SetSessionGraphOptimizationLevel, 23, Status*, (SessionOptions*, int))                                   \
  F(SetIntraOpNumThreads, 24, Status*, (SessionOptions*, int))                                               \
  F(SetInterOpNumThreads, 25, Status*, (SessionOptions*, int))                                               \
  F(CreateCustomOpDomain, 26, Status*, (const char*, CustomOpDomain**))                                      \
  F(CustomOpDomain_Add, 27, Status*, (CustomOpDomain*, const CustomOp*))                                     \
  F(AddCustomOpDomain, 28, Status*, (SessionOptions*, CustomOpDomain*))                                      \
  F(CreateTensorWithDataAsOrtValue, 49, Status*,                                                             \
    (const MemoryInfo*, void*, size_t, const int64_t*, size_t, ElementType, Value**))                        \
  F(GetTensorMutableData, 51, Status*, (Value*, void**))                                                     \
  F(GetTensorElementType, 60, Status*, (const TensorInfo*, ElementType*))                                    \
  F(GetDimensionsCount, 61, Status*, (const TensorInfo*, size_t*))                                           \
  F(GetDimensions, 62, Status*, (const TensorInfo*, int64_t*, size_t))                                       \
  F(GetTensorShapeElementCount, 64, Status*, (const TensorInfo*, size_t*))                                   \
  F(GetTensorTypeAndShape, 65, Status*, (const Value*, TensorInfo**))                                        \
  F(CreateCpuMemoryInfo, 69, Status*, (AllocatorKind, MemoryKind, MemoryInfo**))                             \
  F(KernelInfoGetAttribute_float, 85, Status*, (const KernelInfo*, const char*, float*))                     \
  F(KernelInfoGetAttribute_int64, 86, Status*, (const KernelInfo*, const char*, int64_t*))                   \
  F(KernelContext_GetInputCount, 88, Status*, (const KernelContext*, size_t*))                               \
  F(KernelContext_GetInput, 90, Status*, (const KernelContext*, size_t, const Value**))                      \
  F(KernelContext_GetOutput, 91, Status*, (KernelContext*, size_t, const int64_t*, size_t, Value**))         \
  F(ReleaseStatus, 93, void, (Status*))                                                                      \
  F(ReleaseSession, 95, void, (Session*))                                                                    \
  F(ReleaseValue, 96, void, (Value*))                                                                        \
  F(ReleaseTensorTypeAndShapeInfo, 99, void, (TensorInfo*))                                                  \
  F(ReleaseSessionOptions, 100, void, (SessionOptions*))                                                     \
  F(ReleaseCustomOpDomain, 101, void, (CustomOpDomain*))                                                     \
  F(AddFreeDimensionOverrideByName, 124, Status*, (SessionOptions*, const char*, int64_t))                   \
  F(AddSessionConfigEntry, 130, Status*, (SessionOptions*, const char*, const char*))                        \
  F(KernelContext_ParallelFor, 274, Status*,                                                                 \
    (const KernelContext*, void (*)(void*, size_t), size_t, size_t, void*))

// A loaded table. `check` turns a Status into an exception of type std::runtime_error.
struct Functions {
#define MXATTN_ORT_DECLARE(name, index, result, parameters) result(*name) parameters;
  MXATTN_ORT_FUNCTIONS(MXATTN_ORT_DECLARE)
#undef MXATTN_ORT_DECLARE

  void check(Status* status) const;
};

Functions bind(const Api* api);

// The one function that is safe to call in a table too old for `bind`.
using CreateStatusFunction = Status* (*)(ErrorCode, const char*);
CreateStatusFunction createStatusOf(const Api* api);

// The callbacks of a custom operator, as ONNX Runtime reads them (struct OrtCustomOp).
struct CustomOp {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const Api*, const KernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  ElementType (*GetInputType)(const CustomOp*, size_t);
  size_t (*GetInputTypeCount)(const CustomOp*);
  ElementType (*GetOutputType)(const CustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void*, KernelContext*);
  void (*KernelDestroy)(void*);
  Characteristic (*GetInputCharacteristic)(const CustomOp*, size_t);
  Characteristic (*GetOutputCharacteristic)(const CustomOp*, size_t);
  MemoryKind (*GetInputMemoryType)(const CustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  Status* (*CreateKernelV2)(const CustomOp*, const Api*, const KernelInfo*, void**);
  Status* (*KernelComputeV2)(void*, KernelContext*);
  Status* (*InferOutputShapeFn)(const CustomOp*, ShapeInferContext*);
  int (*GetStartVersion)(const CustomOp*);
  int (*GetEndVersion)(const CustomOp*);
  size_t (*GetMayInplace)(int**, int**);
  void (*ReleaseMayInplace)(int*, int*);
  size_t (*GetAliasMap)(int**, int**);
  void (*ReleaseAliasMap)(int*, int*);
};

}  // namespace mxattn::ort
