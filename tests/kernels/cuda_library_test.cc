// The door to the CUDA side: what it opens, what it refuses and in which words. Stand-ins play the
// libraries that are not as they should be; the real one is opened where it was built, GPU or not.
#include "kernels/cuda_library.h"

#include <gtest/gtest.h>

#include "compression/device_codec_entry.h"
#include "compression/device_gradients_entry.h"
#include "engine/fabric/device_fabric.h"
#include "engine/model/device_kernels.h"
#include "engine/model/device_optimizer_entry.h"

namespace swarmline {
namespace {

std::string stand_in(const std::string& name) {
  return std::string(SWARMLINE_BINARY_DIR) + "/tests/kernels/libstand_in_" + name + ".so";
}

void expect_refused(const std::string& file, std::initializer_list<const char*> words) {
  const auto opened = CudaLibrary::open(file, "this build");
  ASSERT_FALSE(opened) << file;
  EXPECT_EQ(opened.error().code, ErrorCode::kDevice);
  for (const char* const word : words)
    EXPECT_NE(opened.error().what.find(word), std::string::npos) << opened.error().what;
}

TEST(CudaLibrary, OpensOneOfItsBuildAndFindsItsEntries) {
  const auto opened = CudaLibrary::open(stand_in("agrees"), "this build");
  ASSERT_TRUE(opened) << opened.error().what;
  const void* const answer = opened->find("swarmline_cuda_answer");
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(*static_cast<const int*>(answer), 42);
  EXPECT_EQ(opened->find("swarmline_cuda_nothing"), nullptr);
}

TEST(CudaLibrary, SaysWhatIsMissing) {
  expect_refused("libswarmline_nowhere.so",
                 {"has no CUDA side", "libswarmline_nowhere.so", "install a package"});
  expect_refused(stand_in("needs"), {"does not open", "libswarmline_absent.so", "LD_LIBRARY_PATH"});
}

TEST(CudaLibrary, RefusesAnotherBuild) {
  expect_refused(stand_in("other"),
                 {"of another build", "its build id is that build", "expected this build"});
  expect_refused(stand_in("mute"), {"of another build", "its build id is none"});
}

// By name, through RUNPATH, as the program does.
TEST(CudaLibrary, TheRealOneHasEveryEntry) {
  const auto library = cuda_library();
  if (!library) {
    EXPECT_FALSE(SWARMLINE_CUDA_IS_BUILT) << library.error().what;
    GTEST_SKIP() << library.error().what;
  }
  for (const char* const entry : {kDeviceCodecEntry, kDeviceFabricEntry, kDeviceGradientsEntry,
                                  kDeviceOptimizerEntry, kDeviceKernelsEntry})
    EXPECT_NE(library->find(entry), nullptr) << entry;
  EXPECT_EQ(library->find("cudaMalloc_static"), nullptr);
}

// Each entry is called over the door; without a GPU each answers with CUDA's own sentence.
TEST(CudaLibrary, ItsEntriesAnswerWithoutADevice) {
  if (const auto library = cuda_library(); !library) GTEST_SKIP() << library.error().what;
  const auto kernels = device_kernels();
  ASSERT_TRUE(kernels) << kernels.error().what;
  std::string error;
  if ((*kernels)->make_cublaslt(0, error)) GTEST_SKIP() << "here is a device";
  EXPECT_NE(error.find("cuBLASLt does not start on device 0"), std::string::npos) << error;
  for (const char* const said :
       {(*kernels)->choose_device(0), (*kernels)->device_fault(),
        (*kernels)->quantize_rows(RowFormat::kE4M3, nullptr, cuda::RowType::kF32, 1, 16, nullptr,
                                  nullptr, nullptr),
        (*kernels)->cross_entropy({.rows = 1, .width = 8}, nullptr, nullptr)}) {
    ASSERT_NE(said, nullptr);
    EXPECT_NE(std::string(said), "no error");
  }
  const auto codec = make_device_codec(0);
  const auto gradients = make_device_gradients(0);
  ASSERT_FALSE(codec);
  ASSERT_FALSE(gradients);
  for (const Error& refused : {codec.error(), gradients.error()}) {
    EXPECT_EQ(refused.code, ErrorCode::kDevice);
    EXPECT_TRUE(refused.what.starts_with("CUDA: ")) << refused.what;
  }
  std::string missing;
  const DeviceFabricParts fabric = device_fabric_parts("cuda:0", missing);
  EXPECT_EQ(fabric.ipc, nullptr) << "memory of no device";
  EXPECT_NE(missing, "");
  EXPECT_EQ(gpu_identity("cuda:0", fabric).uuid, "");
  const auto optimizer = make_device_optimizer({}, {}, nullptr);
  ASSERT_FALSE(optimizer);
  EXPECT_EQ(optimizer.error().code, ErrorCode::kDevice);
}

}  // namespace
}  // namespace swarmline
