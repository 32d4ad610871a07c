/* Runs the model's first entry point on zeros, in C:
 *
 *   BUNDLE=/path/to/the/bundle
 *   cc $BUNDLE/examples/main.c -I$BUNDLE $BUNDLE/model.so -Wl,-rpath,$BUNDLE -o main && ./main
 *
 * Build outside the bundle: `bessemer verify-bundle` rejects files that the bundle does not list.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bessemer_model.h"

int main(void) {
  const bessemer_entry *entry = bessemer_model_entries(NULL);
  void **inputs = calloc((size_t)entry->input_count + 1, sizeof(void *));
  void **outputs = calloc((size_t)entry->output_count + 1, sizeof(void *));
  for (int i = 0; i < entry->input_count; i++) inputs[i] = calloc(1, entry->inputs[i].bytes + 1);
  for (int i = 0; i < entry->output_count; i++) outputs[i] = calloc(1, entry->outputs[i].bytes + 1);

  bessemer_model *model = bessemer_model_open(0);
  if (!model || bessemer_model_run(model, 0, (const void *const *)inputs, outputs)) {
    fprintf(stderr, "%s\n", bessemer_model_error());
    return 1;
  }
  for (int i = 0; i < entry->output_count; i++)
    printf("%s: %s, %zu bytes\n", entry->outputs[i].name, entry->outputs[i].dtype, entry->outputs[i].bytes);
  bessemer_model_close(model);
  return 0;
}
