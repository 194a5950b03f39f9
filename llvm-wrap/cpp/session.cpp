// The LLJIT for what is not wrapped, the version of LLVM, and calls that may throw.
#include "internal.h"

#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>

using namespace llvm;
using namespace llvm::orc;

char *slabjit::copyText(StringRef Text) {
  // An allocation failure here would also stop LLVM itself, which aborts; so do we.
  auto *Copy = static_cast<char *>(std::malloc(Text.size() + 1));
  if (!Copy)
    std::abort();
  std::memcpy(Copy, Text.data(), Text.size());
  Copy[Text.size()] = 0;
  return Copy;
}

char *slabjit::takeText(Error E) { return E ? copyText(toString(std::move(E))) : nullptr; }

extern "C" uint32_t slabjit_llvm_major(void) noexcept { return LLVM_VERSION_MAJOR; }

extern "C" void slabjit_llvm_version(uint32_t *Numbers) noexcept {
  unsigned Library[3];
  slabjit::libraryVersion(Library);
  std::copy(std::begin(Library), std::end(Library), Numbers);
}

extern "C" void slabjit_string_free(char *Text) noexcept { std::free(Text); }

namespace {

/// Objects that the LLJIT is given would have memory that nobody owns.
class NoMemory final : public jitlink::JITLinkMemoryManager {
public:
  void allocate(const jitlink::JITLinkDylib *, jitlink::LinkGraph &, OnAllocatedFunction OnAllocated) override {
    OnAllocated(make_error<StringError>(
        "slabjit: this session links no objects; give them to the engine, or to an LLJIT of their own", inconvertibleErrorCode()));
  }
  void deallocate(std::vector<FinalizedAlloc>, OnDeallocatedFunction OnDeallocated) override {
    OnDeallocated(Error::success());
  }
  using JITLinkMemoryManager::allocate;
  using JITLinkMemoryManager::deallocate;
};

} // namespace

struct slabjit_session {
  std::unique_ptr<LLJIT> JIT;
};

extern "C" char *slabjit_session_create(void (*Report)(const char *, size_t), slabjit_session **Out) noexcept {
  unsigned Library[3];
  slabjit::libraryVersion(Library);
  if (Library[0] != LLVM_VERSION_MAJOR || Library[1] != LLVM_VERSION_MINOR)
    return slabjit::copyText(("slabjit was built for LLVM " LLVM_VERSION_STRING ", and is linked to LLVM " +
                              Twine(Library[0]) + "." + Twine(Library[1]))
                                 .str());
  auto JIT = LLJITBuilder()
                 .setPlatformSetUp(setUpInactivePlatform)
                 .setObjectLinkingLayerCreator(slabjit::layerCreator([](ExecutionSession &ES) {
                   return std::make_unique<ObjectLinkingLayer>(ES, std::make_unique<NoMemory>());
                 }))
                 .create();
  if (!JIT)
    return slabjit::takeText(JIT.takeError());
  (*JIT)->getExecutionSession().setErrorReporter([Report](Error E) {
    auto Text = toString(std::move(E));
    Report(Text.data(), Text.size());
  });
  *Out = new slabjit_session{std::move(*JIT)};
  return nullptr;
}

extern "C" void *slabjit_session_lljit(slabjit_session *Session) noexcept { return Session->JIT.get(); }

extern "C" char *slabjit_session_dispose(slabjit_session *Session) noexcept {
  std::unique_ptr<slabjit_session> Owned(Session);
  // What ~LLJIT would only report.
  auto *Text = slabjit::takeText(Session->JIT->getExecutionSession().endSession());
  Owned->JIT.reset();
  return Text;
}

extern "C" char *slabjit_call_catching(void (*Function)(void *), void *Argument) {
  try {
    Function(Argument);
    return nullptr;
  } catch (const std::exception &E) {
    return slabjit::copyText(E.what());
  } catch (...) {
    // Null for another language's exception, which is not ours to end (libstdc++, eh_ptr.cc).
    if (!std::current_exception())
      throw;
    auto *Type = abi::__cxa_current_exception_type();
    int Status = 0;
    char *Readable = abi::__cxa_demangle(Type->name(), nullptr, nullptr, &Status);
    auto Text = std::string("exception of type ") + (Status == 0 ? Readable : Type->name());
    std::free(Readable);
    return slabjit::copyText(Text);
  }
}
