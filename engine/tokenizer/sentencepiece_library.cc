#include "engine/tokenizer/sentencepiece_library.h"

#include <dlfcn.h>
#include <new>
#include <sentencepiece_processor.h>

#include <fmt/format.h>

namespace swarmline {

namespace {

constexpr const char* kLibrary = "libsentencepiece.so.0";
// SentencePieceProcessor's constructor and LoadFromSerializedProto(), and the destructor of the
// status that the latter returns. All else is virtual.
constexpr const char* kConstruct = "_ZN13sentencepiece22SentencePieceProcessorC1Ev";
constexpr const char* kLoad =
    "_ZN13sentencepiece22SentencePieceProcessor23LoadFromSerializedProtoESt17basic_string_"
    "viewIcSt11char_traitsIcEE";
constexpr const char* kDestroyStatus = "_ZN13sentencepiece4util6StatusD1Ev";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kApart = 0;  // sanitizers refuse RTLD_DEEPBIND
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kApart = 0;
#else
constexpr int kApart = RTLD_DEEPBIND;
#endif
#else
constexpr int kApart = RTLD_DEEPBIND;
#endif

}  // namespace

// As the library's own is laid out and returned: a pointer, null where all is well. Its destructor
// is not this one, so that the caller calls it.
struct SentencePieceLibrary::Status {
  void* problem = nullptr;
  ~Status() {}  // NOLINT: not trivial, as the library's, so that it is returned in memory
};

Result<const SentencePieceLibrary*> SentencePieceLibrary::open() {
  static const Result<SentencePieceLibrary> opened = []() -> Result<SentencePieceLibrary> {
    void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | kApart);
    if (!handle)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("this machine lacks SentencePiece's library ({}); install Debian's "
                              "libsentencepiece0, or use a tokenizer.json",
                              ::dlerror()));
    SentencePieceLibrary library;
    library.construct_ = reinterpret_cast<Construct>(::dlsym(handle, kConstruct));
    library.load_ = reinterpret_cast<Load>(::dlsym(handle, kLoad));
    library.destroy_status_ = reinterpret_cast<DestroyStatus>(::dlsym(handle, kDestroyStatus));
    if (!library.construct_ || !library.load_ || !library.destroy_status_)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("{} is of another version than 0.1.97; install Debian 12's "
                              "libsentencepiece0, or use a tokenizer.json",
                              kLibrary));
    return library;
  }();
  if (!opened) return std::unexpected(opened.error());
  return &*opened;
}

void SentencePieceLibrary::Deleter::operator()(
    sentencepiece::SentencePieceProcessor* processor) const {
  processor->~SentencePieceProcessor();
  ::operator delete(processor);
}

SentencePieceLibrary::Processor SentencePieceLibrary::load(std::string_view model) const {
  void* room = ::operator new(sizeof(sentencepiece::SentencePieceProcessor));
  construct_(room);
  Processor processor(static_cast<sentencepiece::SentencePieceProcessor*>(room));
  Status status = load_(processor.get(), model);
  const bool is_model = status.problem == nullptr;
  destroy_status_(&status);
  return is_model && processor->GetPieceSize() > 0 ? std::move(processor) : Processor();
}

}  // namespace swarmline
