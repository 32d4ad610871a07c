/* The 16 x 16 micro-kernel in C: c += a b, one row of 16 floats at a time.
 *
 * `python -m worker.compiler.spaces.llvm_ir` compiles it to update_16x16.ll, which TVM links into the function that
 * calls it. The file names no processor: LLVM splits its vectors for the target. */
#include <stdint.h>

typedef float Row __attribute__((vector_size(64), aligned(4)));

int32_t bessemer_update_16x16(float *restrict c, const float *restrict a, const float *restrict b,
                              int64_t c_stride, int64_t a_stride, int64_t b_stride) {
    for (int i = 0; i < 16; ++i) {
        Row sum = *(Row *)(c + i * c_stride);
        for (int k = 0; k < 16; ++k)
            sum += a[i * a_stride + k] * *(const Row *)(b + k * b_stride);
        *(Row *)(c + i * c_stride) = sum;
    }
    return 0;
}
