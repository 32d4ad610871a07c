/* Hands the parameters to TVM's virtual machine, which reads them in place.
 *
 * TVM has opened the library then, so its functions are there.
 */
#include "plan.h"

#define TENSOR 70

extern __attribute__((weak)) int TVMFFITensorFromDLPack(bessemer_managed *, int32_t, int32_t, void **);
extern __attribute__((weak)) int TVMFFIObjectIncRef(void *);
extern __attribute__((weak)) int TVMFFIObjectDecRef(void *);

static void *handle_of(int64_t index) {
  void *found = __atomic_load_n(&bessemer_handles[index], __ATOMIC_ACQUIRE);
  if (found) return found;
  void *made = NULL;
  if (TVMFFITensorFromDLPack(&bessemer_parameter_tensors[index], 0, 0, &made)) return NULL;
  if (__atomic_compare_exchange_n(&bessemer_handles[index], &found, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return made;
  TVMFFIObjectDecRef(made);
  return found;
}

/* bessemer_parameter(index), called by the virtual machine. */
BESSEMER_API int __tvm_ffi_bessemer_parameter(void *self, const bessemer_argument *arguments, int32_t count,
                                              bessemer_argument *result) {
  (void)self, (void)count;
  void *handle = handle_of(arguments[0].value.integer);
  if (!handle) return -1;
  TVMFFIObjectIncRef(handle);
  result->type = TENSOR;
  result->padding = 0;
  result->value.pointer = handle;
  return 0;
}
