/* The program of every candidate. The library beside it has the kernel and all that times it. */
int bessemer_candidate(int argc, char **argv);

int main(int argc, char **argv) { return bessemer_candidate(argc, argv); }
