/* The first function of run.exe, and C's printing in terms of what Windows' C library exports. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv);
int _configure_narrow_argv(int mode);

#define GLOBS_AS_THEY_ARE 1
#define STANDARD_SNPRINTF 2

void bessemer_start(void) {
  _configure_narrow_argv(GLOBS_AS_THEY_ARE);
  exit(main(*__p___argc(), *__p___argv()));
}

void __main(void) {} /* MinGW's main calls it for constructors in C++ */

int fprintf(FILE *file, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int count = __stdio_common_vfprintf(0, file, format, NULL, arguments);
  va_end(arguments);
  return count;
}

int printf(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int count = __stdio_common_vfprintf(0, stdout, format, NULL, arguments);
  va_end(arguments);
  return count;
}

int snprintf(char *text, size_t room, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int count = __stdio_common_vsprintf(STANDARD_SNPRINTF, text, room, format, NULL, arguments);
  va_end(arguments);
  return count;
}
