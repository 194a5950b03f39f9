// Graphs that are linked together, by JITLink alone: each as far as its addresses, then each to its end, then the memory of all.
#include "internal.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace llvm;
using namespace llvm::jitlink;

namespace {

/// What the graphs of one call know of each other.
struct Batch {
  /// Where what they refer to each other by is.
  StringMap<orc::ExecutorAddr> Exports;
  /// Those that have their addresses and want others'.
  struct Waiting {
    JITLinkContext::LookupMap Names;
    std::unique_ptr<JITLinkAsyncLookupContinuation> Continuation;
  };
  SmallVector<Waiting, 1> Waiting;
  std::vector<slabjit::Finished> Finished;
  /// One has failed: none of the others goes on.
  bool Failed = false;
};

class Context final : public JITLinkContext {
public:
  Context(std::unique_ptr<slabjit::Link> Link, Batch &Peers)
      : JITLinkContext(nullptr), Link(std::move(Link)), Manager(*this->Link, &Peers.Finished), Peers(Peers) {}

  JITLinkMemoryManager &getMemoryManager() override { return Manager; }

  // The caller has said what is alive (slabjit_graph_bind).
  LinkGraphPassFunction getMarkLivePass(const Triple &) const override {
    return [](LinkGraph &) { return Error::success(); };
  }

  Error modifyPassConfig(LinkGraph &, PassConfiguration &Config) override {
    slabjit::addPasses(*Link, Config);
    return Error::success();
  }

  Error notifyResolved(LinkGraph &) override {
    for (auto *S : Link->Exports)
      Peers.Exports[slabjit::symbolName(*S)] = S->getAddress();
    return Error::success();
  }

  void lookup(const LookupMap &Names, std::unique_ptr<JITLinkAsyncLookupContinuation> Continuation) override {
    Peers.Waiting.push_back({Names, std::move(Continuation)});
  }

  void notifyFinalized(JITLinkMemoryManager::FinalizedAlloc Alloc) override { Alloc.release(); }

  void notifyFailed(Error E) override {
    auto Text = toString(std::move(E));
    if (!Peers.Failed)
      Link->Callbacks->failed(Link->Object, Text.data(), Text.size());
    Peers.Failed = true;
  }

private:
  std::unique_ptr<slabjit::Link> Link;
  slabjit::MemoryManager Manager;
  Batch &Peers;
};

Error peerFailed() {
  return make_error<StringError>("another object that is linked with this one failed", inconvertibleErrorCode());
}

Expected<AsyncLookupResult> lookUp(const Batch &Peers, const JITLinkContext::LookupMap &Names) {
  if (Peers.Failed)
    return peerFailed();
  AsyncLookupResult Found;
  std::vector<StringRef> Missing;
  for (auto &[Name, Flags] : Names) {
    auto At = Peers.Exports.find(slabjit::textOf(Name));
    if (At != Peers.Exports.end())
      Found[Name] = slabjit::foundAt(At->second);
    else if (Flags == SymbolLookupFlags::RequiredSymbol)
      Missing.push_back(slabjit::textOf(Name));
  }
  if (Missing.empty())
    return Found;
  llvm::sort(Missing);
  return make_error<StringError>("Symbols not found: [ " + llvm::join(Missing, ", ") + " ]", inconvertibleErrorCode());
}

} // namespace

extern "C" int slabjit_link(slabjit_graph *const *Graphs, size_t N) noexcept {
  // Outlive what is looked up.
  SmallVector<slabjit::NamePool, 1> Pools;
  Batch Peers;
  for (size_t I = 0; I != N; ++I) {
    std::unique_ptr<slabjit_graph> Owned(Graphs[I]);
    Pools.push_back(slabjit::namePool(*Owned->Graph));
    if (!Peers.Failed)
      jitlink::link(std::move(Owned->Graph), std::make_unique<Context>(std::move(Owned->Link), Peers));
  }
  for (auto &[Names, Continuation] : Peers.Waiting)
    Continuation->run(lookUp(Peers, Names));
  // The caller says itself what it could not publish.
  bool Ends = Peers.Failed = Peers.Failed || !slabjit::publish(Peers.Finished);
  for (auto &Link : Peers.Finished)
    Ends ? Link.fail(peerFailed()) : Link.commit();
  return Peers.Failed;
}
