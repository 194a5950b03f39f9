// The LLJIT, and the version of LLVM.
#include "internal.h"

#include <cstdlib>
#include <cstring>

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

struct slabjit_session {
  std::unique_ptr<LLJIT> JIT;
};

extern "C" char *slabjit_check_version(void) noexcept {
  unsigned Library[3];
  slabjit::libraryVersion(Library);
  if (Library[0] != LLVM_VERSION_MAJOR || Library[1] != LLVM_VERSION_MINOR)
    return slabjit::copyText(("slabjit was built for LLVM " LLVM_VERSION_STRING ", and is linked to LLVM " +
                              Twine(Library[0]) + "." + Twine(Library[1]))
                                 .str());
  return nullptr;
}

extern "C" char *slabjit_session_create(void (*Report)(const char *, size_t), const slabjit_orc *Caller,
                                        int FindProcessSymbols, slabjit_session **Out) noexcept {
  auto Target = JITTargetMachineBuilder::detectHost();
  if (!Target)
    return slabjit::takeText(Target.takeError());
  // What LLJIT sets for layers of its own: its objects lie near each other, and reach others by the GOT.
  Target->setRelocationModel(Reloc::PIC_);
  Target->setCodeModel(CodeModel::Small);
  auto Process = SelfExecutorProcessControl::Create(nullptr, slabjit::makeDispatcher(*Caller));
  if (!Process)
    return slabjit::takeText(Process.takeError());
  auto JIT = LLJITBuilder()
                 .setExecutorProcessControl(std::move(*Process))
                 .setJITTargetMachineBuilder(std::move(*Target))
                 .setPlatformSetUp(slabjit::platformSetUp(
                     [Caller = *Caller](LLJIT &J) { slabjit::setUpPlatform(J, Caller); }))
                 .setObjectLinkingLayerCreator(slabjit::layerCreator(
                     [Caller = *Caller](ExecutionSession &ES) { return slabjit::makeLayer(ES, Caller); }))
                 .create();
  if (!JIT)
    return slabjit::takeText(JIT.takeError());
  slabjit::runTasks((*JIT)->getExecutionSession(), slabjit::makeDispatcher(*Caller));
  if (auto E = FindProcessSymbols ? slabjit::findProcessSymbols(**JIT) : Error::success())
    return slabjit::takeText(std::move(E));
  (*JIT)->getExecutionSession().setErrorReporter([Report](Error E) {
    auto Text = toString(std::move(E));
    Report(Text.data(), Text.size());
  });
  *Out = new slabjit_session{std::move(*JIT)};
  return nullptr;
}

LLJIT &slabjit::lljit(slabjit_session *Session) { return *Session->JIT; }

extern "C" void *slabjit_session_lljit(slabjit_session *Session) noexcept { return Session->JIT.get(); }

extern "C" char *slabjit_session_end(slabjit_session *Session) noexcept {
  // What ~LLJIT would only report.
  return slabjit::takeText(Session->JIT->getExecutionSession().endSession());
}

extern "C" void slabjit_session_dispose(slabjit_session *Session) noexcept {
  std::unique_ptr<slabjit_session> Owned(Session);
  Owned->JIT.reset();
}
