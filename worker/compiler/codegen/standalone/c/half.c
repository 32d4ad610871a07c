/* Conversions of float16 for RISC-V without Zfhmin.
 *
 * Code calls them with a float16 in the low half of a floating-point register. TVM (0.27) defines the first two
 * itself, weakly, and expects the number in an integer register; the linker prefers these.
 */
#include <stdint.h>

#define HALF_INFINITE 0x7c00u
#define HALF_QUIET 0x0200u
#define DOUBLE_INFINITE 0x7ff0000000000000u
/* The exponents of 1 are 15 and 1023; a double has 42 bits of mantissa more. */
#define REBASED ((uint64_t)(1023 - 15) << 52)
#define MORE_BITS 42
#define FIRST_TOO_LARGE 0x40f0000000000000u /* 2**16 */
#define FIRST_NORMAL 1009                   /* the exponent of 2**-14 */

static uint16_t to_bits(_Float16 number)
{
    uint16_t bits;
    __builtin_memcpy(&bits, &number, sizeof bits);
    return bits;
}

static _Float16 from_bits(uint32_t bits)
{
    uint16_t low = (uint16_t)bits;
    _Float16 number;
    __builtin_memcpy(&number, &low, sizeof number);
    return number;
}

/* The upper bits of a number, rounded to the nearest by the lower ones; to even where two are as near. */
static uint32_t rounded(uint64_t number, unsigned lower)
{
    uint64_t kept = number >> lower, rest = number & (((uint64_t)1 << lower) - 1), tie = (uint64_t)1 << (lower - 1);
    return (uint32_t)(kept + (rest > tie || (rest == tie && (kept & 1))));
}

float __extendhfsf2(_Float16 number)
{
    uint32_t bits = to_bits(number), magnitude = bits & 0x7fffu, made;
    float positive;
    if (magnitude >= HALF_INFINITE)
        made = 0x7f800000u | (magnitude & 0x3ffu) << 13;
    else if (magnitude >= 0x400u)
        made = (magnitude << 13) + ((127u - 15u) << 23);
    else {
        positive = (float)magnitude * 0x1p-24f;
        __builtin_memcpy(&made, &positive, sizeof made);
    }
    made |= (bits & 0x8000u) << 16;
    __builtin_memcpy(&positive, &made, sizeof made);
    return positive;
}

_Float16 __truncdfhf2(double number)
{
    uint64_t bits, magnitude;
    __builtin_memcpy(&bits, &number, sizeof bits);
    magnitude = bits & 0x7fffffffffffffffu;
    uint32_t sign = (uint32_t)(bits >> 48) & 0x8000u, exponent = (uint32_t)(magnitude >> 52);
    if (magnitude > DOUBLE_INFINITE)
        return from_bits(sign | HALF_INFINITE | HALF_QUIET | (uint32_t)(magnitude >> MORE_BITS & 0x3ffu));
    if (magnitude >= FIRST_TOO_LARGE)
        return from_bits(sign | HALF_INFINITE);
    if (exponent >= FIRST_NORMAL)
        return from_bits(sign | rounded(magnitude - REBASED, MORE_BITS));
    unsigned lower = MORE_BITS + FIRST_NORMAL - exponent;
    if (lower > 54)
        return from_bits(sign);
    return from_bits(sign | rounded((magnitude & 0xfffffffffffffu) | 0x10000000000000u, lower));
}

_Float16 __truncsfhf2(float number)
{
    return __truncdfhf2((double)number);
}
