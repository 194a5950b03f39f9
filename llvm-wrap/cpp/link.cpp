// Graphs that are linked together, by JITLink alone: each as far as it comes without the others, then to its end; then the memory of all.
#include "internal.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace llvm;
using namespace llvm::jitlink;

/// What graphs that are linked together know of each other.
struct slabjit_batch {
  /// Hold the names of lookups, whose graphs may be gone before them.
  std::vector<slabjit::NamePool> Pools;
  /// Where what they refer to each other by is.
  StringMap<orc::ExecutorAddr> Exports;
  /// Those that have their addresses and want others'.
  struct Lookup {
    JITLinkContext::LookupMap Names;
    std::unique_ptr<JITLinkAsyncLookupContinuation> Continuation;
  };
  std::vector<Lookup> Waiting;
  /// Those whose content is final. Their graphs are gone.
  std::vector<slabjit::Finished> Finished;
  /// One has failed: none of the others goes on.
  bool Failed = false;

  /// The caller is told of the first.
  void fail(const slabjit_callbacks &Callbacks, void *Object, Error E) {
    auto Text = toString(std::move(E));
    if (!Failed)
      Callbacks.failed(Object, Text.data(), Text.size());
    Failed = true;
  }
};

namespace {

/// What is found of some names, and which are not there.
std::pair<AsyncLookupResult, std::vector<StringRef>> find(const slabjit_batch &Peers,
                                                          const JITLinkContext::LookupMap &Names) {
  std::pair<AsyncLookupResult, std::vector<StringRef>> Result;
  for (auto &[Name, Flags] : Names) {
    auto At = Peers.Exports.find(slabjit::textOf(Name));
    if (At != Peers.Exports.end())
      Result.first[Name] = slabjit::foundAt(At->second);
    else if (Flags == SymbolLookupFlags::RequiredSymbol)
      Result.second.push_back(slabjit::textOf(Name));
  }
  return Result;
}

Expected<AsyncLookupResult> lookUp(const slabjit_batch &Peers, const JITLinkContext::LookupMap &Names) {
  if (Peers.Failed)
    return make_error<StringError>("another object that is linked with this one failed", inconvertibleErrorCode());
  auto [Found, Missing] = find(Peers, Names);
  if (Missing.empty())
    return std::move(Found);
  llvm::sort(Missing);
  return make_error<StringError>("Symbols not found: [ " + llvm::join(Missing, ", ") + " ]", inconvertibleErrorCode());
}

class Context final : public JITLinkContext {
public:
  Context(std::unique_ptr<slabjit::Link> Link, slabjit_batch &Peers)
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
    bool Comes = llvm::any_of(Names, [&](auto &Name) { return !Peers.Exports.count(slabjit::textOf(Name.first)); });
    if (Comes)
      Peers.Waiting.push_back({Names, std::move(Continuation)});
    else
      Continuation->run(lookUp(Peers, Names));
  }

  void notifyFinalized(JITLinkMemoryManager::FinalizedAlloc Alloc) override { Alloc.release(); }

  void notifyFailed(Error E) override {
    Peers.fail(*Link->Callbacks, Link->Object, std::move(E));
  }

private:
  std::unique_ptr<slabjit::Link> Link;
  slabjit::MemoryManager Manager;
  slabjit_batch &Peers;
};

} // namespace

extern "C" slabjit_batch *slabjit_batch_begin() noexcept { return new slabjit_batch; }

extern "C" int slabjit_batch_link(slabjit_batch *Batch, slabjit_graph *Graph) noexcept {
  std::unique_ptr<slabjit_graph> Owned(Graph);
  if (!Batch->Failed) {
    Batch->Pools.push_back(slabjit::namePool(*Owned->Graph));
    jitlink::link(std::move(Owned->Graph), std::make_unique<Context>(std::move(Owned->Link), *Batch));
  }
  return Batch->Failed;
}

extern "C" int slabjit_batch_end(slabjit_batch *Batch, int GiveUp) noexcept {
  std::unique_ptr<slabjit_batch> Owned(Batch);
  Batch->Failed |= GiveUp != 0;
  for (auto &[Names, Continuation] : Batch->Waiting)
    Continuation->run(lookUp(*Batch, Names));
  // The caller says itself what it could not publish.
  Batch->Failed = Batch->Failed || !slabjit::publish(Batch->Finished);
  for (auto &Link : Batch->Finished)
    if (Batch->Failed)
      Link.abandon();
    else if (auto E = Link.commit())
      Batch->fail(*Link.Callbacks, Link.Memory.object, std::move(E));
  return Batch->Failed;
}
