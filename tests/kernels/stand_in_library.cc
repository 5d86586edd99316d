// Stands in for libswarmline_cuda.so: BUILD_ID is what it says of itself (none: nothing).
extern "C" {

#if defined(BUILD_ID)
extern const char swarmline_cuda_build_id[];
const char swarmline_cuda_build_id[] = BUILD_ID;
#endif

#if defined(IS_ABSENT)
int swarmline_absent();
int swarmline_absent() {
  return 1;
}
#endif

#if defined(NEEDS_ABSENT)
int swarmline_absent();
extern int (*const swarmline_cuda_needs)();
int (*const swarmline_cuda_needs)() = swarmline_absent;
#endif

extern const int swarmline_cuda_answer;
const int swarmline_cuda_answer = 42;
}
