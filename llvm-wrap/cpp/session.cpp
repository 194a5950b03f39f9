// The LLJIT with our linking layer, its error reporter, and calls that may throw.
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

static void reportError(const slabjit_callbacks &Callbacks, Error E) {
  bool Secondary = slabjit::isSecondary(E);
  auto Text = toString(std::move(E));
  if (auto Link = slabjit::takeFailedLink())
    Callbacks.failed(Link->Object, Text.data(), Text.size(), Secondary);
  else
    Callbacks.session_error(Text.data(), Text.size());
}

extern "C" char *slabjit_session_create(const slabjit_callbacks *Callbacks, slabjit_session **Out) noexcept {
  unsigned Library[3];
  slabjit::libraryVersion(Library);
  if (Library[0] != LLVM_VERSION_MAJOR || Library[1] != LLVM_VERSION_MINOR)
    return slabjit::copyText(("slabjit was built for LLVM " LLVM_VERSION_STRING ", and is linked to LLVM " +
                              Twine(Library[0]) + "." + Twine(Library[1]))
                                 .str());
  auto Session = std::make_unique<slabjit_session>();
  Session->Callbacks = *Callbacks;
  auto *S = Session.get();
  auto JIT = LLJITBuilder()
                 .setPlatformSetUp(setUpInactivePlatform)
                 .setObjectLinkingLayerCreator(slabjit::layerCreator([S](ExecutionSession &ES) {
                   auto Layer = std::make_unique<ObjectLinkingLayer>(ES, slabjit::createMemoryManager(S->Callbacks, S->Links));
                   Layer->addPlugin(slabjit::createPlugin(S->Callbacks, S->Links));
                   S->Layer = Layer.get();
                   return Layer;
                 }))
                 .create();
  if (!JIT)
    return slabjit::takeText(JIT.takeError());
  S->JIT = std::move(*JIT);
  S->JIT->getExecutionSession().setErrorReporter([S](Error E) { reportError(S->Callbacks, std::move(E)); });
  *Out = Session.release();
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
