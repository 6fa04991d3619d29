{
  'variables': {
    'cpu_flags': ['-std=gnu++17', '-O3', '-fPIC', '-Wall', '-Wextra', '-Wno-psabi', '-fvisibility=hidden'],
    'kernels%': ['cpu_portable'],
    'conditions': [
      ['target_arch=="arm64"', { 'kernels': ['cpu_portable', 'cpu_neon'] }],
      ['target_arch=="x64"', { 'kernels': ['cpu_portable', 'cpu_avx2', 'cpu_avx_vnni', 'cpu_avx512', 'cpu_avx512_vnni', 'cpu_avx512_bf16', 'cpu_avx512_amx'] }],
    ],
  },
  'target_defaults': {
    'cflags!': ['-fno-omit-frame-pointer'],
    'xcode_settings': {
      'CLANG_CXX_LANGUAGE_STANDARD': 'gnu++17',
      'GCC_OPTIMIZATION_LEVEL': '3',
      'MACOSX_DEPLOYMENT_TARGET': '11.0',
    },
  },
  'targets': [
    {
      'target_name': 'cpu_portable',
      'type': 'static_library',
      'sources': ['native/cpu/portable.cc'],
      'include_dirs': ['native'],
      'cflags_cc': ['<@(cpu_flags)'],
    },
    {
      'target_name': 'operator',
      'type': 'static_library',
      'sources': [
        'native/cpu/dispatch.cc',
        'native/cpu/kv_cache.cc',
        'native/cpu/scratch.cc',
        'native/hip/driver/cuda.cc',
        'native/hip/driver/gpu.cc',
        'native/hip/driver/hip.cc',
        'native/hip/driver/open.cc',
        'native/hip/driver/runtime_compiler.cc',
        'native/hip/driver/shared_library.cc',
        'native/hip/engine/code_cache.cc',
        'native/hip/engine/engine.cc',
        'native/hip/engine/layer_cache.cc',
        'native/hip/engine/staging.cc',
        'native/hip/plan.cc',
        'native/op/cache_layer.cc',
        'native/op/fused_attention.cc',
        'native/op/gpu.cc',
        'native/ort/api.cc',
        '<(INTERMEDIATE_DIR)/kernel_source.cc',
      ],
      'actions': [
        {
          'action_name': 'embed_gpu_kernels',
          'inputs': ['native/hip/engine/embed.mjs', '<!@(node native/hip/engine/embed.mjs --list native)'],
          'outputs': ['<(INTERMEDIATE_DIR)/kernel_source.cc'],
          'action': ['node', 'native/hip/engine/embed.mjs', 'native', '<(INTERMEDIATE_DIR)/kernel_source.cc'],
        },
      ],
      'include_dirs': ['native'],
      'dependencies': ['<@(kernels)'],
      'cflags_cc!': ['-fno-exceptions', '-fno-rtti'],
      'cflags_cc': ['<@(cpu_flags)', '-fexceptions'],
      'xcode_settings': { 'GCC_ENABLE_CPP_EXCEPTIONS': 'YES' },
    },
    {
      # The operator for any ONNX Runtime, without Node.js: see native/op/register.cc.
      'target_name': 'mxattn_ort',
      'type': 'shared_library',
      'product_dir': '<(PRODUCT_DIR)',
      'win_delay_load_hook': 'false',
      'sources': ['native/op/register.cc'],
      'include_dirs': ['native'],
      'dependencies': ['operator'],
      'cflags_cc!': ['-fno-exceptions', '-fno-rtti'],
      'cflags_cc': ['<@(cpu_flags)', '-fexceptions'],
      'xcode_settings': { 'GCC_ENABLE_CPP_EXCEPTIONS': 'YES' },
      'conditions': [['OS!="win"', { 'product_prefix': 'lib' }]],
    },
    {
      'target_name': 'mxattn',
      'sources': [
        'native/addon/addon.cc',
        'native/addon/attention.cc',
        'native/addon/gpu.cc',
        'native/addon/kv_cache.cc',
        'native/addon/peaks.cc',
        'native/addon/session.cc',
        'native/ort/library.cc',
      ],
      'include_dirs': ['native', "<!(node -p \"require('node-addon-api').include_dir\")"],
      'dependencies': ['operator'],
      'defines': ['NAPI_VERSION=9', 'NAPI_CPP_EXCEPTIONS'],
      'cflags_cc!': ['-fno-exceptions', '-fno-rtti'],
      'cflags_cc': ['<@(cpu_flags)', '-fexceptions'],
      'xcode_settings': { 'GCC_ENABLE_CPP_EXCEPTIONS': 'YES' },
      'conditions': [['OS=="linux"', { 'libraries': ['-ldl'] }]],
    },
  ],
  'conditions': [
    ['target_arch=="arm64"', {
      'targets': [
        {
          'target_name': 'cpu_neon',
          'type': 'static_library',
          'sources': ['native/cpu/neon.cc'],
          'include_dirs': ['native'],
          'cflags_cc': ['<@(cpu_flags)', '-march=armv8.2-a+dotprod'],
          'xcode_settings': { 'OTHER_CPLUSPLUSFLAGS': ['-march=armv8.2-a+dotprod'] },
        },
      ],
    }],
    ['target_arch=="x64"', {
      'targets': [
        {
          'target_name': 'cpu_avx2',
          'type': 'static_library',
          'sources': ['native/cpu/avx2.cc'],
          'include_dirs': ['native'],
          'cflags_cc': ['<@(cpu_flags)', '-mavx2', '-mfma', '-mf16c'],
          'xcode_settings': { 'OTHER_CPLUSPLUSFLAGS': ['-mavx2', '-mfma', '-mf16c'] },
        },
        {
          'target_name': 'cpu_avx_vnni',
          'type': 'static_library',
          'sources': ['native/cpu/avx_vnni.cc'],
          'include_dirs': ['native'],
          'cflags_cc': ['<@(cpu_flags)', '-mavx2', '-mfma', '-mf16c', '-mavxvnni'],
          'xcode_settings': { 'OTHER_CPLUSPLUSFLAGS': ['-mavx2', '-mfma', '-mf16c', '-mavxvnni'] },
        },
        {
          'target_name': 'cpu_avx512',
          'type': 'static_library',
          'sources': ['native/cpu/avx512_bw.cc'],
          'include_dirs': ['native'],
          'cflags_cc': [
            '<@(cpu_flags)', '-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mfma', '-mprefer-vector-width=512',
          ],
          'xcode_settings': {
            'OTHER_CPLUSPLUSFLAGS': ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mfma'],
          },
        },
        {
          'target_name': 'cpu_avx512_vnni',
          'type': 'static_library',
          'sources': ['native/cpu/avx512_vnni.cc'],
          'include_dirs': ['native'],
          'cflags_cc': [
            '<@(cpu_flags)', '-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mfma',
            '-mprefer-vector-width=512',
          ],
          'xcode_settings': {
            'OTHER_CPLUSPLUSFLAGS': ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mfma'],
          },
        },
        {
          'target_name': 'cpu_avx512_bf16',
          'type': 'static_library',
          'sources': ['native/cpu/avx512_bf16.cc'],
          'include_dirs': ['native'],
          'cflags_cc': [
            '<@(cpu_flags)', '-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mavx512bf16', '-mfma',
            '-mprefer-vector-width=512',
          ],
          'xcode_settings': {
            'OTHER_CPLUSPLUSFLAGS': ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mavx512bf16', '-mfma'],
          },
        },
        {
          'target_name': 'cpu_avx512_amx',
          'type': 'static_library',
          'sources': ['native/cpu/avx512_amx.cc'],
          'include_dirs': ['native'],
          'cflags_cc': [
            '<@(cpu_flags)', '-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mavx512bf16', '-mamx-tile', '-mamx-int8', '-mamx-bf16', '-mfma',
            '-mprefer-vector-width=512',
          ],
          'xcode_settings': {
            'OTHER_CPLUSPLUSFLAGS': ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mavx512bf16', '-mamx-tile', '-mamx-int8', '-mamx-bf16', '-mfma'],
          },
        },
      ],
    }],
  ],
}
