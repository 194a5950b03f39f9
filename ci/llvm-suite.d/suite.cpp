// Joins llvm-jitlink to the shim's manager and passes, and to the crate behind them (src/link/llvm_suite.rs).
#include "suite.h"

#include "internal.h"

#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;

extern "C" {
uint64_t slabjit_suite_start(uint64_t Size, uint64_t Base);
const slabjit_callbacks *slabjit_suite_callbacks();
int slabjit_suite_is_like_llvm(const char *What);
void *slabjit_suite_prepare(const char *Name, size_t NameLen, const char *Bytes, size_t Len, const char **Prepared,
                            size_t *PreparedLen);
}

namespace {

/// They live as long as the process: the session goes in `main`, in LLVM's order.
slabjit::LinksInProgress &links() {
  static auto *Links = new slabjit::LinksInProgress;
  return *Links;
}
uint64_t Displacement;
bool NothingRuns;

/// The object whose graph is made on this thread, until its passes are asked for.
struct Pending {
  void *Object = nullptr;
  MemoryBufferRef Bytes;
};
thread_local Pending Current;

Pending prepare(StringRef Name, StringRef Bytes) {
  Pending P;
  const char *Prepared = nullptr;
  size_t Len = 0;
  P.Object = slabjit_suite_prepare(Name.data(), Name.size(), Bytes.data(), Bytes.size(), &Prepared, &Len);
  P.Bytes = MemoryBufferRef(StringRef(Prepared, Len), Name);
  return P;
}

std::unique_ptr<slabjit::Link> linkOf(const Pending &P) {
  auto Link = std::make_unique<slabjit::Link>();
  Link->Callbacks = slabjit_suite_callbacks();
  Link->Object = P.Object;
  Link->Displacement = Displacement;
  Link->KeepsRelaxations = slabjit_suite_is_like_llvm("relaxations");
  return Link;
}

/// Says whose link a graph is before the shim's plugin asks.
class Binder final : public slabjit::PluginWithoutResources {
public:
  void modifyPassConfig(MaterializationResponsibility &MR, LinkGraph &G, PassConfiguration &Config) override {
    auto P = std::exchange(Current, Pending());
    // A graph of the tool's own (-sectcreate) was never a file.
    if (!P.Object)
      P = prepare(G.getName(), {});
    links().insert(&MR, &G, linkOf(P));
    if (NothingRuns)
      Config.PostFixupPasses.push_back([](LinkGraph &G) {
        G.allocActions().clear();
        return Error::success();
      });
    // As the shim does where it makes a graph itself (createLinkGraph).
    if (P.Bytes.getBuffer().size() && G.getTargetTriple().isOSBinFormatELF() && G.getTargetTriple().isArch64Bit())
      cantFail(slabjit::setProtections(G, P.Bytes));
  }
  Error notifyFailed(MaterializationResponsibility &) override { return Error::success(); }
};

/// The shim's manager, which takes only graphs that are being linked; LLVM's debugger support asks for memory with graphs of its own
/// (SimpleSegmentAlloc).
class Manager final : public JITLinkMemoryManager {
public:
  void allocate(const JITLinkDylib *JD, LinkGraph &G, OnAllocatedFunction OnAllocated) override {
    if (links().find(&G))
      return Ours->allocate(JD, G, std::move(OnAllocated));
    // Only this call looks for the link.
    auto *Key = reinterpret_cast<MaterializationResponsibility *>(&OnAllocated);
    links().insert(Key, &G, linkOf(prepare("(the tool's own)", {})));
    Ours->allocate(JD, G, std::move(OnAllocated));
    // Its object is needed for as long as the memory; the crate keeps it.
    links().take(Key);
  }
  void deallocate(std::vector<FinalizedAlloc> Allocs, OnDeallocatedFunction OnDeallocated) override {
    Ours->deallocate(std::move(Allocs), std::move(OnDeallocated));
  }

private:
  std::unique_ptr<JITLinkMemoryManager> Ours = slabjit::createMemoryManager(*slabjit_suite_callbacks(), links());
};

} // namespace

slabjit_suite::Layer::Layer(ExecutionSession &ES, JITLinkMemoryManager &MemMgr) : ObjectLinkingLayer(ES, MemMgr) {
  addPlugin(slabjit::PluginPointer(new Binder));
  addPlugin(slabjit::createPlugin(*slabjit_suite_callbacks(), links()));
}

void slabjit_suite::Layer::emit(std::unique_ptr<MaterializationResponsibility> R, std::unique_ptr<MemoryBuffer> O) {
  Current = prepare(O->getBufferIdentifier(), O->getBuffer());
  // Not NUL-terminated; the crate has the bytes for good.
  ObjectLinkingLayer::emit(std::move(R), MemoryBuffer::getMemBuffer(Current.Bytes, false));
  // No graph came of it.
  if (auto P = std::exchange(Current, Pending()); P.Object)
    slabjit_suite_callbacks()->end(P.Object);
}

std::unique_ptr<JITLinkMemoryManager> slabjit_suite::createMemoryManager(uint64_t Size, uint64_t Base, bool NoExec) {
  NothingRuns = NoExec;
  Displacement = slabjit_suite_start(Size, Base);
  return std::make_unique<Manager>();
}
